"""The app: every request enters here, passes the guard, finds its door, and leaves with an answer or an error.

The doors of all dialects become one table of paths. An exception that nobody expected is a 500 without a word about it
in the answer; the log has the place.
"""

from __future__ import annotations

import asyncio
import functools
import os
import time
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from typing import TypeAlias, TypeVar
from urllib.parse import parse_qsl, quote

from msgspec import Struct
from starlette.routing import Match, Route

from woolly import store
from woolly.config import Config, Settings
from woolly.errors import NativeError, NotFoundError, RequestError, WoollyError
from woolly.server.answer import answer, send
from woolly.server.batch.inside import asking
from woolly.server.batches import Batches
from woolly.server.counts import Counts
from woolly.server.dialects import DIALECTS, dialect_of, wire
from woolly.server.dialects import fleet as gate
from woolly.server.dialects.benchmark import Benchmark
from woolly.server.dialects.fields import read_body, read_struct
from woolly.server.door import Body, Call, Dialect, Door, Download, Query, Reply, Streamed
from woolly.server.errors import reply, too_many
from woolly.server.files import Files
from woolly.server.fleet import Fleet
from woolly.server.guard import Guard
from woolly.server.http import GoneError, Http, Receive, Scope, Send
from woolly.server.kept import KeptAnswers
from woolly.server.line import ending
from woolly.server.log import REQUEST_ID, Log
from woolly.server.mcp import Mcp
from woolly.server.models import Load, Models, load_llm
from woolly.server.remote import Remotes
from woolly.server.reports import JOIN
from woolly.server.sessions import Sessions
from woolly.server.socket import Connection, converse

T = TypeVar("T")
Shape: TypeAlias = Callable[[WoollyError, str], Struct]  # of errors
SUBMITTERS = 4  # threads that render and tokenise
BODIES = ("POST", "PATCH", "DELETE")  # methods whose body is read
PIECE = 256 << 10  # bytes of a download that are read at once
LARGE = 64 << 10  # bytes of a body that are read in a thread instead of on the event loop


class Path:
    """All doors of one path, by method. Of several for one method, the first that accepts the body is entered."""

    def __init__(self, path: str) -> None:
        self.route = Route(path, _never)
        self.doors: dict[str, list[tuple[Dialect, Door]]] = {}

    @property
    def allow(self) -> str:
        methods = {*self.doors, "OPTIONS"} | ({"HEAD"} if "GET" in self.doors else set())
        return ", ".join(sorted(methods))


