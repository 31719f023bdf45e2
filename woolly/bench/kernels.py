"""Each kernel alone, beside the limits of the machine.

Products: every tensor type with every instruction set, for a few rows over weights far larger than the caches (bytes a
second, beside a plain read of the same bytes), and for a prompt's worth of rows (multiply-adds a cycle, beside the peak
of the set). Cases: the operations of a layer and a whole layer, each set against the scalar one.
All sets take turns, round by round, and the best time counts: a disturbance only ever makes a run slower.
"""

from __future__ import annotations

import tempfile
from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path

from woolly.bench.machine import multiply_rates
from woolly.bench.random_model import write_model
from woolly.bench.shapes import MIXES, SHAPES
from woolly.bench.sketch import LoadedSketch, Sketch, sketch_file
from woolly.bench.subject import Subject
from woolly.device.cpu import Runner
from woolly.device.cpu.machine import SETS
from woolly.gguf.tensor_types import FORMATS
from woolly.plan import COUNTS

STREAM = 64 << 20  # bytes of weights that few rows share: more than caches hold
COLUMNS = 2048
FEW_ROWS = (1, 2, 4, 8)
MANY_ROWS = 512
SCALAR_ROWS = 16  # rows of the scalar set, which would take minutes with MANY_ROWS
LINEAR = frozenset(("linear",))


@dataclass(frozen=True, slots=True)
class Product:
    """A product with one type, one set and so many rows, by the best round, beside what the machine allows."""

    format: str
    isa: str
    rows: int
    us: float
    gb_s: float
    share_of_read: float  # the time of a plain read of the same weights over that of the product
    mac_per_cycle: float  # for one core
    share_of_peak: float  # over the peak multiply-adds of the set; 0 where that was not measured


@dataclass(frozen=True, slots=True)
class Case:
    """Microseconds of the best round of each instruction set."""

    case: str
    us: dict[str, float]

    @property
    def times_scalar(self) -> dict[str, float]:
        """How many times as fast as the scalar set each is."""
        return {isa: self.us["scalar"] / us for isa, us in self.us.items()}


