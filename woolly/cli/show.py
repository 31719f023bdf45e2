"""Tell what a model is, what it can, and what it needs.

    woolly show smollm2               a name or a path; `woolly info -m smollm2` is the same
    woolly show hf:owner/repo --json  for programs

The weights are not read: `woolly inspect` does that. Sampling that the file recommends is what `run` uses for what you
do not say.
"""

from __future__ import annotations

import argparse
import json
from dataclasses import asdict
from pathlib import Path
from typing import TYPE_CHECKING, Any

from woolly.cli.find import find
from woolly.cli.sampling import file_sampling
from woolly.cli.terminal import size
from woolly.cli.words import checked
from woolly.config import read_config
from woolly.errors import printable
from woolly.store import DEFAULT, OWNERS, installed

if TYPE_CHECKING:
    from woolly.examine import Abilities, Report


def arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("model", nargs="?", default=DEFAULT, metavar="MODEL", help="a path or name (default smollm2)")
    parser.add_argument("--json", action="store_true", help="one line of JSON; sizes in bytes")
    parser.add_argument("--quiet", "-q", action="store_true", help="no progress of a download")


def call(args: argparse.Namespace) -> int:
    name, config = checked(args.model, "the name"), read_config()
    path = find(name, config, quiet=args.quiet)

    from woolly.examine import report  # NumPy and the native core: not before a wrong word was refused

    found = report(path, quick=True, render=True)
    sampling = file_sampling(path)
    real = path.resolve()
    owner = next((model.owner for model in installed(config) if model.path.resolve() == real), "")
    if args.json:
        more = {"path": str(path), "from": owner or None, "sampling": sampling}
        print(json.dumps(asdict(found) | more, ensure_ascii=False))
    else:
        for word, sentence in _lines(found, path, owner, sampling):
            print(f"{word:<10} {sentence}")
    return 0


def _lines(r: Report, path: Path, owner: str, sampling: dict[str, Any]) -> list[tuple[str, str]]:
    types = ", ".join(f"{kind} ({count} tensors)" for kind, count in r.types.items())
    whose = f", read from {OWNERS[owner]}" if owner not in ("", "woolly") else ""
    lines = [
        ("model", r.name),
        ("family", f"{r.architecture}, {_count(r.parameters)} weights in {r.layers} layers"),
        ("licence", r.licence or "the file tells none"),
        ("file", f"{printable(path, 300)}, {size(r.size)}{f' in {r.parts} parts' if r.parts > 1 else ''}{whose}"),
        ("weights", types),
        ("context", f"{r.context:,} tokens"),
        ("template", abilities_line(r.template)),
        ("sampling", _sampling(sampling)),
    ]
    lines += [
        ("memory" if i == 0 else "", f"{size(need.total)} with a context of {need.context:,}")
        for i, need in enumerate(r.memory)
    ]
    lines.append(("fits here", _fits(r)))
    return lines + [("warning", sentence) for sentence in r.warnings]


def _sampling(values: dict[str, Any]) -> str:
    if not values:
        return "the file recommends nothing; Woolly's own defaults are used"
    return ", ".join(f"{name.replace('_', ' ')} {value:g}" for name, value in values.items()) + " (the file's own)"


def _fits(r: Report) -> str:
    if r.largest >= r.context:
        return f"its whole context; {size(r.free)} are free"
    if r.largest:
        return f"a context of up to {r.largest:,}; {size(r.free)} are free"
    least = r.memory[0]
    return f"no: it needs {size(least.total)} with a context of {least.context:,}, and {size(r.free)} are free"


def abilities_line(able: Abilities | None) -> str:
    """What a template can do; None is a file without one."""
    if able is None:
        return "none: the model continues texts"
    if able.problem:
        return f"cannot be used: {able.problem}"
    known = {"system messages": able.system, "several turns": able.turns, "tools": able.tools}
    return ", ".join(f"{what}: {'yes' if can else 'no'}" for what, can in known.items())


def _count(weights: int) -> str:
    return f"{weights / 1e9:,.2f} billion" if weights >= 1e9 else f"{weights / 1e6:,.1f} million"
