"""Each kernel alone, beside the limits of the machine.

Products: every tensor type with every instruction set, for a few rows over weights far larger than the caches (bytes a
second, beside a plain read of the same bytes), and for a prompt's worth of rows (multiply-adds a cycle, beside the peak
of the set). Cases: the operations of a layer and a whole layer, each set against the scalar one.
All sets take turns, round by round, and the best time counts: what disturbs a run only ever makes it slower.
"""

from __future__ import annotations

import tempfile
from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TypeVar

from woolly.bench.machine import ROUNDS, multiplying
from woolly.bench.random_model import write_model
from woolly.bench.shapes import MIXES, SHAPES
from woolly.bench.sketch import Loaded, Sketch, written
from woolly.bench.subject import Subject
from woolly.formats import FORMATS
from woolly.native.machine import SETS

STREAM = 64 << 20  # bytes of weights that few rows share: more than caches hold
COLUMNS = 2048
FEW = (1, 2, 4, 8)
MANY = 512
SLOW = 16  # rows that the scalar set gets instead: it is there for proof, not for speed
LINEAR = frozenset(("linear",))

T = TypeVar("T")


@dataclass(frozen=True, slots=True)
class Product:
    """A product with one type, one set and so many rows: seconds of the best round, and what the machine allows."""

    form: str
    isa: str
    rows: int
    threads: int
    nbytes: int
    macs: int
    seconds: float
    read: float  # bytes a second of a plain read of the same weights
    peak: float  # multiply-adds a second of the set; 0 where it has no such loop

    @property
    def bytes_s(self) -> float:
        return self.nbytes / self.seconds

    @property
    def share_of_read(self) -> float:
        return self.bytes_s / self.read

    def macs_per_cycle(self, clock_hz: float) -> float:
        """Of one core."""
        return self.macs / self.seconds / self.threads / clock_hz

    @property
    def share_of_peak(self) -> float:
        return self.macs / self.seconds / self.peak if self.peak else 0.0


@dataclass(frozen=True, slots=True)
class Case:
    """Seconds of the best round of each set."""

    name: str
    seconds: dict[str, float]

    def times_scalar(self, isa: str) -> float:
        return self.seconds["scalar"] / self.seconds[isa]


