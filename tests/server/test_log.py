"""The log: every line is a line, whatever the disk does, and has the fields of the server, whatever a client sends."""

from __future__ import annotations

import dataclasses
import errno
import json
import os
import shlex
import threading
from pathlib import Path

import pytest

from tests.server.conftest import Live, Start
from tests.server.stand_in import until
from woolly.server import Settings
from woolly.server.http.log import Log

FORGED = (
    "/health%20status=200",
    "/health%20status=200%20ms=0.1%0A2026-01-01T00:00:00%20info%20request%20id=x",
    '/health"%20status=200',
    "/health%5C%22%20status=200",
    "/health%C2%A0status=200%E2%80%A8status=200",
    "/health%5C",
    "/status=200",
)


@pytest.fixture
def logged(start: Start, tmp_path: Path) -> tuple[Live, Path]:
    """A server, and the file that it logs every request to."""
    live, path = start(), tmp_path / "log.txt"
    live.app.log = Log(dataclasses.replace(live.app.settings, log_level="info", log_file=path))
    return live, path


def lines(path: Path, count: int) -> list[str]:
    assert until(lambda: path.exists() and path.read_text().count("\n") == count)
    return path.read_text().splitlines()


@pytest.mark.parametrize("path", FORGED)
def test_s26_a_path_adds_no_field_to_a_line_and_no_line(logged: tuple[Live, Path], path: str) -> None:
    live, log = logged
    assert live.ask("GET", path, headers={"X-Request-Id": 'a"status=200'})[0] == 404
    (line,) = lines(log, 1)
    _, level, message, *fields = shlex.split(line)
    assert (level, message) == ("info", "request")
    assert [field.partition("=")[0] for field in fields] == ["id", "method", "path", "status", "ms"]
    assert "status=404" in fields


def test_s26_a_line_in_json_has_each_field_once(logged: tuple[Live, Path]) -> None:
    live, log = logged
    live.app.log = Log(dataclasses.replace(live.app.settings, log_level="info", log_file=log, log_format="json"))
    for path in FORGED:
        live.ask("GET", path)
    for line in lines(log, len(FORGED)):
        pairs = json.loads(line, object_pairs_hook=list)
        assert [name for name, _ in pairs] == ["time", "level", "message", "id", "method", "path", "status", "ms"]


def test_an_ordinary_line_has_no_quotes(logged: tuple[Live, Path]) -> None:
    live, log = logged
    live.ask("GET", "/v1/models")
    (line,) = lines(log, 1)
    assert " method=GET path=/v1/models status=200 ms=" in line and '"' not in line


def test_a_line_that_the_disk_cut_is_ended_before_the_next_one(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path, real = tmp_path / "log", os.write
    log = Log(Settings(log_file=path, log_level="info"))

    def full(handle: int, data: bytes) -> int:
        if b"second" not in data:
            return real(handle, data)
        if path.stat().st_size != before:
            raise OSError(errno.ENOSPC, "No space left on device")
        return real(handle, data[:10])

    log.line("info", "first")
    assert until(lambda: path.exists() and path.read_bytes().endswith(b"first\n"))
    before = path.stat().st_size
    monkeypatch.setattr(os, "write", full)
    for word in ("second", "third"):
        log.line("info", word)
    assert until(lambda: path.exists() and b"third" in path.read_bytes())
    log.close()
    first, second, third = path.read_text().splitlines()
    assert first.endswith(" info first") and len(second) == 10 and third.endswith(" info third")


def test_lines_wait_where_no_thread_can_write_them_now(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path = tmp_path / "log"
    log = Log(Settings(log_file=path, log_level="info"))

    def no_memory(thread: threading.Thread) -> None:
        raise RuntimeError("can't start new thread")

    with monkeypatch.context() as broken:
        broken.setattr(threading.Thread, "start", no_memory)
        log.line("info", "first")
        log.close()
    log.line("info", "second")
    log.close()
    assert [line.split()[-1] for line in path.read_text().splitlines()] == ["first", "second"]
