"""Ollama's dialect: how bodies are read, lines of an answer, descriptions of models, its errors."""

from __future__ import annotations

import json
from typing import Any

import msgspec
import pytest

from tests.server.conftest import HELLO, Live, Start
from tests.server.raw import Raw
from tests.server.stand_in import until
from tests.server.test_guard import KEY, KEYS
from tests.server.transcripts import CALLED, SAID, byte_by_byte, rendered, streamed
from woolly import store
from woolly.config import Config
from woolly.config.serving import SERVING
from woolly.errors import DownloadError, WoollyError
from woolly.io.cancellation import pause
from woolly.request import Request
from woolly.server.accounts import Resource
from woolly.server.dialects.ollama.generation import CHAT, GENERATE
from woolly.server.http.framing import LINES
from woolly.server.models.downloads import DOWNLOADS
from woolly.server.routes import Job

TOOL = {"type": "function", "function": {"name": "weather", "parameters": {"type": "object"}}}


def read_chat(**fields: Any) -> Job:
    return CHAT.read({"model": "beta", "messages": HELLO} | fields, {}, SERVING)


def read_generate(**fields: Any) -> Job:
    return GENERATE.read({"model": "beta", "prompt": "Hello"} | fields, {}, SERVING)


def request(**fields: Any) -> Request:
    return read_chat(**fields).requests[0]


def plain(answer: Any) -> Any:
    return json.loads(msgspec.json.encode(answer))


def test_options_become_sampling_and_limits() -> None:
    options = {"temperature": 1, "top_k": 7.0, "repeat_penalty": 1.2, "seed": 3, "num_predict": 9, "stop": ["x"]}
    parsed = request(options=options | {"num_ctx": 512})
    assert (
        parsed.sampling.temperature,
        parsed.sampling.top_k,
        parsed.sampling.repetition_penalty,
    ) == (1.0, 7, 1.2)
    assert (parsed.sampling.seed, parsed.max_tokens, parsed.stop) == (3, 9, ("x",))
    assert read_chat(options=options | {"num_ctx": 512}).context == 512
    bare = request()
    assert "temperature" in bare.sampling.unset
    assert (bare.max_tokens, request(options={"num_predict": -1, "seed": -1}).max_tokens) == (None, None)


def test_options_that_nobody_knows_are_noted_and_those_that_would_act_are_refused() -> None:
    job = read_chat(options={"num_gpu": 1, "mirostat": 0, "tfs_z": 1.0}, keep_alive="5m", other=1)
    assert job.notes == ("other", "options.num_gpu")
    assert job.keep_s == 300
    for name, value in {"mirostat": 1, "tfs_z": 0.5}.items():
        with pytest.raises(WoollyError, match=name):
            read_chat(options={name: value})


def test_a_prompt_becomes_a_chat_unless_it_is_raw() -> None:
    parsed = read_generate(system="Be brief.").requests[0]
    assert parsed.messages is not None
    assert [row["role"] for row in parsed.messages] == ["system", "user"]
    raw = read_generate(raw=True).requests[0]
    assert (raw.prompt, raw.messages, raw.shorten) == ("Hello", None, True)


def test_streams_unless_told_not_to() -> None:
    assert (read_chat().stream, read_chat(stream=True).stream, read_chat(stream=False).stream) == (True, True, False)


def test_a_name_may_end_with_latest() -> None:
    assert read_chat(model="beta:latest").model == "beta"


def test_thinking_is_switched_by_the_template() -> None:
    assert request(think=True).think is True
    off = request(think=False)
    assert (off.think, off.chat_template_kwargs["enable_thinking"]) == (None, False)
    assert request(think="high").chat_template_kwargs["reasoning_effort"] == "high"


def test_a_format_is_json_or_a_schema() -> None:
    parsed = request(format="json").format
    assert parsed is not None and parsed.kind == "json"
    parsed = request(format={"properties": {"a": {}}}).format
    assert (
        parsed is not None and parsed.value == '{"properties":{"a":{}},"additionalProperties":false}'
    )  # as Ollama's are
    assert request(format="").format is None


def test_calls_and_results_come_back() -> None:
    call = {"function": {"name": "weather", "arguments": {"city": "Oslo"}}}
    messages = [*HELLO, {"role": "Assistant", "content": "", "tool_calls": [call]}, {"role": "tool", "content": "cold"}]
    parsed = request(messages=messages, tools=[TOOL])
    assert parsed.messages is not None
    assert [row["role"] for row in parsed.messages] == ["user", "assistant", "tool"]
    assert parsed.messages[2]["name"] == "weather"
    assert parsed.tools[0].name == "weather"


