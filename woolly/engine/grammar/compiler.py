"""Grammars that compile in time: each is tried out in a child process (compiler_worker.py) before we compile it."""

from __future__ import annotations

import json
from functools import lru_cache
from pathlib import Path

from woolly.errors import RequestError
from woolly.io.sandbox import Child
from woolly.limits import LIMITS

KEPT = 64  # answers of the child, the most recently used
BYTES = "[256, {}]"  # a vocabulary without control tokens

COMPILER = Child(
    "compiles grammars",
    Path(__file__).with_name("compiler_worker.py"),
    ("llguidance",),
    (LIMITS.grammar_memory, LIMITS.grammar_s),
    60 * LIMITS.grammar_s,  # the child itself counts the time that it works; on a busy machine it waits for others
)


@lru_cache(KEPT)
def try_out(grammar: str, vocabulary: str = BYTES) -> tuple[bool, tuple[str, ...]]:
    """Whether a grammar, as llguidance reads it, cannot be compiled, and what llguidance says of it.

    RequestError where that takes too long. vocabulary: JSON of its size, and its control tokens by their ids.
    """
    kind, text = COMPILER.ask(json.dumps({"grammar": grammar, "vocabulary": vocabulary}).encode())
    if kind == "L":
        raise RequestError(
            f"the format is too complex: more than {LIMITS.grammar_s:g} s or {LIMITS.grammar_memory >> 20} MiB are "
            "needed to compile it",
            suggestion="make it simpler: fewer patterns that hold at once, smaller bounds",
            param="format",
        )
    return kind == "E", tuple(json.loads(text))
