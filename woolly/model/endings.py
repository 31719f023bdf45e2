"""How graphs end: with the logits of wanted rows, or with an embedding or a ranking where the file pools its rows."""

from __future__ import annotations

from collections.abc import Callable

from woolly.model.builder import Activation, Builder
from woolly.model.graph import Node
from woolly.model.layers import head
from woolly.model.meta import Meta

Norm = Callable[[Node], Node]


def ending(
    g: Builder, m: Meta, x: Node, *, norm: str = "output_norm", tied: bool = True, softmax: bool = False
) -> None:
    """The last norm, then logits, or what the file says that becomes of all rows. softmax: of a ranker's labels."""
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
    """One row of a text, or all where the file pools nothing; through the matrices that some models have behind it. A
    ranker has a network instead, with a score for each label: of the first row, or of the last where that alone has
    seen all others. act, rank_by_mean, softmax: what a family's ranker does otherwise."""
    pooling = m.pooling()
    if pooling == "mean" or (pooling == "rank" and rank_by_mean):
        y = g.mean_pool(norm(x))
    elif pooling == "cls" or (pooling == "rank" and not m.causal):
        y = norm(g.first_row(x))
    else:
        y = norm(g.take(x))  # the last, or all
    if pooling == "rank":
        y = _scores(g, y, act)
        g.output("rank", g.softmax(y) if softmax else y)
        return
    for name in ("dense_2.weight", "dense_3.weight"):
        if g.has(name):
            y = g.linear(y, name, g.rows(name))
    g.output("embedding", y)


def _scores(g: Builder, y: Node, act: Activation) -> Node:
    """What a ranker makes of a row: a score for each label."""
    if g.has("cls.weight"):
        y = g.activate(g.linear(y, "cls.weight", _labels(g, "cls.weight")), act)
        if g.has("cls.norm.weight"):
            y = g.layer_norm(y, "cls.norm.weight")
        if not g.has("cls.output.weight"):
            return y
    return g.linear(y, "cls.output.weight", _labels(g, "cls.output.weight"))


def _labels(g: Builder, name: str) -> int:
    """Rows of a matrix, of which a file may have a single one."""
    shape = g.shape(name)
    return 1 if len(shape) == 1 else shape[-2]
