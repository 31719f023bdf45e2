"""The app: the services of a server, made once and joined; its beginning and its end.

Each route is given the services that it names (services.py). A request goes to `Dispatch`, a WebSocket to `converse`.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor

from msgspec import Struct

from woolly import store
from woolly.config import Config, Settings
from woolly.config.serving import Serving
from woolly.errors import WoollyError, printable
from woolly.server.accounts import Accounts, Bound, Resource
from woolly.server.batch import RowAnswerer
from woolly.server.batch.files import Files
from woolly.server.batch.inside import RowRoutes
from woolly.server.batch.jobs import Batches
from woolly.server.batch.rows import ENDPOINTS
from woolly.server.compat import ole
from woolly.server.compat.benchmark import Benchmark
from woolly.server.dialect_table import DIALECTS, dialect_of
from woolly.server.dialects.base.response_store import ResponseStore
from woolly.server.dialects.openai import dialect as openai
from woolly.server.dialects.woolly import generation
from woolly.server.dispatch import Dispatch
from woolly.server.extension import Extension
from woolly.server.generate.answering import Answering
from woolly.server.generate.mcp_tools import TOOLS, Remotes
from woolly.server.http.caller import Caller
from woolly.server.http.guard import Guard
from woolly.server.http.log import REQUEST_ID, Log
from woolly.server.http.output import UNREAD
from woolly.server.http.request import GoneError, Http, Receive, Scope, Send, bound_of_bodies
from woolly.server.http.tokens import Tokens
from woolly.server.mcp.mcp import Mcp
from woolly.server.mcp_offers import offers
from woolly.server.metrics.prometheus import Metering
from woolly.server.models.admission import ending
from woolly.server.models.counts import Counts
from woolly.server.models.downloads import DOWNLOADS, Downloads
from woolly.server.models.lifecycle import Models
from woolly.server.models.loaded import LoadModel, load_llm
from woolly.server.models.registry import Installed
from woolly.server.router import Router, bound
from woolly.server.routes import Dialect, RouteTable
from woolly.server.services import ServerState
from woolly.server.sessions.sessions import Sessions
from woolly.server.websocket.connection import Sockets, converse
from woolly.server.workers import THREADS, Workers, begin_all

DISK_THREADS = 6  # for short work on files


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
        self.accounts = _accounts(settings.limits)
        self.remotes = Remotes(settings, config, secret, self.accounts)
        self._workers = Workers(self.accounts)
        self._downloads = Downloads(config, self.accounts)
        self._extension = extension
        self._beginning: list[asyncio.Task[None]] = []
        self._answering = Answering(
            settings=settings,
            models=self.models,
            sessions=Sessions(config.state / "sessions", settings.max_sessions),
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
        table = RouteTable(tuple((dialect, route) for dialect in dialects for route in dialect.routes))
        router = Router(dialects, self._services(metering, files, table))
        self.dispatch = Dispatch(router, self.guard, self.accounts, self._answering, self.state, self.log)
        self._sockets = self._websockets()

    def _websockets(self) -> Sockets:
        """What connections of WebSockets are answered with."""
        return Sockets(
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

    def _services(self, metering: Metering, files: Files, table: RouteTable) -> dict[type, object]:
        """What routes may ask for, by its type."""
        answering = self._answering
        more = self._extension.services if self._extension is not None else {}
        return {
            Settings: self.settings,
            Config: self.config,
            Serving: self.settings.limits,
            Models: self.models,
            Downloads: self._downloads,
            Sessions: answering.sessions,
            Files: files,
            Batches: self.batches,
            Mcp: self.mcp,
            Remotes: self.remotes,
            ResponseStore: answering.responses,
            Counts: self.counts,
            Tokens: self.guard.tokens,
            Accounts: self.accounts,
            Workers: self._workers,
            ServerState: self.state,
            Answering: answering,
            Metering: metering,
            Benchmark: Benchmark(),
            RouteTable: table,
            **more,
        }

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
            await self.dispatch.serve(http)
        except GoneError as gone:
            error = gone
        except asyncio.CancelledError as cancelled:
            error = cancelled
            if not http.started:  # the server ends, and this request with it
                await self.dispatch.fail(http, dialect_of(http.path).error, ending())
        finally:
            self.state.open -= 1
            self.counts.statuses[http.status or 499] += 1
            level = "debug" if http.quiet and http.status == 200 else "info"
            self.log.request(http, time.monotonic() - http.begun_s, error, level)

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


def _accounts(limits: Serving) -> Accounts:
    return Accounts(
        {
            Resource.CONNECTIONS: Bound(limits.connections_per_address, limits.connections),
            Resource.BODY_BYTES: bound_of_bodies(limits),
            Resource.THREADS: THREADS,
            Resource.TOOLS: TOOLS,
            Resource.DOWNLOADS: DOWNLOADS,
            Resource.UNREAD_BYTES: UNREAD,
        }
    )


def _row_routes(answering: Answering, log: Log) -> RowRoutes:
    """The routes that rows of batches may name."""
    routes = [route for route in openai.DIALECT.routes if route.path in ENDPOINTS and route.method == "POST"]
    by_path = {route.path: bound(route, {Answering: answering}) for route in routes}
    return RowRoutes(openai.DIALECT, by_path, answering, log)


def _error(path: str, error: WoollyError, request_id: str) -> Struct:
    """An error in the shape of the dialect that has this path."""
    return dialect_of(path).error(error, request_id)
