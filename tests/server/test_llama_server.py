"""llama-server's routes: completions and infills in its shape, tokens and prompts, the loaded models."""

from __future__ import annotations

import json
from collections.abc import Iterator
from typing import Any

import msgspec
import pytest

from tests.server.conftest import HELLO, Live, Start, real_server
from tests.server.stand_in import CONTEXT
from tests.server.test_guard import KEYS
from tests.server.transcripts import SAID, byte_by_byte, end, rendered, streamed
from woolly.config.serving import SERVING
from woolly.errors import WoollyError
from woolly.request import Request
from woolly.server.dialects.llama_cpp.completion import COMPLETION, read_infill
from woolly.server.dialects.llama_cpp.dialect import DIALECT
from woolly.server.routes import Job

PATHS = ("/completion", "/completions")


@pytest.fixture(scope="module")
def real(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Live]:
    """A server with a real model that has tokens for infilling."""
    meta = {f"tokenizer.ggml.fim_{name}_token_id": 200 + i for i, name in enumerate(("pre", "suf", "mid"))}
    with real_server(tmp_path_factory, "small", context=256, limits={}, meta=meta) as live:
        yield live


def read(**fields: Any) -> Job:
    return COMPLETION.read({"prompt": "Hello"} | fields, {}, SERVING)


def request(**fields: Any) -> Request:
    return read(**fields).requests[0]


def plain(answer: Any) -> Any:
    return json.loads(msgspec.json.encode(answer))


@pytest.mark.parametrize("path", ["/tokenize", "/api/tokenize"])
def test_h62_the_tokens_of_a_text_are_told_up_to_a_size_that_can_be_read_at_once(start: Start, path: str) -> None:
    live = start(limits={"tokenized": 1000})
    for text, status in (("x" * 1000, 200), ("x" * 1001, 413), ("ä" * 500, 200), ("ä" * 501, 413)):
        assert live.ask("POST", path, {"content": text, "text": text})[0] == status
    call = {"name": "tokenize", "arguments": {"text": "x" * 1001}}
    message = {"jsonrpc": "2.0", "id": 1, "method": "tools/call", "params": call}
    assert live.ask("POST", "/mcp", message)[2]["result"]["isError"]


def test_fields_have_llama_servers_names() -> None:
    parsed = request()
    assert (parsed.shorten, parsed.logprobs) == (True, None)
    parsed = request(temperature=-1, repeat_penalty=1.2, n_predict=9, seed=-1, n_probs=3, stop=["x"])
    assert (
        parsed.sampling.temperature,
        parsed.sampling.repetition_penalty,
        parsed.sampling.seed,
    ) == (0.0, 1.2, None)
    assert (parsed.max_tokens, parsed.shorten, parsed.logprobs, parsed.stop) == (
        9,
        False,
        3,
        ("x",),
    )
    assert request(prompt=[1, 2]).tokens == (1, 2)
    assert read(cache_prompt=True, id_slot=-1).notes == ("id_slot",)


def test_a_grammar_and_a_schema_are_formats() -> None:
    formats = [request(grammar='root ::= "a"').format, request(json_schema={"properties": {}}).format]
    assert [one and one.kind for one in formats] == ["gbnf", "schema"]
    assert formats[1] and formats[1].value == '{"properties":{},"additionalProperties":false}'  # as in llama-server


@pytest.mark.parametrize(
    ("fields", "word"),
    [
        ({"prompt": {"text": "x"}}, "prompt"),
        ({"prompt": [[1], 1]}, "prompt"),
        ({"prompt": []}, "prompt"),
        ({"n_predict": "all"}, "n_predict"),
        ({"n_cmpl": 0}, "n_cmpl"),
        ({"image_data": [{"id": 1}]}, "image_data"),
        ({"adaptive_target": 0.5}, "adaptive_target"),
        ({"samplers": ["top_k", "best"]}, "samplers"),
        ({"samplers": ["temperature", "top_k"]}, "samplers"),
        ({"samplers": "kk"}, "samplers"),
        ({"grammar": "x", "json_schema": {}}, "grammar"),
        ({"n_probs": 21}, "n_probs"),
    ],
)
def test_what_is_wrong_is_named(fields: dict[str, Any], word: str) -> None:
    with pytest.raises(WoollyError, match=word):
        read(**fields)


def test_a_gap_is_a_prompt_with_a_suffix() -> None:
    body = {"input_prefix": "a", "input_suffix": "c", "prompt": "b", "input_extra": [{"filename": "f", "text": "x"}]}
    (parsed,) = read_infill(body, {}, SERVING).requests
    assert (parsed.prompt, parsed.suffix, parsed.begun, parsed.files) == ("a", "c", "b", (("f", "x"),))


