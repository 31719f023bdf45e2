"""OPS: every operation a graph may use, defined to the bit.

An op is a NumPy function. Its positional parameters are the tensors, their annotations say of which kind; its
keyword-only parameters are the attributes; its docstring is the documentation; its body is the result. The rule in the
decorator gives the shape and checks sizes: it takes the same parameters, but for each tensor its description (a Node,
Weight, State or table) in place of its value. `Builder` and `check` both ask the rule.

Fused ops are ordinary rows whose body is the composition of their parts, so a graph means the same before and after it
was fused.
"""

from __future__ import annotations

import inspect
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import lru_cache
from typing import Any, TypeAlias, TypeVar

import numpy as np
from numpy.typing import NDArray

from woolly.model.ops import rules
from woolly.model.ops.attention import Reach, attention
from woolly.model.ops.cache import ROUND, Cache, Carry
from woolly.model.ops.numerics import (
    F32,
    Quantized,
    dot32,
    exp32,
    f32,
    fma,
    gelu32,
    max32,
    min32,
    quantize32,
    sigmoid32,
    silu32,
    softplus32,
    tanh32,
    tree16,
)
from woolly.model.ops.products import product
from woolly.model.ops.rules import Shape
from woolly.model.ops.weights import Experts, Matrix
from woolly.model.tables import Table

Wide: TypeAlias = Quantized  # of 16 bits
Vector: TypeAlias = F32  # a weight of one dimension
Tokens: TypeAlias = NDArray[np.int32]  # [rows]
Positions: TypeAlias = NDArray[np.int32]  # [rows]
Spans: TypeAlias = NDArray[np.int32]  # [spans, 5]: first row, count, first position, slot, adapter
Scales: TypeAlias = F32  # [spans, adapters]: of spans whose adapter is 1
Want: TypeAlias = NDArray[np.int32]  # [wants]: rows
Ids: TypeAlias = NDArray[np.int32]  # [rows, count]: experts
Order: TypeAlias = None  # no value: the named node comes before

# Which kind of operand each annotation takes.
KINDS = {
    "F32": "f32",
    "Quantized": "q8",
    "Wide": "q16",
    "Ids": "ids",
    "Matrix": "matrix",
    "Experts": "experts",
    "Vector": "vector",
    "Table": "table",
    "Cache": "rows",
    "Carry": "carry",
    "Order": "order",
    "Tokens": "tokens",
    "Positions": "positions",
    "Spans": "spans",
    "Scales": "scales",
    "Want": "want",
}


@dataclass(frozen=True, slots=True)
class Op:
    """A row of the table."""

    name: str
    function: Callable[..., Any]
    rule: Callable[..., Shape]
    tensors: Mapping[str, frozenset[str]]  # parameter: the kinds it takes
    optional: frozenset[str]  # tensors that may be left out
    attrs: Mapping[str, type]

    def __call__(self, *tensors: Any, **attrs: int | float) -> Any:
        """The result; overflow and NaN are values here, not warnings."""
        with np.errstate(all="ignore"):
            return self.function(*tensors, **attrs)

    def shape(self, operands: Sequence[Any], attrs: Mapping[str, int | float]) -> Shape:
        """The shape of the result from descriptions of the operands (None: left out), or ValueError."""
        if len(operands) != len(self.tensors):
            raise ValueError(f"{self.name} takes {len(self.tensors)} operands, not {len(operands)}")
        for (name, kinds), operand in zip(self.tensors.items(), operands, strict=True):
            kind = None if operand is None else operand.kind
            if kind not in kinds and not (kind is None and name in self.optional):
                raise ValueError(f"{self.name} takes {' or '.join(sorted(kinds))} as {name}, not {kind or 'nothing'}")
        if set(attrs) != set(self.attrs):
            raise ValueError(f"{self.name} has the attributes {sorted(self.attrs)}, not {sorted(attrs)}")
        for name, value in attrs.items():
            if type(value) is not self.attrs[name]:
                raise ValueError(f"{self.name}: {name} must be {self.attrs[name].__name__}, not {value!r}")
        return self.rule(*operands, **attrs)


