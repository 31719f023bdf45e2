"""Fields of a request that are wrong, missing or not for clients to set: refused by name, on every route."""

from __future__ import annotations

import json
import subprocess
import sys
import threading
from collections.abc import Iterator
from typing import Any

import msgspec
import pytest

from tests.server.conftest import HELLO, Live, real_server
from woolly.config.serving import SERVING
from woolly.errors import RequestError
from woolly.request import TEMPLATE_NAMES, Request
from woolly.server.dialect_table import DIALECTS
from woolly.server.dialects.base import fields
from woolly.server.dialects.base.fields import one_system
from woolly.server.routes import Generation

VOCAB = 288  # tokens of the model that `tests.tiny` makes
CHATS = ("/v1/chat/completions", "/api/v1/inference/chat", "/api/v1/optimized/chat/completions", "/api/chat")
PROMPTS = ("/v1/completions", "/api/v1/inference/complete", "/api/v1/inference/stream", "/api/generate")
NEVER_ENDS = {str(token): -100 for token in (270, 271, 272)}  # the control tokens of that model
UNSTREAMED = (*CHATS[:2], *PROMPTS[:2])  # answered at once, with choices
STATS = "/api/v1/performance/stats"
TEMPLATE = (
    "{% if messages[0]['role'] == 'assistant' %}{{ raise_exception('a chat begins with a question') }}{% endif %}"
    "{{ messages[0]['content'] }}{{ tone }}{{ loud }}{{ number }}"
)


@pytest.fixture(scope="module")
def real(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Live]:
    """A server with a real model, which knows its vocabulary."""
    with real_server(tmp_path_factory, "small", context=256, limits={}) as live:
        yield live


@pytest.fixture(scope="module")
def templated(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Live]:
    """A server with a real model whose chat template has variables, and refuses some chats."""
    meta = {"tokenizer.chat_template": TEMPLATE}
    with real_server(tmp_path_factory, "small", context=256, limits={}, meta=meta) as live:
        yield live


def body(path: str, **fields: Any) -> dict[str, Any]:
    """A right body for a route, with other fields over it."""
    what: dict[str, Any] = {"messages": HELLO} if path in CHATS else {"prompt": "Hello"}
    return what | {"max_tokens": 2, "temperature": 0} | fields


def refused(live: Live, path: str, asked: dict[str, Any], param: str) -> str:
    """The message about a refused field; afterwards a correct request is answered."""
    status, _, answer = live.ask("POST", path, asked)
    error = answer["error"]
    assert status == 400, answer
    details = error.get("details", {})
    named = error.get("param") or details.get("param") or error["message"]  # the shortest dialect has words alone
    assert param in named, answer
    assert live.ask("POST", path, body(path))[0] == 200
    return str(error["message"])


@pytest.mark.parametrize("path", [*CHATS, *PROMPTS])
@pytest.mark.parametrize(
    ("name", "value"),
    [
        ("messages", "Hello"),
        ("prompt", {"text": "Hello"}),
        ("temperature", "hot"),
        ("temperature", True),
        ("stream", "yes"),
        ("stream", 1),
        ("stop", 5),
        ("stop", [5]),
        ("seed", 1.5),
        ("seed", True),
        ("max_tokens", True),
        ("max_tokens", "5"),
        ("max_tokens", 1.5),
    ],
)
def test_h02_a_value_of_another_type_is_refused_by_its_name(real: Live, path: str, name: str, value: Any) -> None:
    if name not in ("messages", "prompt") or name in body(path):
        refused(real, path, body(path, **{name: value}), name)


@pytest.mark.parametrize("path", [*CHATS, *PROMPTS])
def test_h08_what_must_be_there_is_named_when_it_is_not(real: Live, path: str) -> None:
    wanted = "messages" if path in CHATS else "prompt"
    assert wanted in refused(real, path, {"max_tokens": 2}, wanted)
    assert wanted in refused(real, path, {"max_tokens": 2, wanted: None}, wanted)


