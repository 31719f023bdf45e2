"""What goes over a WebSocket: the messages that ask for an answer, and the frames of that answer.

Three ways to ask, as clients of the older documents do: `generate` and `chat` with an id, a bare prompt, and `Generate`
with a capital letter. A `FrameStyle` is how the frames look; a message is read as a body of Woolly's own routes.
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
from woolly.server.dialects.base.shapes import Count, Number, Shape
from woolly.server.http.errors import kind_of
from woolly.server.http.framing import Framing
from woolly.server.routes import Dialect, Events, Generation, Head, Job

Id = str | int | float
MESSAGES = Framing("application/json", msgspec.json.Encoder().encode, lambda schema: schema)


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
class StreamProgress:
    """The state of an answer while it streams, from which its last frame is made."""

    id: Id | None
    begun_s: float = field(default_factory=time.monotonic)
    text: list[str] = field(default_factory=list)
    tokens: int = 0

    @property
    def ms(self) -> float:
        return round((time.monotonic() - self.begun_s) * 1e3, 3)


@dataclass(frozen=True, slots=True)
class FrameStyle:
    """How the frames of an answer look: a piece of its text, its end by a reason, an error."""

    piece: Callable[[StreamProgress, str], Struct]
    end: Callable[[StreamProgress, str], Struct]
    error: Callable[[StreamProgress, WoollyError], Struct]


def _complete(progress: StreamProgress, reason: str) -> Struct:
    return CompleteFrame(
        request_id=UNSET if progress.id is None else progress.id,
        text="".join(progress.text),
        tokens_generated=progress.tokens,
        generation_time_ms=progress.ms,
        finish_reason=reason,
    )


def refused(error: WoollyError, id_: Id | None = None) -> ErrorFrame:
    fault = Fault(message=str(error), code=kind_of(error).status)
    return ErrorFrame(request_id=UNSET if id_ is None else id_, error=fault, timestamp=now())


WITH_ID = FrameStyle(
    lambda progress, text: TokenFrame(
        request_id=0 if progress.id is None else progress.id, token=text, index=len(progress.text), timestamp=now()
    ),
    _complete,
    lambda progress, error: refused(error, progress.id),
)
BARE = FrameStyle(lambda progress, text: ContentFrame(content=text), _complete, lambda progress, error: refused(error))
CAPITAL = FrameStyle(
    lambda progress, text: CapitalToken(text=text),
    lambda progress, reason: CapitalComplete(tokens_generated=progress.tokens, time_ms=progress.ms),
    lambda progress, error: CapitalError(code=error.code, message=str(error)),
)


def generation_of(
    message: Mapping[str, Any], complete: Generation, chat: Generation
) -> tuple[FrameStyle, Generation, Mapping[str, Any]] | None:
    """The style, the route and the body of a message that asks for an answer; None for other messages. complete, chat:
    the routes of completions and of chats."""
    kind = message.get("type")
    if kind in ("generate", "chat"):
        what = "prompt" if kind == "generate" else "messages"
        body = {**_options(message, "config"), what: message.get(what)}
        return WITH_ID, complete if kind == "generate" else chat, _body(body, message)
    if kind == "Generate":
        return CAPITAL, complete, _body({**_options(message, "options"), "prompt": message.get("prompt")}, message)
    if kind is None and "prompt" in message:
        return BARE, complete, _body(dict(message), message)
    return None


def _options(message: Mapping[str, Any], name: str) -> Mapping[str, Any]:
    options = message.get(name)
    return options if isinstance(options, Mapping) else {}


def _body(body: dict[str, Any], message: Mapping[str, Any]) -> Mapping[str, Any]:
    """The body for a route: with the model and the session of the message, without fields that are null."""
    more = {name: message[name] for name in ("model", "session_id") if name in message}
    return {name: value for name, value in {**body, **more}.items() if value is not None}


def framed(style: FrameStyle, route: Generation, progress: StreamProgress) -> tuple[Dialect, Generation]:
    """The dialect and the route that stream an answer as frames of this style."""

    async def frames(_job: Job, _head: Head, events: Events) -> AsyncGenerator[Struct, None]:
        async for _, event in events:
            if isinstance(event, Text):
                progress.tokens += len(event.tokens)
                if event.text:
                    yield style.piece(progress, event.text)
                    progress.text.append(event.text)
            elif isinstance(event, End):
                progress.tokens = event.usage.completion_tokens
                yield style.end(progress, event.reason)

    return (
        Dialect(name="socket", routes=(), error=lambda error, _id: style.error(progress, error), prefixes=()),
        Generation(route.path, route.read, None, frames, route.body, route.tag, route.prefix, MESSAGES),
    )
