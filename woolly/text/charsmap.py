"""The table of characters that a `t5` file brings: sequences of characters, and what each becomes.

    | u32 size | trie, size bytes | replacements, UTF-8, a zero byte behind each |

The trie is a double array of u32 units: a unit's child for byte b is at (its place ^ its offset ^ b) and has b as its
label; a unit with a leaf has it at (its place ^ its offset): where the replacement begins. At each position of a text
the longest sequence counts. What is in the file may be wrong on purpose, so a place outside leads nowhere.
"""

from __future__ import annotations

from collections.abc import Callable

from woolly.errors import FileError

KEY = "tokenizer.ggml.precompiled_charsmap"
_LONGEST = 64  # bytes of a sequence: a trie may lead round in circles
_LEAF, _LABEL, _VALUE = 1 << 8, 0x800000FF, 0x7FFFFFFF


class Charsmap:
    """Looks up sequences."""

    def __init__(self, data: bytes) -> None:
        size = int.from_bytes(data[:4], "little")
        if len(data) < 4 or size % 4 or not 0 < size <= len(data) - 4:
            raise FileError(f"{KEY} has {len(data):,} bytes, which are no table", key=KEY)
        self._units = memoryview(data)[4 : 4 + size].cast("I").tolist()
        self._texts = data[4 + size :]

    def longest(self, data: bytes, at: int) -> tuple[int, bytes]:
        """The length of the longest sequence that begins here, 0 where none does, and what it becomes."""
        length, found, _ = self._walk(data, at)
        return length, self._text(found) if length else b""

    def goes_on(self, data: bytes) -> bool:
        """Whether some sequence begins with all these bytes."""
        return self._walk(data, 0)[2] == len(data)

    def _walk(self, data: bytes, at: int) -> tuple[int, int, int]:
        """Length and replacement of the longest sequence, and how many bytes lead somewhere."""
        units, count = self._units, len(self._units)
        place, length, found = _inner(0, units[0]), 0, -1
        most = min(len(data), at + _LONGEST)
        for end in range(at, most):
            place ^= data[end]
            if place >= count or units[place] & _LABEL != data[end]:
                return length, found, end - at
            unit = units[place]
            place = _inner(place, unit)
            if unit & _LEAF and place < count:
                length, found = end + 1 - at, units[place] & _VALUE
        return length, found, most - at

    def _text(self, begin: int) -> bytes:
        end = self._texts.find(b"\0", begin)
        return self._texts[begin:end] if end >= 0 else b""


def _inner(place: int, unit: int) -> int:
    return int(place ^ ((unit >> 10) << ((unit & 1 << 9) >> 6)))


def replacing(data: bytes) -> Callable[[str], str]:
    """What the table makes of a text: some microseconds a character, but nearly nothing for ASCII."""
    table = Charsmap(data)
    letters = [bytes([code]) for code in range(128)]
    found = [table.longest(letter, 0) for letter in letters]
    alone = {code: made.decode("utf-8", "replace") for code, (length, made) in enumerate(found) if length}
    pairs = any(table.goes_on(a + b) for a in letters for b in letters)

    def replace(text: str) -> str:
        if text.isascii() and not pairs:
            return text.translate(alone)
        given, made, at = text.encode(), bytearray(), 0
        while at < len(given):
            length, found = table.longest(given, at)
            if not length:
                length, found = 1, given[at : at + 1]  # of a character that stays all bytes do
            made += found
            at += length
        return made.decode("utf-8", "replace")

    return replace