OPS: dict[str, Op] = {}


_Function = TypeVar("_Function", bound=Callable[..., Any])


def op(rule: Callable[..., Shape]) -> Callable[[_Function], _Function]:
    """Enter a function into OPS under its own name."""

    def enter(function: _Function) -> _Function:
        tensors: dict[str, frozenset[str]] = {}
        optional, attrs = set(), {}
        for name, parameter in inspect.signature(function).parameters.items():
            words = [word.strip() for word in str(parameter.annotation).split("|")]
            if parameter.kind is inspect.Parameter.KEYWORD_ONLY:
                attrs[name] = {"int": int, "float": float}[words[0]]
                continue
            tensors[name] = frozenset(KINDS[word] for word in words if word != "None")
            if "None" in words:
                optional.add(name)
        name = function.__name__.rstrip("_")
        OPS[name] = Op(name, function, rule, tensors, frozenset(optional), attrs)
        return function

    return enter


@op(rules.embed)
def embed(tokens: Tokens, w: Matrix) -> F32:
    """The decoded rows of w that the tokens name."""
    return w.take(tokens)


@op(rules.embed)
def embed_positions(positions: Positions, w: Matrix) -> F32:
    """The decoded rows of w at the positions: it has a row for each position of the context."""
    return w.take(positions)


@op(rules.like)
def scale(x: F32, *, by: float) -> F32:
    """x * by."""
    return x * f32(by)


@op(rules.like)
def divide(x: F32, *, by: float) -> F32:
    """x / by."""
    return x / f32(by)


@op(rules.pair)
def add(x: F32, y: F32) -> F32:
    """x + y."""
    return x + y


@op(rules.pair)
def mul(x: F32, y: F32) -> F32:
    """x * y."""
    return x * y


@op(rules.like)
def silu(x: F32) -> F32:
    """x / (1 + e^-x)."""
    return silu32(x)


@op(rules.like)
def gelu(x: F32) -> F32:
    """x (1 + tanh(sqrt(2/pi) (x + 0.044715 x^3))) / 2."""
    return gelu32(x)


@op(rules.like)
def relu(x: F32) -> F32:
    """max(x, 0)."""
    return max32(x, f32(0))


@op(rules.like)
def relu2(x: F32) -> F32:
    """max(x, 0)^2."""
    y = max32(x, f32(0))
    return y * y


@op(rules.like)
def sigmoid(x: F32) -> F32:
    """1 / (1 + e^-x)."""
    return sigmoid32(x)


@op(rules.like)
def tanh(x: F32) -> F32:
    """The hyperbolic tangent."""
    return tanh32(x)


@op(rules.like)
def exp(x: F32) -> F32:
    """e^x, for x within -87 and 88."""
    return exp32(x)


@op(rules.like)
def softplus(x: F32) -> F32:
    """ln(1 + e^x)."""
    return softplus32(x)


@op(rules.like)
def soft_cap(x: F32, *, cap: float) -> F32:
    """cap * tanh(x / cap)."""
    return tanh32(x / f32(cap)) * f32(cap)


@op(rules.like)
def clamp(x: F32, *, least: float, most: float) -> F32:
    """x, not below `least` and not above `most`."""
    return min32(f32(most), max32(f32(least), x))


@op(rules.like)
def xielu(x: F32, *, above: float, below: float, beta: float, eps: float) -> F32:
    """above x^2 + beta x where x > 0, else (e^min(x, eps) - 1 - x) below + beta x."""
    rise = f32(above) * (x * x)
    fall = ((exp32(min32(x, f32(eps))) - f32(1)) - x) * f32(below)
    return fma(f32(beta), x, np.where(x > 0, rise, fall))


