"""The wire between gateways and replicas: messages are read as they were written, and nothing else is accepted."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import msgspec
import pytest

from tests.tiny import tiny
from woolly import LLM
from woolly.errors import BusyError, ContextError, RequestError, WoollyError
from woolly.fleet.wire import RemoteRequest, event_of, line_of, pack_ids, prepared_of, remote_request_of, unpack_ids
from woolly.request import (
    End,
    Event,
    Failed,
    Logprob,
    Prompt,
    Request,
    Sampling,
    Start,
    Text,
    Timings,
    Usage,
    complete,
    request_of,
)
from woolly.request.format import Format

LIKELY = Logprob(7, b"\xff\x00", -0.1234567890123456, ((7, b"\xff\x00", -0.1), (8, b"a", -1e-300)))
EVENTS: list[Event] = [
    Start(10, 3, 1),
    Prompt((1, b"\xc3"), (LIKELY, LIKELY)),
    Text("ä\u2028\n", (1, 2), (LIKELY,)),
    Text("", ()),
    End("stop", Usage(1, 2, 3, 4), Timings(0.1, 0.2, 1 / 3, 4.0, 5.0, 6, 7), 2**53 - 1, "x", LIKELY),
    End("length", Usage(1, 2, 3), Timings(0.1, 0.2, 0.3, 4.0, 5.0), 0),
]


@pytest.mark.parametrize("event", EVENTS, ids=lambda event: type(event).__name__)
def test_an_event_is_read_as_it_was_written_to_the_last_bit(event: Event) -> None:
    line = msgspec.json.encode(line_of(event))
    assert b"\n" not in line
    assert event_of(line) == event


def test_an_error_keeps_its_kind_its_code_and_its_words() -> None:
    event = event_of(msgspec.json.encode(line_of(Failed(BusyError("no room", suggestion="wait", code="overloaded")))))
    assert isinstance(event, Failed) and isinstance(event.error, BusyError)
    assert (event.error.code, str(event.error)) == ("overloaded", "no room; wait")


@pytest.mark.parametrize(
    "line", [b"", b"{}", b'["text"]', b'["text",1,[]]', b'["end"]', b'["?"]', b"[" * 9000, b"\xff"]
)
def test_what_is_no_event_is_refused(line: bytes) -> None:
    with pytest.raises(RequestError, match="no event"):
        event_of(line)


@pytest.fixture(scope="module")
def llm(tmp_path_factory: pytest.TempPathFactory) -> Iterator[LLM]:
    with LLM(tiny(tmp_path_factory.mktemp("m") / "m.gguf", vocab=512, seed=3), threads=1) as model:
        yield model


def remote_request(llm: LLM, request: Request, seed: int = 11) -> RemoteRequest:
    prepared = llm.prepare(request)
    version = {"model": "m", "digest": f"sha256:{0:064}", "numerics_id": llm.numerics_id}
    remote = remote_request_of(prepared, seed, prompter=llm.prompter, lora=(), **version)  # type: ignore[arg-type]
    return msgspec.json.decode(msgspec.json.encode(remote), type=RemoteRequest)


OPTIONS: dict[str, dict[str, Any]] = {
    "plain": {"temperature": 1.0},
    "biases": {"logit_bias": {"the": 3.0, 17: -2.0}, "repetition_penalty": 1.2},
    "stops": {"stop": ["w3"], "dry_multiplier": 1.0, "dry_sequence_breakers": ["w"]},
    "indent": {"indent": 2, "format": Format("gbnf", 'root ::= "  a\\n  b\\nc"')},
    "choice": {"format": Format("choice", ("yes", "no"))},
    "schema": {"format": {"type": "object", "properties": {"a": {"type": "boolean"}}, "required": ["a"]}},
}


@pytest.mark.parametrize("options", OPTIONS.values(), ids=OPTIONS)
def test_a_remote_request_has_the_answer_of_its_request(llm: LLM, options: dict[str, Any]) -> None:
    request = request_of({"max_tokens": 12, "seed": 11, **options}, prompt="the an and")
    there = complete(llm.submit(prepared_of(remote_request(llm, request), llm.prompter)))
    here = complete(llm.submit(request))
    assert (there.tokens, there.text, there.finish_reason) == (here.tokens, here.text, here.finish_reason)


def changed(llm: LLM, **fields: Any) -> RemoteRequest:
    return msgspec.structs.replace(remote_request(llm, Request(prompt="the an", max_tokens=4)), **fields)


@pytest.mark.parametrize(
    ("fields", "why"),
    [
        ({"ids": b"123"}, "no whole number of ids"),
        ({"ids": pack_ids([5000])}, "token 0 is 5000"),
        ({"ids": pack_ids([-1])}, r"tokens\[0\] is -1"),
        ({"resumed": pack_ids([1, 2, 3, 4, 5])}, "given has 5 tokens"),
        ({"resumed": pack_ids([5000])}, "token"),
        ({"sampling": {"seed": 1, "unheard": 2}}, "does not know"),
        ({"sampling": {}}, "needs a seed"),
        ({"sampling": {"seed": 1, "top_p": 7}}, "top_p"),
        ({"logprobs": 99}, "logprobs"),
        ({"stop": [""]}, "stop"),
        ({"lora": [1.0]}, "no adapter"),
    ],
)
def test_a_remote_request_that_cannot_be_met_is_refused(llm: LLM, fields: dict[str, Any], why: str) -> None:
    with pytest.raises(WoollyError, match=why):
        llm.submit(prepared_of(changed(llm, **fields), llm.prompter))


def test_a_remote_request_beyond_the_context_is_refused(llm: LLM) -> None:
    for fields in ({"max_tokens": 5000}, {"ids": b""}):
        with pytest.raises(ContextError):
            prepared_of(changed(llm, **fields), llm.prompter)


def test_ids_are_read_as_they_were_packed() -> None:
    assert unpack_ids(pack_ids([0, 1, 2**31 - 1]), "ids") == (0, 1, 2**31 - 1)


def test_a_seed_of_the_gateway_is_that_of_the_answer(llm: LLM) -> None:
    remote = remote_request(llm, Request(prompt="the an", max_tokens=2, sampling=Sampling(temperature=1.0)), seed=99)
    assert complete(llm.submit(prepared_of(remote, llm.prompter))).seed == 99