def test_the_pieces_of_a_stream_add_up_to_the_whole_however_they_are_cut() -> None:
    answer = plain(rendered(COMPLETION, read(), SAID))
    assert (answer["content"], answer["stop"], answer["stop_type"]) == ("Hello", True, "eos")
    assert (answer["tokens_evaluated"], answer["tokens_predicted"], answer["timings"]["cache_n"]) == (9, 5, 4)
    for cut_events in (SAID, list(byte_by_byte(SAID))):
        *pieces, last = map(plain, streamed(COMPLETION, read(), cut_events))
        assert "".join(piece["content"] for piece in pieces) == "Hello"
        assert not any(piece["stop"] for piece in pieces)
        assert last == answer | {"content": ""}


def test_why_an_answer_ended_is_told() -> None:
    kinds = {"limit": end("length"), "word": end(stopped_by="x")}
    for kind, last in kinds.items():
        answer = plain(rendered(COMPLETION, read(), (*SAID[:-1], last)))
        assert (answer["stop_type"], answer["stopping_word"]) == (kind, "x" if kind == "word" else "")


def test_a_prompt_is_continued_whole_and_streamed_alike(real: Live) -> None:
    for path in PATHS:
        body = {"prompt": "the sheep", "n_predict": 6, "temperature": 0, "n_probs": 2, "return_tokens": True}
        answer = real.ask("POST", path, body)[2]
        assert len(answer["tokens"]) == answer["tokens_predicted"] == len(answer["completion_probabilities"])
        assert len(answer["completion_probabilities"][0]["top_logprobs"]) == 2
        data = real.ask("POST", path, body | {"stream": True})[2].decode()
        assert "[DONE]" not in data
        rows = [json.loads(line[6:]) for line in data.splitlines() if line]
        assert "".join(row["content"] for row in rows) == answer["content"]
        assert rows[-1]["stop"]
    assert real.ask("POST", "/completion", {"prompt": "x", "n_predict": 0})[2]["content"] == ""


def test_a_gap_is_filled_where_the_model_has_tokens_for_it(real: Live, live: Live) -> None:
    answer = real.ask("POST", "/infill", {"input_prefix": "the", "input_suffix": "sheep", "n_predict": 4})[2]
    count = len(real.ask("POST", "/tokenize", {"content": "the"})[2]["tokens"])
    count += len(real.ask("POST", "/tokenize", {"content": "sheep"})[2]["tokens"])
    assert answer["tokens_evaluated"] == count + 3
    status, _, answer = real.ask("POST", "/v1/completions", {"prompt": "the", "suffix": "sheep", "max_tokens": 2})
    assert (status, answer["usage"]["prompt_tokens"]) == (200, count + 3)


def test_texts_become_tokens_and_texts_again(real: Live) -> None:
    ids = real.ask("POST", "/tokenize", {"content": "the sheep<|im_end|>"})[2]["tokens"]
    assert ids[-1] == 272  # texts of control tokens are read as tokens
    assert real.ask("POST", "/tokenize", {"content": "<|im_end|>", "parse_special": False})[2]["tokens"] != [272]
    pieces = real.ask("POST", "/tokenize", {"content": "the sheep", "with_pieces": True})[2]["tokens"]
    assert "".join(piece["piece"] for piece in pieces) == "the sheep"
    assert real.ask("POST", "/detokenize", {"tokens": [piece["id"] for piece in pieces]})[2] == {"content": "the sheep"}


def test_a_token_that_is_no_whole_character_is_told_by_its_bytes(real: Live) -> None:
    pieces = real.ask("POST", "/tokenize", {"content": "aä", "with_pieces": True})[2]["tokens"]
    assert [piece["piece"] for piece in pieces] == ["a", [0xC3], [0xA4]]


def test_the_prompt_of_a_chat_is_told(real: Live) -> None:
    answer = real.ask("POST", "/apply-template", {"messages": HELLO})[2]["prompt"]
    assert answer == "<|im_start|>user\nHello<|im_end|>\n<|im_start|>assistant\n"


def test_a_prompt_is_told_without_the_beginning_of_an_answer_and_with_variables(
    tmp_path_factory: pytest.TempPathFactory,
) -> None:
    meta = {"tokenizer.chat_template": "{{ mood }}{% if add_generation_prompt %}: {% endif %}"}
    with real_server(tmp_path_factory, "moody", context=64, limits={}, meta=meta) as live:

        def told(**fields: Any) -> Any:
            return live.ask("POST", "/apply-template", {"messages": HELLO} | fields)[2]

        assert told()["prompt"] == ": "
        assert told(chat_template_kwargs={"mood": "calm"})["prompt"] == "calm: "
        assert told(chat_template_kwargs={"mood": "calm"}, add_generation_prompt=False)["prompt"] == "calm"
        assert "messages is not for a request to set" in str(told(chat_template_kwargs={"messages": "x"}))