class App:
    """The ASGI application."""

    def __init__(
        self,
        settings: Settings,
        config: Config,
        *,
        load: Load = load_llm,
        dialects: tuple[Dialect, ...] = DIALECTS,
        fleet: Fleet | None = None,
    ) -> None:
        self.settings = settings
        self.config = config
        self.guard = Guard(settings, store.secret(config.state / "salt"))
        self.fleet = fleet  # of a gate
        if fleet is None:
            self.models = Models(settings, config, load)
        else:
            self.models = Models(settings, config, fleet.load, fleet.installed)
        self.sessions = Sessions(config.state / "sessions", settings.max_sessions)
        self.files = Files(config.state / "files", settings.limits)
        self.batches = Batches(self, config.state / "batches", functools.partial(asking, self))
        self.mcp = Mcp(self)
        self.remotes = Remotes(settings, config)
        self.sockets: set[Connection] = set()
        self.kept = KeptAnswers(settings.limits)
        self.counts = Counts()
        self.log = Log(settings)
        self.threads = ThreadPoolExecutor(SUBMITTERS, thread_name_prefix="woolly-submit")
        self.started_s = time.monotonic()
        self.draining = False
        self.benchmark = Benchmark()
        self.open = 0  # requests that have not been answered to their end
        self.answering = 0  # of those, the ones that a model answers
        self.paths = _paths(dialects)
        self.doors = tuple((dialect, door) for dialect in dialects for door in dialect.doors)

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] == "websocket":
            return await converse(self, scope, receive, send)
        if scope["type"] != "http":
            return None
        http = Http(scope, receive, send, self.guard.request_id(scope["headers"]))
        REQUEST_ID.set(http.id)
        self.open += 1
        error: BaseException | None = None
        try:
            await self._serve(http)
        except GoneError as gone:
            error = gone
        except asyncio.CancelledError as cancelled:
            error = cancelled
            if not http.started:  # the server ends, and this request with it
                await self._fail(http, dialect_of(http.path).error, ending())
        finally:
            self.open -= 1
            self.counts.statuses[http.status or 499] += 1
            reported = http.path == JOIN and http.status == 200  # as each replica does once a second
            self.log.request(http, time.monotonic() - http.begun_s, error, "debug" if reported else "info")

    async def _serve(self, http: Http) -> None:
        dialect = dialect_of(http.path)
        shape = dialect.error
        if dialect.id_header:
            http.extra[dialect.id_header] = http.id
        try:
            self.guard.enter(http)
            path, params = self._find(http)
            if http.method == "OPTIONS":
                more = self.guard.preflight() if "origin" in http.headers else {}
                return await http.reply(Reply(b"", 204, headers={"allow": path.allow} | more))
            doors = self._doors(path, http.method)
            first = doors[0][1]
            shape = _shape(*doors[0])
            limits, form = self.settings.limits, isinstance(first, Query) and first.form is not None
            most = limits.file_bytes if form else limits.max_body_size
            self.guard.fits(http, most)
            caller = self.guard.admit(http, first.access)
            if self.draining and first.access != "open":
                raise ending()
            if isinstance(first, Query) and form:
                call = Call(None, params, http.headers, caller, pieces=http.pieces(most))
                return await self._query(first, shape, call, http)
            with self._counted(first):
                data = await http.body(most) if http.method in BODIES else b""
                if not data.strip() and isinstance(first, Query):
                    body: Body = {}
                else:
                    listed = first.listed if isinstance(first, Query) else ""
                    body = await self._read(len(data), lambda: read_body(data, limits, listed=listed))
                dialect, door = next(pair for pair in doors if pair[1].accepts is None or pair[1].accepts(body))
                shape = _shape(dialect, door)
                if isinstance(door, Query):
                    fields = None if door.body is None else read_struct(door.body, body)
                    await http.unless_gone(
                        self._query(
                            door,
                            shape,
                            Call(fields, params, http.headers, caller, _query_of(http, door), http.peer),
                            http,
                        )
                    )
                else:
                    if door.memory is not None:
                        body = door.memory.recall(self, caller, body)
                    read = door.read
                    job = await self._read(len(data), lambda: read(body, params, limits))
                    await http.unless_gone(answer(self, dialect, door, job, caller, http))
        except WoollyError as error:
            await self._fail(http, shape, error)
        except (GoneError, asyncio.CancelledError):
            raise
        except Exception as error:
            self.log.internal_error(http.id, error)
            internal = NativeError("something went wrong in the server", suggestion="its log tells where")
            await self._fail(http, shape, internal)

    @contextmanager
    def _counted(self, door: Door) -> Iterator[None]:
        """Whoever wants an answer of a model counts while it is made; beyond a limit, nobody is let in."""
        if isinstance(door, Query):
            yield
            return
        most = self.settings.limits.max_concurrent_requests
        if most and self.answering >= most:
            raise too_many(f"{self.answering} requests are being answered already", 1)
        self.answering += 1
        try:
            yield
        finally:
            self.answering -= 1

    async def _query(self, door: Query, shape: Shape, call: Call, http: Http) -> None:
        made = await door.call(self, call)
        if isinstance(made, Streamed):
            await send(self, made, shape, http)
        elif isinstance(made, Download):
            await _download(made, http)
        else:
            await http.reply(made if isinstance(made, Reply) else Reply(made))

    async def _fail(self, http: Http, shape: Shape, error: WoollyError) -> None:
        if http.started:  # too late for a status; the missing end of the body tells the reader
            raise GoneError
        self.counts.failed += 1
        await http.reply(reply(error, shape(error, http.id)))

    def _find(self, http: Http) -> tuple[Path, dict[str, str]]:
        if "//" not in http.path and "/../" not in http.path and "\0" not in http.path:
            scope = dict(http.scope) | {"method": "GET"}
            for path in self.paths:
                match, found = path.route.matches(scope)
                if match is not Match.NONE:
                    return path, found["path_params"]
        raise NotFoundError("there is no such route", suggestion="GET /health answers when the server runs")

    def _doors(self, path: Path, method: str) -> list[tuple[Dialect, Door]]:
        doors = path.doors.get("GET" if method == "HEAD" else method)
        if doors is None:
            raise RequestError(f"this route takes {path.allow}", code="method_not_allowed", allow=path.allow)
        return doors

    async def _read(self, size: int, work: Callable[[], T]) -> T:
        """Read a body of this size; a large one is not read on the event loop."""
        return work() if size <= LARGE else await asyncio.to_thread(work)

    async def in_thread(self, work: Callable[[], T]) -> T:
        """What takes a while, off the event loop."""
        return await asyncio.get_running_loop().run_in_executor(self.threads, work)

    def drain(self) -> None:
        """Take nothing new; send home who waits. What runs goes on."""
        self.draining = True
        self.batches.stop()
        for loaded in self.models.loaded:
            loaded.line.close()

    async def close(self) -> None:
        await self.batches.close()
        await self.models.close()
        await self.remotes.close()
        if self.fleet is not None:
            await self.fleet.close()
        self.threads.shutdown(wait=False)
        await asyncio.to_thread(self.log.close)


