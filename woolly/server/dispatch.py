"""From a request to its answer: through the guard, to its route, and back as an answer or an error.

An exception that nobody expected is a 500 without a word about it in the answer; the log has the place.
"""

from __future__ import annotations

import asyncio
import os
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from typing import TypeAlias, TypeVar
from urllib.parse import parse_qsl, quote

from msgspec import Struct

from woolly.errors import WoollyError
from woolly.server.accounts import Accounts, Resource
from woolly.server.dialect_table import dialect_of
from woolly.server.dialects.base.fields import read_body, read_struct
from woolly.server.generate.answering import Answering
from woolly.server.generate.generate import answer
from woolly.server.generate.send import NOTES, send
from woolly.server.http.caller import Caller
from woolly.server.http.errors import in_http, reply, too_many
from woolly.server.http.guard import Guard
from woolly.server.http.log import Log
from woolly.server.http.reply import Reply
from woolly.server.http.request import GoneError, Http
from woolly.server.models.admission import ending
from woolly.server.router import Path, Router
from woolly.server.routes import Body, Call, Dialect, Download, Query, Route, Streamed
from woolly.server.services import ServerState
from woolly.server.workers import LARGE

T = TypeVar("T")
Shape: TypeAlias = Callable[[WoollyError, str], Struct]  # of errors
BODIES = ("POST", "PATCH", "DELETE")  # methods whose body is read
PIECE = 256 << 10  # bytes of a download that are read at once
OPEN = 8 << 10  # bytes of a body that a route reads of anybody


class Dispatch:
    def __init__(
        self, router: Router, guard: Guard, accounts: Accounts, answering: Answering, state: ServerState, log: Log
    ) -> None:
        self.router = router
        self._guard, self._accounts, self._state, self._log = guard, accounts, state, log
        self._answering = answering
        self._limits = answering.settings.limits

    async def serve(self, http: Http) -> None:
        """Answer a request."""
        dialect = dialect_of(http.path)
        http.shape = dialect.error
        if dialect.id_header:
            http.extra[dialect.id_header] = http.id
        try:
            await self._enter(http)
        except WoollyError as error:
            await self.fail(http, http.shape, error)
        except (GoneError, asyncio.CancelledError):
            raise
        except Exception as error:
            await self.fail(http, http.shape, self._log.fault(http.id, error))

    async def fail(self, http: Http, shape: Shape, error: WoollyError) -> None:
        if http.started:  # too late for a status; the missing end of the body tells the reader
            raise GoneError
        self._answering.counts.failed += 1
        await http.reply(reply(error, shape(in_http(error), http.id)))

    async def _enter(self, http: Http) -> None:
        """Let a request in, as far as its caller, its size and the load allow, to the routes of its path."""
        self._guard.enter(http)
        path, params = self.router.find(http.path)
        if http.method == "OPTIONS":
            await http.reply(self._options(http, path))
            return
        routes = path.routes(http.method)
        first = routes[0][1]
        http.shape = _shape(*routes[0])
        http.quiet = isinstance(first, Query) and first.quiet
        form = isinstance(first, Query) and first.form is not None
        most = self._limits.file_bytes if form else self._limits.max_body_size
        if first.access == "open":
            most = min(most, OPEN)
        self._guard.fits(http, most)
        caller = self._guard.admit(http, first.access)
        if self._state.draining and first.access in ("anonymous", "key"):
            raise ending()
        if isinstance(first, Query) and form:
            pieces = http.pieces(most)
            call = Call(None, params, http.headers, caller, pieces=pieces, announced=http.announced)
            await self._query(first, call, http)
            return
        with self._counted(first), self._accounts.take(caller.name, Resource.BODY_BYTES, 0) as memory:
            data = await http.body(most, memory) if http.method in BODIES else b""
            await self._answer(http, routes, params, caller, data)

    def _options(self, http: Http, path: Path) -> Reply[bytes]:
        wanted = http.headers.get("access-control-request-headers", "").lower()
        more = self._guard.preflight(wanted) if "origin" in http.headers else {}
        return Reply(b"", 204, headers={"allow": path.allow} | more)

    async def _answer(
        self,
        http: Http,
        routes: list[tuple[Dialect, Route]],
        params: Mapping[str, str],
        caller: Caller,
        data: bytes,
    ) -> None:
        """Answer by the route that takes the body."""
        first, limits, large = routes[0][1], self._limits, len(data) > LARGE
        if not data.strip() and isinstance(first, Query):
            body: Body = {}
        else:
            listed = first.listed if isinstance(first, Query) else ""
            body = await self._read(caller, large, lambda: read_body(data, limits, listed=listed))
        dialect, route = next(pair for pair in routes if pair[1].accepts is None or pair[1].accepts(body))
        http.shape = _shape(dialect, route)
        if isinstance(route, Query):
            fields = None
            if (kind := route.body) is not None:
                fields = await self._read(caller, large, lambda: read_struct(kind, body))
            call = Call(fields, params, http.headers, caller, _query_of(http, route))
            await http.unless_gone(self._query(route, call, http))
            return
        if route.memory is not None:
            recalled = route.memory.recall(self._answering.responses, caller, body)
            large = large or recalled is not body
            body = recalled
        read = route.read
        job = await self._read(caller, large, lambda: read(body, params, limits))
        await http.unless_gone(answer(self._answering, dialect, route, job, caller, http))

    async def _read(self, caller: Caller, large: bool, work: Callable[[], T]) -> T:
        """Read a body; a large one in a thread."""
        return await self._answering.workers.run(caller.name, work) if large else work()

    @contextmanager
    def _counted(self, route: Route) -> Iterator[None]:
        """Count a request for an answer of a model while it runs; refuse it where too many run."""
        if isinstance(route, Query):
            yield
            return
        most = self._limits.max_concurrent_requests
        if most and self._state.answering >= most:
            raise too_many(f"{self._state.answering} requests are being answered already", 1)
        self._state.answering += 1
        try:
            yield
        finally:
            self._state.answering -= 1

    async def _query(self, route: Query, call: Call, http: Http) -> None:
        result = await route.call(call)
        if call.notes:
            http.extra[NOTES] = ", ".join(call.notes)
        if isinstance(result, Streamed):
            await send(self._answering, result, http.shape, http)
        elif isinstance(result, Download):
            await _download(result, http)
        else:
            await http.reply(result if isinstance(result, Reply) else Reply(result))


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
