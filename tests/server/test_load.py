"""While models answer, read long prompts, come and go: the event loop is free and health answers."""

from __future__ import annotations

import asyncio
import json
import threading
import time
from collections.abc import Callable, Coroutine, Iterator
from concurrent.futures import Future
from contextlib import contextmanager
from pathlib import Path
from typing import Any, TypeVar

import pytest

from tests.server.background import Background
from tests.server.conftest import Live
from tests.server.process import Process, environ
from tests.server.raw import Raw, ask
from woolly.config import read_config
from woolly.device.cpu import Runner
from woolly.engine import Grammars
from woolly.llm import encoder
from woolly.llm.llm import LLM
from woolly.request import request
from woolly.server import App, Settings, dispatch
from woolly.server.dialects.openai import responses_reading
from woolly.server.dispatch import LARGE
from woolly.server.http import body as http_body
from woolly.text import ChatTemplate, Tokenizer

SOAK_S = 30.0
T = TypeVar("T")


def late(wait: float, begun: float) -> float:
    return time.perf_counter() - begun - wait


def spread(values: list[float]) -> tuple[float, float]:
    """The 99th percentile and the maximum, in milliseconds."""
    rows = sorted(values)
    return rows[len(rows) * 99 // 100] * 1e3, rows[-1] * 1e3


@contextmanager
def load(port: int) -> Iterator[None]:
    """Streams, a prompt that fills the context, a prompt of a megabyte, chats, and a model that comes and goes."""
    over = threading.Event()

    def again(work: Callable[[], object]) -> threading.Thread:
        def run() -> None:
            while not over.is_set():
                work()

        thread = threading.Thread(target=run)
        thread.start()
        return thread

    def stream() -> None:
        raw = Raw(port).post("/v1/completions", {"prompt": "Once", "max_tokens": 300, "stream": True})
        while not over.is_set() and b"[DONE]" not in raw.read():
            pass
        raw.close()

    def long() -> None:
        text = str(time.time()) + " once upon a time" * 500  # new each time, so nothing of it is in the cache
        assert ask(port, "POST", "/v1/completions", {"prompt": text, "max_tokens": 1})[0] in (200, 429)

    def huge() -> None:
        text = "wool " * 200_000
        assert ask(port, "POST", "/v1/completions", {"prompt": text, "max_tokens": 1})[0] in (400, 429)
        assert ask(port, "POST", "/api/tokenize", {"text": text})[0] == 200
        time.sleep(0.2)

    def chat() -> None:
        messages = [{"role": "user", "content": "Hello"}] * 50
        assert ask(port, "POST", "/v1/chat/completions", {"messages": messages, "max_tokens": 2})[0] in (200, 429)

    threads = [again(work) for work in (stream, stream, long, huge, chat)]
    try:
        yield
    finally:
        over.set()
        for thread in threads:
            thread.join()


@contextmanager
def in_this_process(talkers: Path, home: Path) -> Iterator[Background]:
    config = read_config({"HOME": str(home), "WOOLLY_MODELS_DIR": str(talkers)})
    with Background(App(Settings(ports=(0,), log_level="error"), config)) as background:
        ask(background.port, "POST", "/v1/completions", {"prompt": "x", "max_tokens": 1})
        yield background


def on_the_loop(background: Background, work: Coroutine[Any, Any, T]) -> Future[T]:
    loop = background._listener._loop
    assert loop is not None
    return asyncio.run_coroutine_threadsafe(work, loop)


# Functions that take, or may take, longer the larger a model, a prompt, a schema or a body is.
LONG_WORK: dict[str, tuple[Any, str]] = {
    "a model is loaded": (LLM, "__init__"),
    "it is unloaded": (LLM, "close"),
    "a request is prepared": (LLM, "prepare"),
    "a text becomes tokens": (Tokenizer, "encode"),
    "a chat becomes tokens": (Tokenizer, "encode_chat"),
    "a template is rendered": (ChatTemplate, "render"),
    "a schema is compiled": (Grammars, "grammar"),
    "a step is computed": (Runner, "run"),
    "a large body is read": (http_body, "_measure"),
    "a large body becomes a Struct": (dispatch, "read_struct"),
    "a large chat is read": (request, "read_messages"),
    "an embedding is written": (encoder, "shortest"),
}


def test_l12_the_event_loop_does_nothing_that_takes_long(
    talkers: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    threads: dict[str, set[int]] = {what: set() for what in LONG_WORK}

    def noted(what: str, work: Callable[..., Any]) -> Callable[..., Any]:
        def run(*args: Any, **named: Any) -> Any:
            if "a large" not in what or len(repr(args)) > LARGE:
                threads[what].add(threading.get_ident())
            return work(*args, **named)

        return run

    for what, (owner, name) in LONG_WORK.items():
        monkeypatch.setattr(owner, name, noted(what, getattr(owner, name)))

    async def ident() -> int:
        return threading.get_ident()

    schema = {"type": "json_schema", "json_schema": {"name": "x", "schema": {"type": "boolean"}}}
    with in_this_process(talkers, tmp_path) as background:
        asked = [
            ask(background.port, "POST", path, body)[0]
            for path, body in (
                ("/v1/completions", {"prompt": "Once", "max_tokens": 3, "stream": True}),
                ("/v1/completions", {"prompt": "wool " * 50_000, "max_tokens": 1}),
                ("/api/tokenize", {"text": "wool " * 50_000}),
                ("/v1/chat/completions", {"messages": [{"role": "user", "content": "Hello"}], "max_tokens": 2}),
                ("/v1/completions", {"prompt": "Once", "max_tokens": 9, "response_format": schema}),
                ("/v1/chat/completions", {"messages": [{"role": "user", "content": "wool " * 50_000}], "n": 2}),
                ("/v1/embeddings", {"input": "wool"}),
                ("/api/v1/models/talker/unload", {}),
            )
        ]
        loop = on_the_loop(background, ident()).result()
    assert asked == [200, 400, 200, 200, 200, 400, 200, 200]
    assert {what for what, idents in threads.items() if not idents} == set()
    assert {what for what, idents in threads.items() if loop in idents} == set()


def test_l12_a_conversation_that_was_kept_is_not_read_on_the_event_loop(
    live: Live, monkeypatch: pytest.MonkeyPatch
) -> None:
    names: list[str] = []
    read_items = responses_reading.read_items

    def noted(*args: Any) -> Any:
        names.append(threading.current_thread().name)
        return read_items(*args)

    monkeypatch.setattr(responses_reading, "read_items", noted)
    first = live.ask("POST", "/v1/responses", {"input": "Hello", "max_output_tokens": 2})[2]
    again = {"input": "And?", "max_output_tokens": 2, "previous_response_id": first["id"]}
    assert live.ask("POST", "/v1/responses", again)[0] == 200
    assert [name.startswith("woolly-work") for name in names] == [False, True]


@pytest.mark.soak
def test_l12_the_event_loop_is_never_held_up(talkers: Path, tmp_path: Path) -> None:
    """Compared with a thread that sleeps as often: delays of both are not the loop's."""

    async def sample() -> list[float]:
        rows, end = [], time.perf_counter() + SOAK_S
        while time.perf_counter() < end:
            begun = time.perf_counter()
            await asyncio.sleep(0.01)
            rows.append(late(0.01, begun))
        return rows

    with in_this_process(talkers, tmp_path) as background, load(background.port):
        future = on_the_loop(background, sample())
        control_times = []
        while not future.done():
            begun = time.perf_counter()
            time.sleep(0.01)
            control_times.append(late(0.01, begun))
        lag, control = spread(future.result()), spread(control_times)
    print(f"event loop: p99 {lag[0]:.1f} ms, max {lag[1]:.1f}; a thread: p99 {control[0]:.1f}, max {control[1]:.1f}")
    assert lag[0] < control[0] * 2 + 20
    assert lag[1] < control[1] * 2 + 200


def healths(process: Process, count: int) -> list[float]:
    """So many answers of the health route, and how long each took."""
    rows = []
    raw = Raw(process.port, timeout=60)
    for _ in range(count):
        begun = time.perf_counter()
        data = raw.send(b"GET /health HTTP/1.1\r\nHost: localhost\r\n\r\n").read()
        while not data.endswith(b"}"):
            data += raw.read()
        assert data.startswith(b"HTTP/1.1 200"), data
        assert json.loads(data.rpartition(b"\r\n\r\n")[2])["status"] == "ok"
        rows.append(time.perf_counter() - begun)
        time.sleep(max(0.05 - rows[-1], 0.0))
    return rows


@pytest.fixture
def process(talkers: Path, tmp_path: Path) -> Iterator[Process]:
    with Process(environ(tmp_path, talkers), "--log-level", "error") as running:
        running.ask("POST", "/v1/completions", {"prompt": "x", "max_tokens": 1})
        yield running


def test_l13_health_answers_under_load(process: Process) -> None:
    with load(process.port):
        healths(process, 20)  # they must all come; how quickly is tested by `make soak`


@pytest.mark.soak
def test_l13_health_answers_soon_under_load(process: Process) -> None:
    with load(process.port):
        p99, most = spread(healths(process, 2000))
    print(f"/health: p99 {p99:.1f} ms, max {most:.1f}")
    assert p99 < 100
    assert most < 2000


def test_a_stream_beside_hostile_formats_goes_on(served: Process) -> None:
    """Beside a schema that takes too long to compile and a grammar that can be read in many ways."""
    patterns = [{"pattern": f"^.*[a-z]{{{i}}}.*{chr(97 + i % 26)}.*$"} for i in range(100)]
    schema = {"name": "x", "schema": {"type": "string", "allOf": patterns}, "strict": True}
    formatted = {"prompt": "x", "max_tokens": 50, "response_format": {"type": "json_schema", "json_schema": schema}}
    grammar = {"prompt": "x", "n_predict": 200, "grammar": "root ::= s\ns ::= s s s | s s | [a-z]"}
    answers: list[tuple[int, Any]] = []

    def hostile(path: str, body: dict[str, Any]) -> None:
        code, _, answer = ask(served.port, "POST", path, body)
        answers.append((code, answer))

    def streaming() -> Raw:
        raw = Raw(served.port, timeout=60).post(
            "/v1/completions", {"prompt": "Once", "max_tokens": 4000, "stream": True}
        )
        raw.read(100)
        return raw

    assert served.ask("POST", "/v1/completions", {"prompt": "x", "max_tokens": 1})[0] == 200
    raw, pieces = streaming(), 0
    work = [("/v1/completions", formatted), ("/completion", grammar)]
    asking = [threading.Thread(target=hostile, args=each) for each in work]
    for thread in asking:
        thread.start()
    while any(thread.is_alive() for thread in asking):
        pieces += 1
        if b"[DONE]" in raw.read():
            raw.close()
            raw = streaming()
        time.sleep(0.01)
    raw.close()
    assert [code for code, answer in answers if "too complex" in str(answer)] == [400]
    assert pieces > 10  # some hundreds come; a stream that is held up gets one
