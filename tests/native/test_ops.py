"""Every op, in every instruction set of every device, gives the bits of its NumPy definition."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import ExitStack
from functools import lru_cache, partial
from itertools import product
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import numpy as np
import pytest
from numpy.typing import NDArray

from tests.native.sketch import (
    SANITIZED,
    VALUES,
    Sketch,
    Steps,
    assert_same_bits,
    every_set,
    native_outputs,
    reference_outputs,
)
from woolly import _core, gguf
from woolly.device import Device
from woolly.device.cpu import machine
from woolly.gguf.tensor_types import FORMATS
from woolly.model import OPS, Graph, RopeTable, TemperatureTable
from woolly.plan.deltas import ADAPTED, DELTAS

pytestmark = pytest.mark.native

WIDTHS = (1, 14, 16, 40, 60, 68, 576)
# A kernel computes 8 rows at a time, then 4, 2 and 1; from 32 rows on, panels are unpacked.
ROWS = (1, 15, 16, 17, 71)
# under the sanitizers every access is a call: long steps would take minutes
POSITIONS = (1, 15, 16, 17, 40 if SANITIZED else 270)  # for attention, whose parts end at 256 positions
QUANTISED = [name for name, row in FORMATS.items() if not row.is_float]
FLOATS = [name for name, row in FORMATS.items() if row.is_float]

Case = tuple[Sketch, str]


def pointwise(op: str, **attrs: float) -> Callable[[], Iterator[Case]]:
    def cases() -> Iterator[Case]:
        for values in VALUES:
            for width in WIDTHS:
                s = Sketch(max(width, 16), values=values)
                operands = [s.rows(width) for kinds in OPS[op].tensors.values() if "f32" in kinds]
                if "vector" in OPS[op].tensors.get("w", OPS[op].tensors.get("b", ())):
                    operands.append(s.vector(width))
                yield s, s.node(op, *operands, **attrs)

    return cases


def embeds() -> Iterator[Case]:
    for format, row in FORMATS.items():
        for rows in (16, 33):
            s = Sketch(rows)
            columns = 43 if row.is_float else 2 * row.block  # floats may have any number of columns
            yield s, s.node("embed", "tokens", s.matrix(rows, columns, format))


def embeds_of_positions() -> Iterator[Case]:
    for format in ("F32", "Q8_0"):
        s = Sketch(64)
        yield s, s.node("embed_positions", "positions", s.matrix(4096, 64, format))


def scaled_heads() -> Iterator[Case]:
    for values in VALUES:
        for width, heads in ((1, 1), (14, 1), (60, 3), (96, 4), (40, 40)):
            s = Sketch(max(width, 16), values=values)
            yield s, s.node("scale_heads", s.rows(width), s.rows(heads))
            s = Sketch(max(width, 16), values=values)
            yield s, s.node("scale_heads", s.rows(width), s.vector(heads))


def head_sums() -> Iterator[Case]:
    for values in VALUES:
        for width, heads in ((1, 1), (14, 7), (60, 3), (96, 4), (576, 1)):
            s = Sketch(max(width, 16), values=values)
            yield s, s.node("head_sums", s.rows(width), heads=heads)


def joins() -> Iterator[Case]:
    for width, other, heads in ((1, 1, 1), (14, 7, 7), (60, 3, 3), (96, 40, 4), (576, 64, 1)):
        s = Sketch(64)
        yield s, s.node("join", s.rows(width), s.rows(other), heads=heads)


def scaled_sums() -> Iterator[Case]:
    for values in VALUES:
        for width in WIDTHS:
            s = Sketch(max(width, 16), values=values)
            yield s, s.node("add_scaled", s.rows(width), s.rows(width), s.rows(1))


def norms(op: str) -> Callable[[], Iterator[Case]]:
    """Norms with a weight for all heads, with one for each, and with none; layer norms with and without a bias."""

    def cases() -> Iterator[Case]:
        for values in VALUES:
            for width, heads in ((1, 1), (14, 1), (40, 1), (60, 3), (68, 2), (576, 1), (96, 4)):
                for own in (width // heads, width, 0):
                    s = Sketch(max(width, 16), values=values)
                    operands = [s.rows(width), s.vector(own) if own else ""]
                    if op == "layer_norm":
                        operands.append(s.vector(width) if own else "")
                    yield s, s.node(op, *operands, eps=1e-5, heads=heads)

    return cases


def ropes() -> Iterator[Case]:
    for dim, rot in ((2, 2), (14, 12), (20, 20), (64, 64), (80, 40), (34, 34)):
        for neox in (0, 1):
            s = Sketch(3 * dim)
            table = s.table(RopeTable(10000.0, rot))
            yield s, s.node("rope", s.rows(3 * dim), "positions", table, heads=3, rot=rot, neox=neox)


def scales_by_position() -> Iterator[Case]:
    s = Sketch(40)
    yield s, s.node("scale_by_position", s.rows(40), "positions", s.table(TemperatureTable(0.1, 8)))


def attend(
    s: Sketch,
    q: str,
    state: str,
    *before: str,
    heads: int,
    scale: float,
    window: int = 0,
    chunked: int = 0,
    causal: int = 1,
    cap: float = 0.0,
    sinks: str = "",
    slopes: str = "",
) -> str:
    """A node of attention: after a store node, or one that stores the given keys and values itself."""
    op = "attend" if len(before) == 1 else "store_attend"
    reach = {"window": window, "chunked": chunked, "causal": causal}
    return s.node(op, q, state, "spans", *before, sinks, slopes, heads=heads, scale=scale, cap=cap, **reach)


def attentions() -> Iterator[Case]:
    for dtype in ("f32", "f16", "q8"):
        for heads, cached, dim in ((1, 1, 8), (4, 2, 14), (6, 3, 20), (3, 1, 34), (9, 3, 64), (2, 2, 128), (8, 1, 80)):
            # tiny values come first and so get few positions: subnormals are slow
            for values in ("tiny", "ordinary", "huge")[: 3 if dim == 64 else 2]:
                s = Sketch(max(16, heads * dim), values=values)
                q, k, v = s.rows(heads * dim), s.rows(cached * dim), s.rows(cached * dim)
                state = s.state(cached, dim, dtype)
                after = s.node("store", k, v, state, "spans")
                yield s, attend(s, q, state, after, heads=heads, scale=dim**-0.5)
    for dtype in ("f32", "f16", "q8"):  # keys and values that overflow
        s = Sketch(64, values="huge")
        q, k, v = s.rows(64), s.node("scale", s.rows(32), by=1e9), s.node("scale", s.rows(32), by=1e9)
        state = s.state(2, 16, dtype)
        after = s.node("store", k, v, state, "spans")
        yield s, attend(s, q, state, after, heads=4, scale=0.25)


def windows() -> Iterator[Case]:
    """A row sees the last `window` positions; without causality its whole span, or the positions around it."""
    for dtype in ("f32", "f16", "q8"):
        for window, causal in (
            (1, 1),
            (5, 1),
            (64, 1),
            (100, 1),
            (255, 1),
            (256, 1),
            (258, 1),
            (0, 0),
            (1, 0),
            (8, 0),
            (257, 0),
        ):
            s = Sketch(128)
            q, k, v = s.rows(128), s.rows(64), s.rows(64)
            state = s.state(2, 32, dtype, window=window if causal else 0)
            after = s.node("store", k, v, state, "spans")
            yield s, attend(s, q, state, after, heads=4, scale=0.2, window=window, causal=causal)
    for dtype in ("f32", "f16", "q8"):  # chunks; caps; slopes; sinks; values of another size than keys
        for more in (
            {"chunked": 1, "window": 70},
            {"cap": 1.5},
            {"slopes": 1},
            {"slopes": 1, "causal": 0},
            {"slopes": 5, "causal": 0},
            {"sinks": 1.0},
            {"value_dim": 20},
            {"value_dim": 70},
        ):
            s = Sketch(128)
            value_dim, window = int(more.pop("value_dim", 32)), int(more.get("window", 0))
            optional: dict[str, Any] = {
                name: s.vector(4 * int(n)) if name in ("sinks", "slopes") else n for name, n in more.items()
            }
            q, k, v = s.rows(128), s.rows(64), s.rows(2 * value_dim)
            state = s.state(2, 32, dtype, window=window, value_dim=value_dim)
            after = s.node("store", k, v, state, "spans")
            yield s, attend(s, q, state, after, heads=4, scale=0.2, **optional)
    s = Sketch(96)  # two groups of pages, with windows of their own
    x = s.rows(96)
    for window in (0, 20):
        state = s.state(1, 32, "f16", window=window)
        k, v = s.rows(32), s.rows(32)
        after = s.node("store", k, v, state, "spans")
        x = attend(s, x, state, after, heads=3, scale=0.2, window=window)
    yield s, x


def latent_attentions() -> Iterator[Case]:
    """Keys and values share one row of the cache, which many heads read."""
    for dtype in ("f32", "f16", "q8"):
        for heads, dim, value_dim in ((1, 8, 8), (4, 24, 16), (16, 34, 32), (40, 70, 33), (17, 20, 1)):
            s = Sketch(64)
            state = s.state(1, dim, dtype, value_dim=value_dim, latent=True)
            after = s.node("store", s.rows(dim), "", state, "spans")
            yield s, attend(s, s.rows(heads * dim), state, after, heads=heads, scale=dim**-0.5)


def all_attentions() -> Iterator[Case]:
    yield from attentions()
    yield from latent_attentions()
    yield from windows()


def convolutions() -> Iterator[Case]:
    for values in VALUES:
        for width, taps, bias in ((1, 2, 1), (14, 4, 0), (16, 3, 1), (68, 4, 1), (576, 4, 0), (40, 64, 1)):
            s = Sketch(max(width, 16), values=values)
            inputs = (s.rows(width), s.vector(width * taps), s.vector(width) if bias else "")
            yield s, s.node("conv", *inputs, s.carry(taps - 1, width), "spans")


def scans() -> Iterator[Case]:
    """Keys shared by one head or several, adjacent or strided; a decay and a rate per head or per key."""
    for values in VALUES:
        for heads, keys, columns, groups, tiled, each, seen in (
            (1, 1, 1, 1, 0, 1, 0),
            (4, 8, 16, 2, 0, 1, 0),
            (4, 8, 14, 2, 1, 1, 1),
            (2, 16, 64, 2, 0, 1, 1),
            (3, 5, 70, 3, 0, 5, 1),
            (2, 20, 128, 1, 0, 20, 0),
        ):
            s = Sketch(64, values=values)
            decay, rate = (s.node("sigmoid", s.rows(heads * each)) for _ in range(2))
            q, k = (s.node("rms_norm", s.rows(groups * keys), "", eps=1.0, heads=groups) for _ in range(2))
            optional = (s.node("scale", k, by=0.7), rate) if seen else ("", "")
            state = s.carry(heads, keys, columns)
            yield s, s.node("scan", q, k, s.rows(heads * columns), decay, *optional, state, "spans", tiled=tiled)


def selective_scans() -> Iterator[Case]:
    for values in VALUES:
        for width, states in ((1, 1), (14, 3), (16, 16), (70, 8), (130, 5)):
            s = Sketch(64, values=values)
            dt = s.node("softplus", s.rows(width))
            inputs = (s.rows(width), dt, s.rows(states), s.rows(states), s.vector(width * states))
            yield s, s.node("selective_scan", *inputs, s.carry(states, width), "spans")


def pools(op: str) -> Iterator[Case]:
    for values in VALUES:
        for width in WIDTHS:
            s = Sketch(max(width, 16), values=values)
            yield s, s.node(op, s.rows(width), "spans")


def chosen(s: Sketch, experts: int, count: int) -> str:
    """The experts of each row, chosen by scores; in some rows all scores are equal."""
    return s.node("top_experts", s.rows(experts), count=count, groups=1, groups_used=1)


def as_input(s: Sketch, x: str, format: str, bits: int) -> str:
    return s.node("quantize", x, bits=bits) if format in QUANTISED else x


def experts() -> Iterator[Case]:
    """One row for all chosen experts, or a piece of it for each; more experts than are chosen, and exactly as many."""
    for format, row in FORMATS.items():
        k = row.block if format in QUANTISED else 40
        for rows, number, count, pieces, bits in (
            (1, 3, 2, 1, 8), (17, 40, 3, 3, 8), (32, 5, 2, 1, 16), (33, 2, 2, 2, 16), (16, 4, 1, 1, 8)
        ):  # fmt: skip
            s = Sketch(48)
            x = as_input(s, s.rows(pieces * k), format, bits)
            yield s, s.node("expert_linear", x, s.experts(number, rows, k, format), chosen(s, number, count))
    for values in ("tiny", "huge"):
        s = Sketch(48, values=values)
        x = s.node("quantize", s.rows(256), bits=8)
        yield s, s.node("expert_linear", x, s.experts(9, 16, 256, "Q4_K"), chosen(s, 9, 2))
    for format, bits in (("F32", 8), ("BF16", 8), ("Q8_0", 8), ("Q4_K", 16)):  # a piece of the row for each matrix
        k = FORMATS[format].block if format in QUANTISED else 40
        for number, rows in ((1, 16), (5, 33), (20, 7)):
            s = Sketch(48)
            x = as_input(s, s.rows(number * k), format, bits)
            yield s, s.node("expert_linear", x, s.experts(number, rows, k, format), "")
    for format in ("F32", "Q8_0"):  # columns in place of rows
        s = Sketch(48)
        yield s, s.node("expert_linear", s.rows(3 * 40), s.columns(3, 64, 40, format), "")


def choices_of_experts() -> Iterator[Case]:
    """Ties, and as many choices as experts; the output of the chosen matrices shows the choice."""
    for experts, count, groups, used in (
        (8, 1, 1, 1),
        (8, 3, 1, 1),
        (8, 8, 1, 1),
        (12, 5, 4, 2),
        (12, 6, 6, 3),
        (70, 9, 7, 7),
    ):
        for values in VALUES:
            s = Sketch(64, values=values)
            scores = s.rows(experts)  # some rows are all 0: a tie of all scores
            ids = s.node("top_experts", scores, count=count, groups=groups, groups_used=used)
            yield s, s.node("expert_linear", s.rows(4), s.experts(experts, 5, 4, "F32"), ids)
    s = Sketch(64, values="huge")  # scores that are NaN
    scores = s.node("softmax", s.node("scale", s.rows(8), by=1e9))
    ids = s.node("top_experts", scores, count=3, groups=4, groups_used=2)
    yield s, s.node("expert_linear", s.rows(4), s.experts(8, 5, 4, "F32"), ids)


def scores_taken() -> Iterator[Case]:
    for experts, count in ((3, 1), (8, 8), (70, 17)):
        s = Sketch(64)
        scores = s.rows(experts)
        yield s, s.node("take_scores", scores, chosen(s, experts, count))


def pieces(op: str) -> Callable[[], Iterator[Case]]:
    """Ops on the pieces of a row, one for each chosen expert."""

    def cases() -> Iterator[Case]:
        for values in VALUES:
            for width, count in ((1, 1), (14, 3), (16, 2), (40, 5), (65, 1)):
                s = Sketch(48, values=values)
                if op == "expert_inputs":
                    yield s, s.node(op, s.rows(width), s.rows(count))
                elif op == "expert_sum":
                    weights = s.rows(count) if width != 16 else ""
                    yield s, s.node(op, s.rows(count * width), weights, count=count)
                else:
                    vector = s.vector(7 * width if op == "expert_bias" else 7)
                    yield s, s.node(op, s.rows(count * width), vector, chosen(s, 7, count))

    return cases


def gated_experts(op: str) -> Callable[[], Iterator[Case]]:
    def cases() -> Iterator[Case]:
        for (format, row), bits in product(FORMATS.items(), (8, 16)):
            k = row.block if format in QUANTISED else 40
            attrs = {"bits": bits} if op.endswith("quantize") else {}
            for rows, number, count in (
                ((32, 3, 2), (64, 9, 2)) if op.endswith("quantize") else ((1, 3, 2), (17, 20, 3), (32, 2, 2))
            ):
                s = Sketch(48)
                x = as_input(s, s.rows(k), format, bits)
                pair = s.expert_pair(number, rows, k, format)
                yield s, s.node(op, x, pair, chosen(s, number, count), act=0, **attrs)

    return cases


def stores() -> Iterator[Case]:
    """Stores, seen by attending to the stored rows."""
    for dtype in ("f32", "f16", "q8"):
        for dim in (1, 16, 33, 96):
            s = Sketch(2 * max(dim, 16))
            k, v = s.rows(2 * dim), s.rows(2 * dim)
            state = s.state(2, dim, dtype)
            after = s.node("store", k, v, state, "spans")
            yield s, attend(s, s.rows(2 * dim), state, after, heads=2, scale=1.0)


def stores_and_attentions() -> Iterator[Case]:
    for dtype in ("f32", "f16", "q8"):
        for heads, cached, dim, window in ((4, 2, 14, 0), (9, 3, 64, 0), (4, 2, 14, 7), (9, 3, 64, 200)):
            s = Sketch(heads * dim)
            k, v, state = s.rows(cached * dim), s.rows(cached * dim), s.state(cached, dim, dtype, window=window)
            yield s, attend(s, s.rows(heads * dim), state, k, v, heads=heads, scale=dim**-0.5, window=window)
    for dtype in ("f32", "q8"):  # values of another size, sinks, slopes, caps, chunks
        s = Sketch(80)
        k, v, state = s.rows(2 * 20), s.rows(2 * 33), s.state(2, 20, dtype, value_dim=33, window=50)
        optional = {"sinks": s.vector(4), "slopes": s.vector(4), "cap": 2.5, "chunked": 1, "window": 50}
        yield s, attend(s, s.rows(80), state, k, v, heads=4, scale=0.3, **optional)


def takes() -> Iterator[Case]:
    s = Sketch(33)
    yield s, s.rows(33)  # every graph ends with a take of its wanted rows


def quantizes() -> Iterator[Case]:
    for values in VALUES:
        for width in (32, 96, 576):
            for format in ("Q4_1", "Q8_0"):
                for bits in (8, 16):
                    s = Sketch(48, values=values)
                    record = s.node("quantize", s.rows(width), bits=bits)
                    yield s, s.node("linear", record, s.matrix(48, width, format), "", "", scale=1.0)


def norm_quantizes() -> Iterator[Case]:
    for values in VALUES:
        for width in (32, 96, 576):
            for bits in (8, 16):
                s = Sketch(48, values=values)
                yield s, s.node("norm_quantize", s.rows(width), s.vector(width), eps=1e-6, bits=bits)


def linears() -> Iterator[Case]:
    for format, row in FORMATS.items():
        for rows in (1, 15, 17, 160):
            if format in FLOATS:
                for k in (1, 14, 40, 577):
                    s = Sketch(max(16, rows))
                    yield s, s.node("linear", s.rows(k), s.matrix(rows, k, format), "", "", scale=1.0)
                continue
            for k, bits in ((row.block, 8), (3 * row.block, 8), (row.block, 16), (2 * row.block, 16)):
                s = Sketch(max(16, rows))
                x = s.node("quantize", s.rows(k), bits=bits)
                yield s, s.node("linear", x, s.matrix(rows, k, format), "", "", scale=1.0)
    for bias, residual, scale in ((1, 0, 1.0), (0, 1, 1.0), (0, 0, 0.22), (1, 1, 0.22)):
        s = Sketch(40)
        operands = (s.vector(40) if bias else "", s.rows(40) if residual else "")
        yield s, s.node("linear", s.rows(60), s.matrix(40, 60, "F16"), *operands, scale=scale)
    for values in ("tiny", "huge"):
        s = Sketch(48, values=values)
        yield s, s.node("linear", s.node("quantize", s.rows(256), bits=8), s.matrix(48, 256, "Q4_K"), "", "", scale=1.0)


def gated(op: str) -> Callable[[], Iterator[Case]]:
    def cases() -> Iterator[Case]:
        for (format, row), bits in product(FORMATS.items(), (8, 16)):
            for rows in (32, 96) if op == "gate_up_quantize" else (1, 17, 32, 60):
                k = row.block if format in QUANTISED else 40
                s = Sketch(max(16, rows))
                x = as_input(s, s.rows(k), format, bits)
                attrs = {"bits": bits} if op == "gate_up_quantize" else {}
                act = rows % 3 if format == "Q4_1" else 0
                yield s, s.node(op, x, s.pair(rows, k, format), act=act, **attrs)

    return cases


CASES: dict[str, Callable[[], Iterator[Case]]] = {
    "embed": embeds,
    "embed_positions": embeds_of_positions,
    "scale": pointwise("scale", by=0.22),
    "divide": pointwise("divide", by=3.0),
    "add": pointwise("add"),
    "mul": pointwise("mul"),
    "silu": pointwise("silu"),
    "gelu": pointwise("gelu"),
    "relu": pointwise("relu"),
    "relu2": pointwise("relu2"),
    "sigmoid": pointwise("sigmoid"),
    "tanh": pointwise("tanh"),
    "exp": pointwise("exp"),
    "softplus": pointwise("softplus"),
    "soft_cap": pointwise("soft_cap", cap=2.5),
    "clamp": pointwise("clamp", least=-0.3, most=0.7),
    "xielu": pointwise("xielu", above=0.8, below=1.3, beta=0.5, eps=-1e-6),
    "clamped_gate": pointwise("clamped_gate", alpha=1.702, limit=0.9),
    "add_bias": pointwise("add_bias"),
    "mul_vector": pointwise("mul_vector"),
    "div_vector": pointwise("div_vector"),
    "scale_heads": scaled_heads,
    "head_sums": head_sums,
    "join": joins,
    "add_scaled": scaled_sums,
    "rescale": pointwise("rescale"),
    "sparsify": pointwise("sparsify", factor=0.7),
    "rms_norm": norms("rms_norm"),
    "layer_norm": norms("layer_norm"),
    "rope": ropes,
    "scale_by_position": scales_by_position,
    "store": stores,
    "attend": all_attentions,
    "store_attend": stores_and_attentions,
    "conv": convolutions,
    "scan": scans,
    "selective_scan": selective_scans,
    "mean_pool": partial(pools, "mean_pool"),
    "first_row": partial(pools, "first_row"),
    "softmax": pointwise("softmax"),
    "top_experts": choices_of_experts,
    "take_scores": scores_taken,
    "normalize": pointwise("normalize", least=0.25),
    "expert_linear": experts,
    "expert_bias": pieces("expert_bias"),
    "expert_scale": pieces("expert_scale"),
    "expert_inputs": pieces("expert_inputs"),
    "expert_sum": pieces("expert_sum"),
    "expert_gate_up": gated_experts("expert_gate_up"),
    "expert_gate_up_quantize": gated_experts("expert_gate_up_quantize"),
    "take": takes,
    "linear": linears,
    "quantize": quantizes,
    "norm_quantize": norm_quantizes,
    "gate_up": gated("gate_up"),
    "gate_up_quantize": gated("gate_up_quantize"),
}
VIEWS = {"slice"}  # a view of its operand: no instruction


OPENED = ExitStack()  # the open files of the op in the cache of `worked`


@lru_cache(maxsize=1)
def worked(op: str) -> list[tuple[Graph, gguf.GgufFile, Steps, NDArray[np.float32]]]:
    """Graph, file, steps and the reference's outputs of every case of an op."""
    OPENED.close()
    out = []
    for number, (sketch, node) in enumerate(CASES[op]()):
        rows = (POSITIONS if op in ("attend", "store") else ROWS)[number % len(ROWS)]
        tokens = np.random.default_rng(number).integers(0, sketch.vocab, max(2 * rows, 270)).tolist()
        # one sequence alone, then its next tokens beside a second one, so that positions, pages and spans matter
        steps = Steps([[(0, tokens[:rows])], [(1, tokens[rows : rows + min(rows, ROWS[-1])]), (0, tokens[:3])]])
        if op == "store_attend":  # few rows, across the end of a part; then rows of two sequences
            steps = Steps([[(0, tokens[:250])], [(0, tokens[250:258])], [(0, tokens[258:260]), (1, tokens[:6])]])
        graph = sketch.graph(node)
        with TemporaryDirectory() as folder:
            file = sketch.file(Path(folder))
        OPENED.callback(file.close)
        out.append((graph, file, steps, reference_outputs(graph, file, steps)))
    return out


