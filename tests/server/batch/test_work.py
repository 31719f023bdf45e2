"""The work on a batch: rows run side by side, those with equal beginnings together, written in order, none twice."""

from __future__ import annotations

import asyncio
import dataclasses
import random
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from tests.server.batch.lines import read, row, write
from woolly.config.serving import SERVING
from woolly.errors import BusyError
from woolly.limits import LIMITS
from woolly.server.batch import BatchRow, Input, Journal, Retry, RowResult, Tally, Terms, answer_rows
from woolly.server.batch.work import TRIES


@pytest.fixture(autouse=True)
def quick(monkeypatch: pytest.MonkeyPatch) -> None:
    """Retries follow at once, without a pause."""
    monkeypatch.setattr("woolly.server.batch.work.FIRST_S", 0.001)
    monkeypatch.setattr("woolly.server.batch.work.LONGEST_S", 0.001)


def limited(monkeypatch: pytest.MonkeyPatch, **limits: float) -> None:
    monkeypatch.setattr("woolly.server.batch.work.LIMITS", dataclasses.replace(LIMITS, **limits))  # type: ignore[arg-type]


class Job:
    """A job over rows whose answers a function gives."""

    def __init__(self, folder: Path, rows: list[dict[str, Any]]) -> None:
        path = write(folder / "in.jsonl", rows)
        self.source = Input(path, Terms(), SERVING, most_bytes=1 << 24, most_rows=10_000)
        self.output, self.errors = folder / "out.jsonl", folder / "err.jsonl"
        self.tally = Tally(self.source.check())

    def run(self, ask: Callable[[BatchRow], Any], *, at_once: int = 4) -> None:
        journal = Journal(self.output, self.errors)
        self.tally.done, self.tally.failed = journal.resume(self.source.rows())
        rows: Iterator[BatchRow] = iter(list(self.source.rows())[self.tally.done :])
        try:
            asyncio.run(answer_rows(rows, ask, journal, self.tally, at_once=at_once, created=0))
        finally:
            journal.close()

    @property
    def written(self) -> list[str]:
        return [each["custom_id"] for each in read(self.output)]


def many(count: int) -> list[dict[str, Any]]:
    return [row(str(number)) for number in range(count)]


def test_answers_that_come_in_any_order_are_written_in_the_inputs(tmp_path: Path) -> None:
    job, draw = Job(tmp_path, many(300)), random.Random(1)

    async def ask(row: BatchRow) -> RowResult:
        await asyncio.sleep(draw.random() * 0.01)
        return RowResult(200, {"usage": {"total_tokens": 2}})

    job.run(ask, at_once=16)
    assert job.written == [str(number) for number in range(300)]
    assert (job.tally.done, job.tally.failed, job.tally.tokens) == (300, 0, 600)


