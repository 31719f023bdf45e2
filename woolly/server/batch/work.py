"""The work on a batch: rows are answered side by side, next to rows that begin alike, and written in their order.

A limited number of rows is read ahead of the oldest that is not written (`LIMITS.batch_window`). Of these the next one
to be answered follows the last one in the order of their prompts, round and round: rows with a common beginning come
one after another, so that the pages of one are still cached for the next, and none waits for longer than the window
lasts. An answer is held until all before it are written.

A row is written when it was answered or refused. Where it was neither (a server that is gone, a full queue), it is
tried again, until nothing was answered for so long that the job gives up; the same job can be continued later.
"""

from __future__ import annotations

import asyncio
from bisect import bisect_left, insort
from collections.abc import Awaitable, Callable, Iterator
from dataclasses import dataclass
from typing import Any, TypeAlias

from woolly.errors import BusyError
from woolly.limits import LIMITS
from woolly.server.batch.answers import output_line, tokens_of
from woolly.server.batch.journal import Journal
from woolly.server.batch.rows import BatchRow

SYNC_S = 1.0  # a power cut takes at most the lines of so many seconds
TRIED = (408, 500, 504)  # statuses that another try may change; they count as tries of the row
TRIES = 3
FIRST_S, LONGEST_S = 0.5, 15.0  # seconds between two tries


@dataclass(frozen=True, slots=True)
class RowResult:
    """The outcome of a row: a status of HTTP, and a body of plain values."""

    status: int
    body: Any


class Retry(Exception):
    """The row was neither answered nor refused: try it again after a while."""

    def __init__(self, why: str, wait_s: float = 0.0) -> None:
        super().__init__(why)
        self.wait_s = wait_s


RowAnswerer: TypeAlias = Callable[[BatchRow], Awaitable[RowResult]]  # raises Retry


@dataclass(slots=True)
class Tally:
    """The progress of a job: rows that are written, those of them that failed, and the tokens of this run."""

    rows: int
    done: int = 0
    failed: int = 0
    tokens: int = 0


@dataclass(frozen=True, slots=True)
class OutputLine:
    """The line of a row, whether it failed, and how many tokens it took."""

    line: bytes
    failed: bool
    tokens: int


class _ReadAhead:
    """The rows that were read and not tried yet, in the order of their prompts."""

    def __init__(self) -> None:
        self._rows: list[tuple[bytes, int, BatchRow]] = []
        self._last: tuple[bytes, int] = (b"", -1)

    def __len__(self) -> int:
        return len(self._rows)

    def add(self, row: BatchRow) -> None:
        insort(self._rows, (row.prefix, row.index, row))

    def next(self) -> BatchRow:
        """Take the row that follows the last one taken, in the order of prompts, round and round."""
        at = bisect_left(self._rows, self._last) % len(self._rows)
        return self._take(at)

    def oldest(self) -> BatchRow:
        return self._take(min(range(len(self._rows)), key=lambda at: self._rows[at][1]))

    def _take(self, at: int) -> BatchRow:
        prefix, index, row = self._rows.pop(at)
        self._last = (prefix, index + 1)
        return row


class _Unwritten:
    """The answers that wait for those of the rows before them, so that lines are written in the order of the rows."""

    def __init__(self, journal: Journal, tally: Tally) -> None:
        self.nbytes = 0
        self.dirty = False  # lines were written that may not be on the disk yet
        self._journal, self._tally = journal, tally
        self._lines: dict[int, OutputLine] = {}

    def __len__(self) -> int:
        return len(self._lines)

    def add(self, index: int, line: OutputLine) -> None:
        self._lines[index] = line
        self.nbytes += len(line.line)

    def write(self) -> None:
        """Write the lines whose turn has come, and count them."""
        tally = self._tally
        while (line := self._lines.pop(tally.done, None)) is not None:
            self._journal.add(line.line, failed=line.failed)
            self.nbytes, self.dirty = self.nbytes - len(line.line), True
            tally.done, tally.failed = tally.done + 1, tally.failed + line.failed
            tally.tokens += line.tokens


