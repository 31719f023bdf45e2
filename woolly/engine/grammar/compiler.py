"""Grammars that compile in time: each is tried out in a child process (compiler_worker.py) before we compile it."""

from __future__ import annotations

import json
from collections import OrderedDict
from dataclasses import dataclass
from hashlib import blake2b
from pathlib import Path
from threading import Lock
from typing import TypeAlias

from woolly.errors import RequestError
from woolly.io.sandbox import Child
from woolly.limits import LIMITS

KEPT = 2 * LIMITS.tools  # answers of the child, the most recently used
BYTES = "[256, {}]"  # a vocabulary without control tokens

COMPILER = Child(
    "compiles grammars",
    Path(__file__).with_name("compiler_worker.py"),
    ("llguidance",),
    (LIMITS.grammar_memory,),
    60 * LIMITS.grammar_s,  # the child itself counts the time that it works; on a busy machine it waits for others
)

Verdict: TypeAlias = tuple[bool, tuple[str, ...]]
"""Whether a grammar cannot be compiled, and what llguidance says of it."""


@dataclass(slots=True)
class Budget:
    """The seconds of work that are left to compile all grammars of one request: its format and its tools."""

    left_s: float = LIMITS.grammars_s

    @property
    def spent(self) -> bool:
        return self.left_s <= 0.0


class _Verdicts:
    """What the child has said, by the digest of what it was asked. For any thread."""

    def __init__(self) -> None:
        self._kept: OrderedDict[bytes, Verdict] = OrderedDict()
        self._lock = Lock()

    def get(self, key: bytes) -> Verdict | None:
        with self._lock:
            if key in self._kept:
                self._kept.move_to_end(key)
            return self._kept.get(key)

    def put(self, key: bytes, verdict: Verdict) -> None:
        with self._lock:
            self._kept[key] = verdict
            if len(self._kept) > KEPT:
                self._kept.popitem(last=False)


_VERDICTS = _Verdicts()


def try_out(grammar: str, budget: Budget, vocabulary: str = BYTES) -> Verdict:
    """Whether a grammar, as llguidance reads it, cannot be compiled, and what llguidance says of it.

    RequestError where that takes more than is left of the budget. vocabulary: JSON of its size, and its control tokens
    by their ids.
    """
    key = blake2b(json.dumps([grammar, vocabulary]).encode(), digest_size=16).digest()
    verdict = _VERDICTS.get(key)
    if verdict is None:
        verdict = _try_out(grammar, budget, vocabulary)
        _VERDICTS.put(key, verdict)
    return verdict


def _try_out(grammar: str, budget: Budget, vocabulary: str) -> Verdict:
    if budget.spent:
        raise _too_complex(together=True)
    seconds = min(LIMITS.grammar_s, budget.left_s)
    asked = {"grammar": grammar, "vocabulary": vocabulary, "seconds": seconds}
    kind, text = COMPILER.ask(json.dumps(asked).encode())
    if kind == "L":
        budget.left_s -= seconds
        raise _too_complex(together=seconds < LIMITS.grammar_s)
    answer = json.loads(text)
    budget.left_s -= answer["seconds"]
    return kind == "E", tuple(answer["messages"])


def _too_complex(*, together: bool) -> RequestError:
    what, it, seconds = "the format is", "it", LIMITS.grammar_s
    if together:
        what, it, seconds = "the format and the tools of the request are", "them", LIMITS.grammars_s
    return RequestError(
        f"{what} too complex: more than {seconds:g} s or {LIMITS.grammar_memory >> 20} MiB are needed to compile {it}",
        suggestion=f"make {it} simpler: fewer patterns that hold at once, smaller bounds",
        param="format",
    )
