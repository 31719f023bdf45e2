"""The log: every line is a line, whatever the disk does."""

from __future__ import annotations

import errno
import os
from pathlib import Path

import pytest

from tests.server.stand_in import until
from woolly.server import Settings
from woolly.server.http.log import Log


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