@pytest.mark.parametrize(
    ("fields", "word"),
    [
        ({"options": {"temperature": "hot"}}, r"options\.temperature"),
        ({"options": {"num_predict": 1.5}}, r"options\.num_predict"),
        ({"options": 5}, "options"),
        ({"format": "yaml"}, "format"),
        ({"template": "{{ .Prompt }}"}, "template"),
        ({"images": ["AA=="]}, "images"),
        ({"context": [1]}, "context"),
        ({"keep_alive": "soon"}, "keep_alive"),
        ({"messages": [{"role": "user", "content": "x", "images": ["AA=="]}]}, "images"),
        ({"messages": [{"role": "wizard", "content": "x"}]}, "wizard"),
        ({"messages": ["x"]}, r"messages\[0\]"),
        ({"messages": HELLO * 2049}, "at most 2,048"),
    ],
)
def test_what_is_wrong_is_named(fields: dict[str, Any], word: str) -> None:
    with pytest.raises(WoollyError, match=word):
        read_chat(**fields)


def test_raw_and_system_do_not_go_together() -> None:
    with pytest.raises(WoollyError, match="raw mode"):
        read_generate(raw=True, system="x")


def test_counts_and_durations_come_with_the_end_alone() -> None:
    *pieces, last = map(plain, streamed(CHAT, read_chat(), SAID))
    assert [row["message"]["content"] for row in pieces] == ["Hel", "lo"]
    assert not any("eval_count" in row or "done_reason" in row for row in pieces)
    assert (last["done"], last["done_reason"], last["message"]["content"]) == (True, "stop", "")
    assert last["total_duration"] == 1_750_000_000
    assert (last["prompt_eval_count"], last["prompt_eval_duration"]) == (9, 500_000_000)
    assert (last["eval_count"], last["eval_duration"], last["load_duration"]) == (5, 1_000_000_000, 0)
    assert last["created_at"] == "2023-11-14T22:13:20Z"
    answer = plain(rendered(CHAT, read_chat(), SAID))
    assert answer == last | {"message": {"role": "assistant", "content": "Hello"}}


@pytest.mark.parametrize("events", [SAID, CALLED])
def test_the_lines_of_a_stream_add_up_to_the_whole_however_they_are_cut(events: Any) -> None:
    answer = plain(rendered(CHAT, read_chat(), events))["message"]
    for cut_events in (events, list(byte_by_byte(events))):
        lines = [plain(row)["message"] for row in streamed(CHAT, read_chat(), cut_events)]
        assert "".join(line["content"] for line in lines) == answer["content"]
        assert "".join(line.get("thinking", "") for line in lines) == answer.get("thinking", "")
        assert [call for line in lines for call in line.get("tool_calls", [])] == answer.get("tool_calls", [])
    if events is CALLED:
        assert answer["tool_calls"][0]["function"] == {"index": 0, "name": "weather", "arguments": {"city": "Oslo"}}
    generated = plain(rendered(GENERATE, read_generate(), events))
    pieces = [plain(row) for row in streamed(GENERATE, read_generate(), events)]
    assert "".join(row["response"] for row in pieces) == generated["response"]
    assert "".join(row.get("thinking", "") for row in pieces) == generated.get("thinking", "")


def test_a_line_is_a_line_for_every_reader() -> None:
    frame = LINES.frame({"a": "x\u2028y\u0085z\u2029"}).decode()
    assert len(frame.splitlines()) == 1
    assert json.loads(frame) == {"a": "x\u2028y\u0085z\u2029"}


def lines(body: bytes) -> list[dict[str, Any]]:
    return [json.loads(line) for line in body.split(b"\n") if line]


def chat(live: Live, **fields: Any) -> tuple[int, dict[str, str], Any]:
    return live.ask("POST", "/api/chat", {"model": "beta", "messages": HELLO, "options": {"num_predict": 5}} | fields)


