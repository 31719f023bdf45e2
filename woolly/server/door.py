"""Doors: what a route does, without a word about HTTP.

`Say` answers with a model: the body becomes an `Asked`, the events become a body or frames. `Ask` answers with facts.
A `Dialect` is a table of doors and the shape of its errors. An alias is one more row with the same functions.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Mapping
from dataclasses import dataclass, field
from typing import Any, Literal, TypeAlias

from woolly.errors import WoollyError
from woolly.request import End, Prompt, Reason, Request, Text, Timings, Usage

Access: TypeAlias = Literal["open", "anonymous", "key"]
"""Who may enter: anybody; whoever may be anonymous, or has a key; once there are keys, only who has one."""


@dataclass(frozen=True, slots=True)
class Asked:
    """What a body asks for. The requests are answered side by side, in this order."""

    requests: tuple[Request, ...]
    model: str = ""
    stream: bool = False
    notes: tuple[str, ...] = ()  # fields that were sent and had no effect
    about: Any = None  # what the dialect itself needs to write the answer


@dataclass(frozen=True, slots=True)
class Head:
    """What all pieces of one answer share."""

    id: str
    created: int
    model: str


@dataclass(frozen=True, slots=True)
class Whole:
    """One finished answer."""

    text: str
    tokens: tuple[int, ...]
    pieces: tuple[Text, ...]
    reason: Reason
    usage: Usage
    timings: Timings
    seed: int
    prompt: Prompt | None = None


def _no_prompt(_asked: Asked, _head: Head, _index: int, _prompt: Prompt) -> bytes:
    return b""


@dataclass(frozen=True, slots=True)
class Say:
    """Generation. `read` raises RequestError; `begin`, `prompt`, `piece` and `end` give the bytes of a stream."""

    path: str
    read: Callable[[Mapping[str, Any], Mapping[str, str]], Asked]
    whole: Callable[[Asked, Head, list[Whole]], object]
    begin: Callable[[Asked, Head], bytes]
    piece: Callable[[Asked, Head, int, Text], bytes]
    end: Callable[[Asked, Head, list[End]], bytes]
    finish: Callable[[Asked, Head, int, End], bytes]
    prefix: str  # of the answer's id
    media_type: str = "text/event-stream"
    method: str = "POST"
    access: Access = "anonymous"
    prompt: Callable[[Asked, Head, int, Prompt], bytes] = _no_prompt


@dataclass(frozen=True, slots=True)
class Call:
    """What an Ask is given: the body, the parameters of the path, the headers in lower case."""

    body: Mapping[str, Any]
    path: Mapping[str, str]
    headers: Mapping[str, str]


@dataclass(frozen=True, slots=True)
class Reply:
    """What an Ask answers: a status, and a body that becomes JSON; text and bytes are sent as they are."""

    body: object
    status: int = 200
    media_type: str = "application/json"
    headers: Mapping[str, str] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class Ask:
    """Facts and orders. `call` is given the app; `failed` shapes an error where the dialect's own is not enough."""

    method: str
    path: str
    call: Callable[[Any, Call], Awaitable[Reply]]
    access: Access = "anonymous"
    failed: Callable[[WoollyError, str], Reply] | None = None


Door: TypeAlias = Say | Ask


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
