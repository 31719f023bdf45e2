"""Make embeddings of texts: one line of JSON for each, or a NumPy file of them all.

    woolly embed bge-small.gguf "A cat sits." "A dog runs."
    woolly embed bge-small.gguf < lines.txt                       a text a line
    woolly embed bge-small.gguf --output all.npy < lines.txt      float32 [texts, width]

The model should be one that was made for it: an encoder, or a file that says how the rows of a text are pooled. One
that continues texts gives its state after the last token.
"""

from __future__ import annotations

import argparse
import json
import sys
from pathlib import Path
from typing import Any

from woolly.cli.find import find_model
from woolly.cli.flags import add_flags, flag_values
from woolly.cli.input_text import check_utf8, read_input, stdin_is_piped
from woolly.cli.interrupt import ctrl_c_kills
from woolly.cli.terminal import loading_bar
from woolly.config import read_config
from woolly.errors import FileError, RequestError, printable
from woolly.system import user_path


def arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("model", metavar="MODEL", help="a path or name")
    parser.add_argument(
        "texts", nargs="*", metavar="TEXT", help="what to embed; without one, each line of standard input"
    )
    parser.add_argument("--output", "-o", metavar="FILE", help="write a .npy file, float32 [texts, width]")
    parser.add_argument("--dimensions", type=int, metavar="N", help="only the first numbers, for models made for that")
    parser.add_argument("--truncate", action="store_true", help="cut texts that are longer than the context")
    parser.add_argument("--no-normalize", dest="normalize", action="store_false", help="leave lengths as they are")
    add_flags(parser, "context", "threads", "exact")
    parser.add_argument("--lossy", action="store_true", help="replace what is not UTF-8 in standard input")
    parser.add_argument("--quiet", "-q", action="store_true", help="no bar while the model is loaded")


def call(args: argparse.Namespace) -> int:
    config = read_config(**flag_values(args))
    texts = [check_utf8(text, "the text") for text in args.texts]
    if not texts and stdin_is_piped():
        texts = [line for line in read_input(lossy=args.lossy).split("\n") if line.strip()]
    if not texts:
        raise RequestError(
            "there is no text", suggestion="give one, or a line for each on standard input", param="TEXT"
        )
    if args.output is not None and not args.output.endswith(".npy"):
        raise RequestError(f"'{printable(args.output)}' is no .npy file", param="--output")
    path = find_model(args.model, config, quiet=args.quiet)
    with ctrl_c_kills():
        from woolly.llm.llm import LLM  # NumPy and the native core: not before a wrong word was refused

        bar = loading_bar(printable(path.name), quiet=args.quiet)
        engine = config.engine
        llm = LLM(path, context=engine.context, threads=engine.threads, exact=engine.exact, progress=bar)
    with llm:
        rows = llm.embed(texts, normalize=args.normalize, dimensions=args.dimensions, truncate=args.truncate)
        if args.output is not None:
            _save(rows, args.output)
            return 0
        from woolly.llm.encoder import shortest

        for index, row in enumerate(rows):
            sys.stdout.write(json.dumps({"index": index, "embedding": shortest(row)}) + "\n")
    return 0


def _save(rows: Any, name: str) -> None:
    import numpy as np

    if isinstance(rows, list):
        raise RequestError("the model pools nothing, so its rows are not one for each text", param="--output")
    try:
        with user_path(Path(name)).open("wb") as file:
            np.save(file, rows)
    except OSError as error:
        raise FileError(f"'{printable(name)}' cannot be written: {printable(error.strerror or error)}") from None
