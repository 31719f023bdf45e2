"""The app: it passes every request through the guard, finds its route, and sends an answer or an error.

Made of services, of which each route is given those that it names (services.py). The routes of all dialects become one
table of paths. An exception that nobody expected is a 500 without a word about it in the answer; the log has the place.
"""

from __future__ import annotations

import asyncio
import os
import time
from collections.abc import Callable, Iterator, Mapping
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from dataclasses import replace
from difflib import get_close_matches
from typing import TypeAlias, TypeVar
from urllib.parse import parse_qsl, quote

from msgspec import Struct
from starlette import routing

from woolly import store
from woolly.config import Config, Settings
from woolly.config.serving import Serving
from woolly.errors import NotFoundError, RequestError, WoollyError, printable
from woolly.server.accounts import Accounts, Bound, Resource
from woolly.server.batch import RowAnswerer
from woolly.server.batch.files import Files
from woolly.server.batch.inside import RowRoutes
from woolly.server.batch.jobs import Batches
from woolly.server.batch.rows import ENDPOINTS
from woolly.server.compat import ole
from woolly.server.compat.benchmark import Benchmark
from woolly.server.dialect_table import DIALECTS, dialect_of
from woolly.server.dialects.base.fields import read_body, read_struct
from woolly.server.dialects.base.response_store import ResponseStore
from woolly.server.dialects.openai import dialect as openai
from woolly.server.dialects.woolly import generation
from woolly.server.extension import Extension
from woolly.server.generate.answering import Answering
from woolly.server.generate.generate import NOTES, answer, send
from woolly.server.generate.mcp_tools import TOOLS, Remotes
from woolly.server.http.caller import Caller
from woolly.server.http.errors import in_http, reply, too_many
from woolly.server.http.guard import Guard
from woolly.server.http.log import REQUEST_ID, Log
from woolly.server.http.reply import Reply
from woolly.server.http.request import GoneError, Http, Receive, Scope, Send, bound_of_bodies
from woolly.server.http.tokens import Tokens
from woolly.server.mcp.mcp import Mcp
from woolly.server.mcp_offers import offers
from woolly.server.metrics.prometheus import Metering
from woolly.server.models.admission import ending
from woolly.server.models.counts import Counts
from woolly.server.models.downloads import DOWNLOADS, Downloads
from woolly.server.models.lifecycle import LoadModel, Models, load_llm
from woolly.server.models.registry import Installed
from woolly.server.routes import Body, Call, Dialect, Download, Query, Route, RouteTable, Streamed
from woolly.server.services import ServerState, bind
from woolly.server.sessions.sessions import Sessions
from woolly.server.websocket.connection import Sockets, converse
from woolly.server.workers import LARGE, THREADS, Workers, begin_all

T = TypeVar("T")
Shape: TypeAlias = Callable[[WoollyError, str], Struct]  # of errors
BODIES = ("POST", "PATCH", "DELETE")  # methods whose body is read
PIECE = 256 << 10  # bytes of a download that are read at once
DISK_THREADS = 6  # for short work on files
LONGEST, NEAR = 64, 0.8  # of a wrong path: the letters that are looked at, and how like a route it must be
OPEN = 8 << 10  # bytes of a body that a route reads of anybody


class Path:
    """All routes of one path, by method. Of several for one method, the first that accepts the body answers."""

    def __init__(self, path: str) -> None:
        self.pattern = routing.Route(path, _never)
        self.routes: dict[str, list[tuple[Dialect, Route]]] = {}

    @property
    def allow(self) -> str:
        methods = {*self.routes, "OPTIONS"} | ({"HEAD"} if "GET" in self.routes else set())
        return ", ".join(sorted(methods))


