"""The table of characters that a `t5` file brings: sequences of characters, and what each becomes.

    | u32 size | trie, size bytes | replacements, UTF-8, a zero byte behind each |

The trie is a double array of u32 units: a unit's child for byte b is at (its place ^ its offset ^ b) and has b as its
label; a unit with a leaf has it at (its place ^ its offset): where the replacement begins. At each position of a text
the longest sequence counts. A file may be hostile: a place outside of the trie has no child.
"""

from __future__ import annotations

from collections.abc import Callable

from woolly.errors import FileError

KEY = "tokenizer.ggml.precompiled_charsmap"
_LONGEST = 64  # bytes of a sequence: a hostile trie may have a cycle
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
        length, place, _ = self._walk(data, at)
        return length, self._text(place) if length else b""

    def goes_on(self, data: bytes) -> bool:
        """Whether some sequence begins with all these bytes."""
        return self._walk(data, 0)[2] == len(data)

    def _walk(self, data: bytes, at: int) -> tuple[int, int, int]:
        """The longest sequence's length and place of its replacement, and how many bytes the trie could follow."""
        units, count = self._units, len(self._units)
        place, length, replacement = _inner(0, units[0]), 0, -1
        most = min(len(data), at + _LONGEST)
        for end in range(at, most):
            place ^= data[end]
            if place >= count or units[place] & _LABEL != data[end]:
                return length, replacement, end - at
            unit = units[place]
            place = _inner(place, unit)
            if unit & _LEAF and place < count:
                length, replacement = end + 1 - at, units[place] & _VALUE
        return length, replacement, most - at

    def _text(self, begin: int) -> bytes:
        end = self._texts.find(b"\0", begin)
        return self._texts[begin:end] if end >= 0 else b""


def _inner(place: int, unit: int) -> int:
    return int(place ^ ((unit >> 10) << ((unit & 1 << 9) >> 6)))


def replacing(data: bytes) -> Callable[[str], str]:
    """The function that applies the table to a text: some microseconds a character, but nearly nothing for ASCII."""
    table = Charsmap(data)
    letters = [bytes([code]) for code in range(128)]
    replacements = [table.longest(letter, 0) for letter in letters]
    alone = {code: new.decode("utf-8", "replace") for code, (length, new) in enumerate(replacements) if length}
    pairs = any(table.goes_on(a + b) for a in letters for b in letters)

    def replace(text: str) -> str:
        if text.isascii() and not pairs:
            return text.translate(alone)
        data, result, at = text.encode(), bytearray(), 0
        while at < len(data):
            length, new = table.longest(data, at)
            if not length:
                length, new = (
                    1,
                    data[at : at + 1],
                )  # no sequence begins here: the byte stays, and so do the others of its character
            result += new
            at += length
        return result.decode("utf-8", "replace")

    return replace
