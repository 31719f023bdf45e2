"""`woolly batch --server`: the bytes of a job on this machine, though the server is killed meanwhile."""

from __future__ import annotations

import http.server
import subprocess
import threading
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from tests.cli.conftest import Woolly
from tests.server.batch.lines import HELLO, every_kind, read, row, write
from tests.server.forked import start
from tests.server.process import Process
from woolly.cli.batch_server import row_answerer
from woolly.cli.chat.remote import Server
from woolly.config.serving import SERVING
from woolly.errors import RequestError
from woolly.server.batch import Input, Retry, RowResult, Terms


def url(port: int) -> str:
    return f"http://127.0.0.1:{port}"


def test_a_server_gives_the_bytes_of_this_machine_also_when_it_is_killed_meanwhile(
    woolly: Woolly, environ: dict[str, str], tmp_path: Path
) -> None:
    source = write(tmp_path / "in.jsonl", every_kind(150))
    here, there = tmp_path / "here.jsonl", tmp_path / "there.jsonl"
    assert woolly("batch", str(source), str(here), "--model", "tiny-talker").returncode == 1
    with Process(environ, "tiny-talker") as first:
        port = first.port
        words = ["batch", str(source), str(there), "--model", "tiny-talker", "--server", url(port)]
        job = start(words, environ, stdout=subprocess.PIPE, stderr=subprocess.PIPE)
        try:
            while not there.exists() or there.read_bytes().count(b"\n") < 40:
                assert job.poll() is None, job.communicate()
                time.sleep(0.005)
            first.process.kill()
            first.process.wait()
            before = there.read_bytes().count(b"\n")
            assert before < 150
            with Process(environ, "tiny-talker", port=port):
                out, errors = job.communicate(timeout=60)
        finally:
            job.kill()
    assert (job.returncode, errors) == (1, b"") and out.startswith(b"150 rows, 25 of them failed")
    assert there.read_bytes() == here.read_bytes()


def test_ctrl_c_ends_the_waiting_at_once_and_says_how_to_go_on(environ: dict[str, str], tmp_path: Path) -> None:
    rows = [row(str(number), messages=HELLO, max_tokens=60_000, temperature=0) for number in range(4)]
    source = write(tmp_path / "in.jsonl", rows)
    with Process(environ, "tiny-talker") as server:
        words = ["batch", str(source), str(tmp_path / "out.jsonl"), "--server", url(server.port)]
        job = start(words, environ, stdout=subprocess.PIPE, stderr=subprocess.PIPE)
        while server.ask("GET", "/api/v1/performance/stats")[2]["requests"]["active"] < 4:
            assert job.poll() is None, job.communicate()
            time.sleep(0.02)
        job.send_signal(2)
        _, errors = job.communicate(timeout=60)
    assert job.returncode == 130
    assert errors == b"woolly: 0 of 4 rows are written; the same command goes on\n"


@pytest.mark.parametrize(
    ("words", "expected"),
    [
        (["--server", "nonsense"], "'nonsense' is no address"),
        (["--server", "http://127.0.0.1:1", "--threads", "2"], "with --server, its settings count: threads"),
        (["--api-key", "x"], "--api-key is for --server"),
        (["--server", "http://127.0.0.1:1", "--concurrency", "0"], "--concurrency is a number from 1 to 1,024"),
    ],
)
def test_options_that_do_not_go_together_are_refused(
    woolly: Woolly, tmp_path: Path, words: list[str], expected: str
) -> None:
    source = write(tmp_path / "in.jsonl", [row("a")])
    done = woolly("batch", str(source), str(tmp_path / "out.jsonl"), *words)
    assert done.returncode == 2 and done.stderr.startswith(f"woolly: error: {expected}")


def test_the_key_of_a_server_comes_by_the_environment_or_an_option(
    woolly: Woolly, environ: dict[str, str], tmp_path: Path
) -> None:
    key = "a-key-of-thirty-two-signs-for-us"
    source = write(tmp_path / "in.jsonl", [row("a")])
    with Process(environ | {"WOOLLY_API_KEY": key}, "tiny-talker") as server:
        words = ["batch", str(source), str(tmp_path / "out.jsonl"), "--server", url(server.port)]
        refused = woolly(*words)
        assert refused.returncode == 2 and "wants a key" in refused.stderr and not read(tmp_path / "out.jsonl")
        assert woolly(*words, WOOLLY_API_KEY=key).returncode == 0
        words[2] += ".again"
        assert woolly(*words, "--api-key", key).returncode == 0


