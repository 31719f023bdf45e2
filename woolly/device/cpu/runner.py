"""Runner: a loaded model that computes one step at a time."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager

import numpy as np
from numpy.typing import NDArray

import woolly._core as _core
from woolly.device.batch import SLOTS, Batch, StepSize
from woolly.device.cpu.machine import ISA
from woolly.device.cpu.packing import pack
from woolly.device.cpu.pick import pick
from woolly.device.queue import DeviceQueue
from woolly.errors import BusyError, NativeError
from woolly.gguf import GgufFile
from woolly.plan import COUNTS, Program, largest_product

TABLE_BLOCK = 256  # positions whose table rows are made at a time


class Runner:
    """Packed weights, work area, cache pages and slots of one program; `run` computes a step.

    slots: for what sequences carry, if the model has such states; one for each sequence of a step unless another number
    is given. The slots of `snapshots` come behind them.

    `progress` is called with the bytes packed and those of all weights, once a weight. A runner is not for two threads
    at once, but `stop` may be called from any.
    """

    queue = DeviceQueue()  # the processor computes one step at a time, of whichever model

    def __init__(
        self,
        program: Program,
        file: GgufFile,
        *,
        threads: int,
        pages: Sequence[int],
        slots: int | None = None,
        snapshots: int = 0,
        isa: str = ISA,
        progress: Callable[[int, int], None] | None = None,
    ) -> None:
        bounds = program.bounds
        self.rows, self.wants = bounds.rows, bounds.wants
        self.sequences, self.context = bounds.sequences, bounds.context
        self.vocab, self.page, self.pages, self.threads = program.vocab, program.target.page, tuple(pages), threads
        carried = bounds.sequences if slots is None else slots
        self.slots, self.snapshots = (carried, snapshots) if program.slot_bytes else (0, 0)
        self.page_bytes = tuple(group.page_bytes for group in program.groups)
        self.pool_bytes = sum(n * nbytes for n, nbytes in zip(pages, self.page_bytes, strict=True))
        self.pool_bytes += self.slots * program.slot_bytes
        self.windows = tuple(group.window for group in program.groups)
        self.single_step = program.single_step
        self.output = program.outputs[0]  # the main one: logits, where the model has them
        self.widths = {output.name: output.width for output in program.outputs}
        self._tables = program.tables
        self._largest = largest_product(program)
        self._filled = 0  # positions whose table rows are written
        try:
            self._core = _core_of(program, pages, self.slots + self.snapshots, threads, isa)
            weights, total, packed = self._core.weights, sum(order.nbytes for order in program.packs), 0
            for order in program.packs:
                out = weights[order.place : order.place + order.nbytes]
                pack(order, program, file, out, threads=threads, isa=isa)
                packed += order.nbytes
                if progress is not None:
                    progress(packed, total)
        except _core.CoreError as error:
            raise _translated(error) from None
        core = self._core
        self.batch = Batch(core.tokens, core.spans, core.pages, core.want, core.copies, core.scales)
        self._outputs = {output.name: core.output(index) for index, output in enumerate(program.outputs)}
        self._picked_from = self._outputs[self.output.name]

    def run(self, size: StepSize) -> Mapping[str, NDArray[np.float32]] | None:
        """Compute the step in `batch`: its outputs by name, valid until the next run, of which only the first rows are
        the step's; None when it was stopped. Releases the GIL."""
        self._fill_tables(size.positions)
        try:
            done = self._core.run(size.rows, size.spans, size.wants, size.copies)
        except _core.CoreError as error:
            raise _translated(error) from None
        return self._outputs if done else None

    def pick(self, rows: NDArray[np.uint8], count: int, masks: NDArray[np.uint32] | None) -> list[int]:
        """A token for each of the first `count` PICK_ROWs, by the logits of the last run as they are now, or -1. Once a
        step; releases the GIL."""
        return pick(self._picked_from, rows, count, masks)

    def read_page(self, group: int, page: int) -> bytes:
        """The state that a page holds, of all layers of its group. Only between two steps, as all reads and writes."""
        return self._state(group, page).tobytes()

    def write_page(self, group: int, page: int, data: bytes | memoryview) -> None:
        """Make a page hold what `read_page` gave, of a runner with the same program."""
        _write(self._state(group, page), data)

    def read_slot(self, slot: int) -> bytes:
        """What the sequence of a slot carries."""
        return self._state(SLOTS, slot).tobytes()

    def write_slot(self, slot: int, data: bytes | memoryview) -> None:
        _write(self._state(SLOTS, slot), data)

    def times(self, size: StepSize) -> NDArray[np.int64]:
        """A step by the clock: [instructions, 2], the ns that the first thread worked and then waited; none if stopped.

        The thread waits at the barrier before the next instruction, where there is one, and at the end of the step.
        Work and wait together are the time from one meeting of all threads to the next.
        """
        self._fill_tables(size.positions)
        try:
            stamps = np.array(self._core.times(size.rows, size.spans, size.wants, size.copies), np.int64)
        except _core.CoreError as error:
            raise _translated(error) from None
        return np.diff(stamps).reshape(-1, 2)

    def read_weights(self) -> float:
        """Seconds that the threads need to read all packed weights once and do nothing else."""
        return self._core.read_weights()

    def product(self, times: int) -> float | None:
        """Seconds of `times` products of the largest matrix and a vector; None when it was stopped."""
        seconds = self._core.repeat(self._largest, times)
        return seconds if seconds >= 0 else None

    @contextmanager
    def by(self, isa: str) -> Iterator[None]:
        """Run steps with the kernels of another instruction set: the same weights and results, another speed."""
        before = self._core.isa
        self._core.use(isa)
        try:
            yield
        finally:
            self._core.use(before)

    @property
    def isa(self) -> str:
        return self._core.isa

    def stop(self) -> None:
        """End the step that is running, at its next barrier; from any thread."""
        self._core.stop()

    def close(self) -> None:
        """Give the memory back. Nothing can be run afterwards; a view of an output keeps the memory while it lives."""
        del self._core, self.batch, self._outputs, self._picked_from

    def _state(self, group: int, index: int) -> NDArray[np.uint8]:
        try:
            return self._core.state(group, index)
        except _core.CoreError as error:
            raise _translated(error) from None

    def _fill_tables(self, positions: int) -> None:
        """Write the table rows of the first `positions` positions that are not there yet."""
        if positions <= self._filled:
            return
        first = self._filled
        last = min(-(-positions // TABLE_BLOCK) * TABLE_BLOCK, self.context)
        for place in self._tables:
            rows = place.table.rows(first, last)
            self._core.write_tables(place.place + first * place.table.width * 4, rows.view(np.uint8).reshape(-1))
        self._filled = last


os.register_at_fork(after_in_child=Runner.queue.forget)


def _core_of(program: Program, pages: Sequence[int], slots: int, threads: int, isa: str) -> _core.Runner:
    """The core's side of a program, with memory for everything and nothing in it."""
    bounds, target = program.bounds, program.target
    return _core.Runner(
        [(op.name, op.operands, list(op.attrs)) for op in program.ops],
        list(program.layouts),
        program.code.view(np.uint8),
        program.small_step.view(np.uint8),
        program.adapted.view(np.uint8),
        program.adapted_small_step.view(np.uint8),
        weight_bytes=program.weight_bytes,
        work_bytes=program.work_bytes,
        per_thread_bytes=program.per_thread_bytes,
        table_bytes=program.table_bytes,
        slot_bytes=program.slot_bytes,
        groups=[(group.window, group.page_bytes, n) for group, n in zip(program.groups, pages, strict=True)],
        outputs=[(output.place, COUNTS.index(output.rows), output.width) for output in program.outputs],
        page=target.page,
        panel=target.panel,
        rows=bounds.rows,
        small_step_rows=target.small_step,
        wants=bounds.wants,
        sequences=bounds.sequences,
        context=bounds.context,
        vocab=program.vocab,
        slots=slots,
        adapters=program.adapters,
        threads=threads,
        isa=isa,
    )


def _write(state: NDArray[np.uint8], data: bytes | memoryview) -> None:
    values = np.frombuffer(data, np.uint8)
    if values.shape != state.shape:
        raise NativeError(f"a state has {state.size:,} bytes, but {values.size:,} were given")
    state[:] = values


def _translated(error: Exception) -> NativeError | BusyError:
    code, text = error.args
    if code == "not_enough_memory":
        return BusyError(text, suggestion="free some memory, or use a smaller model or context", code=code)
    return NativeError(text, code=code)