def test_no_more_rows_are_asked_at_once_than_may_be_nor_read_ahead_than_the_window(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    limited(monkeypatch, batch_window=8)
    job, asked, most, first = Job(tmp_path, many(60)), 0, 0, asyncio.Event()
    seen: list[int] = []

    async def ask(row: BatchRow) -> RowResult:
        nonlocal asked, most
        asked, most = asked + 1, max(most, asked + 1)
        seen.append(row.index)
        if row.index == 0:
            await first.wait()
        elif row.index == 7:
            await asyncio.sleep(0.05)
            assert max(seen) == 7  # the window is full while the first row is not written
            first.set()
        else:
            await asyncio.sleep(0)
        asked -= 1
        return RowResult(200, {})

    job.run(ask, at_once=4)
    assert most == 4 and job.written == [str(number) for number in range(60)]


def test_rows_that_begin_alike_are_asked_one_after_another(tmp_path: Path) -> None:
    rows = [row(str(number), prompt=f"{'ABC'[number % 3] * 50} {number}") for number in range(30)]
    asked: list[str] = []

    async def ask(row: BatchRow) -> RowResult:
        asked.append(row.body["prompt"][0])
        return RowResult(200, {})

    Job(tmp_path, rows).run(ask, at_once=1)
    assert "".join(asked) == "A" * 10 + "B" * 10 + "C" * 10


def test_held_answers_are_bounded_by_bytes(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Beyond the bound only the oldest row is asked: its answer alone lets the held ones be written."""
    limited(monkeypatch, batch_window_bytes=20_000)
    rows = [row(str(number), prompt="z" if number == 0 else "a") for number in range(40)]
    order: list[int] = []

    async def ask(row: BatchRow) -> RowResult:
        order.append(row.index)
        return RowResult(200, {"text": "x" * 3000})

    Job(tmp_path, rows).run(ask, at_once=1)
    assert sorted(order) == list(range(40)) and order.index(0) < 10


def test_a_row_that_is_refused_is_written_with_the_failed_ones(tmp_path: Path) -> None:
    job = Job(tmp_path, many(5))

    async def ask(row: BatchRow) -> RowResult:
        return RowResult(400, {"error": {"message": "no"}}) if row.index == 2 else RowResult(200, {})

    job.run(ask)
    assert job.written == ["0", "1", "3", "4"]
    (failed,) = read(job.errors)
    assert failed["custom_id"] == "2" and failed["error"] is None
    assert failed["response"]["status_code"] == 400 and failed["response"]["body"] == {"error": {"message": "no"}}


def test_a_fault_of_the_other_side_is_tried_again_some_times(tmp_path: Path) -> None:
    job, tries = Job(tmp_path, many(2)), [0, 0]

    async def ask(row: BatchRow) -> RowResult:
        tries[row.index] += 1
        return RowResult(500, {}) if row.index == 0 or tries[1] < TRIES else RowResult(200, {})

    job.run(ask)
    assert tries == [TRIES, TRIES] and job.written == ["1"]
    assert read(job.errors)[0]["response"]["status_code"] == 500


def test_a_row_that_nobody_answered_is_asked_until_somebody_does(tmp_path: Path) -> None:
    job, left = Job(tmp_path, many(3)), 20

    async def ask(row: BatchRow) -> RowResult:
        nonlocal left
        left -= 1
        if left > 0:
            raise Retry("not now")
        return RowResult(200, {})

    job.run(ask)
    assert job.written == ["0", "1", "2"]


def test_a_job_gives_up_when_nothing_is_answered_for_long_and_goes_on_later(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    limited(monkeypatch, batch_patience_s=0.05)
    job, asked = Job(tmp_path, many(12)), list[str]()

    async def leaving(row: BatchRow) -> RowResult:
        if row.index >= 5:
            raise Retry("the server is gone")
        asked.append(row.custom_id)
        return RowResult(200, {})

    async def back(row: BatchRow) -> RowResult:
        asked.append(row.custom_id)
        return RowResult(200, {})

    with pytest.raises(BusyError, match="the server is gone"):
        job.run(leaving)
    assert job.written == asked == ["0", "1", "2", "3", "4"]
    job.run(back)
    assert job.written == asked == [str(number) for number in range(12)]


def test_a_job_that_is_cancelled_leaves_whole_lines_and_no_request_behind(tmp_path: Path) -> None:
    job, open_ = Job(tmp_path, many(50)), 0

    async def ask(row: BatchRow) -> RowResult:
        nonlocal open_
        open_ += 1
        try:
            await asyncio.sleep(0.002 if row.index < 10 else 3600)
        finally:
            open_ -= 1
        return RowResult(200, {})

    async def cancelled() -> None:
        journal = Journal(job.output, job.errors)
        task = asyncio.create_task(answer_rows(job.source.rows(), ask, journal, job.tally, at_once=4, created=0))
        while open_ < 4 or len(job.written) < 10:
            await asyncio.sleep(0.001)
        task.cancel()
        await asyncio.gather(task, return_exceptions=True)
        journal.close()

    asyncio.run(cancelled())
    assert open_ == 0 and job.written == [str(number) for number in range(10)]
    assert job.output.read_bytes().endswith(b"\n")
