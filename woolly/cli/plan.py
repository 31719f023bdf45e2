"""Print what a model computes, and how: its graph, what each pass makes of it, and the program that is run.

    woolly plan smollm2                  the first layer of each kind stands for all of its kind
    woolly plan smollm2 --layers all     every layer
    woolly plan smollm2 --layers 3       one layer
    woolly plan model.gguf --kv q8 --context 4096 --json

Only the header of the file is read. In the program, `=` marks an instruction before which all threads meet.
"""

from __future__ import annotations

import argparse
import json
import re
import sys
from collections import Counter
from collections.abc import Iterable, Iterator
from typing import TYPE_CHECKING, Any

from woolly import system
from woolly.cli.find import find_model
from woolly.cli.flags import add_flags, flag_values
from woolly.cli.interrupt import ctrl_c_kills
from woolly.cli.terminal import size
from woolly.config import read_config
from woolly.errors import RequestError, printable
from woolly.store import DEFAULT, name_of

if TYPE_CHECKING:
    from woolly.model import Graph, Node
    from woolly.plan import Program

LAYER = re.compile(r"blk\.(\d+)\.")


def arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("model", nargs="?", default=DEFAULT, metavar="MODEL", help=f"a path or name ({DEFAULT})")
    add_flags(parser, "context", "kv", "exact")
    parser.add_argument("--layers", default="kinds", metavar="WHICH", help="kinds (default), all, or a number")
    parser.add_argument("--json", action="store_true", help="one JSON object, with every layer")


def call(args: argparse.Namespace) -> int:
    number = args.layers.isascii() and args.layers.isdigit() and len(args.layers) <= 9
    if args.layers not in ("kinds", "all") and not number:
        raise RequestError(f"--layers is '{printable(args.layers)}', expected kinds, all or a number", param="--layers")
    config = read_config(**flag_values(args))
    path = find_model(args.model, config)
    with ctrl_c_kills():
        from woolly import gguf, model, plan  # NumPy: not before a wrong word was refused
        from woolly.device import DEFAULT_DEVICE
        from woolly.examine import beyond_training, read_card
    with gguf.open(path) as file:
        graph, card = model.build(file, config.engine.context), read_card(file, name_of(path))
    if number and int(args.layers) >= graph.meta.layers:
        raise RequestError(
            f"--layers is {args.layers}, and the model has 0 to {graph.meta.layers - 1}", param="--layers"
        )
    target = DEFAULT_DEVICE.target
    stages = list(plan.stages(graph, target, kv=config.engine.kv, exact=config.engine.exact))
    last = plan.stores_first(stages[-1][1])  # the instructions for any number of tokens
    largest = plan.bounds(graph, config.engine.context or graph.meta.context)
    program = plan.plan(graph, target, largest, kv=config.engine.kv, exact=config.engine.exact)
    memory = _memory(program)
    if args.json:
        print(json.dumps(_data(card.name, graph, stages, last, program, memory), ensure_ascii=False))
        return 0
    if warning := beyond_training(card, config.engine.context):
        print(f"woolly: warning: {warning}", file=sys.stderr)
    print(f"{card.name}: {graph.meta.architecture}, {graph.meta.layers} layers, width {graph.meta.width:,}")
    print(f"\ngraph: what the model computes, {len(graph.nodes):,} nodes")
    _print_layers(((node, _node_line(node, graph)) for node in graph.nodes), args.layers)
    _show_passes(graph, stages)
    _show_program(last, program, args.layers)
    _show_memory(program, memory)
    return 0


def _show_passes(graph: Graph, stages: list[tuple[str, Graph]]) -> None:
    from woolly import plan

    does = {"quantize_inputs": plan.quantize_inputs, **plan.PASSES}
    print("\npasses: each gives the same bits, but for the first, which decides what is computed in integers")
    before = len(graph.nodes)
    for title, after in stages:
        what = (does[title].__doc__ or "").partition("\n")[0]
        print(f"  {title:<16} {before:>5,} -> {len(after.nodes):>5,} nodes  {what}")
        before = len(after.nodes)


def _show_program(graph: Graph, program: Program, layers: str) -> None:
    barriers, few = int(program.code["barrier"].sum()), int(program.small_step["barrier"].sum())
    print(
        f"\nprogram: {len(program.code):,} instructions, {barriers:,} barriers a step, "
        f"{few:,} with at most {program.target.small_step} tokens; each writes at its place"
    )
    _print_layers(_instructions(graph, program), layers)
    counts = Counter(program.ops[int(row["op"])].name for row in program.code)
    print("  " + ", ".join(f"{count} {op}" for op, count in counts.most_common()))


def _show_memory(program: Program, memory: dict[str, int]) -> None:
    context = program.bounds.context
    print(f"\nmemory: {size(memory['total'])} with a context of {context:,}, {size(system.memory())} are free")
    packs = Counter(dict.fromkeys(program.layouts, 0))
    for order in program.packs:
        packs[order.layout] += order.nbytes
    shares = ", ".join(f"{size(n)} {layout}" for layout, n in packs.most_common() if n)
    print(f"  weights  {size(memory['weights'])}: {shares}")
    print(f"  cache    {size(memory['cache'])}: pages of {program.target.page} tokens, {size(program.page_bytes)} each")
    print(
        f"  work     {size(memory['work'])}: a step of {program.bounds.rows:,} tokens, "
        f"{program.bounds.wants:,} rows of logits, {program.bounds.sequences} sequences"
    )


