"""plan: turn a Graph into a Program.

In: a Graph (model), a Target, and the largest step there will be. Out: a Program, pure data: instructions with fixed
places, orders for packing weights, sizes. `bounds` says how large a step may be, `fit` what a model needs before
anything is allocated.
Never touches weights' bytes, the file, or the machine: a device carries out what plan orders.
Read passes.py top to bottom; `woolly plan MODEL` prints every stage.
"""

from __future__ import annotations

from collections.abc import Collection, Iterator, Sequence
from dataclasses import replace

from woolly.model import Adapter, Graph, check
from woolly.plan.deltas import DELTAS, add_deltas
from woolly.plan.fit import ROWS, SEQUENCES, Budget, bounds, fit, gib
from woolly.plan.lower import lower
from woolly.plan.memory import concat, place
from woolly.plan.passes import PASSES, quantize_inputs, stores_first
from woolly.plan.program import COUNTS, Bounds, Output, PackOrder, Program, Target
from woolly.plan.reads import largest_product

__all__ = [
    "COUNTS",
    "PASSES",
    "ROWS",
    "SEQUENCES",
    "Bounds",
    "Budget",
    "Output",
    "PackOrder",
    "Program",
    "Target",
    "add_deltas",
    "bounds",
    "fit",
    "gib",
    "largest_product",
    "optimise",
    "plan",
    "quantize_inputs",
    "stages",
    "stores_first",
]


def stages(
    graph: Graph, target: Target, *, kv: str = "f16", exact: bool = False, skip: Collection[str] = ()
) -> Iterator[tuple[str, Graph]]:
    """The graph after each pass, with the pass's name: integer inputs and the cache's type first, then every pass that
    the target has but those in `skip`.

    Only the first changes numbers; a skipped pass changes none.
    """
    graph = check(quantize_inputs(graph, kv, exact=exact), after="quantize_inputs")
    yield "quantize_inputs", graph
    for name, rewrite in PASSES.items():
        if name in target.fused and name not in skip:
            graph = check(rewrite(graph), after=name)
            yield name, graph


def optimise(
    graph: Graph, target: Target, *, kv: str = "f16", exact: bool = False, skip: Collection[str] = ()
) -> Graph:
    """The graph as the target computes it: after the last of its stages."""
    *_, (_, last) = stages(graph, target, kv=kv, exact=exact, skip=skip)
    return last


def plan(
    graph: Graph,
    target: Target,
    largest: Bounds,
    *,
    kv: str = "f16",
    exact: bool = False,
    skip: Collection[str] = (),
    adapters: Sequence[Adapter] = (),
) -> Program:
    """The program for steps of at most `largest`; exact: with 16-bit inputs; adapters: those that rows may have."""
    graph = optimise(graph, target, kv=kv, exact=exact, skip=skip)
    if not adapters:
        return lower(graph, place(graph, largest), target, largest)
    adapted, matrices = add_deltas(graph, adapters)
    check(adapted, after="add_deltas")
    # Values keep the places they have without adapters, so steps without adapters keep their barriers.
    area = concat(place(graph, largest), place(adapted, largest, DELTAS))
    program = lower(graph, area, target, largest, adapted)
    return replace(program, adapters=len(adapters), matrices=matrices)
