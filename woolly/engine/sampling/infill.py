"""The stage `infill` of llama.cpp, for a text with a gap: it ends the answer where an end is likely enough, and leaves
words that are clear choices.

All ends together count three times for each candidate. Where a word begins another, the likelier of the two stands for
both. A word stays that has a fifth of all, and a fair share of what stays; where none does, the answer ends.
"""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
from numpy.typing import NDArray

from woolly.engine.sampling.stages import Candidates, Logits, top_k

MOST = 128  # candidates that are compared with each other: the likeliest
SHARE = 0.2


def infill(
    c: Candidates, logits: Logits, allowed: NDArray[np.int64], ends: frozenset[int], spell: Callable[[int], bytes]
) -> Candidates:
    """The candidates that the stage leaves; where that is none, the likeliest end of those that are allowed."""
    last = np.array(sorted(ends.intersection(allowed.tolist())), np.int64)
    if not len(last):
        return c
    c = top_k(c, MOST)
    weights = c.weights().astype(np.float64)
    shares = weights / c.total(weights)
    is_end = np.isin(c.ids, last)
    if 3.0 * shares[is_end].sum() * len(c.ids) > shares[~is_end].sum():
        return c.only(is_end)
    _join(shares, [spell(token) for token in c.ids.tolist()])
    stays = is_end | (shares >= SHARE)
    words = int((stays & ~is_end).sum())
    if not words:
        best = last[logits[last].argmax()]
        return Candidates(np.array([best]), logits[[best]])
    fair = shares[stays].sum() / (words + 1)
    return c.only(stays & (is_end | (shares >= fair)))


def _join(shares: NDArray[np.float64], words: list[bytes]) -> None:
    """Add the share of a word to that of a likelier one which begins it or which it begins; in place."""
    order = np.argsort(-shares, kind="stable").tolist()
    gone: set[int] = set()
    for one in order:
        for other in order:
            if (
                one == other
                or one in gone
                or other in gone
                or not words[one]
                or not words[other].startswith(words[one])
            ):
                continue
            winner, loser = (one, other) if shares[one] >= shares[other] else (other, one)
            shares[winner] += shares[loser]
            shares[loser] = 0.0
            gone.add(loser)