def products(
    threads: int, *, rounds: int, forms: tuple[str, ...] = tuple(FORMATS), stream: int = STREAM, many: int = MANY
) -> Iterator[Product]:
    """Every product of these types, type by type."""
    for form in forms:
        large = max(16, stream // FORMATS[form].row_bytes(COLUMNS) // 16 * 16)
        yield from _products(form, large, FEW, threads, rounds)
        yield from _products(form, COLUMNS, (many,), threads, rounds)


def _products(form: str, height: int, counts: tuple[int, ...], threads: int, rounds: int) -> list[Product]:
    sketch = Sketch(height)
    weight = sketch.matrix(height, COLUMNS, form)
    x = sketch.node("take", sketch.node("embed", "tokens", weight), "want")
    graph = sketch.graph(sketch.linear(x, weight))
    with written(sketch) as file:
        loaded = {
            isa: Loaded(graph, file, rows=max(_rows(isa, n) for n in counts), threads=threads, isa=isa) for isa in SETS
        }
    best = {(isa, rows): float("inf") for isa in SETS for rows in counts}
    read = 0.0
    for _ in range(rounds):
        read = max(read, max(one.program.weight_bytes / one.runner.read_weights() for one in loaded.values()))
        for isa, rows in best:
            best[isa, rows] = min(best[isa, rows], loaded[isa].seconds(LINEAR, _rows(isa, rows)))
    integer = not FORMATS[form].is_float
    peaks = {row.isa: row.rate.best for row in multiplying(threads, max(ROUNDS, rounds)) if row.integer is integer}
    nbytes = height * FORMATS[form].row_bytes(COLUMNS)
    return [
        Product(
            form, isa, _rows(isa, rows), threads, nbytes, _rows(isa, rows) * height * COLUMNS, seconds, read,
            peaks.get(isa, 0.0),
        )
        for (isa, rows), seconds in best.items()
    ]  # fmt: skip


def _rows(isa: str, rows: int) -> int:
    return min(rows, SLOW) if isa == "scalar" else rows


def _product(height: int, columns: int, form: str) -> Callable[[Sketch], str]:
    def draw(sketch: Sketch) -> str:
        x = sketch.node("take", sketch.rows(columns), "want")
        return sketch.linear(x, sketch.matrix(height, columns, form))

    return draw


def _norm(sketch: Sketch) -> str:
    return sketch.node("rms_norm", sketch.rows(4096), sketch.vector(4096), eps=1e-5, heads=1)


def _swiglu(sketch: Sketch) -> str:
    return sketch.node("mul", sketch.node("silu", sketch.rows(11008)), sketch.rows(11008))


def _attention(sketch: Sketch) -> str:
    state = sketch.state(8, 128)
    after = sketch.node("store", sketch.rows(1024), sketch.rows(1024), state, "spans")
    return sketch.node("attend", sketch.rows(4096), state, "spans", after, heads=32, scale=128**-0.5)


@dataclass(frozen=True, slots=True)
class _Drawing:
    words: int  # the width of the result
    draw: Callable[[Sketch], str]
    ops: frozenset[str]
    rows: int
    position: int = 0


DRAWINGS: dict[str, _Drawing] = {
    "product 64 x 64, 64 rows, Q8_0": _Drawing(64, _product(64, 64, "Q8_0"), LINEAR, 64),
    "product 2048 x 2048, 64 rows, Q8_0": _Drawing(2048, _product(2048, 2048, "Q8_0"), LINEAR, 64),
    "product 2048 x 2048, 64 rows, F32": _Drawing(2048, _product(2048, 2048, "F32"), LINEAR, 64),
    "product 32000 x 4096, 1 row, Q8_0": _Drawing(32000, _product(32000, 4096, "Q8_0"), LINEAR, 1),
    "RMSNorm of 4096, 64 rows": _Drawing(4096, _norm, frozenset(("rms_norm",)), 64),
    "SwiGLU of 11008, 64 rows": _Drawing(11008, _swiglu, frozenset(("silu", "mul")), 64),
    "attention, 32 heads of 128, 1 row after 1023": _Drawing(4096, _attention, frozenset(("store_attend",)), 1, 1023),
}
LAYER = "one layer of llama-3.2-1b Q4_K_M, 1 row"


def cases(threads: int, *, rounds: int) -> Iterator[Case]:
    """The operations of a layer, then a layer."""
    for name, drawing in DRAWINGS.items():
        yield _case(name, drawing, threads, rounds)
    yield _layer(threads, rounds)


def _case(name: str, drawing: _Drawing, threads: int, rounds: int) -> Case:
    sketch = Sketch(drawing.words)
    graph = sketch.graph(drawing.draw(sketch))
    positions = drawing.position + drawing.rows
    with written(sketch) as file:
        loaded = {
            isa: Loaded(graph, file, rows=drawing.rows, threads=threads, isa=isa, positions=positions) for isa in SETS
        }
    return Case(name, _best(loaded, lambda one: one.seconds(drawing.ops, drawing.rows, drawing.position), rounds))


def _layer(threads: int, rounds: int) -> Case:
    shape = replace(SHAPES["llama-3.2-1b"], layers=1, vocab=2048)
    with tempfile.TemporaryDirectory(prefix="woolly-bench-") as folder:
        path = write_model(Path(folder) / "layer.gguf", LAYER, shape, MIXES["Q4_K_M"])
        loaded = {isa: Subject(path, threads=threads, positions=16, isa=isa) for isa in SETS}
    return Case(LAYER, _best(loaded, _step_seconds, rounds))


def _step_seconds(subject: Subject) -> float:
    """Of the layer alone: the head is no part of it."""
    names = [op.name for op in subject.program.ops]
    batch = subject.step(8)
    walked = subject.program.walked(len(batch.tokens), len(batch.want))
    layer = [not row["wanted"] and names[int(row["op"])] != "embed" for row in walked]
    return float(subject.runner.times(batch)[layer].sum()) / 1e9


def _best(subjects: dict[str, T], seconds: Callable[[T], float], rounds: int) -> dict[str, float]:
    best = dict.fromkeys(subjects, float("inf"))
    for _ in range(rounds):
        for isa, subject in subjects.items():
            best[isa] = min(best[isa], seconds(subject))
    return best
