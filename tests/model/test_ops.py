"""Every op against a plain reading of its definition, and the promises that hold between ops."""

from __future__ import annotations

import itertools

import numpy as np
import pytest

from woolly.gguf.tensor_types import FORMATS
from woolly.model import EXACT, OPS, Cache, Lines, Matrix, RopeTable, TemperatureTable
from woolly.model.ops.cache import Carry
from woolly.model.ops.numerics import (
    Quantized,
    dot32,
    exp32,
    f32,
    fma,
    max32,
    quantize32,
    round_f16,
    round_q8,
    silu32,
    tree16,
)
from woolly.model.ops.weights import Experts

QUANTISED = [name for name, form in FORMATS.items() if not form.is_float]
FLOATS = [name for name, form in FORMATS.items() if form.is_float]


def normal(*shape: int, seed: int = 1) -> np.ndarray:
    return np.random.default_rng(seed).standard_normal(shape).astype(f32)


def matrix(format: str, rows: int, k: int, seed: int = 2) -> Matrix:
    return Matrix(format, FORMATS[format].encode(normal(rows, k, seed=seed)), k)


def same(a: np.ndarray, b: np.ndarray) -> bool:
    """Equal to the bit, -0 and 0 told apart, any NaN equal to any other."""
    a, b = np.asarray(a), np.asarray(b)
    return a.shape == b.shape and bool(((a.view(np.int32) == b.view(np.int32)) | (np.isnan(a) & np.isnan(b))).all())


def test_every_op_is_documented_and_named_after_its_function():
    for name, op in OPS.items():
        assert op.function.__doc__ and op.function.__name__.rstrip("_") == name == op.name


def test_the_table_holds_the_ops_of_the_language():
    assert set(OPS) == {
        "embed", "embed_positions", "scale", "divide", "add", "mul", "silu", "gelu", "relu", "relu2", "sigmoid", "tanh",
        "exp", "softplus", "soft_cap", "clamp", "xielu", "clamped_gate", "add_bias", "mul_vector", "div_vector",
        "scale_heads", "head_sums", "join", "add_scaled", "rescale", "sparsify", "rms_norm", "layer_norm", "rope",
        "scale_by_position", "slice", "store", "attend", "store_attend", "conv", "scan", "selective_scan",
        "mean_pool", "first_row", "take", "linear", "quantize",
        "norm_quantize", "gate_up", "gate_up_quantize", "softmax", "top_experts", "take_scores", "normalize",
        "expert_linear", "expert_bias", "expert_scale", "expert_inputs", "expert_sum", "expert_gate_up",
        "expert_gate_up_quantize", "delta_down", "delta_up", "adapted_linear", "adapted_gate_up",
        "adapted_gate_up_quantize",
    }  # fmt: skip
    assert list(OPS["linear"].tensors) == ["x", "w", "bias", "residual"]
    assert OPS["linear"].optional == {"bias", "residual"} and OPS["linear"].attrs == {"scale": float}
    assert OPS["linear"].tensors["x"] == {"f32", "q8", "q16"}
    assert OPS["rope"].attrs == {"heads": int, "rot": int, "neox": int}


def test_pointwise_ops_round_once():
    x, y, b = normal(3, 5), normal(3, 5, seed=2), normal(5, seed=3)
    assert same(OPS["scale"](x, by=0.1), x * f32(0.1))
    assert same(OPS["divide"](x, by=0.1), x / f32(0.1))
    assert same(OPS["add"](x, y), x + y)
    assert same(OPS["mul"](x, y), x * y)
    assert same(OPS["silu"](x), silu32(x))
    assert same(OPS["add_bias"](x, b), np.stack([row + b for row in x]))
    assert same(OPS["slice"](x, first=1, count=3), x[:, 1:4])
    assert same(OPS["take"](x, np.array([2, 0, 2])), np.stack([x[2], x[0], x[2]]))


@pytest.mark.parametrize("format", FORMATS)
def test_embed_gives_the_decoded_rows(format):
    w = matrix(format, 5, 256)
    tokens = np.array([4, 0, 4], np.int32)
    assert same(OPS["embed"](tokens, w), w.values[tokens])


