"""Random texts through a tokenizer: each comes back as it was, but for what the rules name; and as fast as long.

    python -m tests.fuzz.texts strings MODEL --count 100000 [--peer PYTHON]
    python -m tests.fuzz.texts long MODEL

strings: the round trip; with --peer, an interpreter that has llama_cpp, its ids are compared too.
long: CPU seconds for 1 MB and 2 MB of what is hard for tokenizers.
"""

from __future__ import annotations

import argparse
import json
import os
import random
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from functools import partial
from pathlib import Path

from tests.text.small import bpe
from woolly import gguf
from woolly.store import resolve
from woolly.text import Tokenizer

ALPHABETS = (
    "abcdefghijklmnopqrstuvwxyz", "ABCXYZ", "0123456789", " ", "\n\t\r ", "'’.,;:!?-_/\\()[]{}<>|@#$%^&*+=~`\"",
    "äöüßéèñçåø", "абвгд", "αβγδ", "אבגד", "ابتث", "हिन्दी", "ไทย", "中文字符", "ひらがなカタカナ", "한국어",
    "🙂🎉👩‍👩‍👧🏳️‍🌈",
    "\u0301\u0308\u20dd", "\u200b\u200d\u2028\u2029\ufeff\u00a0\u3000", "\0\x01\x04\x07\x1b\x7f\x80\x9f",
    "\U0001d518\U00010348\U000e0041",
)  # fmt: skip
WORDS = ("the", " and", "'s", "'LL", "  ", "\n\n", "\r\n", "1234567", "http://", "def f(x):", "<|im_end|>", "<s>", "▁")
MB = 1_000_000
LONG = {
    "T01 a": "a", "T01 space": " ", "T01 newline": "\n", "T01 _": "_", "T01 emoji": "🙂", "T01 cjk": "中",
    "T01 NUL": "\0",
    "T02 letters": "", "T03 spaces then x": " ", "T03 spaces and newlines": " " * 99 + "\n", "T03 digits": "1",
    "T03 apostrophes": "'", "T03 's": "'s", "T03 returns": " \r", "T03 Aa": "Aa",
}  # fmt: skip


def texts(seed: int, count: int) -> Iterator[str]:
    """Texts of one to about sixty pieces, from many alphabets; every character of Unicode may come up."""
    rng = random.Random(seed)
    for _ in range(count):
        pieces = []
        for _ in range(rng.choice((1, 2, 5, 12, 30, 60))):
            kind = rng.random()
            if kind < 0.55:
                alphabet = rng.choice(ALPHABETS)
                pieces.append("".join(rng.choices(alphabet, k=rng.choice((1, 1, 2, 4, 9)))))
            elif kind < 0.9:
                pieces.append(rng.choice(WORDS))
            else:
                code = rng.choice((rng.randrange(0x250), rng.randrange(0xD800), rng.randrange(0xE000, 0x110000)))
                pieces.append(chr(code))
        yield "".join(pieces)


def expected(tokenizer: Tokenizer, text: str, lost: bytes) -> str:
    """What must come back: bytes without a token are dropped; where words write spaces as U+2581, it is a space."""
    if tokenizer.model == "llama":
        return text.replace("▁", " ")
    return text.encode().translate(None, lost).decode("utf-8", "replace")


def lost_bytes(tokenizer: Tokenizer) -> bytes:
    """Bytes that no token stands for (byte pairs only)."""
    if tokenizer.model != "gpt2":
        return b""
    have = {tokenizer.bytes_of(i) for i in range(tokenizer.vocab)}
    return bytes(b for b in range(256) if bytes([b]) not in have)


def failures(tokenizer: Tokenizer, seed: int, count: int) -> list[str]:
    """The texts that do not come back by the rule."""
    lost = lost_bytes(tokenizer)
    return [t for t in texts(seed, count) if tokenizer.decode(tokenizer.encode(t)) != expected(tokenizer, t, lost)]