class App:
    """The ASGI application. extension: the part of a fleet that this server is."""

    def __init__(
        self,
        settings: Settings,
        config: Config,
        *,
        load: LoadModel = load_llm,
        installed: Installed = store.installed,
        dialects: tuple[Dialect, ...] = DIALECTS,
        extension: Extension | None = None,
    ) -> None:
        self.settings = settings
        self.config = config
        secret = store.read_secret(config.state / "salt")
        self.guard = Guard(settings, secret, ole.unstreamed_s)
        self.models = Models(settings, config, load, installed)
        self.counts = Counts()
        self.log = Log(settings)
        self.state = ServerState()
        self.failure: Exception | None = None  # why the server ended by itself
        limits = settings.limits
        self.accounts = Accounts(
            {
                Resource.CONNECTIONS: Bound(limits.connections_per_address, limits.connections),
                Resource.BODY_BYTES: bound_of_bodies(limits),
                Resource.THREADS: THREADS,
                Resource.TOOLS: TOOLS,
                Resource.DOWNLOADS: DOWNLOADS,
            }
        )
        self.remotes = Remotes(settings, config, secret, self.accounts)
        self._workers = Workers(self.accounts)
        self._downloads = Downloads(config, self.accounts)
        self._extension = extension
        self._beginning: list[asyncio.Task[None]] = []
        sessions = Sessions(config.state / "sessions", settings.max_sessions)
        self._answering = Answering(
            settings=settings,
            models=self.models,
            sessions=sessions,
            remotes=self.remotes,
            responses=ResponseStore(settings.limits),
            counts=self.counts,
            workers=self._workers,
            is_moving=extension.is_moving if extension is not None else None,
        )
        more = {"more": extension.metrics} if extension is not None else {}
        metering = Metering(self.state, self.models, self.counts, **more)
        self.mcp = Mcp(offers(self._answering, metering))
        self._rows = _row_routes(self._answering, self.log)
        files = Files(config.state / "files", settings.limits, self.accounts)
        self.batches = Batches(
            config.state / "batches",
            files,
            settings.limits,
            self.accounts,
            self.log,
            self.guard,
            self._rows.row_answerer,
        )
        if extension is not None:
            dialects = (*dialects, extension.dialect)
        services: dict[type, object] = {
            Settings: settings,
            Config: config,
            Serving: settings.limits,
            Models: self.models,
            Downloads: self._downloads,
            Sessions: sessions,
            Files: files,
            Batches: self.batches,
            Mcp: self.mcp,
            Remotes: self.remotes,
            ResponseStore: self._answering.responses,
            Counts: self.counts,
            Tokens: self.guard.tokens,
            Accounts: self.accounts,
            Workers: self._workers,
            ServerState: self.state,
            Answering: self._answering,
            Metering: metering,
            Benchmark: Benchmark(),
            RouteTable: RouteTable(tuple((dialect, route) for dialect in dialects for route in dialect.routes)),
        }
        if extension is not None:
            services |= extension.services
        self.paths = _paths(dialects, services)
        self._described = sorted(
            {route.path for one in dialects for route in one.routes if route.tag and "{" not in route.path}
        )
        self._sockets = Sockets(
            answering=self._answering,
            accounts=self.accounts,
            guard=self.guard,
            mcp=self.mcp,
            state=self.state,
            log=self.log,
            complete=generation.COMPLETE,
            chat=generation.CHAT,
            shape=_error,
        )

    def row_answerer(self, caller: Caller) -> RowAnswerer:
        """Answers the rows of a batch for this caller."""
        return self._rows.row_answerer(caller)

    def begin(self, address: tuple[str, int], end: Callable[[], None]) -> None:
        """Begin, when the server listens, at this address first: load the models of the settings, continue batches.
        end: called where a model of the command line cannot be loaded; `failure` says why."""
        self._begin_threads()
        extension, settings = self._extension, self.settings
        if extension is None or extension.loads_models:
            work = (*(self._load_or(end, path.name) for path in settings.models), *map(self._preload, settings.preload))
            self._beginning += map(asyncio.create_task, work)
        if extension is not None:
            extension.begin(self.models, self.counts, self.log, address)
        self._beginning.append(asyncio.create_task(self.batches.resume()))

    def _begin_threads(self) -> None:
        disk = ThreadPoolExecutor(DISK_THREADS, thread_name_prefix="woolly-disk")  # for asyncio.to_thread
        begin_all(disk, DISK_THREADS)
        asyncio.get_running_loop().set_default_executor(disk)
        self.log.begin()
        self._workers.begin()
        self.models.begin()
        self.remotes.begin()
        if self.settings.manage_models:
            self._downloads.begin()

    async def _load_or(self, end: Callable[[], None], name: str) -> None:
        """Load a model without which there is no use in this server."""
        try:
            await self._load(name)
        except Exception as error:  # one of ours, or a fault of Woolly: the process ends with either
            if self.failure is None:
                self.failure = error
                end()

    async def _preload(self, name: str) -> None:
        """Load a model for which other models need not wait; without it the server is not ready."""
        try:
            await self._load(name)
        except WoollyError as error:
            self.log.line("error", "not loaded", model=printable(name), why=str(error))

    async def _load(self, name: str) -> None:
        figures = (await self.models.preload(name)).model.figures()
        self.log.line(
            "info", "loaded", model=printable(name), cache_pages=figures.pages, cache_bytes=figures.pool_bytes
        )

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] == "websocket":
            return await converse(self._sockets, scope, receive, send)
        if scope["type"] != "http":
            return None
        http = Http(scope, receive, send, self.guard.request_id(scope["headers"]))
        REQUEST_ID.set(http.id)
        self.state.open += 1
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
            self.state.open -= 1
            self.counts.statuses[http.status or 499] += 1
            level = "debug" if http.quiet and http.status == 200 else "info"
            self.log.request(http, time.monotonic() - http.begun_s, error, level)

    async def _serve(self, http: Http) -> None:
        dialect = dialect_of(http.path)
        shape = dialect.error
        if dialect.id_header:
            http.extra[dialect.id_header] = http.id
        try:
            self.guard.enter(http)
            path, params = self._find(http)
            if http.method == "OPTIONS":
                wanted = http.headers.get("access-control-request-headers", "").lower()
                more = self.guard.preflight(wanted) if "origin" in http.headers else {}
                return await http.reply(Reply(b"", 204, headers={"allow": path.allow} | more))
            routes = self._routes(path, http.method)
            first = routes[0][1]
            shape = _shape(*routes[0])
            http.quiet = isinstance(first, Query) and first.quiet
            limits, form = self.settings.limits, isinstance(first, Query) and first.form is not None
            most = limits.file_bytes if form else limits.max_body_size
            if first.access == "open":
                most = min(most, OPEN)
            self.guard.fits(http, most)
            caller = self.guard.admit(http, first.access)
            if self.state.draining and first.access in ("anonymous", "key"):
                raise ending()
            if isinstance(first, Query) and form:
                pieces = http.pieces(most)
                call = Call(None, params, http.headers, caller, pieces=pieces, announced=http.announced)
                return await self._query(first, shape, call, http)
            with self._counted(first), self.accounts.take(caller.name, Resource.BODY_BYTES, 0) as memory:
                data = await http.body(most, memory) if http.method in BODIES else b""
                large = len(data) > LARGE
                if not data.strip() and isinstance(first, Query):
                    body: Body = {}
                else:
                    listed = first.listed if isinstance(first, Query) else ""
                    body = await self._read(caller, large, lambda: read_body(data, limits, listed=listed))
                dialect, route = next(pair for pair in routes if pair[1].accepts is None or pair[1].accepts(body))
                shape = _shape(dialect, route)
                if isinstance(route, Query):
                    fields = None
                    if (kind := route.body) is not None:
                        fields = await self._read(caller, large, lambda: read_struct(kind, body))
                    await http.unless_gone(
                        self._query(
                            route,
                            shape,
                            Call(fields, params, http.headers, caller, _query_of(http, route)),
                            http,
                        )
                    )
                else:
                    if route.memory is not None:
                        recalled = route.memory.recall(self._answering.responses, caller, body)
                        large = large or recalled is not body
                        body = recalled
                    read = route.read
                    job = await self._read(caller, large, lambda: read(body, params, limits))
                    await http.unless_gone(answer(self._answering, dialect, route, job, caller, http))
        except WoollyError as error:
            await self._fail(http, shape, error)
        except (GoneError, asyncio.CancelledError):
            raise
        except Exception as error:
            await self._fail(http, shape, self.log.fault(http.id, error))

    @contextmanager
    def _counted(self, route: Route) -> Iterator[None]:
        """Count a request for an answer of a model while it runs; refuse it where too many run."""
        if isinstance(route, Query):
            yield
            return
        most = self.settings.limits.max_concurrent_requests
        if most and self.state.answering >= most:
            raise too_many(f"{self.state.answering} requests are being answered already", 1)
        self.state.answering += 1
        try:
            yield
        finally:
            self.state.answering -= 1

    async def _query(self, route: Query, shape: Shape, call: Call, http: Http) -> None:
        result = await route.call(call)
        if call.notes:
            http.extra[NOTES] = ", ".join(call.notes)
        if isinstance(result, Streamed):
            await send(self._answering, result, shape, http)
        elif isinstance(result, Download):
            await _download(result, http)
        else:
            await http.reply(result if isinstance(result, Reply) else Reply(result))

    async def _fail(self, http: Http, shape: Shape, error: WoollyError) -> None:
        if http.started:  # too late for a status; the missing end of the body tells the reader
            raise GoneError
        self.counts.failed += 1
        await http.reply(reply(error, shape(in_http(error), http.id)))

    def _find(self, http: Http) -> tuple[Path, dict[str, str]]:
        if "//" not in http.path and "/../" not in http.path and "\0" not in http.path:
            scope = dict(http.scope) | {"method": "GET"}
            for path in self.paths:
                match, child_scope = path.pattern.matches(scope)
                if match is not routing.Match.NONE:
                    return path, child_scope["path_params"]
        raise NotFoundError("there is no such route", suggestion=self._near(http.path))

    def _near(self, path: str) -> str:
        """What to ask for in place of a path that no route has."""
        near = get_close_matches(path[:LONGEST].lower(), self._described, n=1, cutoff=NEAR)
        return f"did you mean {near[0]}?" if near else "GET /docs describes every route"

    def _routes(self, path: Path, method: str) -> list[tuple[Dialect, Route]]:
        routes = path.routes.get("GET" if method == "HEAD" else method)
        if routes is None:
            raise RequestError(f"this route takes {path.allow}", code="method_not_allowed", allow=path.allow)
        return routes

    async def renew(self, read: Callable[[], Settings]) -> None:
        """Take keys and rate limits from the settings as they are now; wrong ones change nothing."""
        try:
            settings = await asyncio.to_thread(read)
        except WoollyError as error:
            self.log.line("error", "the settings stay as they were", why=str(error))
            return
        self.guard.renew(settings)
        self.batches.renew()
        self.log.line("info", "keys and rate limits are read again", keys=len(settings.keys))

    async def _read(self, caller: Caller, large: bool, work: Callable[[], T]) -> T:
        """Read a body; a large one in a thread."""
        return await self._workers.run(caller.name, work) if large else work()

    def drain(self) -> None:
        """Refuse new requests and those that wait. Requests that run continue."""
        self.state.draining = True
        self.batches.stop()
        for loaded in self.models.loaded:
            loaded.admission.close()
        if self._extension is not None:
            self._extension.leave()

    async def close(self) -> None:
        await self.batches.close()
        if self._extension is not None:
            await self._extension.close()
        await self.models.close()
        await self.remotes.close()
        self._workers.close()
        self._downloads.close()
        await asyncio.to_thread(self.log.close)


