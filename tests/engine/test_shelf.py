"""The shelf: what it gives back is what was put there, whatever happens to its files, its folder and its processes."""

from __future__ import annotations

import errno
import fcntl
import logging
import multiprocessing
import os
import random
import signal
import stat
import time
from hashlib import blake2b
from pathlib import Path
from tempfile import TemporaryDirectory

import pytest
from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, rule

from tests.engine.failing_disk import failing
from woolly.engine import shelf as module
from woolly.engine.shelf import BLOCK, DIGEST, LOCK, ModelShelf, Shelf, name_of

LIMIT = 64 * BLOCK


def value_of(number: int, nbytes: int = 3000) -> tuple[bytes, bytes]:
    """A name, and the one value that it may have."""
    name = name_of(b"value", number.to_bytes(4, "little"))
    return name, (blake2b(name).digest() * (nbytes // 64 + 1))[:nbytes]


def opened(folder: Path, limit: int = LIMIT) -> Shelf:
    shelf = Shelf(folder, limit)
    assert shelf.open()
    return shelf


def on_disk(folder: Path) -> int:
    total = 0
    for path in folder.iterdir():
        try:
            total += -(-path.stat().st_size // BLOCK) * BLOCK
        except FileNotFoundError:
            continue
    return total


def file_of(shelf: Shelf, name: bytes) -> Path:
    return shelf.folder / name.hex()


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    return tmp_path / "cache" / "prefix"


def test_a_value_is_there_after_a_restart(folder: Path) -> None:
    name, value = value_of(1)
    first = opened(folder)
    assert not first.has(name) and first.get(name, len(value)) is None
    assert first.put(name, value) and first.put(name, value)
    again = opened(folder)
    assert again.has(name) and again.get(name, len(value)) == value
    assert (first.counts().misses, first.counts().written, again.counts().hits) == (1, 1, 1)


def test_s20_folder_and_files_are_for_their_user_alone(folder: Path) -> None:
    shelf = opened(folder)
    shelf.put(*value_of(1))
    assert [stat.S_IMODE(place.stat().st_mode) for place in (folder, folder.parent)] == [0o700, 0o700]
    assert {stat.S_IMODE(path.stat().st_mode) for path in folder.iterdir()} == {0o600}


def test_f22_a_flipped_bit_anywhere_in_a_file_is_found_and_the_file_removed(folder: Path) -> None:
    name, value = value_of(1, 100)
    for place in range(DIGEST + len(value)):
        shelf = opened(folder)
        assert shelf.put(name, value)
        path = file_of(shelf, name)
        data = bytearray(path.read_bytes())
        data[place] ^= 1 << place % 8
        path.write_bytes(data)
        assert shelf.get(name, len(value)) is None
        assert shelf.counts().rejected == 1 and not path.exists() and not shelf.has(name)
        assert shelf.put(name, value) and shelf.get(name, len(value)) == value
        path.unlink()


def test_a_file_of_another_length_or_name_is_rejected(folder: Path) -> None:
    (name, value), (other, _) = value_of(1), value_of(2)
    shelf = opened(folder)
    shelf.put(name, value)
    whole = file_of(shelf, name).read_bytes()
    for data in (b"", whole[:10], whole[:DIGEST], whole[:-1], whole + b"\0", whole + bytes(10**6)):
        file_of(shelf, name).write_bytes(data)
        assert shelf.get(name, len(value)) is None
    file_of(shelf, other).write_bytes(whole)
    assert shelf.get(other, len(value)) is None
    assert shelf.counts().rejected == 7
    shelf.put(name, value)
    assert shelf.get(name, len(value) - 1) is None  # who expects another size gets nothing


def test_what_is_no_file_is_not_read(folder: Path, tmp_path: Path) -> None:
    shelf = opened(folder)
    (name, value), (pipe, _), (link, _) = value_of(1), value_of(2), value_of(3)
    file_of(shelf, name).mkdir()
    os.mkfifo(file_of(shelf, pipe))
    (tmp_path / "elsewhere").write_bytes(b"x" * 5000)
    file_of(shelf, link).symlink_to(tmp_path / "elsewhere")
    assert [shelf.get(one, len(value)) for one in (name, pipe, link)] == [None] * 3
    again = opened(folder)
    assert not any(again.has(one) for one in (name, pipe, link))
    assert not again.put(name, value) and (tmp_path / "elsewhere").exists()


def test_the_folder_stays_under_its_limit_and_keeps_what_is_used(folder: Path) -> None:
    shelf = opened(folder)
    dice = random.Random(1)
    favourite, value = value_of(0)
    shelf.put(favourite, value)
    for number in range(1, 300):
        time.sleep(0.0005)  # times of files are not finer than a clock tick
        shelf.put(*value_of(number, dice.randrange(20_000)))
        assert on_disk(folder) <= LIMIT
        assert shelf.get(favourite, len(value)) == value
    assert on_disk(folder) > LIMIT / 2 and shelf.counts().removed > 100
    assert shelf.counts().nbytes == on_disk(folder) - BLOCK
    assert not shelf.put(*value_of(999, LIMIT)) and shelf.get(favourite, len(value)) == value


def test_a_smaller_limit_holds_from_the_start(folder: Path) -> None:
    shelf = opened(folder)
    for number in range(40):
        shelf.put(*value_of(number))
    opened(folder, 10 * BLOCK)
    assert 0 < on_disk(folder) <= 10 * BLOCK


def test_what_was_used_by_another_process_is_not_the_first_to_go(folder: Path) -> None:
    ours, theirs = opened(folder), opened(folder)
    for number in range(40):
        ours.put(*value_of(number))
    theirs.put(*value_of(1000))
    time.sleep(0.02)
    for number in range(5):
        assert theirs.get(*_sized(number)) is not None
    for number in range(100, 130):
        ours.put(*value_of(number))
    assert [number for number in range(40) if ours.has(value_of(number)[0])][:5] == [0, 1, 2, 3, 4]


def _sized(number: int) -> tuple[bytes, int]:
    name, value = value_of(number)
    return name, len(value)


def _write_for_ever(folder: Path, seed: int, limit: int) -> None:
    dice, shelf = random.Random(seed), opened(folder, limit)
    while True:
        number = dice.randrange(500)
        if not shelf.put(*value_of(number, 500 * (number % 40))):
            time.sleep(0.001)


def _started(folder: Path, seed: int, limit: int) -> multiprocessing.process.BaseProcess:
    made = multiprocessing.get_context("fork").Process(target=_write_for_ever, args=(folder, seed, limit), daemon=True)
    made.start()
    return made


def test_f17_two_processes_keep_one_folder_under_its_limit(folder: Path) -> None:
    opened(folder)
    processes = [_started(folder, seed, LIMIT) for seed in range(2)]
    try:
        most, late = 0, time.monotonic() + 1.5
        while time.monotonic() < late:
            most = max(most, on_disk(folder))
    finally:
        for process in processes:
            process.kill()
            process.join()
    # A file that is removed and one that is written while this looks may both be counted.
    assert LIMIT / 2 < most <= LIMIT + 6 * BLOCK
    assert on_disk(folder) <= LIMIT


def kill_while_writing(folder: Path, times: int) -> int:
    """Kill a writer so often; gives how many values were found whole. None may be wrong."""
    dice, found = random.Random(5), 0
    for _ in range(times):
        process = _started(folder, dice.randrange(10**6), LIMIT)
        time.sleep(dice.uniform(0.01, 0.06))
        process.kill()
        process.join()
        assert process.exitcode == -signal.SIGKILL
        shelf = opened(folder)
        assert [path for path in folder.iterdir() if path.name.startswith(".part")] == []
        assert on_disk(folder) <= LIMIT
        for number in range(500):
            name, value = value_of(number, 500 * (number % 40))
            if shelf.has(name):
                assert shelf.get(name, len(value)) == value
                found += 1
        assert shelf.counts().rejected == 0
    return found


def test_f02_a_writer_that_is_killed_leaves_whole_values(folder: Path) -> None:
    assert kill_while_writing(folder, 20) > 20


@pytest.mark.soak
def test_a_writer_that_is_killed_500_times_leaves_whole_values(folder: Path) -> None:
    assert kill_while_writing(folder, 500) > 500


@pytest.mark.parametrize("call", ["open", "rename", "pwrite"])
def test_a_disk_that_refuses_is_told_of_once_and_tried_again_later(
    folder: Path, call: str, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    shelf = opened(folder)
    monkeypatch.setattr(module, "PAUSE_S", 0.05)

    def refuse(*_: object, **__: object) -> int:
        raise OSError(errno.ENOSPC, "No space left on device")

    with monkeypatch.context() as broken, caplog.at_level(logging.WARNING):
        broken.setattr(module.os, call, refuse)
        assert [shelf.put(*value_of(number)) for number in range(3)] == [False] * 3
        time.sleep(0.06)
        assert not shelf.put(*value_of(3))
    assert len(caplog.records) == 1 and "No space left on device" in caplog.text
    assert [path.name for path in folder.iterdir()] == [LOCK]
    time.sleep(0.06)
    name, value = value_of(1)
    assert shelf.put(name, value) and shelf.get(name, len(value)) == value


def test_a_disk_that_cannot_read_gives_nothing(
    folder: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    shelf = opened(folder)
    name, value = value_of(1)
    shelf.put(name, value)

    def refuse(*_: object) -> int:
        raise OSError(errno.EIO, "Input/output error")

    with monkeypatch.context() as broken, caplog.at_level(logging.WARNING):
        broken.setattr(module.os, "open", refuse)
        assert shelf.get(name, len(value)) is None and not shelf.has(name)
    assert "Input/output error" in caplog.text


def test_s20_a_folder_that_others_may_change_is_not_used(folder: Path, caplog: pytest.LogCaptureFixture) -> None:
    folder.mkdir(parents=True)
    folder.chmod(0o777)
    with caplog.at_level(logging.WARNING):
        assert not Shelf(folder, LIMIT).open()
    assert "others may change" in caplog.text and list(folder.iterdir()) == []


def test_where_the_folder_cannot_be_there_is_no_shelf(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    (tmp_path / "file").write_text("")
    with caplog.at_level(logging.WARNING):
        shelf = Shelf(tmp_path / "file" / "prefix", LIMIT)
        assert not shelf.open() and not shelf.put(*value_of(1)) and not shelf.has(value_of(1)[0])
    assert len(caplog.records) == 1


def test_values_are_kept_where_locks_do_not_work(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def refuse(*_: object) -> None:
        raise OSError(errno.ENOLCK, "No locks available")

    monkeypatch.setattr(module.fcntl, "flock", refuse)
    name, value = value_of(1)
    assert opened(folder).put(name, value) and opened(folder).get(name, len(value)) == value


def test_nobody_waits_for_ever_for_the_lock(
    folder: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.setattr(module, "LOCK_S", 0.02)
    shelf = opened(folder)
    with caplog.at_level(logging.WARNING), (folder / LOCK).open() as held:
        fcntl.flock(held, fcntl.LOCK_EX)
        assert not shelf.put(*value_of(1))
        assert Shelf(folder, LIMIT).open()
    assert caplog.records == [] and shelf.put(*value_of(1))


class Shelves(RuleBasedStateMachine):
    """Two shelves of one folder, and whatever may happen to it: what one gives is what was put, or nothing."""

    def __init__(self) -> None:
        super().__init__()
        self.place = TemporaryDirectory()
        self.folder = Path(self.place.name) / "prefix"
        self.shelves = [opened(self.folder), opened(self.folder)]

    @rule(which=st.integers(0, 1), number=st.integers(0, 40))
    def put(self, which: int, number: int) -> None:
        name, value = value_of(number, 500 * number)
        if self.shelves[which].put(name, value):
            assert self.shelves[which].has(name)

    @rule(which=st.integers(0, 1), number=st.integers(0, 40))
    def get(self, which: int, number: int) -> None:
        name, value = value_of(number, 500 * number)
        found = self.shelves[which].get(name, len(value))
        assert found is None or found == value

    @rule(which=st.integers(0, 1), number=st.integers(0, 40), seed=st.integers(0, 10**6))
    def fail(self, which: int, number: int, seed: int) -> None:
        name, value = value_of(number, 500 * number)
        with failing(random.Random(seed), 0.2):
            self.shelves[which].put(name, value)
            found = self.shelves[which].get(name, len(value))
        assert found is None or found == value
        self.shelves[which]._paused_s = 0.0

    @rule(number=st.integers(0, 40), at=st.floats(0, 1, exclude_max=True), how=st.sampled_from(["flip", "cut", "gone"]))
    def harm(self, number: int, at: float, how: str) -> None:
        path = file_of(self.shelves[0], value_of(number)[0])
        if path.exists():
            data = bytearray(path.read_bytes())
            if how == "gone":
                path.unlink()
            elif how == "cut":
                path.write_bytes(data[: int(at * len(data))])
            elif data:
                data[int(at * len(data))] ^= 1
                path.write_bytes(data)

    @rule(which=st.integers(0, 1), limit=st.sampled_from([LIMIT, LIMIT // 4]))
    def start_again(self, which: int, limit: int) -> None:
        self.shelves[which] = opened(self.folder, limit)

    @invariant()
    def stays_under_its_limit(self) -> None:
        assert on_disk(self.folder) <= LIMIT

    def teardown(self) -> None:
        self.place.cleanup()


TestShelves = Shelves.TestCase
TestShelves.settings = settings(max_examples=30, stateful_step_count=40, deadline=None)


def test_models_share_a_shelf_and_no_value(folder: Path) -> None:
    shelf = opened(folder)
    one, other, later = ModelShelf(shelf, b"one"), ModelShelf(shelf, b"other"), ModelShelf(shelf)
    assert one.put(b"page 0", b"digest", b"value")
    assert one.get(b"page 0", b"digest", 5) == b"value"
    assert other.get(b"page 0", b"digest", 5) is None and one.get(b"page 1", b"digest", 5) is None
    assert not later.usable and not later.put(b"page 0", b"digest", b"value") and not later.has(b"page 0", b"digest")
    later.open(b"one")
    assert later.has(b"page 0", b"digest") and later.get(b"page 0", b"digest", 5) == b"value"


def test_a_name_depends_on_where_each_part_ends() -> None:
    assert len({name_of(b"ab", b"c"), name_of(b"a", b"bc"), name_of(b"abc"), name_of(b"abc", b"")}) == 4