class Backoff:
    """Decides how long rows are tried again: a job gives up when none was answered for a while."""

    def __init__(self) -> None:
        self._succeeded_s = asyncio.get_running_loop().time()

    def succeeded(self) -> None:
        self._succeeded_s = asyncio.get_running_loop().time()

    def failed(self, why: str) -> None:
        if asyncio.get_running_loop().time() - self._succeeded_s > LIMITS.batch_patience_s:
            raise BusyError(
                f"no row was answered for {LIMITS.batch_patience_s:.0f} s: {why}",
                suggestion="the same command goes on where it ended",
            )


async def answer_rows(
    rows: Iterator[BatchRow],
    answer_row: RowAnswerer,
    journal: Journal,
    tally: Tally,
    *,
    at_once: int,
    created: int,
    tell: Callable[[Tally], None] = lambda tally: None,
) -> None:
    """Answer the rows that are left, and write a line for each. Cancelled, it leaves whole lines behind.

    at_once: rows that are tried at a time. tell: is given the progress about once a second, and at the end.
    """
    loop, backoff = asyncio.get_running_loop(), Backoff()
    ahead, unwritten = _ReadAhead(), _Unwritten(journal, tally)
    running: dict[asyncio.Task[OutputLine], BatchRow] = {}
    unread, ahead_bytes, synced_s = True, 0, loop.time()
    try:
        while True:
            room = LIMITS.batch_window - len(ahead) - len(running) - len(unwritten)
            if unread and room > 0 and (not ahead or ahead_bytes < LIMITS.batch_window_bytes):
                new_rows = await asyncio.to_thread(_read, rows, room, LIMITS.batch_window_bytes - ahead_bytes)
                unread = bool(new_rows)
                for row in new_rows:
                    ahead.add(row)
                    ahead_bytes += row.nbytes
            while ahead and len(running) < at_once:
                row = ahead.next() if unwritten.nbytes < LIMITS.batch_window_bytes else ahead.oldest()
                running[asyncio.create_task(answer_until_done(answer_row, row, created, backoff))] = row
            if not running:
                break
            done, _ = await asyncio.wait(running, timeout=SYNC_S, return_when=asyncio.FIRST_COMPLETED)
            for task in done:
                row = running.pop(task)
                unwritten.add(row.index, task.result())
                ahead_bytes -= row.nbytes
            unwritten.write()
            if loop.time() - synced_s >= SYNC_S:
                if unwritten.dirty:
                    await asyncio.to_thread(journal.sync)
                synced_s, unwritten.dirty = loop.time(), False
                tell(tally)
    finally:
        for task in running:
            task.cancel()
        await asyncio.gather(*running, return_exceptions=True)
        journal.sync()
    tell(tally)


def _read(rows: Iterator[BatchRow], most: int, most_bytes: int) -> list[BatchRow]:
    """Read some more rows; none where all have been read."""
    chunk: list[BatchRow] = []
    nbytes = 0
    while len(chunk) < most and nbytes < most_bytes and (row := next(rows, None)) is not None:
        chunk.append(row)
        nbytes += row.nbytes
    return chunk


async def answer_until_done(answer_row: RowAnswerer, row: BatchRow, created: int, backoff: Backoff) -> OutputLine:
    """Try a row until it is answered or refused."""
    tries, wait_s = 0, FIRST_S
    while True:
        try:
            result = await answer_row(row)
        except Retry as retry:
            backoff.failed(str(retry))
            await asyncio.sleep(max(wait_s, retry.wait_s))
            wait_s = min(2 * wait_s, LONGEST_S)
            continue
        backoff.succeeded()
        tries += 1
        if result.status in TRIED and tries < TRIES:
            await asyncio.sleep(FIRST_S)
            continue
        line = output_line(row, result.status, result.body, created)
        return OutputLine(line, result.status != 200, tokens_of(result.body))