def build(settings: Settings, config: Config) -> App:
    """The application of these settings; nothing is loaded and nothing listens yet."""
    return App(settings, config)


def build_row_answerer(settings: Settings, config: Config) -> RowAnswerer:
    """Answers the rows of a batch by an application of its own."""
    return build(settings, config).row_answerer(Caller("batch", b"", 0.0, 0.0))


def _paths(dialects: tuple[Dialect, ...], services: Mapping[type, object]) -> list[Path]:
    """The table of paths, each route with the services that it asks for. Paths with parameters come last: a fixed one
    is never taken for a name."""
    paths: dict[str, Path] = {}
    for dialect in dialects:
        for route in dialect.routes:
            path = paths.setdefault(route.path, Path(route.path))
            path.routes.setdefault(route.method, []).append((dialect, _bound(route, services)))
    for path in paths.values():
        for method, routes in path.routes.items():
            where = f"{method} {path.pattern.path}"
            assert len({(type(route), route.access) for _, route in routes}) == 1, f"routes of two kinds at {where}"
            choosing = [route.accepts is not None for _, route in routes]
            assert choosing == [True] * (len(routes) - 1) + [False], f"the last route alone takes any body at {where}"
    return sorted(paths.values(), key=lambda path: ("{" in path.pattern.path, -len(path.pattern.path)))


