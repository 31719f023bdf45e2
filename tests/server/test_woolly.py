"""Woolly's own dialect, that of its older documents, tokens, and figures."""

from __future__ import annotations

import hashlib
import json
from typing import Any

import pytest

from tests.server.conftest import HELLO, Live, Start
from tests.server.test_openai import events

KEY = "a-key-of-thirty-two-characters-x"
COMPLETE = "/api/v1/inference/complete"
CHAT = "/api/v1/inference/chat"


@pytest.mark.parametrize("path", [COMPLETE, "/api/v1/optimized/completions", "/api/v1/models/beta/generate"])
@pytest.mark.parametrize("name", ["max_tokens", "max_length", "max_new_tokens", "n_predict", "max_completion_tokens"])
def test_a_completion_is_the_same_under_every_name(live: Live, path: str, name: str) -> None:
    status, _, body = live.ask("POST", path, {"prompt": "Hi", name: 3, "temperature": 0})
    assert (status, body["object"], body["usage"]["completion_tokens"]) == (200, "text_completion", 3)
    assert len(body["choices"][0]["text"]) == 3
    assert body["choices"][0]["message"] is None
    assert ("tokens" in body) == path.endswith("generate")
    assert set(body["timings"]) == {
        "prompt_ms",
        "predicted_ms",
        "ttft_ms",
        "tokens_per_second",
        "draft_n",
        "draft_n_accepted",
    }


def test_the_first_name_of_a_field_wins(live: Live) -> None:
    fields = {"prompt": "Hi", "n_predict": 9, "max_tokens": 2, "repeat_penalty": 1.5, "stop": "q"}
    assert live.ask("POST", COMPLETE, fields)[2]["usage"]["completion_tokens"] <= 2
    seen = live.loader.talkers[0].seen[-1]
    assert (seen.max_tokens, seen.sampling.repetition_penalty, seen.stop) == (2, 1.5, ("q",))
    assert (seen.sampling.temperature, seen.sampling.top_p, seen.sampling.top_k) == (0.7, 0.9, 50)


def test_a_chat_streams_a_role_the_pieces_a_reason_and_the_word_done(live: Live) -> None:
    fields = {"messages": HELLO, "max_tokens": 4, "seed": 5}
    unstreamed = live.ask("POST", CHAT, fields)[2]["choices"][0]
    assert unstreamed["text"] is None
    rows = events(live.ask("POST", CHAT, fields | {"stream": True})[2])
    assert rows[0]["choices"][0]["delta"] == {"role": "assistant", "content": ""}
    text = "".join(row["choices"][0]["delta"].get("content", "") for row in rows[:-1])
    assert text == unstreamed["message"]["content"]
    assert rows[-2]["choices"][0] == {"index": 0, "delta": {}, "finish_reason": "length"}
    assert rows[-1] == "[DONE]"


def test_a_streamed_completion_carries_each_piece_under_both_names(live: Live) -> None:
    rows = events(live.ask("POST", "/api/v1/inference/stream", {"prompt": "Hi", "max_tokens": 3})[2])
    for row in rows[:-2]:
        assert row["choices"][0]["delta"]["content"] == row["choices"][0]["text"] != ""
    assert rows[-2]["choices"][0]["text"] == ""


def test_a_batch_answers_each_prompt_as_if_it_were_alone(live: Live) -> None:
    fields = {"max_tokens": 4, "temperature": 0}
    body = live.ask("POST", COMPLETE + "/batch", {"prompts": ["Hello", "Hi", "Ho"], **fields})[2]
    alone = [live.ask("POST", COMPLETE, {"prompt": p, **fields})[2] for p in ("Hello", "Hi", "Ho")]
    assert (body["object"], body["batch_size"]) == ("list", 3)
    assert [row["choices"] for row in body["data"]] == [row["choices"] for row in alone]
    assert body["usage"]["total_tokens"] == sum(row["usage"]["total_tokens"] for row in alone)


def test_as_many_prompts_as_a_batch_may_have_are_answered(live: Live) -> None:
    prompts = [f"Hello {number}" for number in range(live.app.settings.limits.prompts)]
    status, _, body = live.ask("POST", COMPLETE + "/batch", {"prompts": prompts, "max_tokens": 1})
    assert (status, body["batch_size"]) == (200, len(prompts))


@pytest.mark.parametrize(
    ("path", "fields", "kind", "code"),
    [
        (COMPLETE, {"prompt": " \n\t "}, "invalid_request", "EMPTY_PROMPT"),
        (CHAT, {"messages": []}, "invalid_request", "EMPTY_MESSAGES"),
        (COMPLETE, {"max_tokens": 5}, "validation_error", "VALIDATION_ERROR"),
        (COMPLETE, {"prompt": "x", "temperature": -1}, "validation_error", "VALIDATION_ERROR"),
        (COMPLETE + "/batch", {"prompts": ["x"], "session_id": "a"}, "invalid_request", "UNSUPPORTED"),
        (COMPLETE, {"prompt": "x", "tools": [1]}, "invalid_request", "UNSUPPORTED"),
        (COMPLETE, {"prompt": "x" * 5000}, "context_error", "CONTEXT_ERROR"),
        (COMPLETE + "/batch", {"prompts": []}, "invalid_request", "INVALID_REQUEST"),
        (COMPLETE + "/batch", {"prompts": ["a"], "stream": True}, "invalid_request", "UNSUPPORTED"),
    ],
)
def test_an_error_has_woollys_shape(live: Live, path: str, fields: dict[str, Any], kind: str, code: str) -> None:
    status, headers, body = live.ask("POST", path, fields)
    error = body["error"]
    assert (status, error["type"], error["code"], error["details"]["error_code"]) == (400, kind, 400, code)
    assert error["request_id"] == headers["x-request-id"]
    assert set(error) == {"type", "message", "code", "suggestion", "timestamp", "request_id", "details"}


