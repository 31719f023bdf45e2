"""The digest of a model's files: of their bytes, made once as long as they are the same."""

from __future__ import annotations

import hashlib
import os
import time
from pathlib import Path

import pytest

from woolly.engine import DiskStore
from woolly.store import cached_digest, file_digest
from woolly.store import digest as module


@pytest.fixture
def disk_store(tmp_path: Path) -> DiskStore:
    store = DiskStore(tmp_path / "prefix", 1 << 20)
    assert store.open()
    return store


def files(*paths: Path) -> list[tuple[Path, os.stat_result]]:
    return [(path, path.stat()) for path in paths]


class Wanted:
    """Counts how often it was asked: once for each piece that is read."""

    def __init__(self, answer: bool = True) -> None:
        self.answer, self.times = answer, 0

    def __call__(self) -> bool:
        self.times += 1
        return self.answer


def settled(path: Path, data: bytes, monkeypatch: pytest.MonkeyPatch) -> None:
    """A file that was written a while ago."""
    path.write_bytes(data)
    monkeypatch.setattr(module, "SETTLED_S", 0.0)


def test_it_is_the_digest_of_all_bytes_in_order(tmp_path: Path) -> None:
    one, two = tmp_path / "one", tmp_path / "two"
    one.write_bytes(b"a" * 3_000_000)
    two.write_bytes(b"b")
    assert file_digest([one, two], lambda: True) == hashlib.sha256(b"a" * 3_000_000 + b"b").digest()
    assert file_digest([one, two], lambda: False) is None


def test_a_file_that_stays_is_read_once(tmp_path: Path, disk_store: DiskStore, monkeypatch: pytest.MonkeyPatch) -> None:
    path, wanted = tmp_path / "model", Wanted()
    settled(path, b"weights", monkeypatch)
    expected = hashlib.sha256(b"weights").digest()
    assert cached_digest(files(path), disk_store, wanted) == expected
    again = DiskStore(disk_store.folder, 1 << 20)
    assert again.open() and cached_digest(files(path), again, wanted) == expected
    assert wanted.times == 1


def test_other_bytes_of_the_same_size_and_time_have_another_digest(
    tmp_path: Path, disk_store: DiskStore, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = tmp_path / "model"
    settled(path, b"weights", monkeypatch)
    before = path.stat()
    first = cached_digest(files(path), disk_store, lambda: True)
    time.sleep(0.02)
    path.write_bytes(b"WEIGHTS")
    os.utime(path, ns=(before.st_atime_ns, before.st_mtime_ns))
    assert cached_digest(files(path), disk_store, lambda: True) == hashlib.sha256(b"WEIGHTS").digest() != first


def test_what_changed_a_moment_ago_is_not_remembered(tmp_path: Path, disk_store: DiskStore) -> None:
    path, wanted = tmp_path / "model", Wanted()
    path.write_bytes(b"weights")
    for _ in range(2):
        assert cached_digest(files(path), disk_store, wanted) == hashlib.sha256(b"weights").digest()
    assert wanted.times == 2


def test_files_that_are_not_those_that_were_opened_have_none(tmp_path: Path, disk_store: DiskStore) -> None:
    path = tmp_path / "model"
    path.write_bytes(b"weights")
    opened = files(path)
    time.sleep(0.02)
    path.write_bytes(b"others.")
    assert cached_digest(opened, disk_store, lambda: True) is None
    assert cached_digest(files(path), disk_store, Wanted(answer=False)) is None