def _node_line(node: Node, graph: Graph) -> str:
    """An op with its operands, weights with type and size. Names of the same layer are shown without its prefix."""
    words, own = [], f"blk.{_layer(node.name)}."
    for name in filter(None, node.inputs):
        if name in graph.weights:
            weight = graph.weights[name]
            words.append(f"{_short(name, own)} {weight.format} {'x'.join(map(str, weight.shape))}")
        else:
            words.append(_short(name, own))
    attrs = "".join(f", {name} {value:g}" for name, value in node.attrs.items() if (name, value) != ("scale", 1.0))
    gives = f" -> {node.width:,} {node.dtype}" if node.width else ""
    return f"{_short(node.name, own):<16} {node.op}({', '.join(words)}{attrs}){gives}"


def _instructions(graph: Graph, program: Program) -> Iterator[tuple[Node, str]]:
    """Every instruction with its node: one for each that is no slice, in the same order."""
    nodes = [node for node in graph.nodes if node.op != "slice"]
    for node, row in zip(nodes, program.code, strict=True):
        place = f"  @{int(row['out']['place']):,}" if node.width else ""
        yield node, f"{'=' if row['barrier'] else ' '} {_node_line(node, graph)}{place}"


def _print_layers(rows: Iterable[tuple[Node, str]], which: str) -> None:
    """Print the lines by layer; of equal layers only the first, with the numbers of all of them."""
    parts: list[tuple[int, list[str]]] = []  # layer (-1: none) and its lines
    for node, line in rows:
        layer = _layer(node.name)
        if not parts or parts[-1][0] != layer:
            parts.append((layer, []))
        parts[-1][1].append(line)
    kinds: dict[tuple[str, ...], list[int]] = {}
    for layer, lines in parts:
        kinds.setdefault(_layer_kind(lines), []).append(layer)
    shown: set[tuple[str, ...]] = set()
    for layer, lines in parts:
        kind = _layer_kind(lines)
        if layer >= 0 and ((which == "kinds" and kind in shown) or which not in ("kinds", "all", str(layer))):
            continue
        shown.add(kind)
        if layer >= 0:
            print(f"  layer{'s' if which == 'kinds' and len(kinds[kind]) > 1 else ''} ", end="")
            print(f"{_ranges(kinds[kind]) if which == 'kinds' else layer}:")
        for line in lines:
            print(f"    {line}" if layer >= 0 else f"  {line}")


def _layer_kind(lines: list[str]) -> tuple[str, ...]:
    """The lines of a layer without places, caches and names of other layers: equal for layers that compute the same."""
    return tuple(re.sub(r"  @[\d,]+$|cache\.\d+|blk\.\d+\.[\w.]+|\btoken_embd\b[\w.]*", "", line) for line in lines)


def _layer(name: str) -> int:
    match = LAYER.match(name)
    return int(match[1]) if match else -1


def _short(name: str, own: str) -> str:
    return "+".join(part.removesuffix(".weight").removeprefix(own) for part in name.split("+"))


def _ranges(numbers: list[int]) -> str:
    """Numbers as ranges: 0-3, 5, 7-9."""
    spans: list[list[int]] = []
    for number in numbers:
        if spans and spans[-1][1] == number - 1:
            spans[-1][1] = number
        else:
            spans.append([number, number])
    return ", ".join(str(a) if a == b else f"{a}-{b}" for a, b in spans)


def _memory(program: Program) -> dict[str, int]:
    from woolly import plan

    budget = plan.fit(program, sys.maxsize, asked=True)
    return {"weights": budget.weights, "cache": budget.cache, "work": budget.work, "total": budget.total}


def _data(
    name: str, graph: Graph, stages: list[tuple[str, Graph]], last: Graph, program: Program, memory: dict[str, int]
) -> dict[str, Any]:
    """The JSON of the plan; sizes and places in bytes."""
    rows = []
    for node, row in zip((n for n in last.nodes if n.op != "slice"), program.code, strict=True):
        rows.append(_as_dict(node) | {"barrier": bool(row["barrier"]), "place": int(row["out"]["place"])})
    return {
        "model": name,
        "architecture": graph.meta.architecture,
        "graph": [_as_dict(node) for node in graph.nodes],
        "passes": [{"name": title, "nodes": len(after.nodes)} for title, after in stages],
        "program": rows,
        "barriers": int(program.code["barrier"].sum()),
        "few_barriers": int(program.small_step["barrier"].sum()),
        "context": program.bounds.context,
        "memory": memory,
    }


def _as_dict(node: Node) -> dict[str, Any]:
    return {
        "name": node.name,
        "op": node.op,
        "inputs": list(node.inputs),
        "attrs": dict(node.attrs),
        "rows": node.rows,
        "width": node.width,
        "dtype": node.dtype,
    }
