"""Doors: what a route does, without a word about HTTP.

`Generation` answers with a model: `read` makes a `Job` of the body, `whole` or `frames` make Structs of what comes.
`Query` answers with facts. A `Dialect` is a table of doors and the shape of its errors. An alias is one more row with
the same functions. What a door answers is the return type of its functions, and its summary is the docstring of `read`
or `call`: /openapi.json is made from them.
"""

from __future__ import annotations

from collections.abc import AsyncGenerator, AsyncIterator, Awaitable, Callable, Mapping
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any, Generic, Literal, TypeAlias, TypedDict, TypeVar

from msgspec import Struct

from woolly.errors import WoollyError
from woolly.limits import Serving
from woolly.request import Completion, Event, Request
from woolly.server.frames import EVENTS, LINES, Framing
from woolly.server.remote import Remote, RemoteEvent

Body: TypeAlias = Mapping[str, Any]
Access: TypeAlias = Literal["open", "anonymous", "key"]
"""Who may enter: anybody; whoever may be anonymous, or has a key; once there are keys, only who has one."""


@dataclass(frozen=True, slots=True)
class Caller:
    """Who asks, and how: all that an answer needs to know of it, whatever carried the request here. Times are those of
    the event loop's clock."""

    name: str  # of a key, or an address; the line is fair between names
    salt: bytes  # keeps what was computed for one key from others
    begun_s: float
    deadline_s: float
    ole: bool = False
    strict: bool = False  # a field that is not known is refused
    digest: bool = False  # the answer is to tell the digest of the model's file
    trusted: bool = True  # may do what takes a key where there are keys
    seen: int | None = None  # events of this answer that it has already; None: it would not go on after a break
    seed: int | None = None  # for an answer whose body names none
    row: bool = False  # of a batch: everybody else comes first


@dataclass(frozen=True, slots=True)
class Job:
    """What a body asks for. The requests are answered side by side, in this order."""

    requests: tuple[Request, ...]
    fields: Any  # the body as the dialect's Struct, for whoever writes the answer
    model: str = ""
    stream: bool = False
    notes: tuple[str, ...] = ()  # fields that were sent and had no effect
    session: str = ""  # goes on with this one
    given: Any = None  # the Struct of the sampling parameters that were sent, where it is not `fields`
    context: int = 0  # tokens of context that the model must have
    keep_s: float | None = None  # how long its model stays loaded afterwards; -1 is for ever
    unload: bool = False  # a job without requests only loads its model, or unloads it
    load_s: float = 0.0  # until the model was there
    remote: Remote | None = None  # what it wants of MCP servers


class Head(TypedDict):
    """What all pieces of one answer share."""

    id: str
    created: int
    model: str


Events: TypeAlias = AsyncIterator[tuple[int, Event | RemoteEvent]]
"""The events of a job, each with the index of its request: pieces as they come, and one `End` for each request."""


@dataclass(frozen=True, slots=True)
class Memory:
    """What a door remembers between requests. `recall` puts what a body refers to in its place, before it is read;
    `keep` is given what was answered: the whole, or each piece of a stream."""

    recall: Callable[[Any, Caller, Body], Body]
    keep: Callable[[Any, Caller, Job, Struct], None]


@dataclass(frozen=True, slots=True)
class Generation:
    """Answers of a model. `read` raises RequestError; `frames` gives the Structs of a stream, framed by `framing`.

    accepts: which bodies are for this door, where a path has several; the first that accepts one has it.
    told: codes of errors that a stream tells in its own way, also where nothing was sent yet.
    last: the whole answer that the last piece of a stream holds, where the server calls tools itself.
    """

    path: str
    read: Callable[[Body, Mapping[str, str], Serving], Job]
    whole: Callable[[Job, Head, list[Completion]], Struct] | None  # None: always a stream
    frames: Callable[[Job, Head, Events], AsyncGenerator[Struct, None]]
    body: type[Struct]
    tag: str
    prefix: str  # of the answer's id
    framing: Framing = EVENTS
    memory: Memory | None = None
    told: frozenset[str] = frozenset()
    last: Callable[[Any], Struct] | None = None
    without: frozenset[str] = frozenset()  # fields of the body that are refused here
    accepts: Callable[[Body], bool] | None = None
    method: str = "POST"
    access: Access = "anonymous"


@dataclass(frozen=True, slots=True)
class Call:
    """What a Query is given: the body as the door's Struct, the parameters of the path, the headers in lower case, and
    who asks."""

    body: Any
    path: Mapping[str, str]
    headers: Mapping[str, str]
    caller: Caller
    query: Mapping[str, str] = field(default_factory=dict)
    peer: str = ""  # the address that it came from
    pieces: AsyncGenerator[bytes, None] | None = None  # the body as it comes, of a door with a form


S = TypeVar("S")
T = TypeVar("T", covariant=True)


@dataclass(frozen=True, slots=True)
class Reply(Generic[T]):
    """A body with a status and headers of its own; bytes are sent as they are, all else becomes JSON."""

    body: T
    status: int = 200
    media_type: str = "application/json"
    headers: Mapping[str, str] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class Streamed(Generic[S]):
    """An answer that comes in pieces; an error among them is the last."""

    pieces: AsyncGenerator[S, None]
    framing: Framing = LINES


@dataclass(frozen=True, slots=True)
class Download:
    """An answer that is a file of ours, as it is."""

    path: Path
    name: str


@dataclass(frozen=True, slots=True)
class Query:
    """Facts and orders. `call` is given the app, and returns a Reply or only its body, or a stream of it.

    failed: shapes an error where the dialect's own is not enough. texts: media types that it answers beside JSON.
    status, errors: what it answers besides 200 and the errors of every route. framing: of its stream, where it has one.
    listed: the field of the body that a list in place of an object stands for.
    query: names that it reads behind the `?`. form: the fields of a form with a file, which is read while it comes.
    """

    method: str
    path: str
    call: Callable[[Any, Call], Awaitable[object]]
    tag: str = ""  # none: a file for browsers, which is not described
    body: type[Struct] | None = None
    access: Access = "anonymous"
    failed: Callable[[WoollyError, str], Struct] | None = None
    texts: tuple[str, ...] = ()
    status: tuple[int, ...] = ()
    errors: tuple[int, ...] = ()
    framing: Framing = LINES
    query: tuple[str, ...] = ()
    accepts: Callable[[Body], bool] | None = None
    listed: str = ""
    form: type[Struct] | None = None


Door: TypeAlias = Generation | Query
D = TypeVar("D", Generation, Query)


def aliases(door: D, *paths: str) -> tuple[D, ...]:
    """The same door at each of these paths."""
    return tuple(replace(door, path=path) for path in paths)


@dataclass(frozen=True, slots=True)
class Dialect:
    """A way of speaking. `error` is given the request's id too; unknown routes under `prefixes` are its own.

    id_header: tells a request's id, too, where its clients look for it.
    """

    name: str
    doors: tuple[Door, ...]
    error: Callable[[WoollyError, str], Struct]
    prefixes: tuple[str, ...]
    id_header: str = ""
