"""The child process that tries a grammar out: a program of its own that imports nothing of Woolly.

Started by compiler.py. Matching is bounded by llguidance's limits, compiling is not: patterns that must hold at once
can keep it busy for hours. Here that costs this process and nothing else: an alarm ends it after so many seconds at
work, and it may grow by a fixed number of bytes. It ends when its input ends.

Messages have the form that sandbox.py describes. In: JSON with `grammar`, as llguidance reads it, `seconds` of work
that it may take, and `vocabulary`, again as JSON: its size, and its control tokens by their ids. Out: T, or E where it
cannot be compiled, and JSON with the `seconds` that it took and the `messages` of llguidance.
"""

from __future__ import annotations

import json
import os
import resource
import signal
import sys
from functools import lru_cache
from typing import Any


def main(libraries: str, memory: int) -> None:
    """libraries: folders that hold llguidance. memory: bytes."""
    sys.path += libraries.split(os.pathsep)
    from llguidance import LLMatcher, LLParserLimits

    limits = LLParserLimits(verbose_errors=False)
    _bound(memory)
    _send(b"T")
    source = sys.stdin.buffer
    while len(head := source.read(4)) == 4:
        asked = json.loads(source.read(int.from_bytes(head, "little")))
        grammar, words = asked["grammar"], _words(asked["vocabulary"])
        # The default action of the signal ends the process, whatever it is doing.
        signal.setitimer(signal.ITIMER_PROF, asked["seconds"])
        failed, messages = LLMatcher.validate_grammar_with_warnings(grammar, limits=limits)
        if not failed:
            LLMatcher(words, grammar, log_level=0, limits=limits).compute_bitmask()
        left, _ = signal.setitimer(signal.ITIMER_PROF, 0)
        answer = {"seconds": asked["seconds"] - left, "messages": messages}
        _send((b"E" if failed else b"T") + json.dumps(answer).encode())


class _Vocabulary:
    """A vocabulary of the right size: what compiling takes depends on its control tokens, not on its words."""

    bos_token_id = None

    def __init__(self, size: int, control: dict[str, str]) -> None:
        self.tokens = [bytes((token,)) if token < 255 else b"" for token in range(size)]
        for token, text in control.items():
            self.tokens[int(token)] = b"\xff" + text.encode()
        self.eos_token_id = size
        self.tokens.append(b"\xff<end>")
        self.special_token_ids = [*map(int, control), size]

    def __call__(self, text: str) -> list[int]:
        return list(text.encode())


@lru_cache(1)
def _words(vocabulary: str) -> Any:
    from llguidance import LLTokenizer, TokenizerWrapper

    words = _Vocabulary(*json.loads(vocabulary))
    return LLTokenizer(TokenizerWrapper(words), n_vocab=len(words.tokens))


def _bound(memory: int) -> None:
    resource.setrlimit(resource.RLIMIT_CORE, (0, 0))
    try:
        with open("/proc/self/statm", "rb") as file:
            most = int(file.read().split()[0]) * resource.getpagesize() + memory
    except OSError:
        return  # a system without /proc does not keep this limit either; the time is limited everywhere
    hard = resource.getrlimit(resource.RLIMIT_AS)[1]
    most = most if hard == resource.RLIM_INFINITY else min(most, hard)
    resource.setrlimit(resource.RLIMIT_AS, (most, most))


def _send(answer: bytes) -> None:
    sys.stdout.buffer.write(len(answer).to_bytes(4, "little") + answer)
    sys.stdout.buffer.flush()


if __name__ == "__main__":
    main(sys.argv[1], int(sys.argv[2]))