def test_h08_a_request_that_names_no_model_is_answered_by_the_default_one(live: Live) -> None:
    assert live.chat(model="Alpha.Q4")[0] == 200
    assert live.ask("POST", "/api/v1/models/Alpha.Q4/load", {})[0] == 200
    for model in ({}, {"model": None}, {"model": ""}, {"model": "default"}):
        assert live.chat(**model)[2]["model"] == "beta"
    assert len(live.loader.talkers) == 2


@pytest.mark.parametrize("count", [17, 10**9, 0, -1])
def test_h10_more_answers_than_allowed_are_refused_before_any_is_made(live: Live, count: int) -> None:
    for path in (*CHATS, *PROMPTS):
        status, _, answer = live.ask("POST", path, body(path, n=count))
        assert (status, answer["error"]["message"][:2] in ("n:", "'n")) == (400, True), answer
    assert live.loader.talkers == []  # the model was not even loaded
    assert live.chat(n=1)[0] == 200


def test_h10_as_many_answers_as_allowed_are_given(live: Live) -> None:
    assert len(live.chat(n=16)[2]["choices"]) == 16
    refused(live, "/v1/completions", body("/v1/completions", best_of=17), "best_of")


@pytest.mark.parametrize("path", [*CHATS, *PROMPTS])
@pytest.mark.parametrize(
    "biases",
    [{"-1": 1}, {str(VOCAB): 1}, {"": 1}, {"1.5": 1}, {str(2**31): 1}, {"1": 101}, {"1": "x"},
     {str(token): 1 for token in range(1025)}],
    ids=lambda biases: f"{len(biases)}-{next(iter(biases))}",
)  # fmt: skip
def test_h11_a_bias_of_what_is_no_token_is_refused(real: Live, path: str, biases: dict[str, Any]) -> None:
    refused(real, path, body(path, logit_bias=biases), "logit_bias")


def test_h11_a_hundred_thousand_biases_are_too_many(real: Live) -> None:
    asked = body("/v1/completions", logit_bias={str(token): 1 for token in range(10**5)})
    refused(real, "/v1/completions", asked, "logit_bias")


@pytest.mark.parametrize("path", UNSTREAMED)
def test_biases_may_be_of_texts_and_pairs_of_a_text_or_a_token(real: Live, path: str) -> None:
    def answer(biases: Any) -> Any:
        status, _, answer = real.ask("POST", path, body(path, logit_bias=biases, temperature=0, max_tokens=4))
        assert status == 200, answer
        choice = answer["choices"][0]
        return choice.get("text") or choice["message"]["content"]

    assert answer([[65, 100]]) == answer({"65": 100}) == answer([["a", 50], ["b", False], [65, 100.0]])
    assert answer({"a": 50, "b": False, "65": 100}) == answer([[65, 100]])
    assert answer([["q", 100]]) == answer({"q": 100}) == "qqqq"
    for wrong in ([["a"]], [[1, 101]], [[1, True]], [["", 1]], [[-1, 1]], [[1.5, 1]], [[VOCAB, 1]]):
        refused(real, path, body(path, logit_bias=wrong), "logit_bias")


@pytest.mark.parametrize("path", UNSTREAMED)
def test_every_sampler_is_asked_for_by_its_field(real: Live, path: str) -> None:
    fields = {
        "typical_p": 0.5, "top_n_sigma": 1.0, "xtc_probability": 0.5, "min_keep": 2, "dynatemp_range": 0.5,
        "mirostat": 2, "repetition_penalty": 1.5, "repeat_last_n": -1, "dry_multiplier": 0.8,
        "dry_sequence_breakers": ["\n", "<end>"],
    }  # fmt: skip
    asked = body(path, seed=5, max_tokens=20)
    plain = real.ask("POST", path, asked)[2]["choices"]
    first, second = (real.ask("POST", path, asked | fields) for _ in range(2))
    assert first[0] == second[0] == 200 and not first[1].get("x-woolly-notes")
    assert first[2]["choices"] == second[2]["choices"] != plain
    for name, wrong in (
        ("mirostat", 1),
        ("dry_sequence_breakers", [""]),
        ("xtc_threshold", 1.1),
        ("repeat_last_n", -2),
    ):
        refused(real, path, body(path, **{name: wrong}), name)


