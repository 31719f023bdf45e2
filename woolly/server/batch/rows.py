"""The input of a batch: a request a line, as OpenAI has it. All of it is checked before the first row is answered.

    {"custom_id": "1", "method": "POST", "url": "/v1/chat/completions", "body": {"messages": [...]}}

What must hold: a `custom_id` stands once in a file; a row is answered whole and continues no other response, so its
answer depends on the row alone; the file does not change while it is read.
"""

from __future__ import annotations

import hashlib
import itertools
import os
import stat
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, NoReturn

import msgspec

from woolly.config.serving import Serving
from woolly.errors import FileError, NotFoundError, RequestError, printable
from woolly.io.disk import disk_fault, disk_faults
from woolly.limits import LIMITS
from woolly.server.http.body import read_json
from woolly.system import user_path

CHAT, COMPLETIONS, EMBEDDINGS, RESPONSES = ENDPOINTS = (
    "/v1/chat/completions",
    "/v1/completions",
    "/v1/embeddings",
    "/v1/responses",
)
PROMPT = ("model", "tools", "instructions", "messages", "prompt", "input")  # fields that make a prompt, in this order
SEED_BITS = 53  # every reader of JSON keeps such a number


@dataclass(frozen=True, slots=True)
class Terms:
    """What the answers of a job depend on besides its rows.

    seed: gives one to rows that have none. model: answers every row, whatever model the row names. url: the only one
    that rows may have. created: the time in all answers; a job reads no clock.
    """

    seed: int = 0
    model: str = ""
    url: str = ""
    created: int = 0


@dataclass(frozen=True, slots=True)
class BatchRow:
    index: int  # its number among the rows, from 0
    custom_id: str
    url: str
    body: Mapping[str, Any]  # with the model and the seed that the job gives it
    stamp: str  # digest of the row under the job's terms: ids are made of it
    prefix: bytes  # beginning of its prompt; neighbours in this order share pages
    nbytes: int  # bytes of its line

    @property
    def id(self) -> str:
        return f"batch_req_{self.stamp}"

    @property
    def request_id(self) -> str:
        return f"req_{self.stamp}"


@dataclass(frozen=True, slots=True)
class RowRange:
    """Some rows of a file: where the first begins, how many lines and rows are before it, and how many there are."""

    at: int = 0
    lines: int = 0
    index: int = 0
    count: int = 0