def _bound(route: Route, services: Mapping[type, object]) -> Route:
    return replace(route, call=bind(route.call, services)) if isinstance(route, Query) else route


def _row_routes(answering: Answering, log: Log) -> RowRoutes:
    """The routes that rows of batches may name."""
    routes = [route for route in openai.DIALECT.routes if route.path in ENDPOINTS and route.method == "POST"]
    bound = {route.path: _bound(route, {Answering: answering}) for route in routes}
    return RowRoutes(openai.DIALECT, bound, answering, log)


def _error(path: str, error: WoollyError, request_id: str) -> Struct:
    """An error in the shape of the dialect that has this path."""
    return dialect_of(path).error(error, request_id)


def _query_of(http: Http, route: Query) -> dict[str, str]:
    """What stands behind the `?` of a path, as far as the route reads it."""
    pairs = parse_qsl(http.scope["query_string"].decode("latin-1")) if route.query else []
    return {name: value for name, value in pairs if name in route.query}


def _shape(dialect: Dialect, route: Route) -> Shape:
    """What shapes the errors of a route."""
    return route.failed if isinstance(route, Query) and route.failed else dialect.error


async def _download(download: Download, http: Http) -> None:
    with await asyncio.to_thread(download.path.open, "rb") as file:
        headers = {
            "content-type": "application/octet-stream",
            "content-length": str(os.fstat(file.fileno()).st_size),
            "content-disposition": f"attachment; filename*=UTF-8''{quote(download.name)}",
        }
        await http.begin(200, headers)
        while piece := await asyncio.to_thread(file.read, PIECE):
            await http.write(piece)
        await http.write(b"", more=False)


async def _never(_: object) -> None:  # a pattern only matches paths; the routes answer
    raise AssertionError
