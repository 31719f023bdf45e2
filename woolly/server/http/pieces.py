"""Where the parser of HTTP has to stop, so that it never reads a byte of the next request before its turn.

Headers end with an empty line, and bodies where their length tells, in one number or chunk by chunk. Where the size of
a chunk is no plain number, the rest of the body is read up to each empty line, because it may be the end: if it is
content, the piece is only shorter than it might be. Where a length does not tell how much work the bytes are, a piece
is short in any case.
"""

from __future__ import annotations

import re

SLICE = 1 << 10  # bytes of headers, or of a body in chunks, in one piece: of the smallest chunks, 150
LINE = 12  # bytes of the line with the size of a chunk, beyond which it is read as any line
_END = b"\r\n\r\n"
_SIZE = re.compile(rb"[0-9A-Fa-f]{1,8}")


class Pieces:
    def __init__(self) -> None:
        self.begin()

    def begin(self, length: int = 0, *, chunked: bool = False) -> None:
        """Headers begin, or a body: of this length, or in chunks."""
        self._length = length  # bytes that are missing of a body whose length was announced, or of a chunk
        self._line: bytes | None = b"" if chunked else None  # of the size of a chunk, as far as it came
        self._tail = b""  # the last bytes before these, where no piece ended: an empty line may come in two parts

    def end(self, data: bytes, at: int) -> int:
        """The end of the piece of these bytes that begins here."""
        if self._line is not None and (end := self._chunks(data, at)) > at:
            return end
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

    def _chunks(self, data: bytes, at: int) -> int:
        """The end of the chunks that begin here, not of the last one."""
        end, most = at, min(at + SLICE, len(data))
        while end < most:
            if self._length:
                size = min(self._length, most - end)
                self._length -= size
                end += size
                continue
            assert self._line is not None
            line = self._line + data[end : end + LINE - len(self._line)]
            digits, line_end, _ = line.partition(b"\r\n")
            if not line_end and len(line) < LINE:
                self._line = line
                return len(data)
            size = int(digits, 16) if line_end and _SIZE.fullmatch(digits) else 0
            if not size:  # of the last chunk, or what this does not read
                self._tail, self._line = self._line[-3:], None
                return end
            end += len(digits) + 2 - len(self._line)
            self._line, self._length = b"", size + 2
        return end
