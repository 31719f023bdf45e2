"""Weights of a file as panels in memory of this machine: what bytes go where, for every device.

A device says where the panels of a weight go: into its own memory, or where they wait for their way there. Nothing of a
weight is held twice; the pages of the file are let go weight by weight.
"""

from __future__ import annotations

import math

import numpy as np
from numpy.typing import NDArray

import woolly._core as _core
from woolly.device.cpu.finite import check_finite
from woolly.device.cpu.machine import ISA
from woolly.errors import NativeError
from woolly.gguf import GgufFile
from woolly.gguf.tensor_types import FORMATS
from woolly.model.ops.weights import transposed
from woolly.plan import PackOrder, Program

Bytes = NDArray[np.uint8]


def pack(order: PackOrder, program: Program, file: GgufFile, out: Bytes, *, threads: int, isa: str = ISA) -> None:
    """Write a weight, `order.nbytes` bytes, on all threads. FileError where a value of it is not finite."""
    names = tuple(dict.fromkeys(part.tensor for part in order.parts)) if order.weight not in program.matrices else ()
    if order.layout == "plain":
        vector = _vector(order, file)
        finite = bool(np.isfinite(vector).all())
        out.view(np.float32)[:] = vector
    else:
        row_bytes, runs, sources = _rows(order, program, file)
        size = (order.rows, order.columns, row_bytes)
        finite = _core.pack(out, order.layout, *size, np.array(runs, np.int64), sources, threads, isa)
    if not finite:
        check_finite(file, names)  # names the tensor and the byte
        file.check_unchanged()
        raise NativeError(f"packing and looking disagree about the values of '{order.weight}'")
    for name in names:
        file.release(name)


Runs = list[tuple[int, int, int, int]]  # rows that lie together: first packed row, count, source, byte offset in it


def _rows(order: PackOrder, program: Program, file: GgufFile) -> tuple[int, Runs, list[Bytes]]:
    """The bytes of a row, which packed rows come from where, and the sources: of a matrix the parts of its file."""
    if order.weight in program.matrices:
        values = program.matrices[order.weight].view(np.uint8)
        return values.shape[1], [(0, len(values), 0, 0)], [values.reshape(-1)]
    if order.transposed:
        return _columns(order, file)
    row_bytes = FORMATS[file.tensors[order.parts[0].tensor].format].row_bytes(order.columns)
    sources = [np.frombuffer(part.view, np.uint8) for part in file.parts]
    return row_bytes, _runs(order, file, row_bytes, program.target.panel), sources


def _columns(order: PackOrder, file: GgufFile) -> tuple[int, Runs, list[Bytes]]:
    """Columns of the matrices of a tensor become rows."""
    values = transposed(file, order.parts[0], order.experts)  # [experts, rows, columns]
    rows, packed, row_bytes = values.shape[1], order.rows // order.experts, 4 * order.columns
    runs = [(expert * packed, rows, 0, expert * rows * row_bytes) for expert in range(order.experts)]
    return row_bytes, runs, [values.view(np.uint8).reshape(-1)]


def _runs(order: PackOrder, file: GgufFile, row_bytes: int, panel: int) -> Runs:
    """The rows of each part one after the other, or a panel of each in turn; experts stay together."""
    runs: Runs = []
    at = 0
    for index, part in enumerate(order.parts):
        info = file.tensors[part.tensor]
        rows = math.prod(info.shape[:-1]) // order.experts
        for expert in range(order.experts):
            start = info.offset + (expert * rows + part.first) * row_bytes
            if order.alternate:
                panels = -(-part.count // panel)
                for number in range(panels):
                    place = ((expert * panels + number) * len(order.parts) + index) * panel
                    count = min(panel, part.count - number * panel)
                    runs.append((place, count, info.part, start + number * panel * row_bytes))
                continue
            runs.append((at, part.count, info.part, start))
            at += -(-part.count // panel) * panel if order.experts > 1 else part.count
    return runs


def _vector(order: PackOrder, file: GgufFile) -> NDArray[np.float32]:
    if order.values:
        return np.array(order.values, np.float32)
    values = []
    for part in order.parts:
        info = file.tensors[part.tensor]
        raw = np.frombuffer(file.data(part.tensor), np.uint8).reshape(1, -1)
        values.append(FORMATS[info.format].decode(raw, math.prod(info.shape))[0, part.first : part.first + part.count])
    return np.concatenate(values)
