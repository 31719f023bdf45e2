"""Adapters: what a LoRA file adds to the products of a model. delta = scale * alpha / rank * B (A x).

A file has two matrices for each tensor that it changes, `NAME.lora_a` [rank, columns] and `NAME.lora_b` [rows, rank].
They are kept as float32, B with its alpha / rank; the scale is a request's. Everything about a file is checked here:
that it is an adapter, of this architecture, for tensors that this model multiplies with, and of their shapes.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from hashlib import blake2b
from typing import NamedTuple

import numpy as np

from woolly.errors import FileError, UnsupportedError, printable
from woolly.gguf import GgufFile, TensorInfo
from woolly.gguf.tensor_types import FORMATS
from woolly.limits import LIMITS
from woolly.model.graph import Graph
from woolly.model.operands import Rows, Weight
from woolly.model.ops.numerics import F32, f32

PANEL = 16  # the ranks of an adapter are padded to a multiple of this
KIND, ALPHA = "adapter.type", "adapter.lora.alpha"


@dataclass(frozen=True, slots=True, eq=False)
class Delta:
    """What an adapter adds to the product with one tensor."""

    a: F32  # [rank, columns]
    b: F32  # [rows, rank], times alpha / rank

    @property
    def rank(self) -> int:
        return len(self.a)


@dataclass(frozen=True, slots=True, eq=False)
class Adapter:
    """One file: its deltas by tensor, and a digest of all of them."""

    name: str
    deltas: Mapping[str, Delta]
    digest: bytes
    file: str = ""  # the name of the file


class RankBlock(NamedTuple):
    """One adapter's ranks for one part of a weight."""

    adapter: int
    part: Rows
    first: int  # row of the weight where the part begins
    at: int  # its first rank among those of all blocks
    delta: Delta


def is_adapter(file: GgufFile) -> bool:
    kind = file.meta.get("general.type")
    return isinstance(kind, str) and kind == "adapter"


def read_adapter(file: GgufFile, name: str, graph: Graph, base: GgufFile) -> Adapter:
    """The adapter of a file for the model of this graph; what does not fit is refused by name and shape."""
    where = printable(file.path.name)
    alpha, pairs = read_pairs(file)
    architecture = file.meta.get("general.architecture")
    if architecture != graph.meta.architecture:
        raise FileError(
            f"{where}: the adapter is for architecture '{printable(architecture)}', the model is of "
            f"'{graph.meta.architecture}'",
            suggestion="use an adapter that was trained for this model",
        )
    products = {
        part.tensor
        for node in graph.nodes
        if node.op == "linear" and node.rows != "spans"
        for part in graph.weights[node.inputs[1]].rows
    }
    deltas, digest = {}, blake2b(digest_size=16)
    for tensor, pair in pairs.items():
        if tensor not in base.tensors:
            raise FileError(f"{where}: the adapter changes '{printable(tensor)}', which the model does not have")
        if tensor not in products:
            raise UnsupportedError(
                f"{where}: the adapter changes '{printable(tensor)}', and no adapter of that tensor is supported",
                suggestion="embeddings, experts and norms cannot be adapted; use a file into which it was merged",
            )
        deltas[tensor] = _delta(file, tensor, pair, base.tensors[tensor].shape, alpha)
        for part in (tensor.encode(), deltas[tensor].a.data, deltas[tensor].b.data):
            digest.update(part)
    return Adapter(name, deltas, digest.digest(), where)


_ENDS = (".lora_a", ".lora_b")


def read_pairs(file: GgufFile) -> tuple[float, dict[str, tuple[TensorInfo, TensorInfo]]]:
    """The alpha of an adapter, and its A and B by the tensor that they change; another kind of file is refused."""
    where = printable(file.path.name)
    alpha = _alpha(file, where)
    unknown = [tensor for tensor in file.tensors if not tensor.endswith(_ENDS)]
    if unknown:
        raise FileError(f"{where}: tensor '{printable(unknown[0])}' is no part of an adapter")
    pairs = {}
    for tensor in sorted(
        {tensor.removesuffix(end) for tensor in file.tensors for end in _ENDS if tensor.endswith(end)}
    ):
        for end in _ENDS:
            if tensor + end not in file.tensors:
                raise FileError(f"{where}: '{printable(tensor)}{end}' is missing")
        a, b = (file.tensors[tensor + end] for end in _ENDS)
        if len(a.shape) != 2 or len(b.shape) != 2 or a.shape[0] != b.shape[1] or a.shape[0] > LIMITS.width:
            raise FileError(
                f"{where}: '{printable(tensor)}' is {_by(b.shape)} times {_by(a.shape)}, which is no product"
            )
        pairs[tensor] = (a, b)
    if not pairs:
        raise FileError(f"{where}: the adapter has no tensors")
    return alpha, pairs


