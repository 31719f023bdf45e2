"""OpenAI's dialect over a live server: shapes, streams, choices, errors."""

from __future__ import annotations

import hashlib
import json
from pathlib import Path
from typing import Any

import pytest

from tests.server.conftest import HELLO, Live, Start
from tests.server.stand_in import CONTEXT
from woolly import store


def events(body: bytes) -> list[Any]:
    """The events of a stream, the last being the word [DONE]."""
    rows = body.decode().split("\n\n")
    assert rows[-1] == ""
    assert all(row.startswith("data: ") for row in rows[:-1])
    return [row[6:] if row[6:] == "[DONE]" else json.loads(row[6:]) for row in rows[:-1]]


def test_a_chat_completion_has_openais_shape(live: Live) -> None:
    status, headers, body = live.chat(seed=3)
    assert status == 200
    assert headers["content-type"] == "application/json"
    assert body["object"] == "chat.completion"
    assert body["model"] == "beta"
    (choice,) = body["choices"]
    assert choice["message"]["role"] == "assistant"
    assert len(choice["message"]["content"]) == 5
    assert choice["finish_reason"] == "length"
    usage = body["usage"]
    assert usage["completion_tokens"] == 5
    assert usage["total_tokens"] == usage["prompt_tokens"] + 5
    assert headers["x-woolly-seed"] == "3"


def test_a_stream_says_the_same_text_as_a_whole_answer(live: Live) -> None:
    unstreamed = live.chat(seed=7)[2]["choices"][0]["message"]["content"]
    status, headers, body = live.chat(seed=7, stream=True, stream_options={"include_usage": True})
    assert status == 200
    assert headers["content-type"] == "text/event-stream"
    assert headers["cache-control"] == "no-cache"
    rows = events(body)
    assert rows[0]["choices"][0]["delta"] == {"role": "assistant", "content": ""}
    assert "".join(row["choices"][0]["delta"].get("content", "") for row in rows[:-2]) == unstreamed
    assert rows[-3]["choices"][0]["finish_reason"] == "length"
    assert rows[-2]["choices"] == []
    assert rows[-2]["usage"]["completion_tokens"] == 5
    assert rows[-1] == "[DONE]"
    assert len({row["id"] for row in rows[:-1]}) == 1


def test_a_completion_defaults_to_sixteen_tokens_and_can_echo(live: Live) -> None:
    body = live.ask("POST", "/v1/completions", {"prompt": "Once", "temperature": 0, "echo": True})[2]
    assert body["object"] == "text_completion"
    assert body["choices"][0]["text"].startswith("Once")
    assert body["usage"]["completion_tokens"] == 16
    streamed = events(live.ask("POST", "/v1/completions", {"prompt": "Once", "temperature": 0, "stream": True})[2])
    assert "Once" + "".join(row["choices"][0]["text"] for row in streamed[:-1]) == body["choices"][0]["text"]


def test_d10_choice_i_of_n_is_the_answer_of_seed_plus_i(live: Live) -> None:
    body = live.chat(seed=10, n=3)[2]
    texts = [choice["message"]["content"] for choice in body["choices"]]
    alone = [live.chat(seed=10 + i)[2]["choices"][0]["message"]["content"] for i in range(3)]
    assert texts == alone
    assert body["usage"]["completion_tokens"] == 15
    assert body["usage"]["prompt_tokens"] == live.chat()[2]["usage"]["prompt_tokens"]


def test_several_prompts_are_answered_in_order(live: Live) -> None:
    fields = {"max_tokens": 4, "temperature": 0}
    body = live.ask("POST", "/v1/completions", {"prompt": ["One", "Two"], **fields})[2]
    alone = [live.ask("POST", "/v1/completions", {"prompt": p, **fields})[2] for p in ("One", "Two")]
    assert [c["text"] for c in body["choices"]] == [a["choices"][0]["text"] for a in alone]
    assert [c["index"] for c in body["choices"]] == [0, 1]
    assert body["usage"]["prompt_tokens"] == 6


def test_two_streams_of_one_request_end_each_with_its_reason(live: Live) -> None:
    rows = events(live.chat(n=2, stream=True)[2])
    for index in (0, 1):
        mine = [row["choices"][0] for row in rows[:-1] if row["choices"][0]["index"] == index]
        assert mine[0]["delta"]["role"] == "assistant"
        assert mine[-1]["finish_reason"] == "length"


def test_a_later_request_reuses_what_an_equal_beginning_computed(live: Live) -> None:
    first = live.chat()[2]["usage"]
    second = live.chat()[2]["usage"]
    assert first["prompt_tokens_details"]["cached_tokens"] == 0
    assert second["prompt_tokens_details"]["cached_tokens"] > 0


