"""A disk store returns the values put into it, or nothing, whatever happens to its files, folder and processes."""

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
from types import SimpleNamespace

import pytest
from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, rule

from tests.engine.failing_disk import failing
from woolly.engine.cache import disk as module
from woolly.engine.cache.disk import BLOCK, DIGEST, LOCK, DiskStore, ModelDiskStore, name_of

LIMIT = 64 * BLOCK


def value_of(number: int, nbytes: int = 3000) -> tuple[bytes, bytes]:
    """A name, and the one value that it may have."""
    name = name_of(b"value", number.to_bytes(4, "little"))
    return name, (blake2b(name).digest() * (nbytes // 64 + 1))[:nbytes]


def opened(folder: Path, limit: int = LIMIT) -> DiskStore:
    disk_store = DiskStore(folder, limit)
    assert disk_store.open()
    return disk_store


def on_disk(folder: Path) -> int:
    total = 0
    for path in folder.iterdir():
        try:
            total += -(-path.stat().st_size // BLOCK) * BLOCK
        except FileNotFoundError:
            continue
    return total


def file_of(disk_store: DiskStore, name: bytes) -> Path:
    return disk_store.folder / name.hex()


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
    disk_store = opened(folder)
    disk_store.put(*value_of(1))
    assert [stat.S_IMODE(place.stat().st_mode) for place in (folder, folder.parent)] == [0o700, 0o700]
    assert {stat.S_IMODE(path.stat().st_mode) for path in folder.iterdir()} == {0o600}


def test_f22_a_flipped_bit_anywhere_in_a_file_is_found_and_the_file_removed(folder: Path) -> None:
    name, value = value_of(1, 100)
    for place in range(DIGEST + len(value)):
        disk_store = opened(folder)
        assert disk_store.put(name, value)
        path = file_of(disk_store, name)
        data = bytearray(path.read_bytes())
        data[place] ^= 1 << place % 8
        path.write_bytes(data)
        assert disk_store.get(name, len(value)) is None
        assert disk_store.counts().rejected == 1 and not path.exists() and not disk_store.has(name)
        assert disk_store.put(name, value) and disk_store.get(name, len(value)) == value
        path.unlink()


def test_a_file_of_another_length_or_name_is_rejected(folder: Path) -> None:
    (name, value), (other, _) = value_of(1), value_of(2)
    disk_store = opened(folder)
    disk_store.put(name, value)
    single_step = file_of(disk_store, name).read_bytes()
    for data in (
        b"",
        single_step[:10],
        single_step[:DIGEST],
        single_step[:-1],
        single_step + b"\0",
        single_step + bytes(10**6),
    ):
        file_of(disk_store, name).write_bytes(data)
        assert disk_store.get(name, len(value)) is None
    file_of(disk_store, other).write_bytes(single_step)
    assert disk_store.get(other, len(value)) is None
    assert disk_store.counts().rejected == 7
    disk_store.put(name, value)
    assert disk_store.get(name, len(value) - 1) is None  # a value is not returned under another size


def test_what_is_no_file_is_not_read(folder: Path, tmp_path: Path) -> None:
    disk_store = opened(folder)
    (name, value), (pipe, _), (link, _) = value_of(1), value_of(2), value_of(3)
    file_of(disk_store, name).mkdir()
    os.mkfifo(file_of(disk_store, pipe))
    (tmp_path / "elsewhere").write_bytes(b"x" * 5000)
    file_of(disk_store, link).symlink_to(tmp_path / "elsewhere")
    assert [disk_store.get(one, len(value)) for one in (name, pipe, link)] == [None] * 3
    again = opened(folder)
    assert not any(again.has(one) for one in (name, pipe, link))
    assert not again.put(name, value) and (tmp_path / "elsewhere").exists()


def test_the_folder_stays_under_its_limit_and_keeps_what_is_used(folder: Path) -> None:
    disk_store = opened(folder)
    dice = random.Random(1)
    favourite, value = value_of(0)
    disk_store.put(favourite, value)
    for number in range(1, 300):
        time.sleep(0.0005)  # times of files are not finer than a clock tick
        disk_store.put(*value_of(number, dice.randrange(20_000)))
        assert on_disk(folder) <= LIMIT
        assert disk_store.get(favourite, len(value)) == value
    assert on_disk(folder) > LIMIT / 2 and disk_store.counts().removed > 100
    assert disk_store.counts().nbytes == on_disk(folder) - BLOCK
    assert not disk_store.put(*value_of(999, LIMIT)) and disk_store.get(favourite, len(value)) == value


def test_a_smaller_limit_holds_from_the_start(folder: Path) -> None:
    disk_store = opened(folder)
    for number in range(40):
        disk_store.put(*value_of(number))
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
    dice, disk_store = random.Random(seed), opened(folder, limit)
    while True:
        number = dice.randrange(500)
        if not disk_store.put(*value_of(number, 500 * (number % 40))):
            time.sleep(0.001)


def _started(folder: Path, seed: int, limit: int) -> multiprocessing.process.BaseProcess:
    process = multiprocessing.get_context("fork").Process(
        target=_write_for_ever, args=(folder, seed, limit), daemon=True
    )
    process.start()
    return process


def within_the_lock(folder: Path) -> int:
    """The bytes on disk while no process writes, so that no removed value is counted beside its replacement."""
    with (folder / LOCK).open() as handle:
        fcntl.flock(handle, fcntl.LOCK_EX)
        return on_disk(folder)


def test_f17_two_processes_keep_one_folder_under_its_limit(folder: Path) -> None:
    opened(folder)
    processes = [_started(folder, seed, LIMIT) for seed in range(2)]
    try:
        looks = [within_the_lock(folder)]
        while sum(nbytes > LIMIT / 2 for nbytes in looks) < 300:
            assert all(process.is_alive() for process in processes)
            looks.append(within_the_lock(folder))
    finally:
        for process in processes:
            process.kill()
            process.join()
    assert max(looks) <= LIMIT
    assert on_disk(folder) <= LIMIT


def names_in(folder: Path) -> set[str]:
    return {path.name for path in folder.iterdir()} if folder.exists() else set()


def kill_while_writing(folder: Path, times: int) -> int:
    """Kill a writer `times` times; returns how many whole values were found. None may be wrong."""
    dice, count = random.Random(5), 0
    for _ in range(times):
        process = _started(folder, dice.randrange(10**6), LIMIT)
        before = seen = names_in(folder)
        while seen == before:  # wait until it has begun to write, then kill it at a random moment
            assert process.is_alive()
            seen = names_in(folder)
        time.sleep(dice.uniform(0, 0.05))
        process.kill()
        process.join()
        assert process.exitcode == -signal.SIGKILL
        disk_store = opened(folder)
        assert [path for path in folder.iterdir() if path.name.startswith(".part")] == []
        assert on_disk(folder) <= LIMIT
        for number in range(500):
            name, value = value_of(number, 500 * (number % 40))
            if disk_store.has(name):
                assert disk_store.get(name, len(value)) == value
                count += 1
        assert disk_store.counts().rejected == 0
    return count


def test_f02_a_writer_that_is_killed_leaves_whole_values(folder: Path) -> None:
    assert kill_while_writing(folder, 20) > 20


@pytest.mark.soak
def test_a_writer_that_is_killed_500_times_leaves_whole_values(folder: Path) -> None:
    assert kill_while_writing(folder, 500) > 500


@pytest.mark.parametrize("call", ["open", "replace", "pwrite"])
def test_a_disk_that_refuses_is_told_of_once_and_tried_again_later(
    folder: Path, call: str, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    disk_store = opened(folder)
    clock = [1000.0]
    monkeypatch.setattr(module, "time", SimpleNamespace(monotonic=lambda: clock[0], time_ns=time.time_ns))

    def refuse(*_: object, **__: object) -> int:
        raise OSError(errno.ENOSPC, "No space left on device")

    with monkeypatch.context() as broken, caplog.at_level(logging.WARNING):
        broken.setattr(module.os, call, refuse)
        assert [disk_store.put(*value_of(number)) for number in range(3)] == [False] * 3
        clock[0] += module.PAUSE_S + 1
        assert not disk_store.put(*value_of(3))
    assert len(caplog.records) == 1 and "No space left on device" in caplog.text
    assert [path.name for path in folder.iterdir()] == [LOCK]
    clock[0] += module.PAUSE_S + 1
    name, value = value_of(1)
    assert disk_store.put(name, value) and disk_store.get(name, len(value)) == value


def test_a_disk_that_cannot_read_gives_nothing(
    folder: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    disk_store = opened(folder)
    name, value = value_of(1)
    disk_store.put(name, value)

    def refuse(*_: object) -> int:
        raise OSError(errno.EIO, "Input/output error")

    with monkeypatch.context() as broken, caplog.at_level(logging.WARNING):
        broken.setattr(module.os, "open", refuse)
        assert disk_store.get(name, len(value)) is None and not disk_store.has(name)
    assert "Input/output error" in caplog.text


def test_f27_a_file_that_could_not_be_read_counts_and_is_there_again_with_the_next_write(
    folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    disk_store = opened(folder)
    name, value = value_of(1)
    disk_store.put(name, value)

    def refuse(*_: object) -> int:
        raise OSError(errno.EMFILE, "Too many open files")

    with monkeypatch.context() as broken:
        broken.setattr(module.os, "open", refuse)
        assert disk_store.get(name, len(value)) is None
    disk_store.put(*value_of(2))
    assert disk_store.has(name) and disk_store.get(name, len(value)) == value
    assert disk_store.counts().nbytes == 2 * BLOCK


def test_s20_a_folder_that_others_may_change_is_not_used(folder: Path, caplog: pytest.LogCaptureFixture) -> None:
    folder.mkdir(parents=True)
    folder.chmod(0o777)
    with caplog.at_level(logging.WARNING):
        assert not DiskStore(folder, LIMIT).open()
    assert "others may change" in caplog.text and list(folder.iterdir()) == []


def test_a_folder_that_cannot_be_made_gives_no_disk_store(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    (tmp_path / "file").write_text("")
    with caplog.at_level(logging.WARNING):
        disk_store = DiskStore(tmp_path / "file" / "prefix", LIMIT)
        assert not disk_store.open() and not disk_store.put(*value_of(1)) and not disk_store.has(value_of(1)[0])
    assert len(caplog.records) == 1


def test_values_are_kept_where_locks_do_not_work(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def refuse(*_: object) -> None:
        raise OSError(errno.ENOLCK, "No locks available")

    monkeypatch.setattr(fcntl, "flock", refuse)
    name, value = value_of(1)
    assert opened(folder).put(name, value) and opened(folder).get(name, len(value)) == value


def test_nobody_waits_for_ever_for_the_lock(
    folder: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.setattr(module, "LOCK_S", 0.02)
    disk_store = opened(folder)
    with caplog.at_level(logging.WARNING), (folder / LOCK).open() as handle:
        fcntl.flock(handle, fcntl.LOCK_EX)
        assert not disk_store.put(*value_of(1))
        assert DiskStore(folder, LIMIT).open()
    assert caplog.records == [] and disk_store.put(*value_of(1))


class DiskStores(RuleBasedStateMachine):
    """Two stores of one folder, and whatever may happen to it: a store returns the value that was put, or nothing."""

    def __init__(self) -> None:
        super().__init__()
        self.place = TemporaryDirectory()
        self.folder = Path(self.place.name) / "prefix"
        self.stores = [opened(self.folder), opened(self.folder)]

    @rule(which=st.integers(0, 1), number=st.integers(0, 40))
    def put(self, which: int, number: int) -> None:
        name, value = value_of(number, 500 * number)
        if self.stores[which].put(name, value):
            assert self.stores[which].has(name)

    @rule(which=st.integers(0, 1), number=st.integers(0, 40))
    def get(self, which: int, number: int) -> None:
        name, value = value_of(number, 500 * number)
        data = self.stores[which].get(name, len(value))
        assert data is None or data == value

    @rule(which=st.integers(0, 1), number=st.integers(0, 40), seed=st.integers(0, 10**6))
    def fail(self, which: int, number: int, seed: int) -> None:
        name, value = value_of(number, 500 * number)
        with failing(random.Random(seed), 0.2):
            self.stores[which].put(name, value)
            data = self.stores[which].get(name, len(value))
        assert data is None or data == value
        self.stores[which]._paused_s = 0.0

    @rule(number=st.integers(0, 40), at=st.floats(0, 1, exclude_max=True), how=st.sampled_from(["flip", "cut", "gone"]))
    def harm(self, number: int, at: float, how: str) -> None:
        path = file_of(self.stores[0], value_of(number)[0])
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
        self.stores[which] = opened(self.folder, limit)

    @invariant()
    def stays_under_its_limit(self) -> None:
        assert on_disk(self.folder) <= LIMIT

    def teardown(self) -> None:
        self.place.cleanup()


TestDiskStores = DiskStores.TestCase
TestDiskStores.settings = settings(max_examples=30, stateful_step_count=40)


def test_models_share_a_disk_store_and_no_value(folder: Path) -> None:
    disk_store = opened(folder)
    one, other, later = (
        ModelDiskStore(disk_store, b"one"),
        ModelDiskStore(disk_store, b"other"),
        ModelDiskStore(disk_store),
    )
    assert one.put(b"page 0", b"digest", b"value")
    assert one.get(b"page 0", b"digest", 5) == b"value"
    assert other.get(b"page 0", b"digest", 5) is None and one.get(b"page 1", b"digest", 5) is None
    assert not later.usable and not later.put(b"page 0", b"digest", b"value") and not later.has(b"page 0", b"digest")
    later.open(b"one")
    assert later.has(b"page 0", b"digest") and later.get(b"page 0", b"digest", 5) == b"value"


def test_a_name_depends_on_where_each_part_ends() -> None:
    assert len({name_of(b"ab", b"c"), name_of(b"a", b"bc"), name_of(b"abc"), name_of(b"abc", b"")}) == 4
