"""Keys leak nothing through timing or errors, no request makes the server fetch a URL, and a template does no harm."""

from __future__ import annotations

import hashlib
import hmac
import json
import os
import signal
import socket
import statistics
import threading
import time
from collections.abc import Iterator
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from tests.server.background import Background
from tests.server.conftest import HELLO, Live, Start
from tests.server.process import Process, environ
from tests.server.raw import Raw
from tests.server.stand_in import until
from tests.tiny import CHATML, tiny
from woolly.config import read_config
from woolly.server import App, Settings
from woolly.server.http.tokens import GRACE_S, Tokens
from woolly.text.template.renderer import RENDERER

KEY = "0123456789abcdef0123456789abcdef"


def test_s03_a_key_is_compared_by_its_digest_with_every_key_and_in_constant_time(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    keys = [KEY, "another key of thirty-two signs!"]
    tokens = Tokens(tuple(hashlib.sha256(key.encode()).digest() for key in keys))
    compared: list[tuple[int, int]] = []

    def compare(one: bytes, other: bytes) -> bool:
        compared.append((len(one), len(other)))
        return hmac.compare_digest(one, other)

    monkeypatch.setattr("woolly.server.http.tokens.hmac", SimpleNamespace(compare_digest=compare, new=hmac.new))
    for key in (KEY[:31] + "x", "x" * 32, "x", KEY):
        compared.clear()
        assert (tokens.key_id(key) is not None) == (key in keys)
        assert compared == [(32, 32)] * len(keys), key


@pytest.mark.soak
def test_s03_a_key_that_is_almost_right_takes_as_long_as_one_that_is_all_wrong() -> None:
    tokens = Tokens((hashlib.sha256(KEY.encode()).digest(),))
    near, far = KEY[:31] + "x", "x" * 32
    times: dict[str, list[int]] = {near: [], far: []}
    for _ in range(20_000):  # in turns, so that other work of the machine falls on both
        for key in (near, far):
            begun = time.perf_counter_ns()
            assert tokens.key_id(key) is None
            times[key].append(time.perf_counter_ns() - begun)
    assert abs(statistics.median(times[near]) - statistics.median(times[far])) < 1000
    assert tokens.key_id(KEY) is not None


def test_s03_every_refusal_looks_the_same(start: Start) -> None:
    live = start(keys=(hashlib.sha256(KEY.encode()).digest(),), anonymous=False, token_secret=b"s" * 32)
    old = Tokens(live.app.settings.keys, secret=b"s" * 32, life_s=-GRACE_S - 10)
    expired = old.make("me", old.key_id(KEY))
    bodies = set()
    for headers in (
        {},
        {"Authorization": "Bearer wrong"},
        {"Authorization": f"Bearer {KEY[:31]}x"},
        {"Authorization": f"Bearer {expired}"},
        {"Authorization": f"Bearer {expired}x"},
        {"X-API-Key": "wrong"},
    ):
        code, _, answer = live.ask("GET", "/v1/models", headers=headers)
        bodies.add((code, json.dumps(answer)))
    assert len(bodies) == 1
    assert live.ask("GET", "/v1/models", headers={"X-API-Key": KEY})[0] == 200


def test_s05_no_request_makes_the_server_fetch_anything(live: Live) -> None:
    with socket.socket() as trap:
        trap.bind(("127.0.0.1", 0))
        trap.listen()
        trap.settimeout(0.3)
        url = f"http://127.0.0.1:{trap.getsockname()[1]}/x.gguf"
        parts = ("image_url", {"url": url}), ("file", {"file_url": url}), ("input_audio", {"data": url}), ("url", url)
        for kind, value in parts:
            message = [{"role": "user", "content": [{"type": kind, kind: value}]}]
            assert live.chat(messages=message)[0] == 400
        for fields in ({"model": url}, {"model": "hf:" + url}, {"web_search_options": {"url": url}}):
            assert live.chat(**fields)[0] in (400, 404)
        assert live.chat(metadata={"url": url}, user=url)[0] == 200
        for path in ("/api/v1/models/load", "/v1/models/load"):
            for name in ("model", "path", "model_path"):
                assert live.ask("POST", path, {name: url})[0] in (400, 403, 404)
        named = {"X-Request-Id": url, "X-Forwarded-For": "127.0.0.1", "Referer": url}
        assert live.ask("GET", "/v1/models", headers=named)[0] == 200
        with pytest.raises(TimeoutError):
            trap.accept()


LOOP = "{% for i in range(99999) %}{% for j in range(99999) %}{% endfor %}{% endfor %}"
TEMPLATE = "{% if messages[0]['content'] == 'loop' %}" + LOOP + "{% endif %}" + CHATML


@pytest.fixture
def evil(tmp_path: Path) -> Iterator[Any]:
    """A server in this process, with a real model whose template may loop; gives a function that chats."""
    from tests.server.raw import ask

    folder = tmp_path / "models"
    folder.mkdir()
    tiny(folder / "evil.gguf", meta={"tokenizer.chat_template": TEMPLATE})
    config = read_config({"HOME": str(tmp_path), "WOOLLY_MODELS_DIR": str(folder)})
    with Background(App(Settings(ports=(0,), log_level="error"), config)) as background:

        def chat(content: str) -> tuple[int, Any]:
            message = {"messages": [{"role": "user", "content": content}], "max_tokens": 1}
            code, _, answer = ask(background.port, "POST", "/v1/chat/completions", message)
            return code, answer

        yield chat


BASE64 = "?" * 1_000_000  # invalid, so decoding it would fail
DATA = f"data:image/png;base64,{BASE64}"
MEDIA: dict[str, dict[str, Any]] = {
    "/v1/chat/completions": {"messages": [{"role": "user", "content": [{"type": "image_url", "image_url": DATA}]}]},
    "/v1/responses": {"input": [{"role": "user", "content": [{"type": "input_file", "file_data": DATA}]}]},
    "/v1/messages": {
        "max_tokens": 2,
        "messages": [{"role": "user", "content": [{"type": "image", "source": {"type": "base64", "data": BASE64}}]}],
    },
    "/api/chat": {"model": "beta", "messages": [{"role": "user", "content": "x", "images": [BASE64]}]},
    "/api/generate": {"model": "beta", "prompt": "x", "images": [BASE64]},
}


@pytest.mark.parametrize("path", MEDIA)
def test_s06_pictures_and_files_are_refused_by_their_kind(live: Live, path: str) -> None:
    code, _, answer = live.ask("POST", path, MEDIA[path])
    assert code == 400
    assert any(kind in json.dumps(answer) for kind in ("image", "input_file", "takes text"))
    assert len(json.dumps(answer)) < 1000
    assert live.loader.talkers == []


def test_s13_a_template_that_takes_too_long_or_dies_is_a_400_and_the_next_is_fine(evil: Any) -> None:
    assert evil("Hello")[0] == 200
    code, answer = evil("loop")
    assert (code, answer["error"]["type"]) == (400, "invalid_request_error")
    assert evil("Hello")[0] == 200
    codes: list[int] = []
    asking = threading.Thread(target=lambda: codes.append(evil("loop")[0]))
    asking.start()
    time.sleep(0.2)
    process = next(child for child in RENDERER._children if child._lock.locked())._process
    assert process is not None
    os.kill(process.pid, signal.SIGKILL)
    asking.join()
    assert codes == [400]
    assert evil("Hello")[0] == 200


def test_f19_a_clock_that_jumps_changes_no_waiting_and_no_stream(start: Start, monkeypatch: pytest.MonkeyPatch) -> None:
    live = start(step_s=0.005, limits={"request_timeout": 60.0}, anonymous_rpm=600, burst=100)
    live.chat()
    now = time.time
    for jump in (86_400, -86_400):
        raw = Raw(live.port).post("/v1/chat/completions", {"messages": HELLO, "max_tokens": 60, "stream": True})
        data = raw.read(300)
        monkeypatch.setattr(time, "time", lambda jump=jump: now() + jump)
        while b"[DONE]" not in data:
            piece = raw.read()
            assert piece, "the stream was cut off"
            data += piece
        assert data.count(b'"content"') >= 60
        assert live.chat()[0] == 200
        monkeypatch.setattr(time, "time", now)


def test_f19_a_token_is_valid_by_the_wall_clock_with_a_minute_of_grace(monkeypatch: pytest.MonkeyPatch) -> None:
    tokens, now = Tokens((), life_s=100), time.time()
    monkeypatch.setattr(time, "time", lambda: now)
    token = tokens.make("me", None)
    for later, valid in ((0, True), (100 + GRACE_S - 2, True), (100 + GRACE_S + 2, False), (-86_400, True)):
        monkeypatch.setattr(time, "time", lambda later=later: now + later)
        assert (tokens.read(token) is not None) == valid


def test_f03_a_server_that_is_killed_leaves_no_answer_that_looks_whole(talkers: Path, tmp_path: Path) -> None:
    body = {"prompt": "Once", "max_tokens": 6000, "stream": True, "temperature": 0, "model": "talker"}
    with Process(environ(tmp_path, talkers), "talker") as process:
        running = [Raw(process.port).post("/v1/completions", body) for _ in range(4)]
        heads = [raw.read(200) for raw in running]
        waiting = [Raw(process.port).post("/v1/completions", body) for _ in range(4)]
        process.process.kill()
        for head, raw in zip(heads, running, strict=True):
            data = head + raw.rest()
            assert b"200 OK" in data
            assert b"[DONE]" not in data
            assert not data.endswith(b"0\r\n\r\n")
        assert all(b"[DONE]" not in raw.rest() for raw in waiting)
    with Process(environ(tmp_path, talkers), "talker") as again:
        assert until(lambda: again.ask("GET", "/health")[2]["model"] == "talker")
        assert again.ask("POST", "/v1/completions", body | {"max_tokens": 3, "stream": False})[0] == 200
