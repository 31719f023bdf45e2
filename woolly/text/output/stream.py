"""Tokens one by one to text that may be sent.

What holds:
- Pieces are whole characters; together they are `decode` of all tokens, up to the first stop.
- Nothing of a stop is ever sent. The stop that begins first counts, and where it ends in the tokens does not matter.
- Text is held back only while it may still be part of a stop, so never more of it than the longest stop has.
"""

from __future__ import annotations

import codecs
from collections.abc import Container, Iterable

from woolly.errors import RequestError
from woolly.text.tokenizer.tokenizer import Tokenizer, check_text


class TextStream:
    """The text of one answer. `stopped` turns true when a stop was found, `stopped_by`: further tokens change nothing.

    stop: the answer ends before the first of these texts. One that is the text of a special token also stops at that
        token, which has no text of its own.
    after: the token before the answer, None if there is none. Where the tokenizer puts a space before a first text, the
        space is taken away again at the beginning, or after a special token, but not in the middle of a text.
    shown: control tokens whose text is sent all the same: marks that an `OutputReader` looks for.
    exact: no space is taken away, because a grammar decides the text.
    indent: the text ends at a line, behind its first, that begins with fewer blanks; an empty line is such a line.
    """

    def __init__(
        self,
        tokenizer: Tokenizer,
        stop: Iterable[str] = (),
        *,
        after: int | None = None,
        shown: Container[int] = (),
        exact: bool = False,
        indent: int = 0,
    ) -> None:
        self._tokenizer = tokenizer
        self._decoder = codecs.getincrementaldecoder("utf-8")("replace")
        self._matchers = [_Matcher(text) for text in dict.fromkeys(_checked(stop))]
        self._stop_ids = {i for m in self._matchers if (i := tokenizer.id_of(m.text)) is not None}
        self._shown = shown
        self._exact = exact
        self._indent = indent
        self._blanks: int | None = None  # at the beginning of a line, as long as there is nothing else in it
        self._begins = after is None or tokenizer.is_special(after)
        self._pending = ""  # not sent yet
        self._count = 0  # characters of the answer up to the end of _pending
        self._stop_at: int | None = None  # where the first stop so far begins, counted like _count
        self.stopped = False
        self.stopped_by = ""

    def feed(self, token: int) -> str:
        """Takes one token; returns the text that may be sent now. Once a token."""
        if self.stopped:
            return ""
        if token in self._stop_ids:
            text = self.flush()
            if not self.stopped:
                self.stopped, self.stopped_by = True, self._tokenizer.text_of(token)
            return text
        data, self._begins = self._tokenizer.piece(token, self._begins and not self._exact)
        if token in self._shown:
            data = self._tokenizer.text_of(token).encode()
        text = self._decoder.decode(data)
        if not self._indent or (end := self._outdent(text)) is None:
            return self._take(text, last=False)
        text = self._take(text[:end], last=True)
        self.stopped = True
        return text

    def flush(self) -> str:
        """The end of the answer: what was held back. An unfinished character becomes U+FFFD."""
        return "" if self.stopped else self._take(self._decoder.decode(b"", True), last=True)

    def _outdent(self, text: str) -> int | None:
        """Where a line with too few blanks has its first other character, if it does."""
        for at, character in enumerate(text):
            if self._blanks is not None and character in " \t":
                self._blanks += 1
            elif self._blanks is not None and self._blanks < self._indent:
                return at
            else:
                self._blanks = 0 if character == "\n" else None
        return None

    def _take(self, text: str, *, last: bool) -> str:
        if not self._matchers:
            return text
        first = self._count - len(self._pending)
        self._pending += text
        for i, character in enumerate(text, self._count + 1):
            self._match(character, i)
            if self.stopped:
                break
        self._count += len(text)
        if last and self._stop_at is not None:
            self.stopped = True
        if self.stopped:
            assert self._stop_at is not None
            cut = self._stop_at - first
        elif last:
            cut = len(self._pending)
        else:
            # Held back: text that may become a stop, and all from a found stop on while one that began earlier may end.
            cut = len(self._pending) - max(m.state for m in self._matchers)
            if self._stop_at is not None:
                cut = min(cut, self._stop_at - first)
        sent, self._pending = self._pending[:cut], "" if self.stopped or last else self._pending[cut:]
        return sent

    def _match(self, character: str, end: int) -> None:
        """Match one more character; end: the number of characters up to and with it."""
        for matcher in self._matchers:
            if matcher.step(character):
                begin = end - len(matcher.text)
                if self._stop_at is None or begin < self._stop_at:
                    self._stop_at, self.stopped_by = begin, matcher.text
        if self._stop_at is not None:
            waiting = max(m.state for m in self._matchers)
            self.stopped = end - waiting >= self._stop_at


class _Matcher:
    """Looks for one text, character by character (Knuth, Morris and Pratt): never looks back."""

    __slots__ = ("back", "state", "text")

    def __init__(self, text: str) -> None:
        self.text = text
        self.state = 0  # how many characters of the text the characters so far end with
        self.back = [0] * len(text)  # for each state: the next smaller one to try
        for i in range(1, len(text)):
            k = self.back[i - 1]
            while k and text[i] != text[k]:
                k = self.back[k - 1]
            self.back[i] = k + (text[i] == text[k])

    def step(self, character: str) -> bool:
        """Takes a character; whether the text is complete with it."""
        state = self.state
        while state and self.text[state] != character:
            state = self.back[state - 1]
        state += self.text[state] == character
        complete = state == len(self.text)
        self.state = self.back[-1] if complete else state
        return complete


def _checked(stop: Iterable[str]) -> Iterable[str]:
    for text in [stop] if isinstance(stop, str) else stop:
        check_text(text)
        if not text:
            raise RequestError("a stop text is empty", suggestion="leave it out", param="stop")
        yield text
