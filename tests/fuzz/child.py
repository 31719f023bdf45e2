"""Reads mutated files, one after the other, and says what became of each: one line before it, one line after it.

    python -m tests.fuzz.child reader|model FOLDER SEED FIRST LAST [timed]

reader: every check there is (woolly.examine). model: a full load, and what it gives for three tokens.
A line is the number of the file, then refused, loaded, or the name of what must not happen.
"""

from __future__ import annotations

import sys
import time
from pathlib import Path

import numpy as np

from tests.fuzz.mutate import mutation
from woolly import LLM, gguf
from woolly.errors import FileError, NativeError, NotFoundError, UnsupportedError
from woolly.examine import check

REFUSED_S = 0.1  # CPU seconds in which a file must be refused, where that is asked for


def read(path: Path) -> str:
    try:
        with gguf.open(path) as file:
            check(file)
        return "loaded"
    except (FileError, UnsupportedError, NotFoundError) as error:
        line = str(error)
        return "refused" if line.isprintable() and len(line) <= 700 else f"message: {line[:100]!r}"


def step(path: Path) -> str:
    try:
        with LLM(path, context=16, threads=1) as llm:
            outputs = llm.logits([1, 2, 3]) if llm.card.gives == "logits" else llm.encoder.submit((1, 2, 3)).wait()
        return "loaded" if np.isfinite(outputs).all() else "an output that is not finite"
    except (FileError, UnsupportedError, NotFoundError):
        return "refused"
    except NativeError as error:
        return "refused" if error.code == "generation_error" else f"{error!r}"


def main(what: str, folder: str, seed: int, first: int, last: int, *, timed: bool) -> None:
    look, path = {"reader": read, "model": step}[what], Path(folder) / "fuzz.gguf"
    mutation(seed, first)  # builds the base
    for number in range(first, last):
        raw, _ = mutation(seed, number)
        path.write_bytes(raw)
        print(number, flush=True)
        begin = time.process_time()
        try:
            became = look(path)
        except Exception as error:
            became = f"{type(error).__name__}: {str(error)[:200]!r}"
        took = time.process_time() - begin
        if timed and became == "refused" and took > REFUSED_S:
            # once more: the first time may have paid for something else
            begin = time.process_time()
            look(path)
            took = min(took, time.process_time() - begin)
            became = became if took <= REFUSED_S else f"refused only after {took:.3f} s"
        print(number, became, flush=True)
    path.unlink(missing_ok=True)


if __name__ == "__main__":
    main(sys.argv[1], sys.argv[2], *map(int, sys.argv[3:6]), timed="timed" in sys.argv[6:])
