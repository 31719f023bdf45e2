"""Routes: what each of them does, apart from HTTP.

`Generation` answers with a model: `read` makes a `Job` of the body, `render` or `frames` make Structs of what comes.
`Query` answers with facts. A `Dialect` is a table of routes and the shape of its errors. An alias is one more row with
the same functions. What a route answers is the return type of its functions, and its summary is the docstring of `read`
or `call`: /openapi.json is made from them.
"""

from __future__ import annotations

from collections.abc import AsyncGenerator, AsyncIterator, Awaitable, Callable, Mapping
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any, Generic, TypeAlias, TypedDict, TypeVar

from msgspec import Struct

from woolly.config.serving import Serving
from woolly.errors import WoollyError
from woolly.request import Completion, Event, Request
from woolly.server.dialects.base.remote_tools import RemoteEvent, RemoteTools
from woolly.server.dialects.base.response_store import ResponseStore
from woolly.server.dialects.base.timings import Measured
from woolly.server.http.caller import Access, Caller
from woolly.server.http.framing import EVENTS, LINES, Framing

Body: TypeAlias = Mapping[str, Any]


@dataclass(frozen=True, slots=True)
class Job:
    """A body, read: the requests that it means, which are answered side by side, and what applies to all of them."""

    requests: tuple[Request, ...]
    fields: Any  # the body as the dialect's Struct, for the functions that write the answer
    model: str = ""
    stream: bool = False
    notes: tuple[str, ...] = ()  # fields that were sent and had no effect
    session: str = ""  # the id of the session that it continues
    context: int = 0  # tokens of context that the model must have
    keep_s: float | None = None  # how long its model stays loaded afterwards; -1 is for ever
    unload: bool = False  # a job without requests only loads its model, or unloads it
    load_s: float = 0.0  # for which it waited until the model was loaded
    remote: RemoteTools | None = None  # the MCP servers that it may use
    silent: bool = False  # only its prompts are read
    answer_s: float | None = None  # after so long an answer ends, where it has a whole line
    timed: bool = False  # a stream tells how far it has come before each of its pieces
    window: int = 0  # tokens of context that its model has
    endless: bool = False  # its answers may go on to the end of it, which nobody need be told


class Head(TypedDict):
    """What all pieces of one answer share."""

    id: str
    created: int
    model: str


Events: TypeAlias = AsyncIterator[tuple[int, Event | RemoteEvent | Measured]]
"""The events of a job, each with the index of its request: pieces as they come, and one `End` for each request."""


@dataclass(frozen=True, slots=True)
class Memory:
    """What a route remembers between requests. `recall` replaces references in a body by what they refer to, before it
    is read; `keep` stores an answer: the whole, or each piece of a stream."""

    recall: Callable[[ResponseStore, Caller, Body], Body]
    keep: Callable[[ResponseStore, Caller, Job, Struct], None]


@dataclass(frozen=True, slots=True)
class Generation:
    """Answers of a model. `read` raises RequestError; `render` gives what becomes the JSON of a whole answer,
    `frames` the Structs of a stream, framed by `framing`.

    accepts: which bodies are for this route, where a path has several; the first that accepts one has it.
    streamed_error_codes: codes of errors that a stream tells in its own way, also where nothing was sent yet.
    last: the whole answer that the last piece of a stream holds, where the server calls tools itself.
    """

    path: str
    read: Callable[[Body, Mapping[str, str], Serving], Job]
    render: Callable[[Job, Head, list[Completion]], Any] | None  # None: always a stream
    frames: Callable[[Job, Head, Events], AsyncGenerator[Struct, None]]
    body: type[Struct]
    tag: str
    prefix: str  # of the answer's id
    framing: Framing = EVENTS
    memory: Memory | None = None
    streamed_error_codes: frozenset[str] = frozenset()
    last: Callable[[Any], Struct] | None = None
    without: frozenset[str] = frozenset()  # fields of the body that are refused here
    accepts: Callable[[Body], bool] | None = None
    method: str = "POST"
    access: Access = "anonymous"


@dataclass(frozen=True, slots=True)
class Call:
    """The request of a Query: the body as the route's Struct, the parameters of the path, the headers in lower case,
    and the caller. The answer has a header with the notes: the fields that were sent and had no effect."""

    body: Any
    path: Mapping[str, str]
    headers: Mapping[str, str]
    caller: Caller
    query: Mapping[str, str] = field(default_factory=dict)
    pieces: AsyncGenerator[bytes, None] | None = None  # the body as it comes, of a route with a form
    announced: int = 0  # bytes of that body, where the client has told them
    notes: list[str] = field(default_factory=list)


S = TypeVar("S")


@dataclass(frozen=True, slots=True)
class Streamed(Generic[S]):
    """An answer that comes in pieces; an error among them is the last."""

    pieces: AsyncGenerator[S, None]
    framing: Framing = LINES


@dataclass(frozen=True, slots=True)
class Download:
    """An answer that is a file of the server."""

    path: Path
    name: str


@dataclass(frozen=True, slots=True)
class Query:
    """Facts and orders. `call` is given the services that it names (services.py) and the Call; it returns a Reply or
    only its body, or a stream of it.

    failed: shapes an error where the dialect's own is not enough. texts: media types that it answers beside JSON.
    status, errors: what it answers besides 200 and the errors of every route. framing: of its stream, where it has one.
    listed: the field of the body that a list in place of an object stands for.
    query: names that it reads behind the `?`. form: the fields of a form with a file, which is read while it comes.
    """

    method: str
    path: str
    call: Callable[..., Awaitable[object]]
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
    quiet: bool = False  # programs ask once a second: a success is logged at the level debug


Route: TypeAlias = Generation | Query
D = TypeVar("D", Generation, Query)


def aliases(route: D, *paths: str) -> tuple[D, ...]:
    """The same route at each of these paths."""
    return tuple(replace(route, path=path) for path in paths)


@dataclass(frozen=True, slots=True)
class Dialect:
    """The API of one family of clients. `error` gets the request's id too; unknown paths under `prefixes` have the
    errors of this dialect.

    id_header: another header with the request's id, where the clients of this dialect look for it.
    """

    name: str
    routes: tuple[Route, ...]
    error: Callable[[WoollyError, str], Struct]
    prefixes: tuple[str, ...]
    id_header: str = ""


@dataclass(frozen=True, slots=True)
class RouteTable:
    """Every route of a server, with its dialect."""

    rows: tuple[tuple[Dialect, Route], ...]