def test_h11_no_bias_touches_the_logits_of_a_neighbour(real: Live) -> None:
    path = "/v1/completions"
    asked = body(path, max_tokens=150, logprobs=20)
    alone = real.ask("POST", path, asked)[2]["choices"][0]
    answers: list[Any] = []
    neighbour = threading.Thread(target=lambda: answers.append(real.ask("POST", path, asked)[2]["choices"][0]))
    neighbour.start()
    biased = 0
    while neighbour.is_alive():
        for bad in ("-1", str(VOCAB), "1.5"):
            assert real.ask("POST", path, body(path, logit_bias={bad: 100}))[0] == 400
        edges = {"0": -100, str(VOCAB - 1): 100}  # one further would be the bias of another row
        answer = real.ask("POST", path, body(path, logit_bias=edges, logprobs=0))
        biased += answer[0] == 200
    assert answers == [alone]
    assert biased > 0


@pytest.mark.parametrize(
    ("path", "fields", "param"),
    [
        ("/v1/chat/completions", {"logprobs": True, "top_logprobs": 21}, "top_logprobs"),
        ("/v1/chat/completions", {"logprobs": True, "top_logprobs": -1}, "top_logprobs"),
        ("/v1/chat/completions", {"top_logprobs": 5}, "top_logprobs"),
        ("/v1/chat/completions", {"logprobs": True, "max_tokens": 0}, "max_tokens"),
        ("/v1/completions", {"logprobs": 21}, "logprobs"),
        ("/v1/completions", {"logprobs": -1}, "logprobs"),
        ("/v1/completions", {"logprobs": 1, "max_tokens": 0}, "max_tokens"),
        ("/v1/completions", {"logprobs": 1, "max_tokens": 0, "echo": True}, "max_tokens"),
        ("/v1/completions", {"echo": "yes"}, "echo"),
        ("/api/v1/inference/complete", {"logprobs": 1}, "logprobs"),
        ("/api/v1/inference/chat", {"logprobs": True, "top_logprobs": 21}, "logprobs"),
    ],
)
def test_h12_likelihoods_that_cannot_be_told_are_refused(
    real: Live, path: str, fields: dict[str, Any], param: str
) -> None:
    refused(real, path, body(path, **fields), param)


@pytest.mark.parametrize("top", [0, 1, 20])
def test_h12_likelihoods_within_the_limit_are_told_with_and_without_the_prompt(real: Live, top: int) -> None:
    (choice,) = real.ask("POST", CHATS[0], body(CHATS[0], logprobs=True, top_logprobs=top))[2]["choices"]
    assert [len(row["top_logprobs"]) for row in choice["logprobs"]["content"]] == [top, top]
    for echo in (False, True):
        (choice,) = real.ask("POST", PROMPTS[0], body(PROMPTS[0], logprobs=top, echo=echo))[2]["choices"]
        logprobs = choice["logprobs"]
        assert "".join(logprobs["tokens"]) == choice["text"]
        assert all(bool(top) <= len(row) <= top for row in logprobs["top_logprobs"][-2:])  # tokens may have equal texts
        assert choice["text"].startswith("Hello") == echo


@pytest.mark.parametrize("wrong", [-1, VOCAB, 2**31 - 1, 2**31, 2**63, 1.5, 1.0, True, None, "1"])
@pytest.mark.parametrize("at", [0, 2])
def test_t19_a_token_that_is_none_is_refused_with_its_place(real: Live, wrong: Any, at: int) -> None:
    ids = [5, 6, 7]
    ids[at] = wrong
    path = "/v1/completions"
    for prompt, places in ((ids, (f"[{at}]",)), ([[5], ids], (f"[{at}]", f"[1][{at}]"))):
        status, _, answer = real.ask("POST", path, body(path, prompt=prompt))
        assert status == 400, answer
        mixed = isinstance(wrong, str) and prompt is ids  # a list of several kinds is refused as a whole
        assert mixed or answer["error"]["param"].removeprefix("tokens").removeprefix("prompt") in places, answer
    answer = real.ask("POST", "/api/detokenize", {"tokens": ids})
    assert (answer[0], f"[{at}]" in str(answer[2]) or f"token {at}" in str(answer[2])) == (400, True)
    assert real.ask("POST", path, body(path, prompt=[0, 6, VOCAB - 1]))[0] == 200


