"""Fields of a request that are wrong, absent or not for it to set: refused by name, on every route."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from typing import Any

import pytest

from tests.server.conftest import HELLO, Live, real_server
from woolly.errors import RequestError
from woolly.request import TEMPLATE_NAMES, Request
from woolly.server.dialects import DIALECTS

VOCAB = 288  # tokens of the model that `tests.tiny` makes
CHATS = ("/v1/chat/completions", "/api/v1/inference/chat", "/api/v1/optimized/chat/completions", "/api/chat")
PROMPTS = ("/v1/completions", "/api/v1/inference/complete", "/api/v1/inference/stream", "/api/generate")
STATS = "/api/v1/performance/stats"
TEMPLATE = "{{ messages[0]['content'] }}{{ tone }}{{ loud }}{{ number }}"


@pytest.fixture(scope="module")
def real(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Live]:
    """A server with a real model, which knows its vocabulary."""
    with real_server(tmp_path_factory, "small", context=256, limits={}) as live:
        yield live


def body(path: str, **fields: Any) -> dict[str, Any]:
    """A right body for a route, with other fields over it."""
    what: dict[str, Any] = {"messages": HELLO} if path in CHATS else {"prompt": "Hello"}
    return what | {"max_tokens": 2, "temperature": 0} | fields


def refused(live: Live, path: str, asked: dict[str, Any], param: str) -> str:
    """What was said about a refused field; afterwards a right request is answered."""
    status, _, said = live.ask("POST", path, asked)
    error = said["error"]
    assert status == 400, said
    named = error.get("param") or error["details"].get("param") or error["message"]  # the shortest dialect has words
    assert param in named, said
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


def test_h08_a_request_that_names_no_model_is_answered_by_the_loaded_one(live: Live) -> None:
    assert live.app.settings.default_model == "beta"
    assert live.ask("POST", "/api/v1/models/Alpha.Q4/load", {})[0] == 200
    for model in ({}, {"model": None}, {"model": ""}):
        assert live.chat(**model)[2]["model"] == "Alpha.Q4"
    assert len(live.shelf.made) == 1


@pytest.mark.parametrize("count", [17, 10**9, 0, -1])
def test_h10_more_answers_than_allowed_are_refused_before_any_is_made(live: Live, count: int) -> None:
    for path in (*CHATS, *PROMPTS):
        status, _, said = live.ask("POST", path, body(path, n=count))
        assert (status, said["error"]["message"][:2] in ("n:", "'n")) == (400, True), said
    assert live.shelf.made == []  # the model was not even loaded
    assert live.chat(n=1)[0] == 200


def test_h10_as_many_answers_as_allowed_are_given(live: Live) -> None:
    assert len(live.chat(n=16)[2]["choices"]) == 16
    refused(live, "/v1/completions", body("/v1/completions", best_of=17), "best_of")


@pytest.mark.parametrize("path", [*CHATS, *PROMPTS])
@pytest.mark.parametrize(
    "biases",
    [{"-1": 1}, {str(VOCAB): 1}, {"abc": 1}, {"1.5": 1}, {str(2**31): 1}, {"1": 101}, {"1": "x"},
     {str(token): 1 for token in range(1025)}],
    ids=lambda biases: f"{len(biases)}-{next(iter(biases))}",
)  # fmt: skip
def test_h11_a_bias_of_what_is_no_token_is_refused(real: Live, path: str, biases: dict[str, Any]) -> None:
    refused(real, path, body(path, logit_bias=biases), "logit_bias")


def test_h11_a_hundred_thousand_biases_are_too_many(real: Live) -> None:
    asked = body("/v1/completions", logit_bias={str(token): 1 for token in range(10**5)})
    refused(real, "/v1/completions", asked, "logit_bias")


def test_h11_no_bias_touches_the_logits_of_a_neighbour(real: Live) -> None:
    path = "/v1/completions"
    asked = body(path, max_tokens=150, logprobs=20)
    alone = real.ask("POST", path, asked)[2]["choices"][0]
    beside: list[Any] = []
    neighbour = threading.Thread(target=lambda: beside.append(real.ask("POST", path, asked)[2]["choices"][0]))
    neighbour.start()
    biased = 0
    while neighbour.is_alive():
        for bad in ("-1", str(VOCAB), "abc"):
            assert real.ask("POST", path, body(path, logit_bias={bad: 100}))[0] == 400
        edges = {"0": -100, str(VOCAB - 1): 100}  # of the row, so that one step aside would be another's
        said = real.ask("POST", path, body(path, logit_bias=edges, logprobs=0))
        biased += said[0] == 200
    assert beside == [alone]
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
        told = choice["logprobs"]
        assert "".join(told["tokens"]) == choice["text"]
        assert all(bool(top) <= len(row) <= top for row in told["top_logprobs"][-2:])  # tokens may read alike
        assert choice["text"].startswith("Hello") == echo


@pytest.mark.parametrize("wrong", [-1, VOCAB, 2**31 - 1, 2**31, 2**63, 1.5, 1.0, True, None, "1"])
@pytest.mark.parametrize("at", [0, 2])
def test_t19_a_token_that_is_none_is_refused_with_its_place(real: Live, wrong: Any, at: int) -> None:
    ids = [5, 6, 7]
    ids[at] = wrong
    path = "/v1/completions"
    for prompt, places in ((ids, (f"[{at}]",)), ([[5], ids], (f"[{at}]", f"[1][{at}]"))):
        status, _, said = real.ask("POST", path, body(path, prompt=prompt))
        assert status == 400, said
        mixed = isinstance(wrong, str) and prompt is ids  # a list of several kinds is refused as a whole
        assert mixed or said["error"]["param"].removeprefix("tokens").removeprefix("prompt") in places, said
    said = real.ask("POST", "/api/detokenize", {"tokens": ids})
    assert (said[0], f"[{at}]" in str(said[2]) or f"token {at}" in str(said[2])) == (400, True)
    assert real.ask("POST", path, body(path, prompt=[0, 6, VOCAB - 1]))[0] == 200


def test_t11_no_route_takes_a_template(live: Live) -> None:
    tried = 0
    for dialect in DIALECTS:
        for door in dialect.doors:
            if door.method != "POST":
                continue
            path = door.path.replace("{name:path}", "beta")
            for template in ("{{ 1 }}", "", {"a": 1}, 5):
                status, _, said = live.ask("POST", path, {"chat_template": template})
                assert (status, "'chat_template'" in str(said)) == (400, True), path
            tried += 1
    assert tried > 15
    assert live.shelf.made == []
    assert live.chat(chat_template=None)[0] == 200


@pytest.mark.parametrize("path", CHATS)
@pytest.mark.parametrize(
    ("given", "param"),
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
    real: Live, path: str, given: Any, param: str
) -> None:
    refused(real, path, body(path, chat_template_kwargs=given), "chat_template_kwargs" + param)


@pytest.mark.parametrize("name", sorted(TEMPLATE_NAMES))
def test_t11_no_name_of_ours_can_be_set(name: str) -> None:
    with pytest.raises(RequestError, match="not for a request to set"):
        Request(messages=tuple(HELLO), chat_template_kwargs={name: 1})


@pytest.mark.parametrize("path", PROMPTS)
def test_t11_a_prompt_has_no_template_and_takes_no_variables(real: Live, path: str) -> None:
    refused(real, path, body(path, chat_template_kwargs={"tone": "x"}), "chat_template_kwargs")


def test_t11_a_template_is_told_the_variables_of_its_request_and_of_no_other(
    tmp_path_factory: pytest.TempPathFactory,
) -> None:
    meta = {"tokenizer.chat_template": TEMPLATE}
    with real_server(tmp_path_factory, "small", context=256, limits={}, meta=meta) as live:

        def read(path: str, **variables: Any) -> int:
            """How many tokens the prompt has."""
            before = live.ask("GET", STATS)[2]["prefix_cache"]["prompt_tokens"]
            assert live.ask("POST", path, body(path, chat_template_kwargs=variables))[0] == 200
            return int(live.ask("GET", STATS)[2]["prefix_cache"]["prompt_tokens"] - before)

        plain = read(CHATS[0])
        for path in CHATS:
            assert read(path, tone="xyz", loud=True, number=1.5) > plain + 3
            assert read(path, **{f"a{number}": None for number in range(32)}) == plain