def test_routes_of_texts_and_properties_heed_the_model(live: Live) -> None:
    assert live.ask("POST", "/tokenize", {"content": "x", "model": "Alpha.Q4"})[0] == 200
    assert live.ask("POST", "/detokenize", {"tokens": [97], "model": "beta"})[2] == {"content": "a"}
    assert len(live.loader.talkers) == 2
    for path in ("/tokenize", "/detokenize", "/apply-template"):
        body = {"content": "x", "tokens": [1], "messages": HELLO, "model": "nobody"}
        assert live.ask("POST", path, body)[0] == 404
    assert live.ask("GET", "/props?model=nobody")[0] == 404


def test_what_is_loaded_is_told(real: Live) -> None:
    answer = real.ask("GET", "/props")[2]
    assert (answer["default_generation_settings"]["n_ctx"], answer["model_alias"]) == (256, "small")
    params = answer["default_generation_settings"]["params"]
    assert params.keys() >= {"temperature", "typical_p", "repeat_penalty", "dry_multiplier", "samplers"}
    assert "im_start" in answer["chat_template"]
    slots = real.ask("GET", "/slots?fail_on_no_slot=1")[2]
    assert len(slots) == answer["total_slots"]
    assert not any(slot["is_processing"] for slot in slots)


@pytest.mark.parametrize(
    ("short", "path", "body"),
    [
        ("/chat/completions", "/v1/chat/completions", {"messages": HELLO, "max_tokens": 4, "seed": 1}),
        ("/responses", "/v1/responses", {"input": "Hello", "max_output_tokens": 4, "seed": 1}),
        ("/chat/completions/input_tokens", "/v1/chat/completions/input_tokens", {"messages": HELLO}),
        ("/responses/input_tokens", "/v1/responses/input_tokens", {"input": "Hello"}),
        ("/health", "/v1/health", None),
    ],
)
def test_routes_of_openai_are_there_without_v1_too(real: Live, short: str, path: str, body: Any) -> None:
    changing = ("id", "created", "created_at", "timings", "usage")
    changing += ("timestamp", "uptime", "uptime_seconds", "requests_served")

    def fixed(answer: dict[str, Any]) -> dict[str, Any]:
        named = {name: value for name, value in answer.items() if name not in changing}
        return named | {"output": [item["content"] for item in answer.get("output", ())]}

    (status, _, first), (_, _, second) = (real.ask("POST" if body else "GET", one, body) for one in (short, path))
    assert (status, fixed(first)) == (200, fixed(second))


def test_the_tokens_of_a_chat_are_counted_as_they_are_read(real: Live) -> None:
    counted = real.ask("POST", "/v1/chat/completions/input_tokens", {"messages": HELLO})[2]
    answered = real.ask("POST", "/v1/chat/completions", {"messages": HELLO, "max_tokens": 1})[2]
    assert counted == {"object": "response.input_tokens", "input_tokens": answered["usage"]["prompt_tokens"]}


def test_errors_have_llama_servers_shape(start: Start) -> None:
    live = start(keys=KEYS)
    for method, path, body, status, kind in (
        ("POST", "/completion", b"{", 400, "invalid_request_error"),
        ("POST", "/completion", {"prompt": "x", "model": "nobody"}, 404, "not_found_error"),
        ("POST", "/completion", {"prompt": "x" * 5000}, 400, "exceed_context_size_error"),
        ("POST", "/embedding", {}, 400, "invalid_request_error"),
        ("GET", "/completion", None, 405, "invalid_request_error"),
        ("GET", "/slots/1", None, 404, "not_found_error"),
    ):
        got, _, answer = live.ask(method, path, body)
        assert (got, answer["error"]["code"], answer["error"]["type"]) == (status, status, kind), path
    error = live.ask("POST", "/completion", {"prompt": "x" * 5000})[2]["error"]
    assert (error["n_prompt_tokens"], error["n_ctx"]) == (5000, CONTEXT)
    assert f"exceeds the available context size of {CONTEXT:,}" in error["message"]
    live = start(keys=KEYS, anonymous=False)
    for route in DIALECT.routes:
        got, _, answer = live.ask(route.method, route.path, {} if route.method == "POST" else None)
        assert (got, answer["error"]["type"]) == (401, "authentication_error")
