"""DRY: do not repeat yourself. Tokens that would go on with a repetition become less likely, the more the longer it is.

A repetition is a run of tokens at the end of the text that also stands somewhere before; the token that followed it
there would go on with it. No run goes across a token in which a breaker ends (the end of a line, a colon, what
a format repeats of itself), and such a token is never made less likely.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence

import numpy as np
from numpy.typing import NDArray

from woolly.engine.sampling.stages import Logits, last
from woolly.request import Sampling

LONGEST = 64  # tokens of a repetition, beyond the allowed ones, that are counted
MOST = 1e4  # the largest penalty: such a token is never drawn, and its logit stays finite


class Breaks:
    """Which tokens of a text a breaker ends in. The text only grows."""

    __slots__ = ("_breakers", "_ends", "_spell", "_tail")

    def __init__(self, breakers: Sequence[str], spell: Callable[[int], bytes]) -> None:
        self._breakers = [text.encode("utf-8", "surrogatepass") for text in breakers]
        self._spell = spell
        self._ends = bytearray()  # 1 or 0 for each token so far
        self._tail = b""  # the bytes before the next token in which a breaker may have begun

    def of(self, tokens: Sequence[int]) -> NDArray[np.bool_]:
        """True for each token that ends a breaker; reads only the tokens since the last call."""
        longest = max(map(len, self._breakers), default=1)
        for token in tokens[len(self._ends) :]:
            text, before = self._tail + self._spell(token), len(self._tail)
            self._ends.append(any(text.find(b, max(before - len(b) + 1, 0)) >= 0 for b in self._breakers))
            self._tail = text[len(text) - longest + 1 :] if longest <= len(text) else text
        return np.frombuffer(bytes(self._ends), np.bool_)


def dry(logits: Logits, tokens: Sequence[int], breaks: NDArray[np.bool_], s: Sampling) -> None:
    """Take multiplier * base^(length - allowed) from the logits of tokens that would go on with a repetition, in place.

    breaks: of all tokens, those that no repetition goes across.
    """
    seen = last(tokens, s.dry_penalty_last_n)
    known = np.array(seen, np.int64)
    longest = longest_repeats(known, breaks[len(tokens) - len(seen) :], s.dry_allowed_length + LONGEST)
    for token, length in longest.items():
        if length >= s.dry_allowed_length:
            amount = s.dry_multiplier * s.dry_base ** (length - s.dry_allowed_length)
            logits[token] -= np.float32(min(amount, MOST))


def longest_repeats(tokens: NDArray[np.int64], breaks: NDArray[np.bool_], most: int) -> dict[int, int]:
    """For each token that would go on with a repetition: how many tokens the longest of them has, at most `most`."""
    lengths: dict[int, int] = {}
    if not len(tokens):
        return lengths
    end, length = len(tokens) - 1, 0
    ends = np.flatnonzero(tokens[:-1] == tokens[-1])  # where a run of length + 1 has its last token
    ends = ends[~breaks[ends + 1]]
    while len(ends) and length < most and not breaks[end - length]:
        length += 1
        lengths.update(dict.fromkeys(tokens[ends + 1].tolist(), length))
        ends = ends[ends >= length]
        ends = ends[tokens[ends - length] == tokens[end - length]]
    return lengths