def products(
    threads: int,
    clock_ghz: float,
    *,
    rounds: int,
    forms: tuple[str, ...] = tuple(FORMATS),
    stream: int = STREAM,
    many: int = MANY_ROWS,
) -> Iterator[Product]:
    """Every product of these types, type by type."""
    for form in forms:
        large = max(16, stream // FORMATS[form].row_bytes(COLUMNS) // 16 * 16)
        yield from _products(form, large, FEW_ROWS, threads, rounds, clock_ghz)
        yield from _products(form, COLUMNS, (many,), threads, rounds, clock_ghz)


def _products(
    form: str, height: int, counts: tuple[int, ...], threads: int, rounds: int, clock_ghz: float
) -> Iterator[Product]:
    sketch = Sketch(height)
    weight = sketch.matrix(height, COLUMNS, form)
    x = sketch.node("take", sketch.node("embed", "tokens", weight), "want")
    graph = sketch.graph(sketch.linear(x, weight))
    with sketch_file(sketch) as file:
        loaded = LoadedSketch(graph, file, rows=max(counts), threads=threads)
    best = {(isa, rows): float("inf") for isa in SETS for rows in counts}
    read = 0.0
    for _ in range(rounds):
        read = max(read, loaded.program.weight_bytes / loaded.runner.read_weights())
        for isa, rows in best:
            with loaded.runner.by(isa):
                best[isa, rows] = min(best[isa, rows], loaded.seconds(LINEAR, _rows(isa, rows)))
    kind = "f32" if FORMATS[form].is_float else "int8"
    peaks = {row.isa: row.gmac_s.best for row in multiply_rates(threads, rounds) if row.kind == kind}
    for (isa, rows), seconds in best.items():
        count = _rows(isa, rows)
        bytes_s = height * FORMATS[form].row_bytes(COLUMNS) / seconds
        gmac_s = count * height * COLUMNS / seconds / 1e9
        share = gmac_s / peaks[isa] if isa in peaks else 0.0
        per_cycle = gmac_s / threads / clock_ghz
        yield Product(form, isa, count, seconds * 1e6, bytes_s / 1e9, bytes_s / read, per_cycle, share)


def _rows(isa: str, rows: int) -> int:
    return min(rows, SCALAR_ROWS) if isa == "scalar" else rows


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
    return sketch.node(
        "attend",
        sketch.rows(4096),
        state,
        "spans",
        after,
        "",
        "",
        heads=32,
        scale=128**-0.5,
        window=0,
        chunked=0,
        causal=1,
        cap=0.0,
    )


@dataclass(frozen=True, slots=True)
class _CaseSpec:
    words: int  # the width of the result
    draw: Callable[[Sketch], str]
    ops: frozenset[str]
    rows: int
    position: int = 0


CASES: dict[str, _CaseSpec] = {
    "product 64 x 64, 64 rows, Q8_0": _CaseSpec(64, _product(64, 64, "Q8_0"), LINEAR, 64),
    "product 2048 x 2048, 64 rows, Q8_0": _CaseSpec(2048, _product(2048, 2048, "Q8_0"), LINEAR, 64),
    "product 2048 x 2048, 64 rows, F32": _CaseSpec(2048, _product(2048, 2048, "F32"), LINEAR, 64),
    "product 32000 x 4096, 1 row, Q8_0": _CaseSpec(32000, _product(32000, 4096, "Q8_0"), LINEAR, 1),
    "RMSNorm of 4096, 64 rows": _CaseSpec(4096, _norm, frozenset(("rms_norm",)), 64),
    "SwiGLU of 11008, 64 rows": _CaseSpec(11008, _swiglu, frozenset(("silu", "mul")), 64),
    "attention, 32 heads of 128, 1 row after 1023": _CaseSpec(4096, _attention, frozenset(("store_attend",)), 1, 1023),
}
LAYER = "one layer of llama-3.2-1b Q4_K_M, 1 row"


def cases(threads: int, *, rounds: int) -> Iterator[Case]:
    """The operations of a layer, then a layer."""
    for name, spec in CASES.items():
        yield _case(name, spec, threads, rounds)
    yield _layer(threads, rounds)


def _case(name: str, spec: _CaseSpec, threads: int, rounds: int) -> Case:
    sketch = Sketch(spec.words)
    graph = sketch.graph(spec.draw(sketch))
    positions = spec.position + spec.rows
    with sketch_file(sketch) as file:
        loaded = LoadedSketch(graph, file, rows=spec.rows, threads=threads, positions=positions)
    seconds = partial(loaded.seconds, spec.ops, spec.rows, spec.position)
    return Case(name, _best(loaded.runner, seconds, rounds))


def _layer(threads: int, rounds: int) -> Case:
    shape = replace(SHAPES["llama-3.2-1b"], layers=1, vocab=2048)
    with tempfile.TemporaryDirectory(prefix="woolly-bench-") as folder:
        path = write_model(Path(folder) / "layer.gguf", LAYER, shape, MIXES["Q4_K_M"])
        subject = Subject(path, threads=threads, positions=16)
    return Case(LAYER, _best(subject.runner, partial(_step_seconds, subject), rounds))


def _step_seconds(subject: Subject) -> float:
    """Seconds of the instructions of the layer alone, without the embedding and the output matrix."""
    names = [op.name for op in subject.program.ops]
    batch = subject.step(8)
    walked = subject.program.walked(len(batch.tokens), len(batch.want))
    layer = [COUNTS[int(row["rows"])] == "rows" and names[int(row["op"])] != "embed" for row in walked]
    return float(subject.runner.times(subject.runner.batch.put(batch))[layer].sum()) / 1e9


def _best(runner: Runner, seconds: Callable[[], float], rounds: int) -> dict[str, float]:
    """Microseconds of the best round of each set."""
    best = dict.fromkeys(SETS, float("inf"))
    for _ in range(rounds):
        for isa in SETS:
            with runner.by(isa):
                best[isa] = min(best[isa], seconds() * 1e6)
    return best
