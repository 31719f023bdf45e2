"""The work on a batch: rows are answered side by side, near to rows that begin alike, and written in their order.

So many rows are read ahead of the oldest that is not written (`LIMITS.batch_window`). Of these the next to be asked is
the one that follows the last one asked in the order of their prompts, round and round: rows with a common beginning
come one after another, so that what was computed for one is still there for the next, and none waits for longer than
the window lasts. An answer is held until all before it are written.

A row is written when it was answered or refused. Where nobody could say (a server that is gone, a full line), it is
asked again, until nothing was answered for so long that the job gives up; it goes on later from there.
"""

from __future__ import annotations

import asyncio
from bisect import bisect_left, insort
from collections.abc import Awaitable, Callable, Iterator
from dataclasses import dataclass
from typing import Any, TypeAlias

from woolly.errors import BusyError
from woolly.limits import LIMITS
from woolly.server.batch.answers import line_of, tokens_of
from woolly.server.batch.journal import Journal
from woolly.server.batch.rows import Row

SYNC_S = 1.0  # the most that a power cut takes
TRIED = (408, 500, 504)  # statuses that another try may change; they count as tries of the row
TRIES = 3
FIRST_S, LONGEST_S = 0.5, 15.0  # between two tries


@dataclass(frozen=True, slots=True)
class Said:
    """What came of a row: a status of HTTP, and a body of plain values."""

    status: int
    body: Any


class Later(Exception):
    """Nobody could say; the row is to be asked again after a while."""

    def __init__(self, why: str, wait_s: float = 0.0) -> None:
        super().__init__(why)
        self.wait_s = wait_s


Ask: TypeAlias = Callable[[Row], Awaitable[Said]]  # raises Later


@dataclass(slots=True)
class Tally:
    """How far a job is: rows that are written, those of them that failed, and what this run has read and said."""

    rows: int
    done: int = 0
    failed: int = 0
    tokens: int = 0


@dataclass(frozen=True, slots=True)
class Answer:
    """The line of a row, whether it failed, and how many tokens it took."""

    line: bytes
    failed: bool
    tokens: int


class _Ahead:
    """The rows that were read and not asked yet, in the order of their prompts."""

    def __init__(self) -> None:
        self._rows: list[tuple[bytes, int, Row]] = []
        self._last: tuple[bytes, int] = (b"", -1)

    def __len__(self) -> int:
        return len(self._rows)

    def add(self, row: Row) -> None:
        insort(self._rows, (row.prefix, row.index, row))

    def next(self) -> Row:
        """The row after the last one that this gave, round and round."""
        at = bisect_left(self._rows, self._last) % len(self._rows)
        return self._take(at)

    def oldest(self) -> Row:
        return self._take(min(range(len(self._rows)), key=lambda at: self._rows[at][1]))

    def _take(self, at: int) -> Row:
        prefix, index, row = self._rows.pop(at)
        self._last = (prefix, index + 1)
        return row


class Patience:
    """Until when nothing may have been answered before a job gives up."""

    def __init__(self) -> None:
        self._answered_s = asyncio.get_running_loop().time()

    def answered(self) -> None:
        self._answered_s = asyncio.get_running_loop().time()

    def spend(self, why: str) -> None:
        if asyncio.get_running_loop().time() - self._answered_s > LIMITS.batch_patience_s:
            raise BusyError(
                f"no row was answered for {LIMITS.batch_patience_s:.0f} s: {why}",
                suggestion="the same command goes on where it ended",
            )


async def answer_rows(
    rows: Iterator[Row],
    ask: Ask,
    journal: Journal,
    tally: Tally,
    *,
    at_once: int,
    created: int,
    tell: Callable[[Tally], None] = lambda tally: None,
) -> None:
    """Answer the rows that are left, and write a line for each. Cancelled, it leaves whole lines behind.

    at_once: rows that are asked at a time. tell: hears about once a second, and at the end, how far it is.
    """
    loop, patience = asyncio.get_running_loop(), Patience()
    ahead, held = _Ahead(), dict[int, Answer]()
    asking: dict[asyncio.Task[Answer], Row] = {}
    unread, ahead_bytes, held_bytes, synced_s, dirty = True, 0, 0, loop.time(), False
    writes = tally.done  # the index of the row that is written next
    try:
        while True:
            room = LIMITS.batch_window - len(ahead) - len(asking) - len(held)
            if unread and room > 0 and (not ahead or ahead_bytes < LIMITS.batch_window_bytes):
                found = await asyncio.to_thread(_read, rows, room, LIMITS.batch_window_bytes - ahead_bytes)
                unread = bool(found)
                for row in found:
                    ahead.add(row)
                    ahead_bytes += row.nbytes
            while ahead and len(asking) < at_once:
                row = ahead.next() if held_bytes < LIMITS.batch_window_bytes else ahead.oldest()
                asking[asyncio.create_task(answered(ask, row, created, patience))] = row
            if not asking:
                break
            done, _ = await asyncio.wait(asking, timeout=SYNC_S, return_when=asyncio.FIRST_COMPLETED)
            for task in done:
                row = asking.pop(task)
                answer = held[row.index] = task.result()
                ahead_bytes -= row.nbytes
                held_bytes += len(answer.line)
            while writes in held:
                answer = held.pop(writes)
                journal.add(answer.line, failed=answer.failed)
                writes, dirty, held_bytes = writes + 1, True, held_bytes - len(answer.line)
                tally.done, tally.failed = tally.done + 1, tally.failed + answer.failed
                tally.tokens += answer.tokens
            if loop.time() - synced_s >= SYNC_S:
                if dirty:
                    await asyncio.to_thread(journal.sync)
                synced_s, dirty = loop.time(), False
                tell(tally)
    finally:
        for task in asking:
            task.cancel()
        await asyncio.gather(*asking, return_exceptions=True)
        journal.sync()
    tell(tally)


def _read(rows: Iterator[Row], most: int, most_bytes: int) -> list[Row]:
    """Some rows more, none where all have been read."""
    found: list[Row] = []
    nbytes = 0
    while len(found) < most and nbytes < most_bytes and (row := next(rows, None)) is not None:
        found.append(row)
        nbytes += row.nbytes
    return found


async def answered(ask: Ask, row: Row, created: int, patience: Patience) -> Answer:
    """Ask until somebody answers."""
    tries, wait_s = 0, FIRST_S
    while True:
        try:
            said = await ask(row)
        except Later as later:
            patience.spend(str(later))
            await asyncio.sleep(max(wait_s, later.wait_s))
            wait_s = min(2 * wait_s, LONGEST_S)
            continue
        patience.answered()
        tries += 1
        if said.status in TRIED and tries < TRIES:
            await asyncio.sleep(FIRST_S)
            continue
        line = line_of(row, said.status, said.body, created)
        return Answer(line, said.status != 200, tokens_of(said.body))