def test_t11_no_route_takes_a_template(live: Live) -> None:
    tried = 0
    for dialect in DIALECTS:
        for route in dialect.routes:
            if route.method != "POST" or route.path == "/v1/files":  # it takes a form with its own fields only
                continue
            path = route.path.replace("{name:path}", "beta")
            for template in ("{{ 1 }}", "", {"a": 1}, 5):
                status, _, answer = live.ask("POST", path, {"chat_template": template})
                assert (status, "'chat_template'" in str(answer)) == (400, True), path
            tried += 1
    assert tried > 15
    assert live.loader.talkers == []
    assert live.chat(chat_template=None)[0] == 200


@pytest.mark.parametrize("path", CHATS)
@pytest.mark.parametrize(
    ("variables", "param"),
    [
        ("x", ""),
        ([1], ""),
        ({"a": []}, ""),
        ({"a": {"b": 1}}, ""),
        ({f"a{number}": 1 for number in range(33)}, ""),
        ({"messages": "x"}, ".messages"),
        ({"tokenize": True}, ".tokenize"),
        ({"chat_template": "x"}, ".chat_template"),
        ({"self": 1}, ".self"),
        ({"now": 1}, ".now"),
        ({"": 1}, ""),
        ({"a b": 1}, ""),
        ({"a" * 65: 1}, ""),
        ({"é": 1}, ""),
    ],
)
def test_t11_variables_of_a_template_are_few_and_plain_and_never_ours(
    real: Live, path: str, variables: Any, param: str
) -> None:
    refused(real, path, body(path, chat_template_kwargs=variables), "chat_template_kwargs" + param)


@pytest.mark.parametrize("name", sorted(TEMPLATE_NAMES))
def test_t11_no_name_of_ours_can_be_set(name: str) -> None:
    with pytest.raises(RequestError, match="not for a request to set"):
        Request(messages=tuple(HELLO), chat_template_kwargs={name: 1})


@pytest.mark.parametrize("path", PROMPTS)
def test_t11_a_prompt_has_no_template_and_takes_no_variables(real: Live, path: str) -> None:
    refused(real, path, body(path, chat_template_kwargs={"tone": "x"}), "chat_template_kwargs")


def test_t11_a_template_is_told_the_variables_of_its_request_and_of_no_other(templated: Live) -> None:
    def read(path: str, **variables: Any) -> int:
        """How many tokens the prompt has."""
        before = templated.ask("GET", STATS)[2]["prefix_cache"]["prompt_tokens"]
        assert templated.ask("POST", path, body(path, chat_template_kwargs=variables))[0] == 200
        return int(templated.ask("GET", STATS)[2]["prefix_cache"]["prompt_tokens"] - before)

    plain = read(CHATS[0])
    for path in CHATS:
        assert read(path, tone="xyz", loud=True, number=1.5) > plain + 3
        assert read(path, **{f"a{number}": None for number in range(32)}) == plain


@pytest.mark.parametrize("path", CHATS)
@pytest.mark.parametrize(
    ("messages", "param"),
    [
        ([{"role": "bot", "content": "x"}], "messages[0].role"),
        ([{"role": "", "content": "x"}], "messages[0].role"),
        ([{"content": "x"}], "messages[0].role"),
        ([*HELLO, {"role": ["user"], "content": "x"}], "messages[1].role"),
        ([{"role": "user", "content": None}], "messages[0].content"),
        ([{"role": "user", "content": []}], "messages[0].content"),
        ([{"role": "user", "content": [{"type": "text", "text": "x"}] * 65}], "messages[0].content"),
        ([{"role": "user", "content": [{"type": "image_url", "image_url": {"url": "x"}}]}], "messages[0].content[0]"),
        (["x"], "messages[0]"),
        ([], "messages"),
        (HELLO * 2049, "messages"),
    ],
)  # fmt: skip
def test_h09_a_message_that_is_none_is_refused_by_its_place(
    real: Live, path: str, messages: list[Any], param: str
) -> None:
    answer = refused(real, path, body(path, messages=messages), param)
    assert "image_url" not in str(messages) or "this model takes text" in answer


