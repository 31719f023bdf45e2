"""Fields for which llama-server has words of its own, on its routes and on OpenAI's."""

from __future__ import annotations

import contextlib
import json
import threading
from collections.abc import Iterator
from typing import Any

import pytest

from tests.server.conftest import HELLO, Live, Start, real_server
from tests.server.raw import Raw
from tests.server.stand_in import CONTEXT
from woolly.config.serving import SERVING
from woolly.errors import RequestError
from woolly.request import Request, Sampling
from woolly.server.dialects.llama_cpp.completion import COMPLETION
from woolly.server.dialects.openai.chat import CHAT
from woolly.server.dialects.openai.completions import COMPLETIONS
from woolly.server.routes import Job

BODIES: dict[str, dict[str, Any]] = {
    "/v1/chat/completions": {"messages": HELLO},
    "/v1/completions": {"prompt": "Hello"},
    "/completion": {"prompt": "Hello"},
}
ROUTES = {route.path: route for route in (CHAT, COMPLETIONS, COMPLETION)}
PATHS = list(ROUTES)
GRAMMAR = 'root ::= "yes" | "no"'
BEGUN = [*HELLO, {"role": "assistant", "content": "the sh"}]


def read(path: str, **fields: Any) -> Job:
    return ROUTES[path].read(BODIES[path] | fields, {}, SERVING)


def request(path: str, **fields: Any) -> Request:
    return read(path, **fields).requests[0]


def sampling(path: str, **fields: Any) -> Sampling:
    return request(path, **fields).sampling


def text_of(answer: Any) -> str:
    """What an answer of any of these routes says."""
    if "choices" not in answer:
        return str(answer["content"])
    (choice,) = answer["choices"]
    return str(choice["message"]["content"] if "message" in choice else choice["text"])


def rows(data: bytes) -> list[Any]:
    lines = (line[6:] for line in data.decode().splitlines() if line.startswith("data: "))
    return [json.loads(line) for line in lines if line != "[DONE]"]


@pytest.fixture(scope="module")
def real(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Live]:
    with real_server(tmp_path_factory, "small", context=256, limits={}) as live:
        yield live


@pytest.mark.parametrize("path", PATHS)
def test_fields_mean_the_same_on_the_routes_of_both(path: str) -> None:
    assert sampling(path, repeat_penalty=1.5).repetition_penalty == 1.5
    assert sampling(path, ignore_eos=True).ignore_eos
    assert request(path, grammar=GRAMMAR).format == request(path, grammar=GRAMMAR).format is not None
    schema = request(path, json_schema={"properties": {"a": {}}}).format
    assert schema is not None and json.loads(schema.value) == {"properties": {"a": {}}, "additionalProperties": False}
    assert (request(path, n_indent=4).indent, request(path).indent) == (4, 0)
    assert (read(path, t_max_predict_ms=1500).answer_s, read(path, t_max_predict_ms=-1).answer_s) == (1.5, None)
    assert (read(path, timings_per_token=True).timed, read(path).timed) == (True, False)
    assert len(read(path, n_cmpl=3).requests) == len(read(path, n=3).requests) == 3
    assert request(path, lora=[{"id": 0, "scale": 0.5}]).lora == {0: 0.5}
    assert request(path, n_probs=3).logprobs == 3


@pytest.mark.parametrize("path", PATHS)
def test_minus_one_is_no_number(path: str) -> None:
    for name in ("max_tokens", "n_predict"):
        parsed = request(path, **{name: -1})
        assert (parsed.max_tokens, parsed.shorten) == (2**31 - 1, True)
        assert request(path, **{name: 7}).max_tokens == 7
    parsed = request(path, seed=-1, top_k=-1)
    assert (parsed.sampling.seed, parsed.sampling.top_k) == (None, 0)
    with pytest.raises(RequestError, match="max_tokens is 0"):
        read(path, max_tokens=0)


@pytest.mark.parametrize("path", PATHS)
def test_stages_that_are_not_named_do_not_count(path: str) -> None:
    fields = {"top_k": 40, "top_p": 0.9, "min_p": 0.2, "temperature": 0.0, "repeat_penalty": 2.0}
    editors = sampling(path, samplers=["top_k", "top_p", "infill"], **fields)
    assert (editors.top_k, editors.top_p, editors.infill) == (40, 0.9, True)
    assert (editors.min_p, editors.temperature, editors.repetition_penalty) == (0.0, 1.0, 1.0)
    unset = sampling(path, samplers=["top_k"]).unset
    assert "top_k" in unset and not unset & {"min_p", "temperature"}, (
        "the model recommends no stage that does not count"
    )
    assert sampling(path, samplers="kpi", **fields) == editors
    assert sampling(path, samplers=["top-k", "nucleus", "infill"], **fields) == editors
    assert sampling(path, samplers=["min_p", "temp"], **fields).temperature == 0.0
    assert not sampling(path, samplers=[], **fields).infill