@pytest.mark.parametrize(
    ("fields", "param"),
    [
        ({"temperature": -1}, "temperature"),
        ({"seed": -2}, "seed"),
        ({"max_tokens": 0}, "max_tokens"),
        ({"max_tokens": 2**31}, "max_tokens"),
        ({"logit_bias": {"1": 101}}, "logit_bias[...]"),
        ({"top_p": 1.1}, "top_p"),
        ({"stop": ["x"] * 17}, "stop"),
        ({"tools": [{"type": "function"}]}, "tools[0].name"),
        ({"tools": [{"type": "function", "function": {"name": "two words"}}]}, "tools[0].function.name"),
        ({"tool_choice": "required"}, "tool_choice"),
        ({"tool_choice": {"type": "function", "function": {"name": "fly"}}}, "tool_choice"),
        ({"functions": [{"name": "f"}]}, "functions"),
        ({"messages": [*HELLO, {"role": "tool", "tool_call_id": "1", "content": "2"}]}, "messages[1].role"),
        ({"response_format": {"type": "xml"}}, "response_format.type"),
        ({"response_format": {"type": "json_schema"}}, "response_format"),
        ({"response_format": {"type": "json_schema", "json_schema": {"schema": {}}}}, "response_format.json_schema"),
        ({"response_format": {"type": "choice", "value": []}}, "response_format"),
        ({"logprobs": 1}, "logprobs"),
        ({"modalities": ["audio"]}, "modalities"),
    ],
)  # fmt: skip
def test_what_cannot_be_honoured_is_refused_by_name(live: Live, fields: dict[str, Any], param: str) -> None:
    status, _, body = live.chat(**fields)
    assert status == 400
    assert set(body["error"]) == {"message", "type", "param", "code"}
    assert body["error"]["type"] == "invalid_request_error"
    assert body["error"]["param"] == param
    assert live.chat()[0] == 200


def test_fields_without_effect_are_named_in_a_header(live: Live) -> None:
    status, headers, body = live.chat(user="me", frobnicate=1, tools=[], response_format={"type": "text"})
    assert status == 200
    assert headers["x-woolly-notes"] == "user, frobnicate"
    assert "notes" not in body


def test_an_unknown_model_is_404_and_an_absent_one_is_the_default(live: Live) -> None:
    status, _, body = live.chat(model="nobody")
    assert status == 404
    assert body["error"]["code"] == "model_not_found"
    for name in ("default", "woolly-model", "loaded", ""):
        assert live.chat(model=name)[2]["model"] == "beta"


def test_the_answers_model_is_the_name_asked_for(live: Live) -> None:
    for name in ("BETA", "beta.gguf", "some/folder/beta", "alpha.q4"):
        assert live.chat(model=name)[2]["model"] == name
        rows = events(live.chat(model=name, stream=True)[2])
        assert {row["model"] for row in rows[:-1]} == {name}


def test_who_asks_for_the_digest_of_the_models_file_gets_it_and_nobody_else_pays_for_it(
    live: Live, monkeypatch: pytest.MonkeyPatch
) -> None:
    digested: list[list[Path]] = []
    digest = store.file_digest
    monkeypatch.setattr(store, "file_digest", lambda paths, wanted: digested.append(paths) or digest(paths, wanted))

    def digest_of(model: str, **headers: str) -> str | None:
        body = {"messages": HELLO, "max_tokens": 2, "model": model}
        return live.ask("POST", "/v1/chat/completions", body, headers)[1].get("x-woolly-model")

    assert digest_of("beta") is None
    assert digested == []
    data = (live.app.config.folders[0] / "beta.gguf").read_bytes()
    wanted = "sha256:" + hashlib.sha256(data).hexdigest()
    assert [digest_of("beta", **{"X-Woolly-Model": "1"}) for _ in range(3)] == [wanted] * 3
    assert len(digested) == 1
    assert digest_of("alpha.q4", **{"X-Woolly-Model": "1"}) not in (None, wanted)


def test_a_strict_request_with_an_unknown_field_is_refused_by_its_name(live: Live, start: Start) -> None:
    strict = {"X-Woolly-Strict": "1"}
    body = {"messages": HELLO, "max_tokens": 1, "user": "me", "metadata": {}}
    assert live.ask("POST", "/v1/chat/completions", body, strict)[0] == 200
    for path in ("/v1/chat/completions", "/api/v1/inference/chat"):
        status, _, answer = live.ask("POST", path, body | {"frobnicate": 1}, strict)
        assert (status, "frobnicate" in answer["error"]["message"]) == (400, True)
        assert live.ask("POST", path, body | {"frobnicate": 1}, {"X-Woolly-Strict": "0"})[0] == 200
    severe = start(strict=True)
    assert severe.chat()[0] == 200
    assert severe.chat(frobnicate=1)[2]["error"]["param"] == "frobnicate"


