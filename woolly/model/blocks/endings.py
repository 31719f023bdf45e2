"""How graphs end: with the logits of wanted rows, or with an embedding or a ranking where the file pools its rows."""

from __future__ import annotations

from collections.abc import Callable

from woolly.model.blocks.layers import head
from woolly.model.builder import Activation, Builder
from woolly.model.meta import Meta
from woolly.model.operands import Node

Norm = Callable[[Node], Node]


def ending(
    g: Builder, m: Meta, x: Node, *, norm: str = "output_norm", tied: bool = True, softmax: bool = False
) -> None:
    """The last norm, then logits, or the embedding or ranking that the file asks for. softmax: of a ranker's scores."""
    if m.pooling():
        embedding(g, m, x, lambda y: g.rms_norm(y, f"{norm}.weight"), softmax=softmax)
    else:
        g.logits(head(g, m, g.rms_norm(g.take(x), f"{norm}.weight"), tied=tied))


def embedding(
    g: Builder,
    m: Meta,
    x: Node,
    norm: Norm,
    *,
    act: Activation = "tanh",
    rank_by_mean: bool = False,
    softmax: bool = False,
) -> None:
    """The embedding: one pooled row of a text, or all rows where the file has no pooling, times the dense matrices that
    some files have. A ranker has a classifier instead, with a score for each label: of the first row, or in a causal
    model of the last. act, rank_by_mean, softmax: how a family's ranker differs from that."""
    pooling = m.pooling()
    if pooling == "mean" or (pooling == "rank" and rank_by_mean):
        y = g.mean_pool(norm(x))
    elif pooling == "cls" or (pooling == "rank" and not m.causal):
        y = norm(g.first_row(x))
    else:
        y = norm(g.take(x))  # the wanted rows: the last one, or all
    if pooling == "rank":
        y = _scores(g, y, act)
        g.output("rank", g.softmax(y) if softmax else y)
        return
    for name in ("dense_2.weight", "dense_3.weight"):
        if g.has(name):
            y = g.linear(y, name, g.rows(name))
    g.output("embedding", y)


def _scores(g: Builder, y: Node, act: Activation) -> Node:
    """A ranker's scores of each row, one for each label."""
    if g.has("cls.weight"):
        y = g.activate(g.linear(y, "cls.weight", _labels(g, "cls.weight")), act)
        if g.has("cls.norm.weight"):
            y = g.layer_norm(y, "cls.norm.weight")
        if not g.has("cls.output.weight"):
            return y
    return g.linear(y, "cls.output.weight", _labels(g, "cls.output.weight"))


def _labels(g: Builder, name: str) -> int:
    """The number of labels: the rows of a matrix, or 1 where the file has a vector."""
    shape = g.shape(name)
    return 1 if len(shape) == 1 else shape[-2]