@pytest.mark.parametrize("path", PATHS)
def test_an_answer_has_one_form(path: str) -> None:
    with pytest.raises(RequestError, match="one form"):
        read(path, grammar=GRAMMAR, json_schema={})
    if path != "/completion":
        with pytest.raises(RequestError, match="one form"):
            read(path, grammar=GRAMMAR, response_format={"type": "json_object"})


def test_a_schema_needs_no_name_on_the_route_of_llama_server_and_one_on_that_of_openai(live: Live) -> None:
    body = {"messages": HELLO, "max_tokens": 1}
    body |= {"response_format": {"type": "json_schema", "json_schema": {"schema": {"const": 42}}}}
    assert live.ask("POST", "/chat/completions", body)[0] == 200
    assert live.ask("POST", "/v1/chat/completions", body)[2]["error"]["param"] == "response_format.json_schema"
    bare = {"type": "json_schema", "schema": {"const": 42}}
    assert live.ask("POST", "/v1/chat/completions", body | {"response_format": bare})[0] == 200


def test_a_last_message_of_the_model_is_gone_on_with_where_that_is_asked_for() -> None:
    def parsed(**fields: Any) -> Request:
        return request("/v1/chat/completions", **{"messages": BEGUN} | fields)

    assert (len(parsed().messages or ()), parsed().begun) == (2, "")
    for more in ({}, {"add_generation_prompt": False}):
        begun = parsed(continue_final_message=True, **more)
        assert (len(begun.messages or ()), begun.begun) == (1, "the sh")
    parts = [{"type": "text", "text": "the "}, {"type": "text", "text": "sh"}]
    messages = [*HELLO, {"role": "assistant", "content": parts}]
    assert parsed(continue_final_message=True, messages=messages).begun == "the sh"


@pytest.mark.parametrize(
    ("fields", "param"),
    [
        ({"messages": BEGUN, "continue_final_message": True, "add_generation_prompt": True}, "add_generation_prompt"),
        ({"messages": BEGUN, "add_generation_prompt": False}, "add_generation_prompt"),
        ({"continue_final_message": True}, "continue_final_message"),
        ({"messages": BEGUN[1:], "continue_final_message": True}, "messages"),
        ({"messages": [], "continue_final_message": True}, "continue_final_message"),
        (
            {"messages": [*HELLO, BEGUN[1] | {"reasoning_content": "x"}], "continue_final_message": True},
            "continue_final_message",
        ),
    ],
)
def test_what_cannot_be_gone_on_with_is_refused(live: Live, fields: dict[str, Any], param: str) -> None:
    status, _, answer = live.chat(**fields)
    assert (status, answer["error"]["param"]) == (400, param)


def test_a_continued_message_and_its_answer_are_the_whole_answer(real: Live) -> None:
    greedy = {"temperature": 0, "max_tokens": 12, "ignore_eos": True}
    full = text_of(real.chat(**greedy)[2])
    begun = [*HELLO, {"role": "assistant", "content": full[:4]}]
    rest = text_of(real.chat(**greedy, messages=begun, continue_final_message=True)[2])
    assert (full[:4] + rest).startswith(full)


@pytest.mark.parametrize("path", PATHS)
def test_an_answer_of_no_tokens_only_reads_its_prompt(real: Live, path: str) -> None:
    status, _, answer = real.ask("POST", path, BODIES[path] | {"n_predict": 0})
    assert (status, text_of(answer)) == (200, "")
    assert answer["timings"]["predicted_n"] == 0
    assert (answer.get("stop_type") or answer["choices"][0]["finish_reason"]) in ("limit", "length")
    streamed = rows(real.ask("POST", path, BODIES[path] | {"n_predict": 0, "stream": True})[2])
    assert all(not (row.get("content") or "") for row in streamed)
    again = real.ask("POST", path, BODIES[path] | {"n_predict": 1})[2]
    assert again["timings"]["prompt_n"] + again["timings"]["cache_n"] > 0


@pytest.mark.parametrize("path", PATHS)
def test_an_answer_whose_ends_are_ignored_goes_on_to_its_limit(real: Live, path: str) -> None:
    ends = {str(token): 100 for token in (270, 272)}
    fields = BODIES[path] | {"max_tokens": 5, "logit_bias": ends, "temperature": 0}
    assert real.ask("POST", path, fields)[2]["timings"]["predicted_n"] == 1
    assert real.ask("POST", path, fields | {"ignore_eos": True})[2]["timings"]["predicted_n"] == 5


