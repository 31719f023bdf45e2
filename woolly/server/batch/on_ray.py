"""A batch on a Ray cluster, by Ray Data: workers answer ranges of rows, and this process writes them in order.

Ray places the workers, restarts them and hands ranges out again; that every row is written once and in order is
decided here. Each line that comes back must be that of the next row of the input: a range that was answered twice gave
the same bytes, and one that is missing, or not of this input, ends the job.

The input lies where all machines can read it. The output is written by this process alone, and tells a job that is
started again where to go on.
"""

from __future__ import annotations

import asyncio
import itertools
import os
import threading
import time
from collections.abc import Callable, Iterator, Mapping
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import Any

from woolly.config import Config, Settings
from woolly.errors import FileError
from woolly.limits import LIMITS
from woolly.server.batch.journal import Journal
from woolly.server.batch.ray_cluster import connected, cores
from woolly.server.batch.rows import Input, RowRange, Terms
from woolly.server.batch.work import SYNC_S, Backoff, OutputLine, RowAnswerer, Tally, answer_until_done

RANGE_ROWS = 64  # rows that a worker has at a time: several fill the engine, and few are lost with a worker
MOST_RANGES = 10_000  # most ranges of one job: a job with many rows has longer ranges


@dataclass(frozen=True, slots=True)
class Work:
    """What a worker has to know. model: resolved by its name on each machine; "": the rows name theirs."""

    path: Path
    nbytes: int
    terms: Terms
    model: str
    settings: Settings
    config: Config
    begin: Callable[[Settings, Config], RowAnswerer]  # makes the function that answers rows; pickled by its name

    def open(self) -> Input:
        source = Input(
            self.path, self.terms, self.settings.limits, most_bytes=LIMITS.batch_file, most_rows=LIMITS.batch_rows
        )
        if os.fstat(source.handle).st_size != self.nbytes:
            source.close()
            raise FileError(f"{source.name} is another file on this machine", suggestion="share it between machines")
        return source


class Worker:
    """An actor of Ray's: a server's app without a socket, which answers one range after another."""

    def __init__(self, work: Work) -> None:
        from woolly.store import resolve

        settings, config = work.settings, work.config
        if work.model:
            settings = replace(settings, models=(resolve(work.model, config=config),))
        self._work, self._at_once = work, config.engine.sequences
        self._loop = asyncio.new_event_loop()
        threading.Thread(target=self._loop.run_forever, daemon=True).start()

        async def begin() -> None:
            self._answer_row = work.begin(settings, config)

        asyncio.run_coroutine_threadsafe(begin(), self._loop).result()

    def __call__(self, ranges: Mapping[str, Any]) -> dict[str, list[Any]]:
        """Answer ranges; both the ranges and their answers are columns, as Ray Data passes them."""
        rows = zip(*(ranges[name] for name in asdict(RowRange())), strict=True)
        range_answers = [self._range(RowRange(*map(int, row))) for row in rows]
        return {
            "lines": [b"".join(answer.line for answer in answers) for answers in range_answers],
            "failed": [bytes(answer.failed for answer in answers) for answers in range_answers],
            "tokens": [sum(answer.tokens for answer in answers) for answers in range_answers],
        }

    def _range(self, row_range: RowRange) -> list[OutputLine]:
        return asyncio.run_coroutine_threadsafe(self._answers(row_range), self._loop).result()

    async def _answers(self, row_range: RowRange) -> list[OutputLine]:
        source = self._work.open()
        try:
            rows = await asyncio.to_thread(lambda: list(source.rows(row_range)))
        finally:
            source.close()
        places, backoff = asyncio.Semaphore(self._at_once), Backoff()

        async def one(row: Any) -> OutputLine:
            async with places:
                return await answer_until_done(self._answer_row, row, self._work.terms.created, backoff)

        # Neighbours in this order share the beginnings of their prompts.
        near = sorted(rows, key=lambda row: (row.prefix, row.index))
        by_index = dict(zip((row.index for row in near), await asyncio.gather(*map(one, near)), strict=True))
        return [by_index[row.index] for row in rows]


def answer_on_ray(
    work: Work,
    source: Input,
    journal: Journal,
    tally: Tally,
    *,
    address: str,
    workers: int,
    tell: Callable[[Tally], None],
) -> None:
    """Answer the rows that are left, as `answer_rows` does. address: of a cluster; "local" begins one here."""
    size = max(RANGE_ROWS, -(-(tally.rows - tally.done) // MOST_RANGES))
    ranges = [asdict(row_range) for row_range in source.ranges(tally.done, size)]
    if not ranges:
        return
    with connected(address) as ray:
        from ray import data

        context = data.DataContext.get_current()
        context.execution_options.preserve_order = True
        context.enable_progress_bars = False
        answers = data.from_items(ranges, override_num_blocks=len(ranges)).map_batches(
            Worker,
            fn_constructor_args=(work,),
            batch_size=1,
            compute=data.ActorPoolStrategy(min_size=1, max_size=workers),
            num_cpus=work.config.engine.threads or cores(ray),
        )
        try:
            _write(answers.iter_rows(), source, journal, tally, tell)
        finally:
            journal.sync()


def _write(
    answers: Iterator[Mapping[str, Any]],
    source: Input,
    journal: Journal,
    tally: Tally,
    tell: Callable[[Tally], None],
) -> None:
    """Write the lines that come back; each must be that of the next row of the input."""
    rows = itertools.islice(source.rows(), tally.done, None)
    synced_s = time.monotonic()
    for answer in answers:
        lines = answer["lines"].splitlines(keepends=True)
        for line, failed in zip(lines, answer["failed"], strict=True):
            row = next(rows, None)
            if row is None or not line.startswith(b'{"id":"%b",' % row.id.encode()):
                raise FileError("a line came back that is not that of the next row", suggestion="start it again")
            journal.add(line, failed=bool(failed))
            tally.done, tally.failed = tally.done + 1, tally.failed + bool(failed)
        tally.tokens += int(answer["tokens"])
        if time.monotonic() - synced_s >= SYNC_S:
            journal.sync()
            synced_s = time.monotonic()
            tell(tally)
    if tally.done != tally.rows:
        raise FileError(f"{tally.rows - tally.done:,} rows did not come back", suggestion="start it again")
    tell(tally)