def test_a_chat_is_streamed_in_lines_and_whole_alike(live: Live) -> None:
    status, headers, body = chat(live, options={"num_predict": 5, "temperature": 0})
    assert (status, headers["content-type"]) == (200, "application/x-ndjson")
    rows = lines(body)
    assert [row["done"] for row in rows] == [False] * 5 + [True]
    answer = chat(live, options={"num_predict": 5, "temperature": 0}, stream=False)[2]
    assert answer["message"]["content"] == "".join(row["message"]["content"] for row in rows)
    assert (answer["done_reason"], answer["eval_count"], answer["model"]) == ("length", 5, "beta")


def test_a_body_without_a_model_is_still_for_the_older_documents(live: Live) -> None:
    answer = live.ask("POST", "/api/generate", {"prompt": "x", "max_tokens": 3})[2]
    assert {"text", "tokens_generated"} <= set(answer)
    assert live.ask("POST", "/api/generate", {"model": "beta", "prompt": "x", "stream": False})[2].keys() >= {
        "response"
    }


def test_an_empty_request_loads_and_unloads(start: Start) -> None:
    live = start(keys=KEYS, anonymous=True)
    for path, name in (("/api/generate", "response"), ("/api/chat", "message")):
        answer = live.ask("POST", path, {"model": "beta"})[2]
        assert (answer["done"], answer["done_reason"], name in answer) == (True, "load", True)
    assert [row["name"] for row in live.ask("GET", "/api/ps")[2]["models"]] == ["beta"]
    unload = {"model": "beta", "keep_alive": 0}
    assert live.ask("POST", "/api/generate", unload)[0] == 401  # others may be using it
    answer = live.ask("POST", "/api/generate", unload, {"x-api-key": KEY})[2]
    assert answer["done_reason"] == "unload"
    assert live.ask("GET", "/api/ps")[2]["models"] == []
    assert live.ask("POST", "/api/generate", unload | {"model": "nobody"}, {"x-api-key": KEY})[0] == 404


def test_models_are_listed_and_shown(live: Live) -> None:
    rows = live.ask("GET", "/api/tags")[2]["models"]
    assert sorted(row["name"] for row in rows) == ["Alpha.Q4", "beta"]
    assert rows[0]["details"]["format"] == "gguf" and len(rows[0]["digest"]) == 64
    answer = live.ask("POST", "/api/show", {"model": "beta"})[2]
    assert answer["model_info"]["general.architecture"] == "llama"
    assert answer["model_info"]["tokenizer.ggml.tokens"] is None
    assert answer["capabilities"] == ["completion", "tools"]
    assert "im_start" in answer["template"]
    assert live.ask("POST", "/api/show", {"name": "beta:latest"})[2] == answer
    arrays = live.ask("POST", "/api/show", {"model": "beta", "verbose": True})[2]["model_info"]
    assert len(arrays["tokenizer.ggml.tokens"]) == 288
    assert live.ask("GET", "/api/version")[2]["version"] == "0.30.0"


@pytest.mark.parametrize(
    ("path", "body", "status", "words"),
    [
        ("/api/chat", {"model": "nobody", "messages": HELLO}, 404, "model 'nobody' not found"),
        ("/api/show", {"model": "nobody"}, 404, "model 'nobody' not found"),
        ("/api/show", {}, 400, "model is required"),
        ("/api/chat", b"{", 400, "not JSON"),
        ("/api/chat", b"", 400, "not JSON"),
        ("/api/chat", {"model": "beta", "messages": HELLO, "options": {"num_ctx": 9999}}, 400, "4,096"),
        ("/api/create", {"model": "x"}, 400, "create is not supported"),
        ("/api/push", {"model": "x"}, 400, "push is not supported"),
        ("/api/copy", {"source": "beta", "destination": "x"}, 400, "aliases"),
        ("/api/copy", {"source": "nobody", "destination": "x"}, 404, "nobody"),
        ("/api/embed", {"model": "beta", "input": "x"}, 400, "without its tokenizer"),
        ("/api/embeddings", {"model": "beta", "prompt": "x"}, 400, "without its tokenizer"),
        ("/api/blobs/sha256:00", {}, 404, "route"),
    ],
)
def test_an_error_is_a_text(live: Live, path: str, body: Any, status: int, words: str) -> None:
    got, _, answer = live.ask("POST", path, body)
    assert (got, set(answer)) == (status, {"error"})
    assert words in answer["error"]


