"""Show the tokens of a text, one a line: id and piece.

    woolly tokenize "Hello there"
    woolly tokenize model.gguf "Hello there"
    woolly tokenize smollm2 - < text.txt

Texts of control tokens are ordinary text unless --special reads them. Nothing is added in front.
"""

from __future__ import annotations

import argparse
import json
import sys
from typing import TYPE_CHECKING

from woolly.cli.find import find_model
from woolly.cli.input_text import check_utf8, read_input
from woolly.config import read_config
from woolly.errors import RequestError
from woolly.store import DEFAULT

if TYPE_CHECKING:
    from woolly.text import Tokenizer


def arguments(parser: argparse.ArgumentParser) -> None:
    parser.usage = "%(prog)s [MODEL] TEXT [options]"
    parser.add_argument(
        "words", nargs="+", metavar="MODEL TEXT", help="a path or name, and a text; - is standard input"
    )
    parser.add_argument("--special", action="store_true", help="read the texts of control tokens as those tokens")
    parser.add_argument("--json", action="store_true", help="one line of JSON: ids, pieces, bytes dropped")
    parser.add_argument("--lossy", action="store_true", help="replace what is not UTF-8 in standard input")


def call(args: argparse.Namespace) -> int:
    if len(args.words) > 2:
        raise RequestError(
            f"{len(args.words)} words were given; expected a model and a text", suggestion="quote the text"
        )
    *model, word = args.words
    text = read_input(lossy=args.lossy) if word == "-" else check_utf8(word, "the text")
    name = model[0] if model else DEFAULT
    path = find_model(name, read_config())

    from woolly import gguf  # NumPy: not before a wrong word was refused
    from woolly.text import Tokenizer

    with gguf.open(path) as file:
        tokenizer = Tokenizer(file.meta)
    ids = tokenizer.encode(text, special=args.special)
    pieces = [_piece(tokenizer, token) for token in ids]
    back = _back(tokenizer, ids)
    dropped = max(0, len(text.encode()) - len(back.encode()))
    if args.json:
        texts = [piece if isinstance(piece, str) else piece.decode("utf-8", "backslashreplace") for piece in pieces]
        print(json.dumps({"ids": ids, "pieces": texts, "dropped_bytes": dropped}, ensure_ascii=False))
    else:
        for token, piece in zip(ids, pieces, strict=True):
            print(f"{token:>8} {piece!r}")  # repr escapes whatever could act on a terminal
    if dropped:
        print(f"woolly: warning: {dropped:,} bytes of the text have no token and were dropped", file=sys.stderr)
    elif back != text:
        print("woolly: warning: the tokens do not give the same text back", file=sys.stderr)
    return 0


def _piece(tokenizer: Tokenizer, token: int) -> str | bytes:
    """The text of one token, of a special one its name; bytes where it is no whole characters."""
    if tokenizer.is_special(token):
        return tokenizer.text_of(token)
    data = tokenizer.bytes_of(token)
    try:
        return data.decode()
    except UnicodeDecodeError:
        return data


def _back(tokenizer: Tokenizer, ids: list[int]) -> str:
    """The text that the ids stand for, special tokens by their names."""
    text = ""
    run: list[int] = []
    for token in ids:
        if tokenizer.is_special(token):
            text += tokenizer.decode(run) + tokenizer.text_of(token)
            run = []
        else:
            run.append(token)
    return text + tokenizer.decode(run)