class Other:
    """A server of any maker, which gives every request the same answer."""

    def __init__(self) -> None:
        self.status, self.headers, self.data = 200, dict[str, str](), b"{}"
        self.seen: list[Any] = []
        outer = self

        class Handler(http.server.BaseHTTPRequestHandler):
            def do_POST(self) -> None:
                outer.seen.append((self.path, dict(self.headers), self.rfile.read(int(self.headers["Content-Length"]))))
                self.send_response(outer.status)
                for name, value in outer.headers.items():
                    self.send_header(name, value)
                self.end_headers()
                self.wfile.write(outer.data)

            def log_message(self, format: str, *args: Any) -> None:
                pass

        self.server = http.server.ThreadingHTTPServer(("127.0.0.1", 0), Handler)
        threading.Thread(target=self.server.serve_forever, daemon=True).start()


@pytest.fixture
def other() -> Iterator[Other]:
    fake = Other()
    yield fake
    fake.server.shutdown()
    fake.server.server_close()


def ask(other: Other, tmp_path: Path) -> RowResult:
    import asyncio

    source = write(tmp_path / "in.jsonl", [row("a", "/v1/completions", prompt="x")])
    each = next(Input(source, Terms(), SERVING, most_bytes=1000, most_rows=9).rows())

    async def asked() -> RowResult:
        with row_answerer(Server(url(other.server.server_port), "secret"), 1) as ask:
            return await ask(each)

    return asyncio.run(asked())


def test_a_row_is_one_request_with_its_key_and_its_id(other: Other, tmp_path: Path) -> None:
    other.data = b'{"choices": []}'
    assert ask(other, tmp_path) == RowResult(200, {"choices": []})
    ((path, headers, body),) = other.seen
    assert path == "/v1/completions" and headers["Authorization"] == "Bearer secret" and b'"seed"' in body
    assert headers["X-Request-Id"].startswith("req_")


@pytest.mark.parametrize(("status", "header", "wait_s"), [(429, "7", 7.0), (503, "9999", 60.0), (502, "soon", 0.0)])
def test_a_server_that_is_busy_is_asked_later(
    other: Other, tmp_path: Path, status: int, header: str, wait_s: float
) -> None:
    other.status, other.headers = status, {"Retry-After": header}
    with pytest.raises(Retry) as caught:
        ask(other, tmp_path)
    assert caught.value.wait_s == wait_s


def test_an_answer_that_the_servers_clock_cut_short_is_no_answer(other: Other, tmp_path: Path) -> None:
    other.headers = {"X-Woolly-Notes": "max_tokens, request_timeout"}
    result = ask(other, tmp_path)
    assert result.status == 504 and result.body["error"]["code"] == "timeout"


@pytest.mark.parametrize("data", [b"<html>", b""])
def test_nonsense_is_no_answer(other: Other, tmp_path: Path, data: bytes) -> None:
    other.data = data
    with pytest.raises(Retry):
        ask(other, tmp_path)


def test_a_wrong_key_ends_the_job_and_fails_no_row(other: Other, tmp_path: Path) -> None:
    other.status = 401
    with pytest.raises(RequestError, match="wants a key"):
        ask(other, tmp_path)


def test_a_refused_row_has_the_servers_words(other: Other, tmp_path: Path) -> None:
    other.status, other.data = 400, b'{"error": {"message": "no"}}'
    assert ask(other, tmp_path) == RowResult(400, {"error": {"message": "no"}})


def test_rows_that_the_server_cuts_short_fail_with_504(woolly: Woolly, environ: dict[str, str], tmp_path: Path) -> None:
    rows = [row("long", messages=HELLO, max_tokens=60_000, temperature=0), row("short")]
    source = write(tmp_path / "in.jsonl", rows)
    with Process(environ, "tiny-talker", "--timeout", "0.5") as server:
        done = woolly("batch", str(source), str(tmp_path / "out.jsonl"), "--server", url(server.port))
    assert done.returncode == 1
    assert [each["response"]["status_code"] for each in read(tmp_path / "out.jsonl")] == [504, 200]
