"""What goes over a WebSocket: the messages that ask for an answer, and the frames that it becomes.

Three ways to ask, as clients of the founding documents do: `generate` and `chat` with an id, a bare prompt, and
`Generate` with a capital letter. A `Way` is how the frames look; what is asked for is read as on Woolly's own routes.
"""

from __future__ import annotations

import time
from collections.abc import AsyncGenerator, Callable, Mapping
from dataclasses import dataclass, field
from datetime import UTC, datetime
from typing import Any, Literal

import msgspec
from msgspec import UNSET, Struct, UnsetType

from woolly.errors import WoollyError
from woolly.request import End, Text
from woolly.server.dialects import api_v1_generation
from woolly.server.dialects.shapes import Count, Number, Shape
from woolly.server.door import Dialect, Events, Generation, Head, Job
from woolly.server.errors import row
from woolly.server.frames import Framing

Id = str | int | float
MESSAGES = Framing("application/json", msgspec.json.Encoder().encode, lambda made: made)


class TokenFrame(Shape, kw_only=True):
    type: Literal["token"] = "token"
    request_id: Id
    token: str
    index: Count
    timestamp: str


class CompleteFrame(Shape, kw_only=True):
    type: Literal["complete"] = "complete"
    request_id: Id | UnsetType = UNSET
    text: str
    tokens_generated: Count
    generation_time_ms: Number
    finish_reason: str


class ContentFrame(Shape, kw_only=True):
    type: Literal["token"] = "token"
    content: str


class CapitalToken(Shape, kw_only=True):
    type: Literal["Token"] = "Token"
    text: str
    finish_reason: str | None = None


class CapitalComplete(Shape, kw_only=True):
    type: Literal["GenerationComplete"] = "GenerationComplete"
    tokens_generated: Count
    time_ms: Number


class CapitalError(Shape, kw_only=True):
    type: Literal["Error"] = "Error"
    code: str
    message: str


class Fault(Shape):
    message: str
    code: int


class ErrorFrame(Shape, kw_only=True):
    type: Literal["error"] = "error"
    request_id: Id | UnsetType = UNSET
    error: Fault
    timestamp: str


def now() -> str:
    return datetime.now(UTC).isoformat(timespec="milliseconds")


@dataclass(slots=True)
class Said:
    """An answer while it is made: what its last frame tells."""

    id: Id | None
    begun_s: float = field(default_factory=time.monotonic)
    text: list[str] = field(default_factory=list)
    tokens: int = 0

    @property
    def ms(self) -> float:
        return round((time.monotonic() - self.begun_s) * 1e3, 3)


@dataclass(frozen=True, slots=True)
class Way:
    """How the frames of an answer look: a piece of its text, its end by a reason, an error."""

    piece: Callable[[Said, str], Struct]
    end: Callable[[Said, str], Struct]
    error: Callable[[Said, WoollyError], Struct]


def _complete(said: Said, reason: str) -> Struct:
    return CompleteFrame(
        request_id=UNSET if said.id is None else said.id,
        text="".join(said.text),
        tokens_generated=said.tokens,
        generation_time_ms=said.ms,
        finish_reason=reason,
    )


def refused(error: WoollyError, id_: Id | None = None) -> ErrorFrame:
    fault = Fault(message=str(error), code=row(error).status)
    return ErrorFrame(request_id=UNSET if id_ is None else id_, error=fault, timestamp=now())


WITH_ID = Way(
    lambda said, text: TokenFrame(
        request_id=0 if said.id is None else said.id, token=text, index=len(said.text), timestamp=now()
    ),
    _complete,
    lambda said, error: refused(error, said.id),
)
BARE = Way(lambda said, text: ContentFrame(content=text), _complete, lambda said, error: refused(error))
CAPITAL = Way(
    lambda said, text: CapitalToken(text=text),
    lambda said, reason: CapitalComplete(tokens_generated=said.tokens, time_ms=said.ms),
    lambda said, error: CapitalError(code=error.code, message=str(error)),
)


def asked(message: Mapping[str, Any]) -> tuple[Way, Generation, Mapping[str, Any]] | None:
    """The way in which a message asks for an answer, the route that it means, and its body; None: it does not ask."""
    complete, chat = api_v1_generation.COMPLETE, api_v1_generation.CHAT
    kind = message.get("type")
    if kind in ("generate", "chat"):
        what = "prompt" if kind == "generate" else "messages"
        body = {**_options(message, "config"), what: message.get(what)}
        return WITH_ID, complete if kind == "generate" else chat, _whole(body, message)
    if kind == "Generate":
        return CAPITAL, complete, _whole({**_options(message, "options"), "prompt": message.get("prompt")}, message)
    if kind is None and "prompt" in message:
        return BARE, complete, _whole(dict(message), message)
    return None


def _options(message: Mapping[str, Any], name: str) -> Mapping[str, Any]:
    options = message.get(name)
    return options if isinstance(options, Mapping) else {}


def _whole(body: dict[str, Any], message: Mapping[str, Any]) -> Mapping[str, Any]:
    """The body of a route: without null where a field must be there, with the model and the session of the message."""
    more = {name: message[name] for name in ("model", "session_id") if name in message}
    return {name: value for name, value in {**body, **more}.items() if value is not None}


def door(way: Way, route: Generation, said: Said) -> tuple[Dialect, Generation]:
    """The route, answered by frames of this way."""

    async def frames(_job: Job, _head: Head, events: Events) -> AsyncGenerator[Struct, None]:
        async for _, event in events:
            if isinstance(event, Text):
                said.tokens += len(event.tokens)
                if event.text:
                    yield way.piece(said, event.text)
                    said.text.append(event.text)
            elif isinstance(event, End):
                said.tokens = event.usage.completion_tokens
                yield way.end(said, event.reason)

    return (
        Dialect(name="socket", doors=(), error=lambda error, _id: way.error(said, error), prefixes=()),
        Generation(route.path, route.read, None, frames, route.body, route.tag, route.prefix, MESSAGES),
    )
