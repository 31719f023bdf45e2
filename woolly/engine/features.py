"""Features: rows of a prompt that are given, not looked up by their token: what a picture or a sound was made into."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Features:
    """So many rows, from the position of the first on. The ids at their positions only hold their place. digest: of all
    that the rows were made of."""

    first: int
    count: int
    digest: bytes


def words_of(tokens: list[int], features: Sequence[Features]) -> list[int]:
    """The tokens that mean something; the same list where all do."""
    return [token for position, token in enumerate(tokens) if is_word(position, features)] if features else tokens


def follows_word(position: int, features: Sequence[Features]) -> bool:
    """Whether the token at this position is a word, and not the first one of its text."""
    return is_word(position, features) and any(is_word(before, features) for before in range(position))


def is_word(position: int, features: Sequence[Features]) -> bool:
    """Whether the token at this position means something."""
    return not any(one.first <= position < one.first + one.count for one in features)
