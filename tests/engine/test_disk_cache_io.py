"""Pages that outlive the engine: a second engine begins with them, and no answer waits for a disk."""

from __future__ import annotations

import threading
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.engine.asking import WARM, alone, end_of, free_pages, said
from tests.engine.fake import Fake
from woolly.engine import AnswerOptions, Engine, Sequence
from woolly.engine.cache import disk_io
from woolly.engine.cache.disk import DiskStore, ModelDiskStore, name_of
from woolly.request import Event, Start, SubmitOptions

PROMPT = [index * 7 % 31 for index in range(42)]  # ten whole pages of four, and two tokens more
REUSABLE = 40
LIMIT = 1 << 20


class Lent(ModelDiskStore):
    """A disk store whose reads wait until they may go on."""

    def __init__(self, disk_store: DiskStore, scope: bytes) -> None:
        super().__init__(disk_store, scope)
        self.go_on = threading.Event()
        self.go_on.set()
        self.reads = 0

    def get(self, kind: bytes, digest: bytes, nbytes: int) -> memoryview | None:
        self.reads += 1
        assert self.go_on.wait(60)
        return super().get(kind, digest, nbytes)


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    return tmp_path / "prefix"


@pytest.fixture
def engines() -> Iterator[list[Engine]]:
    started: list[Engine] = []
    yield started
    for engine in started:
        engine.close()


SEEDED = AnswerOptions(WARM, 1)


def started(engines: list[Engine], folder: Path, *, scope: bytes = b"model", **sizes: object) -> tuple[Engine, Lent]:
    disk_store = DiskStore(folder, LIMIT)
    assert disk_store.open()
    lent = Lent(disk_store, scope)
    engine = Engine(Fake(**sizes), disk_store=lent)  # type: ignore[arg-type]
    engine.start()
    engines.append(engine)
    return engine, lent


def asked(engine: Engine, prompt: list[int] = PROMPT, *, salt: bytes = b"", tokens: int = 6) -> list[Event]:
    return list(engine.add(Sequence(prompt, limit=len(prompt) + tokens, answer=SEEDED, options=SubmitOptions(salt))))


def start_of(events: list[Event]) -> Start:
    assert isinstance(events[0], Start)
    return events[0]


def expected(prompt: list[int] = PROMPT, windows: tuple[int, ...] = (0,), *, slots: bool = False) -> list[int]:
    return alone(prompt, WARM, 1, len(prompt) + 6, frozenset(), 32, windows=windows, slots=slots)


@pytest.mark.parametrize("windows", [(0,), (10,), (0, 10)])
def test_a_second_engine_begins_with_the_pages_of_the_first(
    engines: list[Engine], folder: Path, windows: tuple[int, ...]
) -> None:
    first, _ = started(engines, folder, windows=windows)
    assert start_of(cold := asked(first)) == Start(len(PROMPT), 0, 0)
    first.close()
    second, _ = started(engines, folder, windows=windows)
    warm = asked(second)
    assert start_of(warm) == Start(len(PROMPT), REUSABLE, REUSABLE) and end_of(warm).usage.cached_tokens == REUSABLE
    assert said(warm) == said(cold) == expected(windows=windows)
    assert start_of(asked(second)) == Start(len(PROMPT), REUSABLE, 0), "the second time they are in memory"
    assert free_pages(second)


@pytest.mark.parametrize("windows", [(), (0,), (10,), (0, 10)])
def test_a_second_engine_begins_with_the_last_snapshot_of_the_first(
    engines: list[Engine], folder: Path, windows: tuple[int, ...]
) -> None:
    carries: dict[str, object] = {"windows": windows, "slots": True, "snapshots": 3}
    first, _ = started(engines, folder, **carries)
    assert start_of(cold := asked(first)) == Start(len(PROMPT), 0, 0)
    first.close()
    second, lent = started(engines, folder, **carries)
    warm = asked(second)
    assert start_of(warm) == Start(len(PROMPT), REUSABLE, REUSABLE)
    assert said(warm) == said(cold) == expected(windows=windows, slots=True)
    seen = {(): 0, (0,): 10, (10,): 3, (0, 10): 13}[windows]  # pages that the next position sees
    assert lent.reads == seen + 1, "and the snapshot"
    assert start_of(asked(second)) == Start(len(PROMPT), REUSABLE, 0), "the second time it is in memory"
    assert free_pages(second) and second.pages.snapshots.count == 3


def test_without_its_snapshot_no_page_is_read(engines: list[Engine], folder: Path) -> None:
    first, _ = started(engines, folder, slots=True, snapshots=3)
    asked(first)
    first.close()
    digest = first.pages._digest(Sequence(PROMPT, limit=50), 9)
    damaged = folder / name_of(b"model", b"slot", digest).hex()
    damaged.write_bytes(damaged.read_bytes()[:-1] + b"?")
    second, lent = started(engines, folder, slots=True, snapshots=3)
    events = asked(second)
    assert start_of(events) == Start(len(PROMPT), 0, 0) and said(events) == expected(slots=True)
    counts = second.figures().disk
    assert lent.reads == 1 and counts is not None and (counts.hits, counts.rejected) == (0, 1)
    assert free_pages(second) and second.pages.snapshots.count == 3
    second.close()
    third, _ = started(engines, folder, slots=True, snapshots=3)
    assert start_of(asked(third)).disk_tokens == REUSABLE, "it is there again"