@op(rules.pair)
def clamped_gate(gate: F32, up: F32, *, alpha: float, limit: float) -> F32:
    """g / (1 + e^(-alpha g)) * (u + 1), with g = min(gate, limit) and u = up within +-limit."""
    g = min32(f32(limit), gate)
    u = min32(f32(limit), max32(f32(-limit), up))
    y: F32 = (g / (f32(1) + exp32(-(g * f32(alpha))))) * (u + f32(1))
    return y


@op(rules.vector)
def add_bias(x: F32, b: Vector) -> F32:
    """x + b, for each row."""
    return x + b


@op(rules.vector)
def mul_vector(x: F32, w: Vector) -> F32:
    """x * w, for each row."""
    return x * w


@op(rules.vector)
def div_vector(x: F32, w: Vector) -> F32:
    """x / w, for each row."""
    return x / w


@op(rules.scale_heads)
def scale_heads(x: F32, by: F32 | Vector) -> F32:
    """Each head of each row times its own number; by is as wide as there are heads, for each row or for all."""
    y: F32 = x.reshape(len(x), by.shape[-1], -1) * by[..., None]
    return y.reshape(x.shape)


@op(rules.head_sums)
def head_sums(x: F32, *, heads: int) -> F32:
    """The sum of each head of each row, in the order of a norm's sums (dot32 with ones)."""
    y = x.reshape(len(x), heads, -1)
    return dot32(y, np.ones_like(y))[..., 0]


@op(rules.join)
def join(x: F32, y: F32, *, heads: int) -> F32:
    """Head after head: that of x, then that of y."""
    both = [each.reshape(len(x), heads, -1) for each in (x, y)]
    return np.concatenate(both, axis=2).reshape(len(x), -1)


@op(rules.add_scaled)
def add_scaled(x: F32, y: F32, by: F32) -> F32:
    """x + y * by, by one number for each row, rounded once."""
    return fma(y, by, x)


@op(rules.pair)
def rescale(x: F32, like: F32) -> F32:
    """Each row of x with the length of that row of like: x * (|like| / |x|)."""
    length: F32 = np.sqrt(dot32(like, like))
    length_of_x: F32 = np.sqrt(dot32(x, x))
    return x * (length / length_of_x)


@op(rules.like)
def sparsify(x: F32, *, factor: float) -> F32:
    """max(x - t, 0), where t is the row's mean plus `factor` standard deviations (over n - 1)."""
    n = x.shape[1]
    mean = dot32(x, np.ones_like(x)) / f32(n)
    y = x - mean
    deviation = np.sqrt(dot32(y, y) / f32(n - 1))
    return max32(x - fma(deviation, f32(factor), mean), f32(0))


@op(rules.norm)
def rms_norm(x: F32, w: Vector | None, *, eps: float, heads: int) -> F32:
    """Divide each head of each row by its root mean square, then scale by w, one for all heads or as wide as the row;
    ordinary norms have one head."""
    y = x.reshape(len(x), heads, -1)
    r = f32(1) / np.sqrt(dot32(y, y) / f32(y.shape[2]) + f32(eps))
    return _weighed(y * r, w).reshape(x.shape)


@op(rules.layer_norm)
def layer_norm(x: F32, w: Vector | None, b: Vector | None, *, eps: float, heads: int) -> F32:
    """Subtract the mean of each head of each row, divide by its standard deviation, scale by w, then + b."""
    y = x.reshape(len(x), heads, -1)
    n = f32(y.shape[2])
    y = y - dot32(y, np.ones_like(y)) / n
    r = f32(1) / np.sqrt(dot32(y, y) / n + f32(eps))
    z = _weighed(y * r, w).reshape(x.shape)
    return z if b is None else z + b


def _weighed(y: F32, w: Vector | None) -> F32:
    """Heads [rows, heads, n] times w, which is one for all heads or has all of them."""
    return y if w is None else y * w.reshape(-1, y.shape[2])


