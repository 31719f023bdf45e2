"""Lookup: guesses at the next tokens of a text, by what followed the last time that its last tokens stood together.

No model is needed: edits of a prompt, and answers from tables in it, repeat it word by word.
How often such a guess was right is counted apart for places that agree over few tokens and over many.
"""

from __future__ import annotations

GRAM = 3  # tokens that must agree
DEPTHS = (3, 5, 8)  # guesses are counted apart by how many tokens before them agree: from so many on
FADE = 0.98  # what a count is worth one token later
ONE_RIGHT_OF = 1.0, 2.0  # right and tried guesses that are assumed before any is counted


class Chance:
    """How likely the next token of a guess is right, by those of late; what is long ago counts for less and less."""

    __slots__ = ("_at", "_right", "_tried")

    def __init__(self) -> None:
        self._right = self._tried = 0.0
        self._at = 0  # tokens of the text when it was counted last

    def at(self, known: int) -> float:
        """From 0 to 1, when so many tokens are known."""
        worth = FADE ** (known - self._at)
        right, tried = ONE_RIGHT_OF
        return (self._right * worth + right) / (self._tried * worth + tried)

    def count(self, known: int, right: int, tried: int) -> None:
        """So many tokens of a guess were right, and so many were looked at."""
        worth = FADE ** (known - self._at)
        self._right, self._tried, self._at = self._right * worth + right, self._tried * worth + tried, known


class Lookup:
    """The places of one text. `tokens` only grows from call to call."""

    __slots__ = ("_after", "_read", "chances")

    def __init__(self) -> None:
        self._after: dict[tuple[int, ...], int] = {}  # for each gram, the place of the token that followed it last
        self._read = GRAM
        self.chances = tuple(Chance() for _ in DEPTHS)

    def find(self, tokens: list[int]) -> tuple[int, Chance] | None:
        """The place of the token that may come next, and how likely such a place is right."""
        known = len(tokens)
        if known < GRAM:
            return None
        before = tokens[self._read - GRAM :]
        grams = zip(before, before[1:], before[2:], strict=False)
        self._after.update(zip(grams, range(self._read, known), strict=False))
        self._read = known
        place = self._after.get(tuple(tokens[known - GRAM :]))
        if place is None:
            return None
        depth = GRAM
        while depth < DEPTHS[-1] and depth < place and tokens[place - 1 - depth] == tokens[known - 1 - depth]:
            depth += 1
        kind = sum(depth >= least for least in DEPTHS) - 1
        return place, self.chances[kind]


class Guesses:
    """What is known of the guesses at one answer's next tokens. Owned by the engine thread."""

    __slots__ = ("accepted", "chance", "drafted", "lookup")

    def __init__(self) -> None:
        self.lookup = Lookup()  # repetitions in the text
        self.chance: Chance | None = None  # how often guesses of the draft's kind were right
        self.drafted = self.accepted = 0  # tokens of all drafts, and those that were right

    def count(self, known: int, drafted: int, right: int) -> None:
        """A draft had so many tokens, of which so many were right; now so many are known."""
        self.drafted += drafted
        self.accepted += right
        if self.chance is not None:
            self.chance.count(known, right, min(right + 1, drafted))


def follow(tokens: list[int], place: int, count: int) -> list[int]:
    """The tokens from a place on; where the text ends before so many, they begin again at that place."""
    period = len(tokens) - place
    return tokens[place : place + count] if count <= period else [tokens[place + i % period] for i in range(count)]
