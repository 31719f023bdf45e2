"""The client: asks a server over HTTP as any program would, and notes when each piece of an answer came.

It speaks OpenAI's routes, which servers of every maker have. What comes back is not trusted: bodies are bounded, times
are our own, and counts are only what the server says.
"""

from __future__ import annotations

import json
import time
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field
from itertools import pairwise
from typing import Any
from urllib.parse import urlsplit

from woolly.errors import RequestError, printable
from woolly.io.http import Response, Terms, ask

MOST = 64 << 20  # bytes of one answer
PIECE = 1 << 16
NOTICED_S = 0.05  # a shorter pause means nothing: a busy machine makes such pauses, too


class Unreachable(Exception):
    """The server did not answer, or broke off."""


@dataclass(frozen=True, slots=True)
class Answer:
    """A streamed answer. Times are seconds since the request was sent; pieces: (time, text)."""

    pieces: tuple[tuple[float, str], ...] = ()
    seconds: float = 0.0
    prompt_tokens: int | None = None  # as the server says, like the next two fields
    completion_tokens: int | None = None
    cached_tokens: int | None = None
    reason: str = ""
    error: str = ""

    @property
    def text(self) -> str:
        return "".join(text for _, text in self.pieces)

    @property
    def ok(self) -> bool:
        return not self.error and bool(self.pieces) and self.reason in ("stop", "length")

    @property
    def first_s(self) -> float:
        return self.pieces[0][0] if self.pieces else self.seconds

    @property
    def gaps_s(self) -> tuple[float, ...]:
        """Seconds between two pieces."""
        return tuple(after - before for (before, _), (after, _) in pairwise(self.pieces))

    @property
    def silence(self) -> float:
        """The longest time without a piece, as a share of the whole; 0 below NOTICED_S."""
        if self.seconds <= 0:
            return 1.0
        return self.longest_s / self.seconds if self.longest_s >= NOTICED_S else 0.0

    @property
    def longest_s(self) -> float:
        """The longest time without a piece."""
        return max((self.first_s, *self.gaps_s))

    def rate(self, tokens: int) -> float:
        """Tokens a second after the first piece; over the whole time where the text came in one burst."""
        span = self.pieces[-1][0] - self.pieces[0][0] if self.pieces else 0.0
        streams = span > 0 and self.longest_s <= 0.5 * self.seconds
        return (tokens - 1) / span if streams else tokens / max(self.seconds, 1e-9)


@dataclass(frozen=True, slots=True)
class Client:
    """A server at a URL. model: the name that requests give it; key: sent as a bearer token."""

    url: str
    key: str = ""
    timeout_s: float = 300.0
    model: str = ""
    headers: Mapping[str, str] = field(default_factory=dict)

    def ask(
        self,
        method: str,
        path: str,
        body: object = None,
        *,
        headers: Mapping[str, str] | None = None,
        timeout_s: float = 0,
    ) -> tuple[int, Any]:
        """Status and body, which is read as JSON where it is."""
        with self._answer(method, path, body, headers or {}, timeout_s or self.timeout_s) as answer:
            data = answer.read(MOST)
            return answer.status, _json(data)

    def complete(self, prompt: str, **fields: object) -> Answer:
        """A text continued, streamed."""
        return self.stream("/v1/completions", {"prompt": prompt, **fields})

    def chat(self, messages: list[dict[str, str]], **fields: object) -> Answer:
        """A chat answered, streamed."""
        return self.stream("/v1/chat/completions", {"messages": messages, **fields})

    def stream(self, path: str, fields: Mapping[str, object]) -> Answer:
        """Any streaming route of OpenAI's shape; a failure becomes the answer's `error`."""
        body = {"model": self.model, "stream": True, "stream_options": {"include_usage": True}, **fields}
        sent = time.perf_counter()
        try:
            with self._answer("POST", path, body, {}, self.timeout_s) as answer:
                if answer.status != 200:
                    body_text = printable(answer.read(4096).decode("utf-8", "replace"), 300)
                    return Answer(seconds=time.perf_counter() - sent, error=f"status {answer.status}: {body_text}")
                return _read(answer, sent, self.timeout_s)
        except Unreachable as error:
            return Answer(seconds=time.perf_counter() - sent, error=str(error))

    @contextmanager
    def _answer(
        self, method: str, path: str, body: object, headers: Mapping[str, str], timeout_s: float
    ) -> Iterator[Response]:
        """An answer of any status; every failure is raised as Unreachable."""
        data = None if body is None else json.dumps(body).encode()
        named = {"Content-Type": "application/json", **self.headers, **headers}
        if self.key:
            named["Authorization"] = f"Bearer {self.key}"
        try:
            answer = ask(method, self.url.rstrip("/") + path, data, named, terms=Terms(timeout_s, timeout_s))
        except OSError as error:
            raise Unreachable(f"no answer: {printable(error, 200)}") from None
        try:
            with answer:
                yield answer
        except (OSError, ValueError) as error:
            raise Unreachable(f"the answer broke off: {printable(error, 200)}") from None


def check_url(url: str) -> str:
    """A URL of a server, without a slash at its end."""
    try:
        where = urlsplit(url)
        right = where.scheme in ("http", "https") and bool(where.hostname) and where.port != 0
    except ValueError:
        right = False
    if not right:
        raise RequestError(
            f"'{printable(url)}' is no address of a server", suggestion="as in http://127.0.0.1:8080", param="--url"
        )
    return url.rstrip("/")


def _read(answer: Response, sent: float, timeout_s: float) -> Answer:
    """The events of a stream, with the time at which each came."""
    pieces: list[tuple[float, str]] = []
    fields: dict[str, Any] = {}
    for at, event in _events(answer, sent, timeout_s):
        if "error" in event:
            fields["error"] = printable(json.dumps(event["error"]), 300)
        usage, choices = event.get("usage"), event.get("choices")
        if isinstance(usage, dict):
            details = usage.get("prompt_tokens_details")
            fields |= {
                "prompt_tokens": _count(usage.get("prompt_tokens")),
                "completion_tokens": _count(usage.get("completion_tokens")),
                "cached_tokens": _count(details.get("cached_tokens")) if isinstance(details, dict) else None,
            }
        for choice in choices if isinstance(choices, list) else ():
            if not isinstance(choice, dict):
                continue
            delta = choice.get("delta")
            text = choice.get("text") or (delta.get("content") if isinstance(delta, dict) else "")
            if isinstance(text, str) and text:
                pieces.append((at, text))
            fields["reason"] = str(choice.get("finish_reason") or fields.get("reason", ""))
    return Answer(tuple(pieces), time.perf_counter() - sent, **fields)


def _events(answer: Response, sent: float, timeout_s: float) -> Iterator[tuple[float, dict[str, Any]]]:
    rest, size = b"", 0
    while data := answer.read1(PIECE):
        at = time.perf_counter() - sent
        size += len(data)
        if size > MOST or at > timeout_s:
            raise ValueError("it does not end")
        *lines, rest = (rest + data).split(b"\n")
        for line in lines:
            if line.startswith(b"data:"):
                event = _json(line[5:].strip())
                if isinstance(event, dict):
                    yield at, event


def _json(data: bytes) -> Any:
    try:
        return json.loads(data)
    except (ValueError, RecursionError):
        return data.decode("utf-8", "replace")


def _count(value: object) -> int | None:
    return value if isinstance(value, int) and not isinstance(value, bool) else None