@pytest.mark.parametrize("path", PATHS)
def test_a_grammar_is_kept_to(real: Live, path: str) -> None:
    assert text_of(real.ask("POST", path, BODIES[path] | {"grammar": GRAMMAR, "max_tokens": 9})[2]) in ("yes", "no")


@pytest.mark.parametrize("path", PATHS)
def test_timings_stand_in_every_answer_and_before_pieces_where_that_is_asked_for(real: Live, path: str) -> None:
    fields = BODIES[path] | {"max_tokens": 4, "ignore_eos": True, "temperature": 0}
    timings = real.ask("POST", path, fields)[2]["timings"]
    assert timings.keys() >= {"cache_n", "prompt_n", "prompt_ms", "predicted_n", "predicted_per_second"}
    assert timings["predicted_per_token_ms"] == pytest.approx(timings["predicted_ms"] / 3)
    assert timings["predicted_per_second"] == pytest.approx(3e3 / timings["predicted_ms"])

    def counts(**asked: Any) -> list[int]:
        events = rows(real.ask("POST", path, fields | asked | {"stream": True})[2])
        return [row["timings"]["predicted_n"] for row in events if "timings" in row]

    assert counts() == [4]
    *before, last = counts(timings_per_token=True)
    assert before and [*before, last] == sorted([*before, last]) and last == 4
    counted = fields | {"stream": True, "stream_options": {"include_usage": True}}
    if path != "/completion":
        assert "timings" in rows(real.ask("POST", path, counted)[2])[-1]


def test_timings_stand_in_a_response_too(real: Live) -> None:
    answer = real.ask("POST", "/v1/responses", {"input": "Hello", "max_output_tokens": 3})[2]
    assert answer["timings"]["predicted_n"] == answer["usage"]["output_tokens"]
    data = real.ask("POST", "/v1/responses", {"input": "Hello", "max_output_tokens": 3, "stream": True})[2]
    assert rows(data)[-1]["response"]["timings"]["predicted_n"] == answer["usage"]["output_tokens"]


def test_an_answer_tells_what_made_it(live: Live) -> None:
    fingerprint = live.chat()[2]["system_fingerprint"]
    assert fingerprint == live.ask("GET", "/props")[2]["build_info"]
    assert {row["system_fingerprint"] for row in rows(live.chat(stream=True)[2])} == {fingerprint}
    assert live.ask("POST", "/v1/completions", {"prompt": "x"})[2]["system_fingerprint"] == fingerprint


class ByHand(threading.Event):
    """What a runner waits for before each step: the test allows them."""

    def __init__(self) -> None:
        super().__init__()
        self._left = threading.Semaphore(0)

    def allow(self, steps: int) -> None:
        self._left.release(steps)

    def wait(self, timeout: float | None = None) -> bool:
        return self._left.acquire(timeout=timeout)

    def set(self) -> None:
        self.allow(1000)


@pytest.mark.parametrize(("script", "reason"), [("a line\n" + "x" * 400, "length"), ("no line" + "x" * 400, "stop")])
def test_an_answer_ends_when_its_time_is_over_and_it_has_a_whole_line(start: Start, script: str, reason: str) -> None:
    live = start(script=script)
    assert live.chat()[0] == 200
    runner = live.loader.talkers[0].runner
    runner.go = steps = ByHand()
    body = {"messages": HELLO, "stream": True, "model": "beta", "t_max_predict_ms": 5000}
    raw = Raw(live.port, timeout=0.05).post("/v1/chat/completions", body)
    data = b""
    while b"line" not in data:
        steps.allow(1)
        with contextlib.suppress(TimeoutError):
            data += raw.read()
    live.forward(10.0)
    while b"[DONE]" not in data:
        steps.allow(1)
        with contextlib.suppress(TimeoutError):
            data += raw.read()
    steps.set()
    text = "".join(row["choices"][0]["delta"].get("content", "") for row in rows(data))
    assert f'"finish_reason":"{reason}"'.encode() in data
    assert script.startswith(text) and (text == script) == (reason == "stop")


def test_a_prompt_may_be_several_each_of_texts_and_ids(real: Live) -> None:
    def answer(prompt: Any, **more: Any) -> Any:
        status, _, answered = real.ask(
            "POST", "/completion", {"prompt": prompt, "n_predict": 4, "temperature": 0} | more
        )
        assert status == 200, answered
        return answered

    ids = real.ask("POST", "/tokenize", {"content": "the sheep"})[2]["tokens"]
    alone = answer("the sheep")["content"]
    assert answer(ids)["content"] == answer({"prompt_string": "the sheep"})["content"] == alone
    assert answer([*ids[:3], "".join(map(chr, ids[3:]))])["tokens_evaluated"] >= len(ids)
    several = answer(["the sheep", "a", ids, [ids[0], "x"], {"prompt_string": "a"}])
    assert [one["index"] for one in several] == [0, 1, 2, 3, 4]
    assert [several[index]["content"] for index in (0, 2)] == [alone, alone]
    assert several[1]["content"] == several[4]["content"]
    events = rows(real.ask("POST", "/completion", {"prompt": ["the sheep", "a"], "n_predict": 4, "stream": True})[2])
    assert {row["index"] for row in events} == {0, 1}
    assert len(answer("the sheep", n_cmpl=3)) == 3
    assert real.ask("POST", "/completion", {"prompt": ["x"] * (SERVING.prompts + 1)})[0] == 400