PEER = """
import json, sys
from llama_cpp import Llama
llm = Llama(sys.argv[1], vocab_only=True, verbose=False)
for line in open(sys.argv[2], encoding="utf-8"):
    print(json.dumps(llm.tokenize(json.loads(line).encode(), add_bos=False, special=False)))
"""


def peer_differences(tokenizer: Tokenizer, model: Path, python: str, seed: int, count: int) -> list[str]:
    """The texts whose ids differ from the peer's. It cannot take a NUL, so texts with one are left out."""
    asked = [text for text in texts(seed, count) if "\0" not in text]
    with tempfile.TemporaryDirectory() as folder:
        lines = Path(folder) / "texts"
        lines.write_text("".join(json.dumps(text) + "\n" for text in asked))
        with (Path(folder) / "ids").open("w+") as out:
            subprocess.run([python, "-c", PEER, str(model), str(lines)], stdout=out, check=True)
            out.seek(0)
            return [t for t, line in zip(asked, out, strict=True) if tokenizer.encode(t) != json.loads(line)]


def long_text(name: str, nbytes: int) -> str:
    if name == "T02 letters":
        return "".join(random.Random(1).choices("abcdefghijklmnopqrstuvwxyz", k=nbytes))
    piece = LONG[name]
    text = piece * (nbytes // len(piece.encode()))
    return text[:-1] + "x" if name.endswith("x") else text


def seconds(tokenizer: Tokenizer, text: str) -> float:
    """The best of three, in CPU seconds, each in a process of its own.

    Memory that an earlier run has touched is cheaper, and the allocator keeps only pieces up to 32 MB: in one process
    the shorter text would be warm and the longer one never.
    """
    return min(_seconds_once(tokenizer, text) for _ in range(3))


def _seconds_once(tokenizer: Tokenizer, text: str) -> float:
    reader, writer = os.pipe()
    child = os.fork()
    if child == 0:
        begin = time.process_time()
        tokenizer.encode(text)
        os.write(writer, repr(time.process_time() - begin).encode())
        os._exit(0)
    os.close(writer)
    with os.fdopen(reader) as answer:
        took = float(answer.read())
    os.waitpid(child, 0)
    return took


def show_long(tokenizer: Tokenizer) -> int:
    # Every join makes a longer word, which only then can be joined again; the longest has 1,500 letters.
    chain = Tokenizer(bpe(merges=[f"{'x' * i} x" for i in range(1, 1_500)], special={}))
    late = 0
    for name in (*LONG, "T04 chain of merges"):
        by, text = (chain, lambda n: "x" * n) if name.startswith("T04") else (tokenizer, partial(long_text, name))
        one, two = (seconds(by, text(n * MB)) for n in (1, 2))
        if name.startswith("T04"):
            late += two > 2.0
        else:
            late += one > 1.5 or two > max(2.5 * one, 0.3)  # below that, the first touch of memory counts most
        print(f"{name:24} 1 MB {one:.2f} s   2 MB {two:.2f} s   ratio {two / one:.2f}")
    return late


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("what", choices=("strings", "long"))
    parser.add_argument("model")
    parser.add_argument("--count", type=int, default=100_000)
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--peer", metavar="PYTHON")
    args = parser.parse_args()
    path = resolve(args.model)
    with gguf.open(path) as file:
        tokenizer = Tokenizer(file.meta)
    if args.what == "long":
        return 1 if show_long(tokenizer) else 0
    begin = time.monotonic()
    wrong = failures(tokenizer, args.seed, args.count)
    took = time.monotonic() - begin
    print(f"{path.name}: seed {args.seed}, {args.count:,} texts, {len(wrong)} do not come back; {took:.0f} s")
    other = peer_differences(tokenizer, path, args.peer, args.seed, args.count) if args.peer else []
    if args.peer:
        print(f"{path.name}: {len(other)} differ from the peer")
    for text in (wrong + other)[:20]:
        print(ascii(text[:200]))
    return 1 if wrong or other else 0


if __name__ == "__main__":
    sys.exit(main())