def test_h09_an_order_that_the_template_forbids_is_refused_in_its_own_words(templated: Live) -> None:
    wrong = [{"role": "assistant", "content": "x"}, *HELLO]
    for path in CHATS:
        assert "a chat begins with a question" in refused(templated, path, body(path, messages=wrong), "")


@pytest.mark.parametrize("path", [*CHATS, *PROMPTS])
@pytest.mark.parametrize("value", ["NaN", "Infinity", "-Infinity", "1e999"])
def test_h03_a_number_that_is_none_is_refused_as_a_number_and_as_a_text(real: Live, path: str, value: str) -> None:
    for name in ("temperature", "top_p", "max_tokens", "seed"):
        refused(real, path, body(path, **{name: value}), name)
        data = json.dumps(body(path, **{name: 0})).replace(f'"{name}": 0', f'"{name}": {value}').encode()
        status, _, answer = real.ask("POST", path, data)
        assert (status, value in data.decode()) == (400, True), answer


@pytest.mark.parametrize("path", [*CHATS, *PROMPTS])
def test_h04_no_integer_is_out_of_its_range(real: Live, path: str) -> None:
    fine: dict[str, set[int]] = {"max_tokens": {-1}, "top_k": {-1, 0}, "seed": {-1, 0, 2**31, 2**63}, "n": set()}
    if path in ("/v1/chat/completions", "/v1/completions"):
        fine["top_logprobs" if path in CHATS else "logprobs"] = {0}
    for name, right in fine.items():
        for value in (-1, 0, 2**31, 2**63, 2**64, 10**100):
            status, _, answer = real.ask("POST", path, body(path, **{name: value}))
            assert status == (200 if value in right else 400), (name, value, answer)
    assert real.ask("POST", path, body(path))[0] == 200


@pytest.mark.parametrize("name", ["model", "max_tokens", "messages"])
def test_h06_a_field_that_stands_twice_is_refused_even_with_the_same_value(real: Live, name: str) -> None:
    path = CHATS[0]
    text = json.dumps(body(path, model="small"))
    twice = text[:-1] + f', "{name}": {json.dumps(json.loads(text)[name])}}}'
    status, _, answer = real.ask("POST", path, twice.encode())
    assert (status, answer["error"]["code"], name in answer["error"]["message"]) == (400, "json_parse_error", True)
    assert real.ask("POST", path, text.encode())[0] == 200


@pytest.mark.parametrize("count", [1, 10_000])
def test_h07_unknown_fields_are_ignored_and_some_are_named(real: Live, count: int) -> None:
    for path in (*CHATS, *PROMPTS):
        plain = real.ask("POST", path, body(path, seed=1))
        status, headers, answer = real.ask("POST", path, body(path, seed=1) | {f"odd{i}": i for i in range(count)})
        assert status == 200
        assert headers["x-woolly-notes"].startswith("odd0")
        assert len(headers["x-woolly-notes"]) <= 1024
        if path == "/v1/completions":
            assert answer["choices"] == plain[2]["choices"]


def test_h13_a_prompt_that_fills_the_context_is_answered_and_one_token_more_is_not(real: Live) -> None:
    for path in ("/api/v1/inference/complete", "/v1/completions"):
        full = real.ask("POST", path, body(path, prompt="1" * 255, max_tokens=1))[2]
        assert (full["usage"]["prompt_tokens"], full["usage"]["completion_tokens"]) == (255, 1)
        for prompt in ("1" * 256, "1" * 100_000):
            context_refused(real, path, body(path, prompt=prompt, max_tokens=1))
        refused(real, path, body(path, max_tokens=0), "max_tokens")