def test_parts_of_an_answer_are_told_by_their_paths(real: Live) -> None:
    asked = {"prompt": "the sheep", "n_predict": 2, "response_fields": ["content", "timings/prompt_n", "nothing/there"]}
    answer = real.ask("POST", "/completion", asked)[2]
    assert answer.keys() == {"content", "timings/prompt_n"}
    assert real.ask("POST", "/completion", asked | {"response_fields": [""]})[2] == {}
    *pieces, last = rows(real.ask("POST", "/completion", asked | {"stream": True})[2])
    assert (last.keys(), "index" in pieces[0]) == ({"content", "timings/prompt_n"}, True)
    assert len(real.ask("POST", "/completion", asked | {"response_fields": []})[2]) > 10


def test_likelihoods_have_ids_and_may_be_those_after_the_sampling(real: Live) -> None:
    asked = {"prompt": "the sheep", "n_predict": 2, "n_probs": 3, "top_k": 2, "temperature": 1.0, "seed": 1}
    asked |= {"top_p": 1.0, "ignore_eos": True}
    row, _ = real.ask("POST", "/completion", asked)[2]["completion_probabilities"]
    assert row.keys() == {"id", "token", "bytes", "logprob", "top_logprobs"}
    assert [top.keys() for top in row["top_logprobs"]] == [{"id", "token", "bytes", "logprob"}] * 3
    row, _ = real.ask("POST", "/completion", asked | {"post_sampling_probs": True})[2]["completion_probabilities"]
    assert row.keys() == {"id", "token", "bytes", "prob", "top_probs"}
    assert sum(top["prob"] for top in row["top_probs"]) == pytest.approx(1.0)
    assert len(row["top_probs"]) == 2
    content = real.chat(n_probs=2, max_tokens=2, ignore_eos=True)[2]["choices"][0]["logprobs"]["content"]
    assert [len(one["top_logprobs"]) for one in content] == [2, 2]


def test_the_end_of_the_context_is_told(real: Live) -> None:
    fields = {"prompt": "x" * 200, "ignore_eos": True, "temperature": 0}
    answer = real.ask("POST", "/completion", fields | {"n_predict": -1})[2]
    assert (answer["truncated"], answer["stop_type"]) == (True, "limit")
    answer = real.ask("POST", "/completion", fields | {"n_predict": 3})[2]
    assert (answer["truncated"], answer["stop_type"]) == (False, "limit")


def test_an_answer_tells_all_that_it_was_made_by(real: Live) -> None:
    asked = {"prompt": "x", "n_predict": 2, "min_p": 0.25, "seed": 5, "stop": ["q"], "logit_bias": {"3": -5}}
    settings = real.ask("POST", "/completion", asked | {"n_probs": 1})[2]["generation_settings"]
    shown = {name: settings[name] for name in ("min_p", "seed", "stop", "n_predict", "max_tokens", "n_probs", "stream")}
    assert shown == {
        "min_p": 0.25,
        "seed": 5,
        "stop": ["q"],
        "n_predict": 2,
        "max_tokens": 2,
        "n_probs": 1,
        "stream": False,
    }
    assert settings["logit_bias"] == [{"token": 3, "bias": -5.0}]
    assert settings["samplers"][-1] == "temperature" and settings["repeat_penalty"] == 1.0
    assert real.ask("POST", "/completion", {"prompt": "x", "n_predict": 0})[2]["generation_settings"]["n_predict"] == 0


def test_a_length_of_minus_one_is_that_of_the_operator_where_there_is_one(start: Start) -> None:
    live = start(limits={"answer_tokens": 3})
    for path in PATHS:
        for name in ("max_tokens", "n_predict"):
            status, _, answer = live.ask("POST", path, BODIES[path] | {name: -1})
            assert (status, answer["timings"]["predicted_n"]) == (200, 3), (path, name)


def test_a_length_of_minus_one_is_the_room_that_the_context_has(live: Live) -> None:
    answer = live.ask("POST", "/v1/completions", {"prompt": "Hello", "max_tokens": -1}, {"X-Woolly-Strict": "1"})
    assert (answer[0], answer[2]["usage"]["total_tokens"]) == (200, CONTEXT)
    assert "max_tokens" not in answer[1].get("x-woolly-notes", "")
