"""Tell what a model is, what it can, and what it needs.

    woolly show smollm2               a name or a path; `woolly info -m smollm2` is the same
    woolly show hf:owner/repo --json  for programs

The weights are not read: `woolly inspect` does that. Sampling that the file recommends is what `run` uses for what you
do not say.
"""

from __future__ import annotations

import argparse
import json
from dataclasses import replace
from typing import TYPE_CHECKING

from woolly.cli.find import find_model
from woolly.cli.input_text import check_utf8
from woolly.cli.terminal import size
from woolly.config import read_config
from woolly.errors import printable
from woolly.store import DEFAULT, OWNERS, installed, name_of

if TYPE_CHECKING:
    from woolly.examine import Card, ModelReport


def arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("model", nargs="?", default=DEFAULT, metavar="MODEL", help="a path or name (default smollm2)")
    parser.add_argument("--json", action="store_true", help="one line of JSON; sizes in bytes")
    parser.add_argument("--quiet", "-q", action="store_true", help="no progress of a download")


def call(args: argparse.Namespace) -> int:
    name, config = check_utf8(args.model, "the name"), read_config()
    path = find_model(name, config, quiet=args.quiet)

    # NumPy and the native core: not before a wrong word was refused
    from woolly.examine import beyond_training, report, report_data

    real = path.resolve()
    here = next((model for model in installed(config) if model.path.resolve() == real), None)
    name, owner = (name_of(path), "") if here is None else (here.name, here.owner)
    inspection = report(path, name=name, quick=True, render=True, kv=config.engine.kv, exact=config.engine.exact)
    if warning := beyond_training(inspection.card, config.engine.context):
        inspection = replace(inspection, warnings=(*inspection.warnings, warning))
    if args.json:
        print(json.dumps(report_data(inspection) | {"from": owner or None}, ensure_ascii=False))
    else:
        for word, sentence in _lines(inspection, owner):
            print(f"{word:<10} {sentence}")
    return 0


def _lines(r: ModelReport, owner: str) -> list[tuple[str, str]]:
    c = r.card
    types = ", ".join(f"{kind} ({count} tensors)" for kind, count in c.types.items())
    whose = f", read from {OWNERS[owner]}" if owner not in ("", "woolly") else ""
    lines = [
        ("model", model_line(c)),
        ("family", f"{c.architecture}, {_count(c.parameters)} weights in {c.layers} layers{left_out(c)}"),
        ("licence", c.licence or "the file tells none"),
        ("file", f"{printable(c.path, 300)}, {size(c.size)}{f' in {c.parts} parts' if c.parts > 1 else ''}{whose}"),
        ("weights", types),
        ("context", f"{c.context:,} tokens"),
        ("template", template_line(c)),
        ("sampling", _sampling(c)),
    ]
    if r.exact:
        lines.append(("exact", f"on: 16-bit activations, a cache of {r.kv}"))
    lines += [
        ("memory" if i == 0 else "", f"{size(need.total)} with a context of {need.context:,}")
        for i, need in enumerate(r.memory)
    ]
    lines.append(("reads", f"{size(r.token_bytes)} of {size(r.memory[0].weights)} of weights a token"))
    if r.pool:
        lines.append(("cache", f"{size(r.pool)} of pages, taken as they are needed, for several answers at once"))
    lines.append(("fits here", _fits(r)))
    return lines + [("warning", sentence) for sentence in r.warnings]


def _sampling(card: Card) -> str:
    if not card.sampling:
        return "nothing is recommended for it; Woolly's own defaults are used"
    values = ", ".join(f"{name.replace('_', ' ')} {value:g}" for name, value in card.sampling.items())
    return f"{values} (recommended for this model)"


def _fits(r: ModelReport) -> str:
    if r.largest >= r.card.context:
        return f"its whole context; {size(r.free)} are free"
    if r.largest:
        return f"a context of up to {r.largest:,}; {size(r.free)} are free"
    least = r.memory[0]
    return f"no: it needs {size(least.total)} with a context of {least.context:,}, and {size(r.free)} are free"


def model_line(card: Card) -> str:
    """The name of a model, and what its file calls it."""
    return card.name if card.name == card.title else f"{card.name} ({card.title})"


def left_out(card: Card) -> str:
    """A note of the layers that only predict further tokens and are not loaded."""
    return f" (and {card.drafts} that predict several tokens at once, left out)" if card.drafts else ""


def template_line(card: Card) -> str:
    """What the chat template can do."""
    able = card.template
    if able is None:
        return "there is one; it was not tried (--quick)" if card.chat else "none: the model continues texts"
    if able.problem:
        return f"cannot be used: {able.problem}"
    known = {
        "system messages": able.system,
        "several turns": able.turns,
        "tools": able.tools,
        "thinking switch": able.thinking,
    }
    return ", ".join(f"{what}: {'yes' if can else 'no'}" for what, can in known.items())


def _count(weights: int) -> str:
    return f"{weights / 1e9:,.2f} billion" if weights >= 1e9 else f"{weights / 1e6:,.1f} million"
