"""List the models on this machine, whoever put them there.

    woolly list                    all of them; `woolly ls` is the same
    woolly list llama              those whose name has this word in it
    woolly list --json             for programs
    woolly list --quiet            names alone, one a line

What belongs to Ollama, LM Studio or the Hugging Face cache is read in place.
"""

from __future__ import annotations

import argparse
import json
import sys
import time

from woolly.cli.terminal import size
from woolly.config import read_config
from woolly.errors import printable
from woolly.store import DEFAULT, OWNERS, Model, installed

HEAD = ("NAME", "SIZE", "CHANGED", "FROM")


def arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("word", nargs="?", default="", metavar="WORD", help="only names that have it in them")
    parser.add_argument("--json", action="store_true", help="one line of JSON; sizes in bytes, times in seconds")
    parser.add_argument("--quiet", "-q", action="store_true", help="names alone")


def call(args: argparse.Namespace) -> int:
    word = args.word.lower()
    models = [m for m in installed(read_config()) if any(word in name for name in (m.name.lower(), *m.also))]
    if args.json:
        print(json.dumps({"models": [_data(model) for model in models]}, ensure_ascii=False))
    elif args.quiet:
        for model in models:
            print(printable(model.name, 200))
    elif models:
        now = time.time()
        _table([HEAD, *((printable(m.name, 200), size(m.nbytes), _ago(now - m.modified), _from(m)) for m in models)])
    else:
        what = f"no model here has '{printable(args.word)}' in its name" if word else "there are no models here yet"
        print(f"{what}; `woolly pull {DEFAULT}` fetches a small one", file=sys.stderr)
    return 0


def _data(model: Model) -> dict[str, object]:
    return {
        "name": model.name,
        "id": model.name,
        "path": str(model.path),
        "size": model.nbytes,
        "modified": int(model.modified),
        "from": model.owner,
        "repo": model.repo or None,
    }


def _table(rows: list[tuple[str, ...]]) -> None:
    widths = [max(map(len, column)) for column in zip(*rows, strict=True)]
    for name, amount, ago, place in rows:
        print(f"{name:<{widths[0]}}  {amount:>{widths[1]}}  {ago:<{widths[2]}}  {place}")


def _from(model: Model) -> str:
    return OWNERS[model.owner] + (f", {printable(model.repo)}" if model.repo else "")


def _ago(seconds: float) -> str:
    for unit, length in (("year", 31_536_000), ("month", 2_592_000), ("day", 86_400), ("hour", 3_600), ("minute", 60)):
        count = int(seconds // length)
        if count >= 1:
            return f"{count} {unit}{'s' if count > 1 else ''} ago"
    return "just now"
