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
from woolly.cli.find import find_model
from woolly.cli.show import left_out, model_line, template_line
from woolly.cli.terminal import size
from woolly.config import read_config
from woolly.examine import AdapterReport, ModelReport, report, report_adapter, report_data
from woolly.store import name_of


def arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("file", metavar="FILE", help="a path, or the name of a model")
    parser.add_argument("--quick", action="store_true", help="read only the header, not the weights")
    parser.add_argument("--json", action="store_true", help="one line of JSON; sizes in bytes")


def call(args: argparse.Namespace) -> int:
    config = read_config()
    path = find_model(args.file, config)
    adapter = report_adapter(path, quick=args.quick)
    if adapter is not None:
        return _show_adapter(adapter, json_wanted=args.json)
    inspection = report(path, name=name_of(path), quick=args.quick, kv=config.engine.kv, exact=config.engine.exact)
    if args.json:
        print(json.dumps(report_data(inspection), ensure_ascii=False))
    else:
        for word, sentence in _lines(inspection):
            print(f"{word:<10} {sentence}")
    return 0


def _show_adapter(r: AdapterReport, *, json_wanted: bool) -> int:
    if json_wanted:
        print(json.dumps({"type": "adapter", **asdict(r), "path": str(r.path)}, ensure_ascii=False))
        return 0
    types = ", ".join(f"{count} {name}" for name, count in r.types.items())
    looked = "the values were not looked at (--quick)" if r.quick else "every value is a finite number"
    print(f"{'file':<10} {r.file}: {size(r.size)}")
    print(f"{'adapter':<10} LoRA for {r.architecture}, rank {' and '.join(map(str, r.ranks))}, alpha {r.alpha:g}")
    print(f"{'tensors':<10} {len(r.tensors)} of the model are changed ({types}); {looked}")
    print(f"{'use':<10} woolly run MODEL --lora {r.file}")
    return 0


def _lines(r: ModelReport) -> list[tuple[str, str]]:
    c, words = r.card, r.tokenizer
    parts = f" in {c.parts} parts" if c.parts > 1 else ""
    unused = f", {c.unused:,} bytes of it unused" if c.unused else ""
    types = ", ".join(f"{count} {name}" for name, count in c.types.items())
    looked = "the values were not looked at (--quick)" if r.quick else "every value is a finite number"
    lines = [
        ("file", f"{c.file}: GGUF version {c.version}, {size(c.size)}{parts}{unused}"),
        ("model", f"{model_line(c)}: {c.architecture}, {c.parameters / 1e6:,.1f} million weights"),
        (
            "shape",
            f"{c.layers} layers{left_out(c)}, width {c.width:,}, {c.heads} heads of {c.head_dim} "
            f"({c.kv_heads} of keys and values), feed-forward {c.ffn:,}, context {c.context:,}",
        ),
        ("tensors", f"{c.tensors} ({types}); every tensor is understood, {looked}"),
        (
            "tokenizer",
            f"{words.model}{f' ({words.pre})' if words.pre else ''}, {words.tokens:,} tokens, {words.control} of them "
            f"control; begins with {words.begin or 'nothing'}, ends with {' '.join(words.ends) or 'nothing'}",
        ),
        ("template", template_line(c)),
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