def compare(op: str, device: Device, isa: str) -> None:
    """Every case of an op, by a set of a device and by its definition."""
    for number, (graph, file, steps, expected) in enumerate(worked(op)):
        outputs = native_outputs(graph, file, steps, device=device, isa=isa)
        assert_same_bits(outputs, expected, f"{op}, case {number}, {isa}")


PRODUCTS = {op for op in CASES if "linear" in op or "gate_up" in op}  # in test_products.py, for a second pytest worker


@every_set
@pytest.mark.parametrize("op", [op for op in CASES if op not in PRODUCTS])
def test_every_set_gives_the_bits_of_the_reference(op: str, device: Device, isa: str) -> None:
    compare(op, device, isa)


@pytest.mark.skipif(not SANITIZED, reason="another build has the sets of this machine")
@pytest.mark.skipif("avx2" not in machine()["sets"], reason="AVX-512 is emulated by AVX2")  # type: ignore[operator]
def test_the_sanitizers_see_the_kernels_of_sets_that_this_machine_does_not_have() -> None:
    assert machine()["sets"] == ["scalar", "avx512", "avx2"]


def test_every_op_has_its_cases_and_its_kernel() -> None:
    kernels = {name: (operands, tuple(attrs)) for name, operands, attrs in _core.ops(machine()["sets"][0])}
    adapted = {*ADAPTED.values(), *DELTAS}  # their cases, of odd sizes too, are in test_adapters.py
    assert set(CASES) | VIEWS | adapted == set(OPS)
    assert kernels == {name: (len(op.tensors), tuple(op.attrs)) for name, op in OPS.items() if name not in VIEWS}


def test_every_set_has_the_same_table() -> None:
    assert len({str(_core.ops(isa)) for isa in machine()["sets"]}) == 1
