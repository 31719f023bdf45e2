"""Where the parser of HTTP has to stop, so that it never reads a byte of the next request before its turn.

Headers end with an empty line, and so does a body in chunks; other bodies have a length. A piece ends at the first
empty line, or where the body does. Inside of a body in chunks an empty line may be content: then the piece is only
shorter than it might be. Where a length does not tell how much work the bytes are, a piece is short in any case.
"""

from __future__ import annotations

SLICE = 1 << 10  # bytes of headers, or of a body in chunks, in one piece: of the smallest chunks, 150
_END = b"\r\n\r\n"


class Pieces:
    def __init__(self) -> None:
        self._length = 0  # bytes that are missing of a body whose length was announced
        self._tail = b""  # the last bytes before these, where no piece ended: an empty line may come in two parts

    def begin(self, length: int = 0) -> None:
        """Headers begin, or a body: of this length, or in chunks."""
        self._length, self._tail = length, b""

    def end(self, data: bytes, at: int) -> int:
        """The end of the piece of these bytes that begins here."""
        if self._length:
            size = min(self._length, len(data) - at)
            self._length -= size
            return at + size
        tail, self._tail = self._tail, b""
        border = (tail + data[at : at + 3]).find(_END) if tail else -1
        if border >= 0:
            return at + border + len(_END) - len(tail)
        end = min(at + SLICE, len(data))
        empty_line = data.find(_END, at, end)
        if empty_line >= 0:
            return empty_line + len(_END)
        self._tail = (tail + data[max(at, end - 3) : end])[-3:]
        return end
