"""Say what a GGUF file is, after every check that loading it would make.

    woolly inspect model.gguf            every weight is looked at
    woolly inspect model.gguf --quick    only the header is read
    woolly inspect model.gguf --json     the same for programs

A file that is broken or not supported is exit 4 and one line that says what is wrong, where, and what to do.
"""

from __future__ import annotations

import argparse
import json
from dataclasses import asdict

# All that is needed is imported before the file is opened: what the file costs is the file's alone.
from woolly.cli.find import find
from woolly.cli.show import abilities_line
from woolly.cli.terminal import size
from woolly.config import read_config
from woolly.examine import Report, report


def arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("file", metavar="FILE", help="a path, or the name of a model")
    parser.add_argument("--quick", action="store_true", help="read only the header, not the weights")
    parser.add_argument("--json", action="store_true", help="one line of JSON; sizes in bytes")


def call(args: argparse.Namespace) -> int:
    path = find(args.file, read_config())
    found = report(path, quick=args.quick)
    if args.json:
        print(json.dumps(asdict(found), ensure_ascii=False))
    else:
        for word, sentence in _lines(found):
            print(f"{word:<10} {sentence}")
    return 0


def _lines(r: Report) -> list[tuple[str, str]]:
    parts = f" in {r.parts} parts" if r.parts > 1 else ""
    unused = f", {r.unused:,} bytes of it unused" if r.unused else ""
    types = ", ".join(f"{count} {name}" for name, count in r.types.items())
    looked = "the values were not looked at (--quick)" if r.quick else "every value is a finite number"
    words = r.tokenizer
    lines = [
        ("file", f"{r.file}: GGUF version {r.version}, {size(r.size)}{parts}{unused}"),
        ("model", f"{r.name}: {r.architecture}, {r.parameters / 1e6:,.1f} million weights"),
        (
            "shape",
            f"{r.layers} layers, width {r.width:,}, {r.heads} heads of {r.head_dim} ({r.kv_heads} of keys and values), "
            f"feed-forward {r.ffn:,}, context {r.context:,}",
        ),
        ("tensors", f"{r.tensors} ({types}); every tensor is understood, {looked}"),
        (
            "tokenizer",
            f"{words.model}{f' ({words.pre})' if words.pre else ''}, {words.tokens:,} tokens, {words.control} of them "
            f"control; begins with {words.begin or 'nothing'}, ends with {' '.join(words.ends) or 'nothing'}",
        ),
        (
            "template",
            abilities_line(r.template) if r.template or not r.chat else "there is one; it was not tried (--quick)",
        ),
    ]
    lines += [
        (
            "memory" if i == 0 else "",
            f"{size(need.total)} with a context of {need.context:,} (weights {size(need.weights)}, "
            f"cache {size(need.cache)}, work {size(need.work)})",
        )
        for i, need in enumerate(r.memory)
    ]
    return lines + [("warning", sentence) for sentence in r.warnings]
