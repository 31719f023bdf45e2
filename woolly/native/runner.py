"""Runner: a loaded model that computes one step at a time."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

import woolly._core as _core
from woolly.errors import BusyError, NativeError
from woolly.formats import FORMATS
from woolly.gguf import GgufFile
from woolly.native.finite import check_finite
from woolly.native.machine import ISA
from woolly.plan import PackOrder, Program, largest_product

TABLE_BLOCK = 256  # positions whose table rows are made at a time

Ints = NDArray[np.int32]


@dataclass(frozen=True, slots=True)
class Batch:
    """The whole input of a step: ragged rows of several sequences."""

    tokens: Ints  # [rows]
    spans: Ints  # [sequences, 3]: first row, count, position of the first
    pages: Ints  # [sequences, at most pages of the context]: the cache pages of each, in order
    want: Ints  # [wants]: rows whose logits are asked for


class Runner:
    """Packed weights, work area and cache pages of one program; `run` computes a step.

    `progress` is told how many bytes of all weights are packed, once a weight. Not for two threads at once, but `stop`
    may be called from any.
    """

    def __init__(
        self,
        program: Program,
        file: GgufFile,
        *,
        threads: int,
        pages: int,
        isa: str = ISA,
        progress: Callable[[int, int], None] | None = None,
    ) -> None:
        bounds = program.bounds
        self.rows, self.wants = bounds.rows, bounds.wants
        self.sequences, self.context = bounds.sequences, bounds.context
        self.vocab, self.page, self.pages, self.threads = program.vocab, program.target.page, pages, threads
        self._tables = program.tables
        self._largest = largest_product(program)
        self._filled = 0  # positions whose table rows are there
        try:
            self._core = _core.Runner(
                [(op.name, op.operands, list(op.attrs)) for op in program.ops],
                list(program.layouts),
                program.code.view(np.uint8),
                program.few.view(np.uint8),
                weight_bytes=program.weight_bytes,
                work_bytes=program.work_bytes,
                own_bytes=program.own_bytes,
                table_bytes=program.table_bytes,
                page_bytes=program.page_bytes,
                logits=program.logits,
                page=program.target.page,
                panel=program.target.panel,
                rows=bounds.rows,
                few_rows=program.target.few,
                wants=bounds.wants,
                sequences=bounds.sequences,
                context=bounds.context,
                vocab=program.vocab,
                pages=pages,
                threads=threads,
                isa=isa,
            )
            _load(self._core, program, file, progress)
        except _core.CoreError as error:
            raise _translated(error) from None
        # views of the core's own arrays: a step copies a few numbers and allocates nothing
        self._tokens, self._want = self._core.tokens, self._core.want
        self._spans, self._page_table, self._logits = self._core.spans, self._core.pages, self._core.logits

    def run(self, batch: Batch) -> NDArray[np.float32] | None:
        """Logits [wants, vocab], valid until the next run; None when it was stopped. Releases the GIL."""
        rows, sequences, wants = self._fill(batch)
        try:
            done = self._core.run(rows, sequences, wants)
        except _core.CoreError as error:
            raise _translated(error) from None
        return self._logits[:wants] if done else None

    def times(self, batch: Batch) -> NDArray[np.int64]:
        """A step by the clock: [instructions, 2], the ns that the first thread worked and then waited; none if stopped.

        It waits at the barrier before the next instruction, where there is one, and at the end of the step. Both
        together are the time from one meeting of all threads to the next.
        """
        try:
            stamps = np.array(self._core.times(*self._fill(batch)), np.int64)
        except _core.CoreError as error:
            raise _translated(error) from None
        return np.diff(stamps).reshape(-1, 2)

    def read_weights(self) -> float:
        """Seconds that the threads need to read all packed weights once and do nothing else."""
        return self._core.read_weights()

    def product(self, times: int) -> float | None:
        """Seconds of the largest matrix times one vector, so many times; None when it was stopped."""
        seconds = self._core.repeat(self._largest, times)
        return seconds if seconds >= 0 else None

    @contextmanager
    def by(self, isa: str) -> Iterator[None]:
        """Steps by the kernels of another set: the same weights and the same results, in another time."""
        before = self._core.isa
        self._core.use(isa)
        try:
            yield
        finally:
            self._core.use(before)

    @property
    def isa(self) -> str:
        return self._core.isa

    def _fill(self, batch: Batch) -> tuple[int, int, int]:
        """Put a batch where the core reads it, with the rows of tables it needs; rows, sequences and wants."""
        rows, sequences, wants = len(batch.tokens), len(batch.spans), len(batch.want)
        if rows > self.rows or sequences > self.sequences or wants > self.wants:
            raise NativeError(f"a step of {rows} rows, {sequences} sequences and {wants} logits is too large")
        self._tokens[:rows] = batch.tokens
        self._spans[:sequences] = batch.spans
        self._page_table[:sequences, : batch.pages.shape[1]] = batch.pages
        self._want[:wants] = batch.want
        for _, count, position in batch.spans.tolist():
            if position + count > self._filled:
                self._fill_tables(position + count)
        return rows, sequences, wants

    def stop(self) -> None:
        """End the step that is running, at its next barrier; from any thread."""
        self._core.stop()

    def close(self) -> None:
        """Give the memory back. Nothing can be run afterwards; views of the logits keep it as long as they live."""
        del self._core, self._tokens, self._want, self._spans, self._page_table, self._logits

    def _fill_tables(self, position: int) -> None:
        first = self._filled
        last = min(-(-position // TABLE_BLOCK) * TABLE_BLOCK, self.context)
        for place in self._tables:
            rows = place.table.rows(first, last)
            self._core.write_tables(place.place + first * place.table.width * 4, rows.view(np.uint8).reshape(-1))
        self._filled = last


def _load(core: _core.Runner, program: Program, file: GgufFile, progress: Callable[[int, int], None] | None) -> None:
    """Pack weight by weight, letting go of the file's pages as it goes."""
    parts = [np.frombuffer(part.view, np.uint8) for part in file.parts]
    done, total = 0, sum(order.nbytes for order in program.packs)
    for order in program.packs:
        if order.layout == "plain":
            vector = np.concatenate([_vector(file, name) for name in order.tensors])
            finite = bool(np.isfinite(vector).all())
            core.write_weights(order.place, vector.view(np.uint8))
        else:
            row_bytes = file.tensors[order.tensors[0]].nbytes // file.tensors[order.tensors[0]].shape[0]
            runs = _runs(order, file, row_bytes, program.target.panel)
            finite = core.pack(order.place, order.layout, order.rows, order.columns, row_bytes, runs, parts)
        if not finite:
            check_finite(file, order.tensors)  # names the tensor and the byte
            file.check_unchanged()
            raise NativeError(f"packing and looking disagree about the values of '{order.weight}'")
        for name in order.tensors:
            file.release(name)
        done += order.nbytes
        if progress is not None:
            progress(done, total)


def _vector(file: GgufFile, name: str) -> NDArray[np.float32]:
    info = file.tensors[name]
    values = FORMATS[info.format].decode(np.frombuffer(file.data(name), np.uint8), info.shape[0])
    return values.reshape(-1)


def _runs(order: PackOrder, file: GgufFile, row_bytes: int, panel: int) -> NDArray[np.int64]:
    """Which packed rows come from where: (first packed row, rows, file, byte offset)."""
    runs: list[tuple[int, int, int, int]] = []
    at = 0
    for index, name in enumerate(order.tensors):
        info = file.tensors[name]
        if not order.alternate:
            runs.append((at, info.shape[0], info.part, info.offset))
            at += info.shape[0]
            continue
        for number, first in enumerate(range(0, info.shape[0], panel)):
            count = min(panel, info.shape[0] - first)
            place = (number * len(order.tensors) + index) * panel
            runs.append((place, count, info.part, info.offset + first * row_bytes))
    return np.array(runs, np.int64)


def _translated(error: Exception) -> NativeError | BusyError:
    code, text = error.args
    if code == "not_enough_memory":
        return BusyError(text, suggestion="free some memory, or use a smaller model or context", code=code)
    return NativeError(text, code=code)