def _alpha(file: GgufFile, where: str) -> float:
    """The alpha of a LoRA; another kind of file is refused."""
    if not is_adapter(file):
        raise FileError(f"{where}: the file is no adapter", suggestion="give a GGUF file of type 'adapter'")
    kind = file.meta.get(KIND)
    if kind != "lora" or "adapter.alora.invocation_tokens" in file.meta:
        words = "an adapter that begins at a token (aLoRA)" if kind == "lora" else f"of type '{printable(kind)}'"
        raise UnsupportedError(f"{where}: the adapter is {words}; only LoRA is supported")
    alpha = file.meta.get(ALPHA)
    if not isinstance(alpha, float) or not np.isfinite(alpha):
        raise FileError(f"{where}: {ALPHA} is {printable(alpha)}, but a number is expected", key=ALPHA)
    return alpha


def _delta(
    file: GgufFile, tensor: str, pair: tuple[TensorInfo, TensorInfo], shape: tuple[int, ...], alpha: float
) -> Delta:
    where, (a, b) = printable(file.path.name), pair
    rank = a.shape[0]
    if shape != (b.shape[0], a.shape[1]):
        raise FileError(
            f"{where}: '{printable(tensor)}' of the adapter is {_by(b.shape)} times {_by(a.shape)}, the model's is "
            f"{_by(shape)}",
            suggestion="use an adapter that was trained for this model",
        )
    factor = f32(alpha / rank) if alpha else f32(1)
    delta = Delta(_values(file, where, a.name), _values(file, where, b.name) * factor)
    if not np.isfinite(delta.b).all():
        raise FileError(f"{where}: '{printable(b.name)}' is not finite once it is scaled by alpha")
    return delta


def _values(file: GgufFile, where: str, name: str) -> F32:
    info = file.tensors[name]
    format = FORMATS[info.format]
    raw = np.frombuffer(file.data(name), np.uint8).reshape(info.shape[0], format.row_bytes(info.shape[1]))
    values = format.decode(raw, info.shape[1])
    if not np.isfinite(values).all():
        raise FileError(f"{where}: '{printable(name)}' holds a value that is not finite", tensor=name)
    return np.ascontiguousarray(values)


def _by(shape: tuple[int, ...]) -> str:
    return " x ".join(f"{n:,}" for n in shape)


def blocks(weight: Weight, adapters: Sequence[Adapter]) -> list[RankBlock]:
    """What the adapters add to a product with this weight, part by part; empty where they add nothing."""
    result: list[RankBlock] = []
    first = at = 0
    for part in weight.rows:
        for number, adapter in enumerate(adapters):
            delta = adapter.deltas.get(part.tensor)
            if delta is not None:
                result.append(RankBlock(number, part, first, at, delta))
                at += -(-delta.rank // PANEL) * PANEL
        first += part.count
    return result


def ranks(blocks: Sequence[RankBlock]) -> int:
    """Ranks of all blocks, each with a whole number of panels."""
    return blocks[-1].at + -(-blocks[-1].delta.rank // PANEL) * PANEL


def owners(blocks: Sequence[RankBlock]) -> tuple[float, ...]:
    """For each panel of ranks: its adapter, and the first and the end of the rows of the weight that it is for."""
    return tuple(
        float(number)
        for block in blocks
        for _ in range(-(-block.delta.rank // PANEL))
        for number in (block.adapter, block.first, block.first + block.part.count)
    )


def stacked(weight: Weight, blocks: Sequence[RankBlock]) -> tuple[F32, F32]:
    """A [ranks, columns] and B [rows, ranks] of all blocks; zeros where nothing is added."""
    rows, columns = weight.shape
    a, b = np.zeros((ranks(blocks), columns), f32), np.zeros((rows, ranks(blocks)), f32)
    for block in blocks:
        some, part = slice(block.at, block.at + block.delta.rank), block.part
        a[some] = block.delta.a
        b[block.first : block.first + part.count, some] = block.delta.b[part.first : part.first + part.count]
    return a, b