def test_another_salt_or_model_finds_nothing(engines: list[Engine], folder: Path) -> None:
    first, _ = started(engines, folder)
    asked(first, salt=b"mine")
    first.close()
    second, _ = started(engines, folder)
    assert start_of(asked(second, salt=b"yours")).cached_tokens == 0
    assert start_of(asked(second, salt=b"mine")).disk_tokens == REUSABLE
    other, _ = started(engines, folder, scope=b"other weights")
    assert start_of(asked(other, salt=b"mine")).cached_tokens == 0


def test_a_damaged_page_is_computed_again_and_those_before_it_are_used(engines: list[Engine], folder: Path) -> None:
    first, lent = started(engines, folder)
    asked(first)
    first.close()
    probe = Sequence(PROMPT, limit=50)
    name = first.pages._digest(probe, 4)
    damaged = next(path for path in folder.iterdir() if path.name == _file_of(lent, name))
    data = bytearray(damaged.read_bytes())
    data[-1] ^= 1
    damaged.write_bytes(data)
    second, _ = started(engines, folder)
    events = asked(second)
    assert start_of(events) == Start(len(PROMPT), 16, 16) and said(events) == expected()
    counts = second.figures().disk
    assert counts is not None and (counts.hits, counts.rejected) == (4, 1)
    second.close()
    third, _ = started(engines, folder)
    assert start_of(asked(third)).disk_tokens == REUSABLE, "the page is there again"


def _file_of(lent: Lent, digest: bytes) -> str:
    return name_of(b"model", b"page 0", digest).hex()


def test_others_go_on_while_one_waits_for_the_disk(engines: list[Engine], folder: Path) -> None:
    first, _ = started(engines, folder)
    asked(first)
    first.close()
    second, lent = started(engines, folder)
    lent.go_on.clear()
    slow = second.add(Sequence(PROMPT, limit=48, answer=SEEDED))
    other = [30, *PROMPT]
    assert said(asked(second, other)) == expected(other)
    assert second.figures().waiting == 1
    lent.go_on.set()
    assert start_of(events := list(slow)).disk_tokens == REUSABLE and said(events) == expected()


def test_those_who_need_the_same_pages_read_them_once(engines: list[Engine], folder: Path) -> None:
    first, _ = started(engines, folder)
    asked(first)
    first.close()
    second, lent = started(engines, folder)
    lent.go_on.clear()
    streams = [second.add(Sequence(PROMPT, limit=48, answer=SEEDED)) for _ in range(4)]
    lent.go_on.set()
    assert [said(list(stream)) for stream in streams] == [expected()] * 4
    assert lent.reads == REUSABLE / 4


def test_a_disk_that_stands_still_is_not_waited_for(
    engines: list[Engine], folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(disk_io, "STALL_S", 0.05)
    monkeypatch.setattr("woolly.engine.engine.STALL_S", 0.05)
    first, _ = started(engines, folder)
    asked(first)
    first.close()
    second, lent = started(engines, folder)
    lent.go_on.clear()
    assert said(asked(second)) == expected()  # although the disk never answers
    assert start_of(asked(second, [30, *PROMPT])).cached_tokens == 0, "nor does anybody else"
    lent.go_on.set()
    assert free_pages(second)


@pytest.mark.parametrize("end", ["cancel", "close"])
def test_who_ends_while_pages_are_read_leaves_none_behind(engines: list[Engine], folder: Path, end: str) -> None:
    first, _ = started(engines, folder)
    asked(first)
    first.close()
    second, lent = started(engines, folder)
    lent.go_on.clear()
    streams = [second.add(Sequence(PROMPT, limit=48, answer=SEEDED)) for _ in range(2)]
    while not lent.reads:
        time.sleep(0.001)
    if end == "close":
        second.close()
    else:
        for stream in streams:
            stream.cancel()
    assert [end_of(list(stream)).reason for stream in streams] == ["cancelled"] * 2
    lent.go_on.set()
    if end == "cancel":
        assert said(asked(second)) == expected()
    assert free_pages(second)


def test_where_the_pool_has_no_room_the_disk_is_not_read(engines: list[Engine], folder: Path) -> None:
    first, _ = started(engines, folder)
    asked(first)
    first.close()
    second, lent = started(engines, folder, pages=20, context=80)
    lent.go_on.clear()
    long = second.add(Sequence([29] * 30, limit=76, answer=SEEDED))  # grows into the whole pool
    assert isinstance(next(iter(long)), Start)
    stream = second.add(Sequence(PROMPT, limit=48, answer=SEEDED))
    lent.go_on.set()
    assert said(list(stream)) == expected()
    list(long)
    assert free_pages(second)


def test_pages_that_came_before_the_disk_store_was_open_are_written_too(engines: list[Engine], folder: Path) -> None:
    disk_store = DiskStore(folder, LIMIT)
    assert disk_store.open()
    late = ModelDiskStore(disk_store)
    engine = Engine(Fake(), disk_store=late)
    engine.start()
    engines.append(engine)
    asked(engine)
    assert disk_store.counts().written == 0
    late.open(b"model")
    while disk_store.counts().written < 11:  # ten of the prompt, one of the answer
        time.sleep(0.001)


def test_more_pages_than_may_wait_are_all_written(
    engines: list[Engine], folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(disk_io, "QUEUED", 1)
    engine, _ = started(engines, folder)
    asked(engine)
    late = time.monotonic() + 60
    while (counts := engine.figures().disk) is not None and counts.written < 11:
        assert time.monotonic() < late
        time.sleep(0.001)


def test_a_model_whose_carries_have_no_snapshots_has_no_disk_store(folder: Path) -> None:
    engine = Engine(Fake(slots=True), disk_store=ModelDiskStore(DiskStore(folder, LIMIT), b"model"))
    assert engine.disk_io is None and engine.figures().disk is None
    engine.close()
