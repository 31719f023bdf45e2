"""Bring a model to this machine; one that is here already is not downloaded again.

    woolly pull smollm2                                 the default model
    woolly pull hf:owner/repo                           of the Hugging Face hub: its only file, or its Q4_K_M
    woolly pull hf:owner/repo:Q8_0                      of this type; a name of a file does too
    woolly pull https://host/model.gguf --sha256 HEX    a file from anywhere

A download that was interrupted goes on where it stopped. The file has its name only when it is whole and its SHA-256
right.
"""

from __future__ import annotations

import argparse
import json
import sys

from woolly.cli.input_text import check_utf8
from woolly.cli.terminal import progress_bar, size
from woolly.config import read_config
from woolly.errors import printable
from woolly.store import parts_of, pull


def arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("name", metavar="NAME", help="smollm2, hf:owner/repo[:FILE or TYPE], or an address")
    parser.add_argument("--sha256", default="", metavar="HEX", help="what the file of an address must have")
    parser.add_argument("--json", action="store_true", help="one line of JSON")
    parser.add_argument("--quiet", "-q", action="store_true", help="no progress, and the path alone")


def call(args: argparse.Namespace) -> int:
    name = check_utf8(args.name, "the name")
    shown = printable(name.rsplit("/", 1)[-1] if "://" in name else name)
    bar = progress_bar(f"downloading {shown}", quiet=args.quiet)
    try:
        pulled = pull(name, read_config(), sha256=args.sha256, progress=bar)
    except KeyboardInterrupt:
        if not args.quiet:
            print("\nwoolly: interrupted; the next pull goes on where this one stopped", file=sys.stderr)
        raise
    nbytes = sum(part.stat().st_size for part in parts_of(pulled.path))
    if args.json:
        print(json.dumps({"name": name, "path": str(pulled.path), "size": nbytes, "downloaded": pulled.new}))
    elif args.quiet:
        print(pulled.path)
    else:
        state = "is here now" if pulled.new else "was here already"
        print(f"{shown} {state}, {size(nbytes)}: {printable(pulled.path, 300)}")
    return 0