def test_an_unknown_model_is_told_with_the_known_ones(live: Live) -> None:
    error = live.ask("POST", CHAT, {"model": "nobody", "messages": HELLO})[2]["error"]
    assert (error["type"], error["code"]) == ("model_not_found", 404)
    assert error["details"]["available_models"] == ["Alpha.Q4", "beta"]


def test_notes_stand_in_the_body_too(live: Live) -> None:
    assert live.ask("POST", COMPLETE, {"prompt": "x", "max_tokens": 1, "gpu_layers": 3})[2]["notes"] == ["gpu_layers"]


def test_ole_gets_what_there_is_before_it_gives_up(start: Start) -> None:
    live = start(step_s=0.02, limits={"ole_s": 0.4})
    live.ask("POST", "/api/v1/models/beta/load", {})
    body = live.ask("POST", CHAT, {"messages": HELLO, "max_tokens": 2000}, {"X-Ole-Client": "1"})[2]
    assert body["choices"][0]["finish_reason"] == "length"
    assert body["usage"]["completion_tokens"] < 2000


def test_the_documents_dialect_answers_in_its_own_shapes(live: Live) -> None:
    body = live.ask("POST", "/api/generate", {"prompt": "Once", "max_tokens": 8})[2]
    assert set(body) == {"text", "tokens_per_second", "tokens_generated", "generation_time_ms", "finish_reason"}
    assert body["tokens_generated"] == 8
    rows = events(live.ask("POST", "/api/generate", {"prompt": "Once", "max_tokens": 3, "stream": True})[2])
    assert [row["id"] for row in rows[:-1]] == [0, 1, 2]
    body = live.ask("POST", "/api/chat", {"messages": HELLO, "max_tokens": 3})[2]
    assert (body["role"], len(body["content"])) == ("assistant", 3)
    rows = events(live.ask("POST", "/api/chat", {"messages": HELLO, "max_tokens": 3, "stream": True})[2])
    assert all(set(row) == {"content"} for row in rows[:-1])


def test_the_documents_dialect_refuses_by_code(live: Live) -> None:
    for path, body in (
        ("/api/generate", {"prompt": "x", "n": 2}),
        ("/api/chat", {"messages": []}),
        ("/api/embeddings", {"input": "x"}),
    ):
        status, _, answer = live.ask("POST", path, body)
        assert (status, answer["error"]["code"]) == (400, "INVALID_REQUEST")


def test_texts_become_tokens_and_texts_again(live: Live) -> None:
    body = live.ask("POST", "/api/tokenize", {"text": "Hello"})[2]
    assert body["count"] == len(body["tokens"]) == 5
    assert live.ask("POST", "/api/detokenize", {"tokens": body["tokens"]})[2] == {"text": "Hello"}


def test_a_token_stands_for_its_key_and_for_no_other(start: Start) -> None:
    live = start(keys=(hashlib.sha256(KEY.encode()).digest(),), anonymous=False)
    assert live.ask("POST", "/api/v1/auth/token", {"user_id": "ole"})[0] == 401
    assert live.ask("POST", "/api/v1/auth/token", {"user_id": "ole", "api_key": "wrong"})[0] == 401
    answer = live.ask("POST", "/api/v1/auth/token", {"user_id": "ole", "api_key": KEY})[2]
    assert (answer["expires_in"], answer["token_type"]) == (3600, "Bearer")
    checked = live.ask("POST", "/api/v1/auth/validate", {"token": answer["token"]})[2]
    assert checked["valid"]
    assert (checked["claims"]["sub"], checked["claims"]["aud"]) == ("ole", "woolly-api")
    assert KEY not in json.dumps(checked)
    assert live.ask("GET", "/v1/models", headers={"Authorization": f"Bearer {answer['token']}"})[0] == 200
    head, body, sign = answer["token"].split(".")
    for broken in (f"{head}.{body}.{sign[:-2]}AA", f"{head}.{body[:-4]}AAAA.{sign}", "a.b.c", ".."):
        gone = {"valid": False, "claims": None, "expires_at": None}
        assert live.ask("POST", "/api/v1/auth/validate", {"token": broken})[2] == gone
        assert live.ask("GET", "/v1/models", headers={"Authorization": f"Bearer {broken}"})[0] == 401


def test_figures_are_null_before_there_is_anything_to_measure(live: Live) -> None:
    body = live.ask("GET", "/api/v1/performance/stats")[2]
    assert (body["average_tokens_per_second"], body["cache_hit_rate"], body["model_type"]) == (None, None, None)
    assert body["memory_usage_mb"] > 1


def test_figures_are_what_was_counted(start: Start) -> None:
    live = start(step_s=0.005)
    live.chat(max_tokens=11)
    live.chat(max_tokens=11)
    body = live.ask("GET", "/api/v1/performance/stats")[2]
    assert 10 < body["average_tokens_per_second"] < 200  # a step takes at least 5 ms
    assert 0 < body["cache_hit_rate"] < 1
    assert body["requests"] == {"active": 0, "queued": 0, "done": 2, "failed": 0}
    assert body["ttft_ms"]["p50"] >= 5
    assert body["inter_token_ms"]["p50"] >= 5
    answer = live.ask("GET", "/api/v1/metrics")[2]
    assert answer["average_latency_ms"] >= 50
    assert live.ask("GET", "/api/v1/debug/engine")[2]["loaded_model"]["name"] == "beta"