def context_refused(live: Live, path: str, asked: dict[str, Any], **headers: str) -> None:
    status, _, answer = live.ask("POST", path, asked, headers)
    assert (status, "exceeds the available context size of 256" in answer["error"]["message"]) == (400, True)
    if path.startswith("/v1"):
        assert answer["error"]["code"] == "context_length_exceeded"
    else:
        details = answer["error"]["details"]
        assert (answer["error"]["type"], details["max_length"]) == ("context_error", 256)
        assert details["current_length"] <= len(asked["prompt"])


@pytest.mark.parametrize("stream", [False, True])
@pytest.mark.parametrize("path", ["/api/v1/inference/complete", "/v1/completions"])
def test_h13_max_tokens_is_an_upper_bound_unless_the_caller_is_strict(real: Live, path: str, stream: bool) -> None:
    for prompt, most in (("1" * 255, 2), ("1" * 200, 256), ("1" * 200, 2**31 - 1)):
        asked = body(path, prompt=prompt, max_tokens=most, stream=stream, logit_bias=NEVER_ENDS)
        status, headers, answer = real.ask("POST", path, asked)
        assert (status, headers["x-woolly-notes"]) == (200, "max_tokens")
        if not stream:
            assert answer["choices"][0]["finish_reason"] == "length"
            assert answer["usage"]["total_tokens"] == 256
        context_refused(real, path, asked, **{"x-woolly-strict": "1"})
    assert "x-woolly-notes" not in real.ask("POST", path, body(path, prompt="1" * 200, max_tokens=56))[1]


def test_h19_an_error_about_bytes_that_are_no_utf8_is_utf8_itself(real: Live) -> None:
    for path in (*CHATS, *PROMPTS, "/api/v1/models/load"):
        for data in (b'{"model":"\xff\xfe"}', b"\xff", b'{"\xc3\x28":1}', b'{"model":"\\ud800"}'):
            status, headers, answer = real.ask("POST", path, data)
            assert (status, headers["content-type"]) == (400, "application/json"), path
            error = answer["error"]
            assert (error if isinstance(error, str) else error["message"]).isprintable()
    assert real.ask("POST", PROMPTS[0], body(PROMPTS[0]))[0] == 200


@pytest.mark.parametrize("path", ["/v1/chat/completions", "/v1/completions", *CHATS[1:], *PROMPTS[1:2], PROMPTS[3]])
def test_h15_a_schema_that_cannot_be_kept_to_is_refused_and_never_dropped(real: Live, path: str) -> None:
    schema = {"type": "object", "properties": {"a": {"not": {"type": "string"}}}}
    openai = {"type": "json_schema", "json_schema": {"name": "x", "schema": schema}}
    assert "'not'" in refused(real, path, body(path, response_format=openai), "format")
    if not path.startswith("/v1"):
        assert "'not'" in refused(real, path, body(path, format=schema), "format")
        asked = body(path, format={"enum": ["b"]}, max_tokens=9, response_format={"type": "json_object"})
        assert "one of them" in refused(real, path, asked, "format")


def test_woollys_routes_take_a_format_as_the_library_does(real: Live) -> None:
    for path in UNSTREAMED[1:2] + UNSTREAMED[3:]:
        asked = body(path, format={"enum": ["wool", "hair"]}, max_tokens=9)
        (choice,) = real.ask("POST", path, asked)[2]["choices"]
        assert json.loads(choice.get("text") or choice["message"]["content"]) in ("wool", "hair")
        assert real.ask("POST", path, body(path, format="json"))[0] == 200


RACE = """
import sys, threading
from woolly.errors import WoollyError
from woolly.server.dialect_table import DIALECTS
from woolly.server.dialects.base import fields
from woolly.server.dialects.base.fields import one_system
from woolly.server.routes import Generation
from woolly.server.dialects.base.fields import read_struct

sys.setswitchinterval(1e-6)
body = {"messages": [{"role": "user", "content": "x"}], "prompt": "x", "max_tokens": 3, "tools": [], "stop": ["x"]}
for kind in {route.body for dialect in DIALECTS for route in dialect.routes if route.body is not None}:
    together = threading.Barrier(8)

    def read():
        together.wait()
        try:
            read_struct(kind, body)
        except WoollyError:
            pass

    threads = [threading.Thread(target=read) for _ in range(8)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
print("whole")
"""