@op(rules.rope)
def rope(x: F32, positions: Positions, table: Table, *, heads: int, rot: int, neox: int) -> F32:
    """Turn the first `rot` columns of each head by its position's angles: a*c - b*s and a*s + b*c.

    (a, b) are columns (2i, 2i + 1), or (i, i + rot/2) with neox = 1; the table has cosines, then sines.
    """
    angles = _rows_at(table, positions)[:, None, :]
    c, s = angles[..., : rot // 2], angles[..., rot // 2 :]
    y = x.reshape(len(x), heads, -1).copy()
    first, second = (slice(0, rot // 2), slice(rot // 2, rot)) if neox else (slice(0, rot, 2), slice(1, rot, 2))
    a, b = y[..., first].copy(), y[..., second].copy()
    y[..., first], y[..., second] = a * c - b * s, a * s + b * c
    return y.reshape(x.shape)


@op(rules.scale_by_position)
def scale_by_position(x: F32, positions: Positions, table: Table) -> F32:
    """Scale each row by its position's entry of the table."""
    return x * _rows_at(table, positions)


@op(rules.columns)
def slice_(x: F32, *, first: int, count: int) -> F32:
    """Columns first .. first + count - 1."""
    return x[:, first : first + count]


@op(rules.store)
def store(k: F32, v: F32 | None, state: Cache, spans: Spans) -> Order:
    """Write the keys and values of this step into the cache at their positions, rounded to the cache's type; without
    an operand v, values are the first columns of the rounded keys."""
    rounded = ROUND[state.dtype]
    for (row, count, first, *_), lines in zip(spans.tolist(), state.lines, strict=True):
        rows = slice(row, row + count)
        keys = rounded(k[rows].reshape(count, state.heads, -1))
        values = keys[..., : state.value_dim] if v is None else rounded(v[rows].reshape(count, state.heads, -1))
        lines.write(first, keys, values)


@op(rules.attend)
def attend(
    q: F32,
    state: Cache,
    spans: Spans,
    after: Order,
    sinks: Vector | None,
    slopes: Vector | None,
    *,
    heads: int,
    scale: float,
    window: int,
    chunked: int,
    causal: int,
    cap: float,
) -> F32:
    """Attention of each span over its sequence's cache; head h reads the cache's head h / (heads / cache heads).

    A row sees the positions up to its own; with a window the last `window` of them, or with chunked = 1 those since the
    last multiple of it; with causal = 0 all of its span, or those at most half a window away. Queries are scaled first;
    scores are capped (soft_cap, 0: not), then lowered by the head's slope times the distance, or raised by the head's
    number for the distance where slopes has 2n + 1 for each: distances -n .. n, larger ones count as n. A head's sink
    is one more score, whose value vector is zero. The order of all sums is attention.py's.
    """
    qs = (q * f32(scale)).reshape(len(q), heads, state.dim)
    out = np.empty((len(q), heads, state.value_dim), f32)
    reach = Reach(window, bool(chunked), bool(causal))
    for (row, count, first, *_), lines in zip(spans.tolist(), state.lines, strict=True):
        rows = slice(row, row + count)
        out[rows] = attention(qs[rows], lines.keys, lines.values, first, reach, cap=cap, sinks=sinks, slopes=slopes)
    return out.reshape(len(q), -1)


@op(rules.store_attend)
def store_attend(
    q: F32,
    state: Cache,
    spans: Spans,
    k: F32,
    v: F32 | None,
    sinks: Vector | None,
    slopes: Vector | None,
    *,
    heads: int,
    scale: float,
    window: int,
    chunked: int,
    causal: int,
    cap: float,
) -> F32:
    """store, then attend."""
    store(k, v, state, spans)
    return attend(
        q, state, spans, None, sinks, slopes,
        heads=heads, scale=scale, window=window, chunked=chunked, causal=causal, cap=cap,
    )  # fmt: skip


@op(rules.conv)
def conv(x: F32, w: Vector, b: Vector | None, state: Carry, spans: Spans) -> F32:
    """Each column over time: w of a column has a tap for each of the last rows, its own the last; then + b.

    The first product is rounded, the others are added by fma from the oldest row on. The rows before those of the step
    are carried; before the first position they are 0.
    """
    taps = w.reshape(x.shape[1], -1).T  # [taps, columns]
    out = np.empty_like(x)
    for (row, count, first, *_), blob in zip(spans.tolist(), state.blobs, strict=True):
        rows = np.concatenate([blob if first else np.zeros_like(blob), x[row : row + count]])
        y = rows[:count] * taps[0]
        for age in range(1, len(taps)):
            y = fma(rows[age : age + count], taps[age], y)
        out[row : row + count] = y if b is None else y + b
        blob[:] = rows[count:]
    return out


@op(rules.scan)
def scan(
    q: F32,
    k: F32,
    v: F32,
    decay: F32,
    seen: F32 | None,
    rate: F32 | None,
    state: Carry,
    spans: Spans,
    *,
    tiled: int,
) -> F32:
    """A matrix [keys, values] for each head, which decays, is updated and is read, position after position:

        s = s * decay                 one number for a head, or for each of its keys
        e = seen . s                  where `seen` is given
        s = fma(k, v, s)              then fma(-(seen * rate), e, s); a rate for a head, or for each of its keys
        y = q . s

    Sums over keys are by fma, ascending, from 0. A group of keys of q, k and seen may serve several heads: neighbours,
    or with tiled = 1 and n groups every nth. At the first position s is 0.
    """
    out = np.empty_like(v)
    for (row, count, first, *_), blob in zip(spans.tolist(), state.blobs, strict=True):
        heads, keys, _ = blob.shape
        s = blob if first else np.zeros_like(blob)
        for at in range(row, row + count):
            qs, ks = (keys_of_heads(x[at], heads, keys, tiled) for x in (q, k))
            s = s * decay[at].reshape(heads, -1, 1)
            new = v[at].reshape(heads, -1)
            if seen is None or rate is None:
                s = fma(ks[..., None], new[:, None], s)
            else:
                known = keys_of_heads(seen[at], heads, keys, tiled)
                e = _summed(known, s)
                s = fma(ks[..., None], new[:, None], s)
                s = fma(-(known * rate[at].reshape(heads, -1))[..., None], e[:, None], s)
            out[at] = _summed(qs, s).reshape(-1)
        blob[:] = s
    return out


def keys_of_heads(x: F32, heads: int, keys: int, tiled: int) -> F32:
    """A row of keys as each head has them, [heads, keys]."""
    each = x.reshape(-1, keys)
    of = np.arange(heads) % len(each) if tiled else np.arange(heads) // (heads // len(each))
    return each[of]


def _summed(x: F32, s: F32) -> F32:
    """[heads, values] of x [heads, keys] and s [heads, keys, values]."""
    y = np.zeros((s.shape[0], s.shape[2]), f32)
    for key in range(s.shape[1]):
        y = fma(x[:, key, None], s[:, key], y)
    return y


@op(rules.selective_scan)
def selective_scan(x: F32, dt: F32, b: F32, c: F32, a: Vector, state: Carry, spans: Spans) -> F32:
    """A vector of states for each column, position after position: s = fma(dt * x, b, s * e^(dt * a)), y = c . s.

    b and c are the same for all columns, a has a row of states for each. The sum is by fma, ascending, from 0. At the
    first position s is 0.
    """
    rates = a.reshape(x.shape[1], -1).T  # [states, columns]
    out = np.empty_like(x)
    for (row, count, first, *_), blob in zip(spans.tolist(), state.blobs, strict=True):
        s = blob if first else np.zeros_like(blob)
        for at in range(row, row + count):
            s = fma(dt[at] * x[at], b[at][:, None], s * exp32(dt[at] * rates))
            y = np.zeros(x.shape[1], f32)
            for index, weight in enumerate(c[at]):
                y = fma(weight, s[index], y)
            out[at] = y
        blob[:] = s
    return out


@op(rules.pool)
def mean_pool(x: F32, spans: Spans) -> F32:
    """The mean of each span's rows: added in the order of positions, then divided by their number."""
    out = np.empty((len(spans), x.shape[1]), f32)
    for index, (row, count, *_) in enumerate(spans.tolist()):
        total = x[row]
        for at in range(row + 1, row + count):
            total = total + x[at]
        out[index] = total / f32(count)
    return out


@op(rules.pool)
def first_row(x: F32, spans: Spans) -> F32:
    """The first row of each span."""
    return x[spans[:, 0]]


@op(rules.take)
def take(x: F32, want: Want) -> F32:
    """The wanted rows."""
    return x[want]


@op(rules.linear)
def linear(x: F32 | Quantized | Wide, w: Matrix, bias: Vector | None, residual: F32 | None, *, scale: float) -> F32:
    """x times w transposed; then + bias, * scale, residual + that, each if given and each rounded."""
    return _finished(product(x, w), bias, residual, scale)


def _finished(y: F32, bias: Vector | None, residual: F32 | None, scale: float) -> F32:
    if bias is not None:
        y = y + bias
    if scale != 1:
        y = y * f32(scale)
    return y if residual is None else residual + y


@op(rules.delta_down)
def delta_down(
    x: F32 | Quantized | Wide, a: Matrix, owners: Vector, spans: Spans, scales: Scales, want: Want | None
) -> F32:
    """The first product of adapters: x times a transposed, as with float weights, times the scale of the row's span.

    Each 16 rows of a are of one adapter, the first of their three numbers in `owners`; 0 for rows that do not use it.
    """
    values = x.values if isinstance(x, Quantized) else x
    by = _scales_of(spans, scales, want)
    each = np.repeat(by[:, owners.reshape(-1, 3)[:, 0].astype(np.intp)], 16, axis=1)
    return np.where(each == 0, f32(0), product(values, a) * each)


@op(rules.delta_up)
def delta_up(low: F32, b: Matrix, owners: Vector, spans: Spans, scales: Scales, want: Want | None) -> F32:
    """What adapters add to a product: low times b transposed, as with float weights, over the adapters of each row.

    `owners` has the first and the end of the rows that each 16 columns of b are for; these columns are left out of
    blocks of 16 outputs without such a row. A row without an adapter gets -0, which added to anything changes no bit.
    """
    by, n = _scales_of(spans, scales, want), b.rows
    sums = np.zeros((4, len(low), n), f32)
    for block, (adapter, first, end) in enumerate(owners.reshape(-1, 3).astype(int).tolist()):
        rows, some = np.flatnonzero(by[:, adapter]), slice(first // 16 * 16, min(-(-end // 16) * 16, n))
        for k in range(16 * block, 16 * block + 16):
            sums[k % 4, rows, some] = fma(low[rows, k, None], b.values[some, k], sums[k % 4, rows, some])
    y = (sums[0] + sums[1]) + (sums[2] + sums[3])
    return np.where(_of_rows(spans, spans[:, 4], want)[:, None] == 0, f32(-0.0), y)


def _scales_of(spans: Spans, scales: Scales, want: Want | None) -> F32:
    """The scales of each row's adapters, [rows, adapters]; zeros where its span has none."""
    return _of_rows(spans, np.where(spans[:, 4:5] == 0, f32(0), scales), want)


def _of_rows(spans: Spans, each: NDArray[Any], want: Want | None) -> NDArray[Any]:
    """A value of each span, repeated for each of its rows, or for the wanted rows alone."""
    rows = np.repeat(each, spans[:, 1], axis=0)
    return rows if want is None else rows[want]


@op(rules.adapted_linear)
def adapted_linear(
    x: F32 | Quantized | Wide, w: Matrix, bias: Vector | None, residual: F32 | None, delta: F32, *, scale: float
) -> F32:
    """linear, with the delta of adapters added to the product before anything else."""
    return _finished(product(x, w) + delta, bias, residual, scale)


@op(rules.like)
def softmax(x: F32) -> F32:
    """e^(x - m) over their sum, for each row, m its largest: 16 lane sums (lane i mod 16), then tree16."""
    p = exp32(x - x.max(-1, keepdims=True))
    lanes = np.zeros((len(x), 16), f32)
    for i in range(0, x.shape[1], 16):
        some = p[:, i : i + 16]
        lanes[:, : some.shape[1]] += some
    y: F32 = p / tree16(lanes)
    return y


@op(rules.top_experts)
def top_experts(scores: F32, *, count: int, groups: int, groups_used: int) -> Ids:
    """The experts with the `count` largest scores of each row, the largest first; ties go to the lower one.

    With several groups only those of the best `groups_used` count: a group's score is the sum of its two best, the
    larger + the second, and again ties go to the lower one. A NaN comes after all numbers.
    """
    order = _ranked(scores)
    if groups > 1:
        each = scores.shape[1] // groups
        grouped = scores.reshape(len(scores), groups, each)
        best = np.take_along_axis(grouped, _ranked(grouped)[..., :2], -1)
        used = np.zeros((len(scores), groups), np.bool_)
        np.put_along_axis(used, _ranked(best[..., 0] + best[..., 1])[:, :groups_used], True, 1)
        left_out = ~np.take_along_axis(used, order // each, 1)
        order = np.take_along_axis(order, np.argsort(left_out, axis=1, kind="stable"), 1)
    return order[:, :count].astype(np.int32)


@op(rules.take_scores)
def take_scores(scores: F32, ids: Ids) -> F32:
    """The scores of the chosen experts, in the order of their ranks."""
    return np.take_along_axis(scores, ids, 1)


@op(rules.like)
def normalize(x: F32, *, least: float) -> F32:
    """Each row over its sum, added from the first column to the last; a sum below `least` is `least`."""
    total = x[:, 0]
    for c in range(1, x.shape[1]):
        total = total + x[:, c]
    y: F32 = x / max32(np.full_like(total, least), total)[:, None]
    return y


@op(rules.expert_linear)
def expert_linear(x: F32 | Quantized | Wide, w: Experts, ids: Ids | None) -> F32:
    """Each row times the matrices of its experts, transposed; the results one after the other.

    A row is as wide as the matrices, the same for all its experts, or has a piece of that width for each of them.
    Without ids it has a piece for each matrix there is, as heads have theirs.
    """
    if ids is None:
        rows = len(x.q) if isinstance(x, Quantized) else len(x)
        ids = np.tile(np.arange(w.count, dtype=np.int32), (rows, 1))
    rows, count = ids.shape
    values = x.q if isinstance(x, Quantized) else x
    pieces = values.shape[1] // w.k
    each = x.cut(pieces) if isinstance(x, Quantized) else x.reshape(rows * pieces, w.k)
    out = np.empty((rows, count, w.rows), f32)
    for expert in np.unique(ids).tolist():
        row, rank = np.nonzero(ids == expert)
        some = row if pieces == 1 else row * count + rank
        out[row, rank] = product(each.take(some) if isinstance(each, Quantized) else each[some], w.matrix(expert))
    return out.reshape(rows, -1)


@op(rules.expert_bias)
def expert_bias(x: F32, b: Vector, ids: Ids) -> F32:
    """Each piece of a row plus its expert's piece of b."""
    return (_pieces(x, ids.shape[1]) + b.reshape(-1, x.shape[1] // ids.shape[1])[ids]).reshape(x.shape)


@op(rules.expert_scale)
def expert_scale(x: F32, s: Vector, ids: Ids) -> F32:
    """Each piece of a row times its expert's number."""
    return (_pieces(x, ids.shape[1]) * s[ids][..., None]).reshape(x.shape)


@op(rules.expert_inputs)
def expert_inputs(x: F32, weights: F32) -> F32:
    """A row times each of its weights; the results one after the other."""
    return (x[:, None] * weights[..., None]).reshape(len(x), -1)


@op(rules.expert_sum)
def expert_sum(x: F32, weights: F32 | None, *, count: int) -> F32:
    """The pieces of a row added in the order of their ranks: w0 * x0, then fma(w, x, y); or x0, then y + x."""
    pieces = _pieces(x, count)
    y = pieces[:, 0] if weights is None else pieces[:, 0] * weights[:, :1]
    for rank in range(1, count):
        piece = pieces[:, rank]
        y = y + piece if weights is None else fma(weights[:, rank, None], piece, y)
    return y


@op(rules.quantize)
def quantize(x: F32, *, bits: int) -> Quantized:
    """Integers of 8 or 16 bits with one scale per 32 columns."""
    return quantize32(x, bits)


@op(rules.norm_quantize)
def norm_quantize(x: F32, w: Vector, *, eps: float, bits: int) -> Quantized:
    """rms_norm, then quantize."""
    return quantize32(rms_norm(x, w, eps=eps, heads=1), bits)


GATES = ("silu", "gelu", "relu")  # the activations of a gate, by number


@op(rules.gate_up)
def gate_up(x: F32 | Quantized | Wide, w: Matrix, *, act: int) -> F32:
    """act(gate) * up, where the rows of w are gate's, then up's; act is a number of GATES."""
    return _gated(product(x, w), act)


def _gated(y: F32, act: int) -> F32:
    half = y.shape[1] // 2
    gate: F32 = OPS[GATES[act]](y[:, :half])
    return gate * y[:, half:]


@op(rules.gate_up_quantize)
def gate_up_quantize(x: F32 | Quantized | Wide, w: Matrix, *, act: int, bits: int) -> Quantized:
    """gate_up, then quantize."""
    return quantize32(gate_up(x, w, act=act), bits)


@op(rules.adapted_gate_up)
def adapted_gate_up(x: F32 | Quantized | Wide, w: Matrix, delta: F32, *, act: int) -> F32:
    """gate_up, with the delta of adapters added to both products."""
    return _gated(product(x, w) + delta, act)


@op(rules.adapted_gate_up_quantize)
def adapted_gate_up_quantize(x: F32 | Quantized | Wide, w: Matrix, delta: F32, *, act: int, bits: int) -> Quantized:
    """adapted_gate_up, then quantize."""
    return quantize32(adapted_gate_up(x, w, delta, act=act), bits)


@op(rules.expert_gate_up)
def expert_gate_up(x: F32 | Quantized | Wide, w: Experts, ids: Ids, *, act: int) -> F32:
    """act(gate) * up of each expert of a row, where the rows of its matrix are gate's, then up's."""
    y = _pieces(expert_linear(x, w, ids), ids.shape[1])
    half = y.shape[2] // 2
    gate: F32 = OPS[GATES[act]](y[..., :half])
    return (gate * y[..., half:]).reshape(len(ids), -1)


@op(rules.expert_gate_up_quantize)
def expert_gate_up_quantize(x: F32 | Quantized | Wide, w: Experts, ids: Ids, *, act: int, bits: int) -> Quantized:
    """expert_gate_up, then quantize."""
    return quantize32(expert_gate_up(x, w, ids, act=act), bits)


def _ranked(x: F32) -> NDArray[np.intp]:
    """Indices along the last axis, that of the largest first."""
    return np.argsort(-x, axis=-1, kind="stable")


def _pieces(x: F32, count: int) -> F32:
    """Rows that are as many pieces, [rows, count, width of a piece]."""
    return x.reshape(len(x), count, -1)


_TABLE_BLOCK = 256


@lru_cache(maxsize=64)
def _table_block(table: Table, index: int) -> F32:
    return table.rows(index * _TABLE_BLOCK, (index + 1) * _TABLE_BLOCK)


def _rows_at(table: Table, positions: Positions) -> F32:
    """The table's rows at these positions, [rows, width]."""
    out = np.empty((len(positions), table.width), f32)
    block = positions // _TABLE_BLOCK
    for index in np.unique(block).tolist():
        some = block == index
        out[some] = _table_block(table, index)[positions[some] % _TABLE_BLOCK]
    return out
