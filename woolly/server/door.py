"""Doors: what a route does, without a word about HTTP.

`Generation` answers with a model: `read` makes a `Job` of the body, `whole` or `frames` make Structs of what comes.
`Query` answers with facts. A `Dialect` is a table of doors and the shape of its errors. An alias is one more row with
the same functions.
"""

from __future__ import annotations

from collections.abc import AsyncGenerator, AsyncIterator, Awaitable, Callable, Mapping
from dataclasses import dataclass, field
from typing import Any, Literal, TypeAlias

from msgspec import Struct

from woolly.errors import WoollyError
from woolly.request import Completion, Event, Request
from woolly.server.frames import EVENTS, Framing

Access: TypeAlias = Literal["open", "anonymous", "key"]
"""Who may enter: anybody; whoever may be anonymous, or has a key; once there are keys, only who has one."""


@dataclass(frozen=True, slots=True)
class Job:
    """What a body asks for. The requests are answered side by side, in this order."""

    requests: tuple[Request, ...]
    fields: Any  # the body as the dialect's Struct, for whoever writes the answer
    model: str = ""
    stream: bool = False
    notes: tuple[str, ...] = ()  # fields that were sent and had no effect


@dataclass(frozen=True, slots=True)
class Head:
    """What all pieces of one answer share."""

    id: str
    created: int
    model: str


Events: TypeAlias = AsyncIterator[tuple[int, Event]]
"""The events of a job, each with the index of its request: pieces as they come, and one `End` for each request."""


@dataclass(frozen=True, slots=True)
class Generation:
    """Answers of a model. `read` raises RequestError; `frames` gives the Structs of a stream, framed by `framing`."""

    path: str
    read: Callable[[Mapping[str, Any], Mapping[str, str]], Job]
    whole: Callable[[Job, Head, list[Completion]], Struct]
    frames: Callable[[Job, Head, Events], AsyncGenerator[Struct, None]]
    prefix: str  # of the answer's id
    framing: Framing = EVENTS
    method: str = "POST"
    access: Access = "anonymous"


@dataclass(frozen=True, slots=True)
class Call:
    """What a Query is given: the body, the parameters of the path, the headers in lower case."""

    body: Mapping[str, Any]
    path: Mapping[str, str]
    headers: Mapping[str, str]


@dataclass(frozen=True, slots=True)
class Reply:
    """What a Query answers: a status, and a body that becomes JSON; text and bytes are sent as they are."""

    body: object
    status: int = 200
    media_type: str = "application/json"
    headers: Mapping[str, str] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class Query:
    """Facts and orders. `call` is given the app; `failed` shapes an error where the dialect's own is not enough."""

    method: str
    path: str
    call: Callable[[Any, Call], Awaitable[Reply]]
    access: Access = "anonymous"
    failed: Callable[[WoollyError, str], Reply] | None = None


Door: TypeAlias = Generation | Query


@dataclass(frozen=True, slots=True)
class Dialect:
    """A way of speaking. `error` is given the request's id too; unknown routes under `prefixes` are its own."""

    name: str
    doors: tuple[Door, ...]
    error: Callable[[WoollyError, str], Reply]
    prefixes: tuple[str, ...]


def is_ole(headers: Mapping[str, str]) -> bool:
    """Whether the desktop client Ole asks: it says so in a header of its own, or in its name."""
    return "x-ole-client" in headers or "Ole" in headers.get("user-agent", "")