def test_keys_hold_on_every_route(start: Start) -> None:
    live = start(keys=KEYS, anonymous=False)
    asked = [("GET", "/api/tags"), ("GET", "/api/ps"), ("DELETE", "/api/delete")]
    asked += [("POST", f"/api/{name}") for name in ("show", "pull", "copy", "create", "push", "embed", "chat")]
    for method, path in asked:
        status, _, answer = live.ask(method, path, {"model": "beta"} if method != "GET" else None)
        assert (status, type(answer["error"])) == (401, str), path


def test_s09_nothing_is_downloaded_or_deleted_unless_the_server_was_told_so(live: Live, monkeypatch: Any) -> None:
    monkeypatch.setattr(store, "pull", lambda *_, **__: pytest.fail("it was downloaded"))
    rows = lines(live.ask("POST", "/api/pull", {"model": "hf.co/owner/repo"})[2])
    assert rows[0] == {"status": "pulling manifest"}
    assert "--manage-models" in rows[-1]["error"]
    status, _, answer = live.ask("POST", "/api/pull", {"model": "hf.co/owner/repo", "stream": False})
    assert (status, "--manage-models" in answer["error"]) == (403, True)
    status, _, answer = live.ask("DELETE", "/api/delete", {"model": "beta"})
    assert (status, "--manage-models" in answer["error"]) == (403, True)
    assert live.ask("DELETE", "/api/delete", {"model": "nobody"})[0] == 404
    assert lines(live.ask("POST", "/api/pull", {"model": "beta"})[2])[-1] == {"status": "success"}  # it is here already
    assert live.ask("POST", "/api/pull", {"model": ""})[0] == 400


HOSTILE = ("https://x/y.gguf", "../x", "/etc/passwd", "hf:../../x", "registry.example/x", "hf.co/a/b/../../c")


@pytest.mark.parametrize("name", HOSTILE)
def test_s09_a_name_never_chooses_where_a_model_comes_from(start: Start, monkeypatch: Any, name: str) -> None:
    monkeypatch.setattr(store, "pull", lambda *_, **__: pytest.fail("it was downloaded"))
    live = start(manage_models=True)
    status, _, answer = live.ask("POST", "/api/pull", {"model": name, "stream": False})
    assert (status, answer["error"]) == (404, f"model '{name}' not found")


def test_a_download_tells_how_far_it_is_and_ends_when_nobody_waits(start: Start, monkeypatch: Any) -> None:
    live, asked = start(manage_models=True), []

    def pull(name: str, _config: Config, *, progress: Any) -> None:
        asked.append(name)
        progress(1, 2)
        raise DownloadError("the line was cut")

    monkeypatch.setattr(store, "pull", pull)
    rows = lines(live.ask("POST", "/api/pull", {"model": "hf.co/owner/repo:Q8_0"})[2])
    assert asked == ["hf:owner/repo:Q8_0"]
    assert (rows[1]["total"], rows[1]["completed"]) == (2, 1)
    assert rows[-1] == {"error": "the line was cut"}


def test_s36_downloads_that_stand_still_hold_up_nothing_else_and_end_when_nobody_waits(
    start: Start, monkeypatch: Any
) -> None:
    def pull(name: str, _config: Config, *, progress: Any) -> None:
        while True:
            pause(1.0)

    monkeypatch.setattr(store, "pull", pull)
    live = start(manage_models=True)
    waiting = [Raw(live.port).post("/api/pull", {"model": f"hf.co/owner/repo:Q{number}"}) for number in range(40)]
    assert until(lambda: live.app.state.open == len(waiting))
    assert until(lambda: live.app.accounts.out(Resource.DOWNLOADS) == DOWNLOADS.each)
    session = live.ask("POST", "/api/v1/sessions", {})[2]["session_id"]  # written in a thread, too
    assert live.ask("GET", f"/api/v1/sessions/{session}")[0] == 200
    for raw in waiting:
        raw.close()
    assert until(lambda: live.app.accounts.empty and not live.app.state.open)


def test_s08_a_model_of_ours_is_deleted(start: Start, monkeypatch: Any) -> None:
    live, gone = start(manage_models=True), []
    monkeypatch.setattr(store, "remove", lambda model, _config: gone.append(model.name))
    live.ask("POST", "/api/chat", {"model": "Alpha.Q4"})
    status, _, answer = live.ask("DELETE", "/api/delete", {"name": "Alpha.Q4"})
    assert (status, answer, gone) == (200, b"", ["Alpha.Q4"])
    assert live.ask("GET", "/api/ps")[2]["models"] == []