@pytest.mark.parametrize(("heads", "dim"), [(1, 40), (3, 14), (2, 96)])
def test_rms_norm_norms_each_head(heads, dim):
    x, w = normal(4, heads * dim), normal(dim, seed=2)
    got = OPS["rms_norm"](x, w, eps=1e-5, heads=heads)
    for row in range(4):
        for h in range(heads):
            part = x[row, h * dim : (h + 1) * dim]
            r = f32(1) / np.sqrt(dot32(part, part)[0] / f32(dim) + f32(1e-5))
            assert same(got[row, h * dim : (h + 1) * dim], (part * r) * w)


@pytest.mark.parametrize("neox", [0, 1])
def test_rope_turns_its_pairs_and_copies_the_rest(neox):
    heads, dim, rot = 2, 10, 6
    table = RopeTable(100.0, rot)
    positions = np.array([0, 7, 300], np.int32)
    x = normal(3, heads * dim)
    got = OPS["rope"](x, positions, table, heads=heads, rot=rot, neox=neox).reshape(3, heads, dim)
    y = x.reshape(3, heads, dim)
    for row, p in enumerate(positions.tolist()):
        cos, sin = np.split(table.rows(p, p + 1)[0], 2)
        for i in range(rot // 2):
            first, second = (i, i + rot // 2) if neox else (2 * i, 2 * i + 1)
            a, b = y[row, :, first], y[row, :, second]
            assert same(got[row, :, first], a * cos[i] - b * sin[i])
            assert same(got[row, :, second], a * sin[i] + b * cos[i])
        assert same(got[row, :, rot:], y[row, :, rot:])


def test_rows_are_scaled_by_their_position():
    table = TemperatureTable(0.1, 16)
    x, positions = normal(3, 4), np.array([0, 20, 700], np.int32)
    scales = [table.rows(p, p + 1)[0, 0] for p in positions.tolist()]
    assert same(OPS["scale_by_position"](x, positions, table), np.stack([x[i] * scales[i] for i in range(3)]))


def by_columns(x: np.ndarray, w: np.ndarray) -> np.ndarray:
    """One element after the other: accumulator k mod 4, then (a0 + a1) + (a2 + a3)."""
    y = np.empty((len(x), len(w)), f32)
    for row in range(len(x)):
        for n in range(len(w)):
            a = np.zeros(4, f32)
            for k in range(x.shape[1]):
                a[k % 4] = fma(x[row, k], w[n, k], a[k % 4])
            y[row, n] = (a[0] + a[1]) + (a[2] + a[3])
    return y


def by_blocks(x: Quantized, w: Matrix) -> np.ndarray:
    """One element after the other: integer sums, one accumulator over the blocks of 32."""
    p, group = w.parts, w.format.group
    y = np.empty((len(x.q), w.rows), f32)
    for row in range(len(x.q)):
        for n in range(w.rows):
            integers = (x.q[row].astype(np.int64) * p.q[n]).reshape(-1, group).sum(-1)
            acc = f32(0)
            for b in range(w.k // 32):
                da = x.da[row, b]
                if group == 32:
                    acc = fma(f32(integers[b]) * p.scale[n, b], da, acc)
                    if p.least is not None:
                        acc = fma(p.least[n, b], x.asum[row, b], acc)
                    continue
                f = f32(integers[2 * b]) * p.scale[n, 2 * b]
                f = fma(f32(integers[2 * b + 1]), p.scale[n, 2 * b + 1], f)
                acc = fma(f, da, acc)
                for j in (2 * b, 2 * b + 1) if p.least is not None else ():
                    acc = fma(p.least[n, j], da * f32(x.sum16[row, j]), acc)
            y[row, n] = acc
    return y


@pytest.mark.parametrize("format", FLOATS)
@pytest.mark.parametrize("k", [1, 14, 39])
def test_a_product_with_floats_has_four_accumulators(format, k):
    x, w = normal(2, k), matrix(format, 3, k)
    assert same(OPS["linear"](x, w, None, None, scale=1.0), by_columns(x, w.values))


@pytest.mark.parametrize("format", QUANTISED)
def test_a_product_of_quantised_weights_and_inputs_adds_blocks_in_order(format):
    w, x = matrix(format, 5, 512), quantize32(normal(3, 512) * f32(0.3), 8)
    assert same(OPS["linear"](x, w, None, None, scale=1.0), by_blocks(x, w))


@pytest.mark.parametrize("format", ["Q4_0", "Q2_K"])
def test_a_product_of_quantised_weights_and_float_inputs_is_that_of_the_decoded_weights(format):
    w, x = matrix(format, 3, 256), normal(2, 256)
    assert same(OPS["linear"](x, w, None, None, scale=1.0), by_columns(x, w.values))


@pytest.mark.parametrize("format", ["F16", "Q4_K", "Q6_K"])
def test_a_row_alone_and_in_any_tile_gives_the_same_bits(format):
    w, x = matrix(format, 200, 256), normal(130, 256)
    record = x if FORMATS[format].is_float else quantize32(x, 8)
    full = OPS["linear"](record, w, None, None, scale=1.0)
    for row in (0, 31, 32, 129):
        one = x[row : row + 1]
        alone = one if FORMATS[format].is_float else quantize32(one, 8)
        assert same(OPS["linear"](alone, w, None, None, scale=1.0), full[row : row + 1])


def test_linear_adds_bias_then_scales_then_adds_the_residual():
    w, x, bias, residual = matrix("F32", 6, 8), normal(2, 8), normal(6, seed=4), normal(2, 6, seed=5)
    plain = OPS["linear"](x, w, None, None, scale=1.0)
    assert same(OPS["linear"](x, w, bias, residual, scale=0.22), residual + (plain + bias) * f32(0.22))
    assert same(OPS["linear"](x, w, None, residual, scale=1.0), residual + plain)


def test_a_nan_in_one_block_reaches_every_output_of_its_row_alone():
    x = normal(2, 64)
    x[1, 40] = np.nan
    y = OPS["linear"](OPS["quantize"](x, bits=8), matrix("Q4_0", 3, 64), None, None, scale=1.0)
    assert np.isfinite(y[0]).all() and np.isnan(y[1]).all()


@pytest.mark.parametrize("format", ["F32", "Q8_0", "Q5_K"])
def test_fused_ops_are_their_parts(format):
    x, norm = normal(3, 256), normal(256, seed=7)
    gate, up = (FORMATS[format].encode(normal(32, 256, seed=s)) for s in (8, 9))
    record = x if FORMATS[format].is_float else quantize32(x, 8)
    parts = [OPS["linear"](record, Matrix(format, raw, 256), None, None, scale=1.0) for raw in (gate, up)]
    expected = silu32(parts[0]) * parts[1]
    both = Matrix(format, np.concatenate([gate, up]), 256)
    assert same(OPS["gate_up"](record, both, act=0), expected)
    for got, plain in (
        (OPS["gate_up_quantize"](record, both, act=0, bits=8), quantize32(expected, 8)),
        (OPS["gate_up_quantize"](record, both, act=0, bits=16), quantize32(expected, 16)),
        (OPS["norm_quantize"](x, norm, eps=1e-5, bits=16), quantize32(OPS["rms_norm"](x, norm, eps=1e-5, heads=1), 16)),
    ):
        assert same(got.da, plain.da) and same(got.asum, plain.asum)
        assert np.array_equal(got.q, plain.q) and np.array_equal(got.sum16, plain.sum16)


@pytest.mark.parametrize("width", [1, 16, 37])
def test_softmax_adds_in_lanes(width):
    x = normal(3, width) * f32(9)
    for row, got in zip(x, OPS["softmax"](x), strict=True):
        p, lanes = exp32(row - row.max()), np.zeros(16, f32)
        for i, value in enumerate(p):
            lanes[i % 16] += value
        assert same(got, p / tree16(lanes)[0])


def test_softmax_of_a_row_with_a_nan_is_a_nan_and_that_of_others_is_not():
    x = normal(2, 20)
    x[0, 3] = np.nan
    y = OPS["softmax"](x)
    assert np.isnan(y[0]).all() and np.isfinite(y[1]).all()


def test_top_experts_are_the_largest_scores_with_ties_to_the_lowest():
    scores = np.array([[1, 3, 2, 3, 0], [0, -0.0, 0, 0, 0], [np.nan, 1, np.nan, -np.inf, 2]], f32)
    plain = {"groups": 1, "groups_used": 1}
    assert OPS["top_experts"](scores, count=3, **plain).tolist() == [[1, 3, 2], [0, 1, 2], [4, 1, 3]]
    assert OPS["top_experts"](scores, count=5, **plain)[2].tolist() == [4, 1, 3, 0, 2]


def test_only_experts_of_the_best_groups_are_chosen():
    # sums of the two best of three: 11, 12, 12, 9
    scores = np.array([[10, 1, 0, 6, 6, 5, 4, 8, 1, 4, 5, 3]], f32)
    chosen = {count: OPS["top_experts"](scores, count=count, groups=4, groups_used=2).tolist() for count in (1, 4, 6)}
    assert chosen == {1: [[7]], 4: [[7, 3, 4, 5]], 6: [[7, 3, 4, 5, 6, 8]]}
    assert OPS["top_experts"](scores, count=2, groups=4, groups_used=1).tolist() == [[3, 4]]  # the tie of two groups
    assert OPS["top_experts"](np.full((1, 6), np.nan, f32), count=4, groups=3, groups_used=2).tolist() == [[0, 1, 2, 3]]


def test_scores_are_taken_by_rank_and_divided_by_their_sum():
    scores, ids = normal(2, 5), np.array([[4, 0, 2], [1, 3, 0]], np.int32)
    taken = OPS["take_scores"](scores, ids)
    assert same(taken, np.stack([scores[0, [4, 0, 2]], scores[1, [1, 3, 0]]]))
    x = np.array([[1e8, 1, -1e8], [1e-9, 0, 0], [0, 0, 0]], f32)  # the first sum is 0 in this order, and 1 in another
    got = OPS["normalize"](x, least=6e-5)
    assert same(got, np.stack([x[0] / f32(6e-5), x[1] / f32(6e-5), x[2]]))
    assert same(OPS["normalize"](x[:1, :2], least=6e-5), x[:1, :2] / (x[0, 0] + x[0, 1]))
    assert np.isnan(OPS["normalize"](np.array([[1, np.nan]], f32), least=1.0)).all()


def experts(format: str, count: int, rows: int, k: int) -> Experts:
    return Experts(format, FORMATS[format].encode(normal(count * rows, k, seed=3)), rows, k)


@pytest.mark.parametrize("format", ["F32", "Q8_0", "Q4_K"])
@pytest.mark.parametrize("bits", [8, 16])
@pytest.mark.parametrize("own", [False, True])
def test_an_experts_product_is_that_of_its_matrix(format, bits, own):
    w, ids = experts(format, 4, 5, 256), np.array([[3, 0], [0, 1], [2, 3]], np.int32)
    x = normal(3, 2 * 256 if own else 256)
    record = x if format == "F32" else quantize32(x, bits)
    got = OPS["expert_linear"](record, w, ids).reshape(3, 2, 5)
    for row, rank in itertools.product(range(3), range(2)):
        piece = x[row : row + 1, 256 * rank : 256 * rank + 256] if own else x[row : row + 1]
        alone = piece if format == "F32" else quantize32(piece, bits)
        assert same(got[row, rank], OPS["linear"](alone, w.matrix(ids[row, rank]), None, None, scale=1.0)[0])
    assert np.allclose(EXACT["expert_linear"](x, w, ids), OPS["expert_linear"](x, w, ids), rtol=1e-4, atol=1e-4)


def test_what_is_done_to_the_pieces_of_experts():
    x, ids, b, s = normal(2, 6), np.array([[2, 0], [1, 2]], np.int32), normal(9, seed=2), normal(3, seed=3)
    pieces = x.reshape(2, 2, 3)
    for row, rank in itertools.product(range(2), range(2)):
        piece, expert = pieces[row, rank], ids[row, rank]
        some = slice(3 * rank, 3 * rank + 3)
        assert same(OPS["expert_bias"](x, b, ids)[row, some], piece + b[3 * expert : 3 * expert + 3])
        assert same(OPS["expert_scale"](x, s, ids)[row, some], piece * s[expert])
    w = normal(2, 2, seed=4)
    assert same(
        OPS["expert_inputs"](x, w), np.stack([np.concatenate([x[i] * w[i, 0], x[i] * w[i, 1]]) for i in (0, 1)])
    )


def test_pieces_are_added_in_the_order_of_ranks():
    x, w = normal(3, 4 * 5), normal(3, 4, seed=2)
    pieces = x.reshape(3, 4, 5)
    for row in range(3):
        weighed, plain = pieces[row, 0] * w[row, 0], pieces[row, 0]
        for rank in (1, 2, 3):
            weighed, plain = fma(w[row, rank], pieces[row, rank], weighed), plain + pieces[row, rank]
        assert same(OPS["expert_sum"](x, w, count=4)[row], weighed)
        assert same(OPS["expert_sum"](x, None, count=4)[row], plain)
    assert same(OPS["expert_sum"](x, w[:, :1], count=1), x * w[:, :1])  # a gate of one column


@pytest.mark.parametrize("format", ["F32", "Q5_0"])
def test_gate_and_up_of_experts_are_their_parts(format):
    w, ids = experts(format, 3, 64, 64), np.array([[2, 0], [1, 2]], np.int32)
    x = normal(2, 64) if format == "F32" else quantize32(normal(2, 64), 8)
    y = OPS["expert_linear"](x, w, ids).reshape(2, 2, 2, 32)
    expected = (silu32(y[:, :, 0]) * y[:, :, 1]).reshape(2, 64)
    assert same(OPS["expert_gate_up"](x, w, ids, act=0), expected)
    for bits in (8, 16):
        got, plain = OPS["expert_gate_up_quantize"](x, w, ids, act=0, bits=bits), quantize32(expected, bits)
        assert same(got.da, plain.da) and np.array_equal(got.q, plain.q)


def cache(heads: int, dim: int, dtype: str = "f32", sequences: int = 1) -> Cache:
    return Cache(heads, dim, dim, dtype, tuple(Lines(heads, dim, dim) for _ in range(sequences)))


ALL = {"window": 0, "chunked": 0, "causal": 1, "cap": 0.0}


def attend_plainly(q: np.ndarray, keys: np.ndarray, values: np.ndarray, last: int) -> np.ndarray:
    """One query of one head over positions 0 .. last, one number after the other."""
    parts = []
    for start in range(0, last + 1, 256):
        stop = min(start + 256, last + 1)
        scores = []
        for j in range(start, stop):
            s = f32(0)
            for d in range(len(q)):
                s = fma(q[d], keys[j, d], s)
            scores.append(f32(s))
        m = max(scores)
        p = [exp32(np.array([s - m]))[0] for s in scores]
        lanes = np.zeros(16, f32)
        o = np.zeros(len(q), f32)
        for j, pj in enumerate(p):
            lanes[j % 16] += pj
            o = fma(pj, values[start + j], o)
        parts.append((m, tree16(lanes)[0], o))
    m, l, o = parts[0]
    for m2, l2, o2 in parts[1:]:
        both = max32(m, m2)
        a, b = exp32(np.array([m - both]))[0], exp32(np.array([m2 - both]))[0]
        m, l, o = both, fma(l2, b, l * a), fma(o2, b, o * a)
    return o / l


def test_attention_follows_its_definition_across_parts():
    heads, kv_heads, dim, count = 4, 2, 6, 520
    k, v, q = (normal(count, n * dim, seed=s) for n, s in ((kv_heads, 1), (kv_heads, 2), (heads, 3)))
    state, spans = cache(kv_heads, dim), np.array([[0, count, 0]], np.int32)
    OPS["store"](k, v, state, spans)
    got = OPS["attend"](q, state, spans, None, None, None, heads=heads, scale=0.4, **ALL).reshape(count, heads, dim)
    keys, values = (t.reshape(count, kv_heads, dim) for t in (k, v))
    for row in (0, 1, 17, 255, 256, 300, 519):
        for h in range(heads):
            query = q.reshape(count, heads, dim)[row, h] * f32(0.4)
            assert same(got[row, h], attend_plainly(query, keys[:, h // 2], values[:, h // 2], row))


@pytest.mark.parametrize("dtype", ["f32", "f16", "q8"])
def test_a_prompt_in_chunks_gives_the_same_bits_as_the_whole(dtype):
    heads, kv_heads, dim, count = 4, 2, 40, 530
    k, v, q = (normal(count, n * dim, seed=s) for n, s in ((kv_heads, 1), (kv_heads, 2), (heads, 3)))

    def run(cuts: list[int]) -> np.ndarray:
        state, out = cache(kv_heads, dim, dtype), []
        for first, last in itertools.pairwise(cuts):
            spans = np.array([[0, last - first, first]], np.int32)
            OPS["store"](k[first:last], v[first:last], state, spans)
            out.append(OPS["attend"](q[first:last], state, spans, None, None, None, heads=heads, scale=0.2, **ALL))
        return np.concatenate(out)

    full = run([0, count])
    assert same(run([0, 1, 13, 255, 256, 257, 511, 513, count]), full)
    assert np.isfinite(full).all()


def test_sequences_in_one_batch_give_the_bits_they_give_alone():
    kv_heads, heads, dim = 1, 3, 8
    counts, firsts = (5, 1, 300), (0, 0, 0)
    rows = sum(counts)
    k, v, q = (normal(rows, n * dim, seed=s) for n, s in ((kv_heads, 1), (kv_heads, 2), (heads, 3)))
    starts = np.cumsum((0, *counts[:-1]))
    spans = np.array([[s, c, f] for s, c, f in zip(starts, counts, firsts, strict=True)], np.int32)
    together = cache(kv_heads, dim, sequences=3)
    OPS["store"](k, v, together, spans)
    batch = OPS["attend"](q, together, spans, None, None, None, heads=heads, scale=0.3, **ALL)
    for start, count in zip(starts.tolist(), counts, strict=True):
        some, alone, span = slice(start, start + count), cache(kv_heads, dim), np.array([[0, count, 0]], np.int32)
        OPS["store"](k[some], v[some], alone, span)
        assert same(OPS["attend"](q[some], alone, span, None, None, None, heads=heads, scale=0.3, **ALL), batch[some])


@pytest.mark.parametrize(("dtype", "rounded"), [("f32", np.asarray), ("f16", round_f16), ("q8", round_q8)])
def test_the_cache_holds_rounded_rows(dtype, rounded):
    k, v, state = normal(3, 80), normal(3, 80, seed=2) * f32(1e5), cache(2, 40, dtype)
    OPS["store"](k, v, state, np.array([[0, 3, 0]], np.int32))
    lines = state.lines[0]
    assert lines.length == 3
    assert same(lines.keys[:3], rounded(k.reshape(3, 2, 40))) and same(lines.values[:3], rounded(v.reshape(3, 2, 40)))


@pytest.mark.parametrize("dtype", ["f32", "f16", "q8"])
def test_where_one_row_is_kept_its_first_columns_are_the_values(dtype):
    k, q, spans = normal(5, 40), normal(5, 3 * 40, seed=2), np.array([[0, 5, 0]], np.int32)
    state = Cache(1, 40, 24, dtype, (Lines(1, 40, 24),))
    OPS["store"](k, None, state, spans)
    plain = cache(1, 40, dtype)
    OPS["store"](k, k, plain, spans)
    got, both = (OPS["attend"](q, s, spans, None, None, None, heads=3, scale=0.2, **ALL) for s in (state, plain))
    assert same(got.reshape(5, 3, 24), both.reshape(5, 3, 40)[..., :24])


def carried(*shape: int) -> Carry:
    return Carry((np.full(shape, np.nan, f32),))  # what another sequence has left there


def in_pieces(op: str, inputs: list[np.ndarray | None], weights: list[np.ndarray | None], shape, cuts, **attrs):
    """An op over a sequence of so many rows, step by step."""
    state, out = carried(*shape), []
    for first, last in itertools.pairwise(cuts):
        some = [None if x is None else x[first:last] for x in inputs]
        out.append(OPS[op](*some, *weights, state, np.array([[0, last - first, first]], np.int32), **attrs))
    return np.concatenate(out)


def test_a_convolution_sees_the_rows_before_whatever_the_chunks():
    x, w, b = normal(30, 6), normal(6 * 4, seed=2), normal(6, seed=3)
    full = in_pieces("conv", [x], [w, b], (3, 6), [0, 30])
    padded = np.concatenate([np.zeros((3, 6), f32), x])
    for row in (0, 1, 2, 3, 29):
        y = padded[row] * w.reshape(6, 4)[:, 0]
        for tap in range(1, 4):
            y = fma(padded[row + tap], w.reshape(6, 4)[:, tap], y)
        assert same(full[row], y + b)
    assert same(in_pieces("conv", [x], [w, b], (3, 6), [0, 1, 2, 7, 8, 30]), full)


@pytest.mark.parametrize(("tiled", "each", "seen"), [(0, 1, True), (1, 1, True), (0, 5, True), (0, 5, False)])
def test_a_scan_is_the_recurrence_it_says_whatever_the_chunks(tiled, each, seen):
    heads, keys, values, groups, count = 4, 5, 3, 4 if each > 1 else 2, 20
    q, k, known = (normal(count, groups * keys, seed=s) / f32(3) for s in (1, 2, 3))
    v = normal(count, heads * values, seed=4)
    decay, rate = (1 / (1 + np.exp(-normal(count, heads * each, seed=s))) for s in (5, 6))
    inputs = [q, k, v, decay.astype(f32), known if seen else None, rate.astype(f32) if seen else None]
    got = in_pieces("scan", inputs, [], (heads, keys, values), [0, count], tiled=tiled)
    of = [h % groups if tiled else h // (heads // groups) for h in range(heads)]
    for h in range(heads):
        s = np.zeros((keys, values))
        own = slice(of[h] * keys, of[h] * keys + keys)
        for row in range(count):
            s = s * decay[row].reshape(heads, each)[h][:, None]
            change = np.outer(k[row, own], v[row].reshape(heads, values)[h])
            if seen:
                change -= np.outer(known[row, own] * rate[row].reshape(heads, each)[h], known[row, own] @ s)
            s = s + change
            assert got[row].reshape(heads, values)[h] == pytest.approx(q[row, own] @ s, abs=1e-5)
    assert same(in_pieces("scan", inputs, [], (heads, keys, values), [0, 1, 2, 9, count], tiled=tiled), got)
    assert EXACT["scan"](
        *inputs, carried(heads, keys, values), np.array([[0, count, 0]]), tiled=tiled
    ) == pytest.approx(got, abs=1e-5)


def test_a_selective_scan_is_the_recurrence_it_says_whatever_the_chunks():
    count, width, states = 20, 6, 4
    x, b, c = (normal(count, n, seed=s) for n, s in ((width, 1), (states, 2), (states, 3)))
    dt, a = np.abs(normal(count, width, seed=4)), -np.abs(normal(width * states, seed=5))
    got = in_pieces("selective_scan", [x, dt, b, c], [a], (states, width), [0, count])
    s = np.zeros((width, states))
    for row in range(count):
        s = s * np.exp(dt[row][:, None] * a.reshape(width, states)) + np.outer(dt[row] * x[row], b[row])
        assert got[row] == pytest.approx(s @ c[row], abs=1e-5)
    assert same(in_pieces("selective_scan", [x, dt, b, c], [a], (states, width), [0, 3, 4, count]), got)
    spans = np.array([[0, count, 0]])
    assert EXACT["selective_scan"](x, dt, b, c, a, carried(states, width), spans) == pytest.approx(got, abs=1e-5)


def test_a_position_beyond_the_cache_is_refused():
    with pytest.raises(ValueError, match="position 4 is written, but only 0"):
        OPS["store"](normal(1, 8), normal(1, 8), cache(1, 8), np.array([[0, 1, 4]], np.int32))


def test_a_nan_in_the_cache_spoils_later_rows_only():
    k, v, q = normal(6, 4), normal(6, 4, seed=2), normal(6, 4, seed=3)
    v[3] = np.nan
    state, spans = cache(1, 4), np.array([[0, 6, 0]], np.int32)
    OPS["store"](k, v, state, spans)
    y = OPS["attend"](q, state, spans, None, None, None, heads=1, scale=1.0, **ALL)
    assert np.isfinite(y[:3]).all() and np.isnan(y[3:]).all()