class Input:
    """A file of rows, open from its check to the last row, and refused if it changes."""

    def __init__(self, path: Path, terms: Terms, limits: Serving, *, most_bytes: int, most_rows: int) -> None:
        self.name, self.terms = printable(path, 300), terms
        self._limits, self._most_rows = limits, most_rows
        try:
            self.handle = os.open(user_path(path), os.O_RDONLY | os.O_NONBLOCK | os.O_CLOEXEC)
        except FileNotFoundError:
            raise NotFoundError(f"there is no file {self.name}") from None
        except (OSError, ValueError) as error:
            raise disk_fault(f"{self.name} cannot be opened", error) from None
        about = os.fstat(self.handle)
        if not stat.S_ISREG(about.st_mode):
            self._refuse("is no ordinary file", "write the rows into one: they are read twice")
        if about.st_size > most_bytes:
            self._refuse(f"has {about.st_size:,} bytes; at most {most_bytes:,} are read", "split it")
        self._state = _state(about)

    def _refuse(self, what: str, suggestion: str) -> NoReturn:
        self.close()
        raise FileError(f"{self.name} {what}", suggestion=suggestion)

    def close(self) -> None:
        os.close(self.handle)

    def check(self) -> int:
        """Check every row, and count them; raises RequestError with the number of the first wrong line."""
        seen: set[bytes] = set()
        number = index = 0
        for _, number, index, line in self._lines(RowRange()):
            row = self._row(number, index, line)
            key = hashlib.blake2b(row.custom_id.encode(), digest_size=16).digest()
            if key in seen:
                wrong = f"the custom_id '{printable(row.custom_id)}' stands in an earlier row, too"
                raise self._bad(number, wrong, "duplicate_custom_id", "custom_id")
            seen.add(key)
        if not seen:
            raise self._bad(max(number, 1), "there is no row", "empty_file")
        return index + 1

    def rows(self, row_range: RowRange | None = None) -> Iterator[BatchRow]:
        """Every row, in order, or those of a range."""
        lines = self._lines(row_range or RowRange())
        for _, number, index, line in itertools.islice(lines, row_range.count if row_range else None):
            yield self._row(number, index, line)

    def ranges(self, first: int, most: int) -> Iterator[RowRange]:
        """The rows from the first on, in ranges of at most so many."""
        begun: RowRange | None = None
        for at, number, index, _ in self._lines(RowRange()):
            if index < first:
                continue
            if begun is not None and begun.count == most:
                yield begun
                begun = None
            begun = replace(begun, count=begun.count + 1) if begun else RowRange(at, number - 1, index, 1)
        if begun is not None:
            yield begun

    def _lines(self, row_range: RowRange) -> Iterator[tuple[int, int, int, bytes]]:
        """The lines that are not empty, from where a range begins: their offsets, their numbers from 1, and the indices
        of their rows."""
        most, at, number, index = self._limits.max_body_size, row_range.at, row_range.lines, row_range.index
        with disk_faults(f"{self.name} cannot be read"), open(os.dup(self.handle), "rb") as file:
            file.seek(at)  # one walk at a time: duplicates of a handle share the position in the file
            while True:
                line = file.readline(most + 2)
                if _state(os.fstat(self.handle)) != self._state:
                    raise FileError(f"{self.name} was changed while it was read", suggestion="begin anew")
                if not line:
                    return
                begins, at, number = at, at + len(line), number + 1
                line = line.rstrip(b"\r\n")
                if len(line) > most:
                    raise self._bad(number, f"a line has at most {most:,} bytes", "line_too_long")
                if line.strip():
                    if index >= self._most_rows:
                        raise self._bad(number, f"a batch has at most {self._most_rows:,} rows", "too_many_rows")
                    yield begins, number, index, line
                    index += 1

    def _row(self, number: int, index: int, line: bytes) -> BatchRow:
        try:
            fields = read_json(line, self._limits)
        except RequestError as error:
            what = error.message.replace("the body", "the row", 1).replace(" at line 1, column", " at column")
            raise self._bad(number, what, "invalid_json_line") from None
        custom_id, url, body = fields.get("custom_id"), fields.get("url"), fields.get("body")
        if not isinstance(custom_id, str) or not 0 < len(custom_id) <= LIMITS.custom_id:
            wrong = f"custom_id is a text of 1 to {LIMITS.custom_id} characters"
            raise self._bad(number, wrong, "invalid_custom_id", "custom_id")
        if fields.get("method") != "POST":
            raise self._bad(number, "method is POST", "invalid_method", "method")
        if url not in ENDPOINTS or (self.terms.url and url != self.terms.url):
            allowed = self.terms.url or ", ".join(ENDPOINTS)
            raise self._bad(number, f"url is '{printable(url)}'; expected {allowed}", "invalid_url", "url")
        if not isinstance(body, dict):
            raise self._bad(number, "body is an object", "missing_required_parameter", "body")
        if body.get("stream"):
            raise self._bad(number, "a row is answered whole; leave stream out", "invalid_body", "body.stream")
        if body.get("previous_response_id"):
            wrong = "a row cannot go on from another response; send the conversation as its input"
            raise self._bad(number, wrong, "invalid_body", "body.previous_response_id")
        completed = self._completed(custom_id, url, body)
        stamp = hashlib.blake2b(
            b"\0".join((str(self.terms.seed).encode(), self.terms.model.encode(), line)), digest_size=12
        ).hexdigest()
        prefix = msgspec.json.encode([completed.get(name) for name in PROMPT])[: LIMITS.batch_prefix]
        return BatchRow(index, custom_id, url, completed, stamp, prefix, len(line))

    def _completed(self, custom_id: str, url: str, body: Mapping[str, Any]) -> dict[str, Any]:
        """The body with the model and the seed of the job, where the job decides these."""
        completed = {name: value for name, value in body.items() if name != "stream"}
        if self.terms.model:
            completed["model"] = self.terms.model
        if url != EMBEDDINGS and completed.get("seed") is None:
            drawn = hashlib.blake2b(f"{self.terms.seed}\0{custom_id}".encode(), digest_size=8).digest()
            completed["seed"] = int.from_bytes(drawn, "little") >> (64 - SEED_BITS)
        if url == RESPONSES:
            completed["store"] = False  # the store of responses is for conversations
        return completed

    def _bad(self, number: int, what: str, code: str, param: str = "") -> RequestError:
        return RequestError(f"{self.name}, line {number:,}: {what}", code=code, line=number, param=param, reason=what)


def _state(about: os.stat_result) -> tuple[int, int]:
    return about.st_size, about.st_mtime_ns