def build(settings: Settings, config: Config, *, load: Load = load_llm) -> App:
    """The application of these settings; nothing is loaded and nothing listens yet."""
    return App(settings, config, load=load, dialects=(*DIALECTS, wire.DIALECT) if settings.join else DIALECTS)


def build_gate(settings: Settings, config: Config) -> App:
    """The application of a gate: the same, with the models of its fleet."""
    fleet = Fleet(settings.fleet_key, insecure=settings.insecure_fleet)
    return App(settings, config, dialects=(*DIALECTS, gate.DIALECT), fleet=fleet)


def _paths(dialects: tuple[Dialect, ...]) -> list[Path]:
    """The table of paths. Those with parameters come last: a fixed path is never taken for a name."""
    paths: dict[str, Path] = {}
    for dialect in dialects:
        for door in dialect.doors:
            path = paths.setdefault(door.path, Path(door.path))
            path.doors.setdefault(door.method, []).append((dialect, door))
    for path in paths.values():
        for method, doors in path.doors.items():
            where = f"{method} {path.route.path}"
            assert len({(type(door), door.access) for _, door in doors}) == 1, f"doors of two kinds at {where}"
            choosing = [door.accepts is not None for _, door in doors]
            assert choosing == [True] * (len(doors) - 1) + [False], f"the last door alone takes any body at {where}"
    return sorted(paths.values(), key=lambda path: ("{" in path.route.path, -len(path.route.path)))


def _query_of(http: Http, door: Query) -> dict[str, str]:
    """What stands behind the `?` of a path, as far as the door reads it."""
    pairs = parse_qsl(http.scope["query_string"].decode("latin-1")) if door.query else []
    return {name: value for name, value in pairs if name in door.query}


def _shape(dialect: Dialect, door: Door) -> Shape:
    """What shapes the errors of a door."""
    return door.failed if isinstance(door, Query) and door.failed else dialect.error


async def _download(made: Download, http: Http) -> None:
    with await asyncio.to_thread(made.path.open, "rb") as file:
        headers = {
            "content-type": "application/octet-stream",
            "content-length": str(os.fstat(file.fileno()).st_size),
            "content-disposition": f"attachment; filename*=UTF-8''{quote(made.name)}",
        }
        await http.begin(200, headers)
        while piece := await asyncio.to_thread(file.read, PIECE):
            await http.write(piece)
        await http.write(b"", more=False)


async def _never(_: object) -> None:  # routes only match here; the doors answer
    raise AssertionError
