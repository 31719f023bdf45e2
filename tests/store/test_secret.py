"""A secret of the user: made once, private, the same for all."""

from __future__ import annotations

import logging
import stat
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest

from woolly.store import read_secret


def test_it_is_made_once_for_its_user_alone(tmp_path: Path) -> None:
    path = tmp_path / "state" / "salt"
    first = read_secret(path)
    assert len(first) == 32 and read_secret(path) == first and read_secret(tmp_path / "other") != first
    assert [stat.S_IMODE(place.stat().st_mode) for place in (path, path.parent)] == [0o600, 0o700]


def test_all_who_make_it_at_once_have_the_same(tmp_path: Path) -> None:
    for number in range(20):
        with ThreadPoolExecutor(8) as threads:
            path = tmp_path / str(number) / "salt"
            assert len(set(threads.map(read_secret, [path] * 8))) == 1
        assert [file.name for file in path.parent.iterdir()] == ["salt"]


@pytest.mark.parametrize("harm", ["short", "open", "folder"])
def test_one_that_cannot_be_used_is_told_of_and_replaced_for_this_start(
    tmp_path: Path, harm: str, caplog: pytest.LogCaptureFixture
) -> None:
    path = tmp_path / "salt"
    if harm == "folder":
        path.mkdir()
    else:
        path.write_bytes(b"x" * (3 if harm == "short" else 32))
        path.chmod(0o600 if harm == "short" else 0o644)
    with caplog.at_level(logging.WARNING):
        assert read_secret(path) != read_secret(path)
    assert len(caplog.records) == 2 and "not remembered over a restart" in caplog.text