def test_threads_that_read_the_first_body_of_a_kind_at_once_break_nothing() -> None:
    done = subprocess.run([sys.executable, "-c", RACE], capture_output=True, text=True, check=False)
    assert (done.returncode, done.stdout) == (0, "whole\n"), done.stderr


class _Wished(msgspec.Struct):
    wish: str


def test_a_body_is_not_read_only_after_another_that_takes_long(monkeypatch: pytest.MonkeyPatch) -> None:
    convert, large, go = msgspec.convert, threading.Event(), threading.Event()

    def slow(body: Any, kind: Any) -> Any:
        if body == {"wish": "large"}:
            large.set()
            go.wait()
        return convert(body, kind)

    monkeypatch.setattr(fields.msgspec, "convert", slow)
    reading = threading.Thread(target=lambda: fields.read_struct(_Wished, {"wish": "large"}), daemon=True)
    reading.start()
    large.wait()
    short = threading.Thread(target=lambda: fields.read_struct(_Wished, {"wish": "short"}), daemon=True)
    short.start()
    short.join(60)
    assert reading.is_alive() and not short.is_alive()
    go.set()
    reading.join()


def test_system_messages_are_joined_as_they_come() -> None:
    def message(role: str, content: str) -> dict[str, Any]:
        return {"role": role, "content": content}

    system, user, answer = message("developer", "a"), message("user", "b"), message("assistant", "c")
    assert one_system([system, system, user, system, answer, system, system, user]) == [
        message("system", "a\n\na"),
        message("user", "b\n\na"),
        answer,
        message("user", "a\n\na"),
        user,
    ]


SCHEMA = {"properties": {"a": {"properties": {"b": {}}}, "c": {"properties": {}, "additionalProperties": True}}}
NAMED = {"type": "json_schema", "json_schema": {"name": "x", "strict": True, "schema": SCHEMA}}
OPEN = {"type": "json_schema", "json_schema": {"name": "x", "schema": SCHEMA, "strict": False}}
ANTHROPIC = {"model": "m", "messages": HELLO, "max_tokens": 2}


@pytest.mark.parametrize(
    ("path", "asked"),
    [
        ("/v1/chat/completions", {"messages": HELLO, "response_format": NAMED}),
        ("/v1/chat/completions", {"messages": HELLO, "response_format": OPEN}),
        ("/v1/chat/completions", {"messages": HELLO, "json_schema": SCHEMA}),
        ("/v1/completions", {"prompt": "x", "response_format": NAMED}),
        ("/v1/responses", {"input": "x", "text": {"format": {"type": "json_schema", "name": "x", "schema": SCHEMA}}}),
        ("/v1/messages", ANTHROPIC | {"output_config": {"format": {"type": "json_schema", "schema": SCHEMA}}}),
        ("/v1/messages", ANTHROPIC | {"output_format": {"type": "json_schema", "schema": SCHEMA}}),
        ("/api/chat", {"model": "m", "messages": HELLO, "format": SCHEMA}),
        ("/completion", {"prompt": "x", "json_schema": SCHEMA}),
        ("/api/v1/inference/chat", {"messages": HELLO, "format": SCHEMA}),
        ("/api/v1/inference/complete", {"prompt": "x", "response_format": OPEN}),
    ],
)
def test_an_object_has_the_properties_that_its_schema_names_in_every_dialect(path: str, asked: dict[str, Any]) -> None:
    routes = (route for dialect in DIALECTS for route in dialect.routes if route.path == path)
    route = next(route for route in routes if isinstance(route, Generation) and (route.accepts or bool)(asked))
    form = route.read(asked, {}, SERVING).requests[0].format
    none = {"additionalProperties": False}
    outer = {"a": {"properties": {"b": {}}} | none, "c": {"properties": {}, "additionalProperties": True}}
    assert form is not None and json.loads(form.value) == {"properties": outer} | none
