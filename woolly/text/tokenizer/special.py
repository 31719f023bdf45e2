"""Finding special tokens in text.

The texts of special tokens are looked for before any word is cut, leftmost first and the longest of several; what lies
between them is ordinary text. The time grows with the text alone, not with the number of tokens.
"""

from __future__ import annotations

from collections.abc import Container, Iterable, Sequence

from woolly.text.tokenizer.library import AddedToken, Library, models, no_panic


class Splitter:
    """Finds the texts of a set of tokens; the set is fixed when it is made."""

    __slots__ = ("_ids", "_library")

    def __init__(self, tokens: Iterable[tuple[str, int]], greedy: Container[int] = ()) -> None:
        """tokens: (text, id) pairs, no text twice. greedy: ids that take the white space after them with them."""
        pairs = list(tokens)
        self._ids = [i for _, i in pairs]
        # The empty model has no words, so the ids that the library gives are indices of this list. A whole text is one
        # word of that model: a cache of words would keep ten thousand texts.
        self._library = Library(models.BPE(cache_capacity=0))
        self._library.add_tokens([AddedToken(text, normalized=False, rstrip=i in greedy) for text, i in pairs])

    def __len__(self) -> int:
        return len(self._ids)

    def places(self, texts: Sequence[str]) -> list[list[tuple[int, int, int]]]:
        """For each text the (begin, end, id) of every token in it, in order; places count characters."""
        if not self._ids:
            return [[] for _ in texts]
        with no_panic(texts):
            encodings = self._library.encode_batch(texts, add_special_tokens=False)
        return [
            [(begin, end, self._ids[i]) for i, (begin, end) in zip(f.ids, f.offsets, strict=True)] for f in encodings
        ]

    def split(self, text: str) -> list[str | int]:
        """The text as pieces: ids of tokens, and the ordinary text between them."""
        pieces: list[str | int] = []
        at = 0
        for begin, end, token in self.places([text])[0]:
            if begin > at:
                pieces.append(text[at:begin])
            pieces.append(token)
            at = end
        if at < len(text):
            pieces.append(text[at:])
        return pieces