def test_h09_text_parts_are_joined_and_developer_is_system(live: Live) -> None:
    parts = [{"type": "text", "text": "Hel"}, {"type": "text", "text": "lo"}]
    status, _, _ = live.chat(messages=[{"role": "developer", "content": "Be"}, {"role": "user", "content": parts}])
    assert status == 200
    seen = live.loader.talkers[0].seen[-1].messages
    assert seen == ({"role": "system", "content": "Be"}, {"role": "user", "content": "Hello"})


def test_max_completion_tokens_wins_over_max_tokens(live: Live) -> None:
    assert live.chat(max_tokens=9, max_completion_tokens=3)[2]["usage"]["completion_tokens"] == 3


def test_logprobs_tell_how_likely_each_token_was(live: Live) -> None:
    (choice,) = live.chat(temperature=0, logprobs=True, top_logprobs=3)[2]["choices"]
    rows = choice["logprobs"]["content"]
    assert "".join(row["token"] for row in rows) == choice["message"]["content"]
    for row in rows:
        assert row["logprob"] == row["top_logprobs"][0]["logprob"] < 0  # greedy: the likeliest token is chosen
        values = [top["logprob"] for top in row["top_logprobs"]]
        assert values == sorted(values, reverse=True)
        assert len(values) == 3
    streamed = events(live.chat(temperature=0, logprobs=True, top_logprobs=3, stream=True)[2])[1:-2]
    assert [row["choices"][0]["logprobs"]["content"] for row in streamed] == [[row] for row in rows]
    assert live.chat(temperature=0)[2]["choices"][0]["logprobs"] is None


def test_completions_have_the_older_form_of_logprobs(live: Live) -> None:
    fields = {"prompt": "Once", "max_tokens": 4, "temperature": 0, "logprobs": 2}
    (choice,) = live.ask("POST", "/v1/completions", fields)[2]["choices"]
    likely = choice["logprobs"]
    assert "".join(likely["tokens"]) == choice["text"]
    assert likely["text_offset"] == [0, 1, 2, 3]
    assert len(likely["token_logprobs"]) == len(likely["top_logprobs"]) == 4
    streamed = events(live.ask("POST", "/v1/completions", fields | {"stream": True})[2])[:-2]
    columns = [row["choices"][0]["logprobs"] for row in streamed]
    for name, values in likely.items():
        assert [value for column in columns for value in column[name]] == values


def test_an_echo_with_logprobs_tells_of_the_prompts_tokens_too(live: Live) -> None:
    fields = {"prompt": "once", "max_tokens": 3, "temperature": 0, "logprobs": 2}
    (plain,) = live.ask("POST", "/v1/completions", fields)[2]["choices"]
    for prompt in ("once", [ord(sign) % 32 for sign in "once"]):  # the stand-in spells both alike
        body = live.ask("POST", "/v1/completions", fields | {"prompt": prompt, "echo": True})[2]
        (choice,) = body["choices"]
        likely = choice["logprobs"]
        assert "".join(likely["tokens"]) == choice["text"]
        assert likely["text_offset"] == list(range(7))
        assert (likely["token_logprobs"][0], likely["top_logprobs"][0]) == (None, None)
        assert all(value < 0 for value in likely["token_logprobs"][1:])
        assert likely["token_logprobs"][4:] == plain["logprobs"]["token_logprobs"]
        assert choice["text"].endswith(plain["text"])
        assert body["usage"]["prompt_tokens"] == 4
        rows = events(live.ask("POST", "/v1/completions", fields | {"prompt": prompt, "echo": True, "stream": True})[2])
        columns = [row["choices"][0]["logprobs"] for row in rows[:-2]]
        for name, values in likely.items():
            assert [value for column in columns for value in column[name]] == values
        assert "".join(row["choices"][0]["text"] for row in rows[:-1]) == choice["text"]
    quiet = {"prompt": [1, 2], "max_tokens": 2, "temperature": 0, "echo": True}
    (choice,) = live.ask("POST", "/v1/completions", quiet)[2]["choices"]
    assert (len(choice["text"]), choice["logprobs"]) == (4, None)


def test_h48_likelihoods_beyond_the_limit_are_refused_and_may_be_streamed(start: Start) -> None:
    live = start(limits={"likelihoods": 100})
    fields = {"prompt": "x" * 60, "max_tokens": 1, "logprobs": 1, "echo": True}
    assert live.ask("POST", "/v1/completions", fields)[2]["error"]["param"] == "logprobs"
    assert events(live.ask("POST", "/v1/completions", fields | {"stream": True})[2])[-1] == "[DONE]"
    assert live.chat()[0] == 200


def test_a_prompt_that_is_too_long_is_told_with_the_numbers_of_llama_server(live: Live) -> None:
    error = live.chat(messages=[{"role": "user", "content": "x" * 5000}])[2]["error"]
    assert (error["type"], error["code"]) == ("exceed_context_size_error", "context_length_exceeded")
    assert error["n_prompt_tokens"] > 5000 and error["n_ctx"] == CONTEXT
    assert f"exceeds the available context size of {CONTEXT:,}" in error["message"]
