"""WebSockets: several requests at once over one connection, each admitted and answered as over HTTP.

The guard checks a connection before it is accepted, and again each message. `answer`, the handler of all dialects,
answers a message; this module reads messages, keeps the tasks that answer them, and stops those that are cancelled.
When a connection ends, all of its requests are cancelled. As a body, a message is on the account of its caller until it
is answered, and a large one is read in a thread.
"""

from __future__ import annotations

import asyncio
import secrets
import time
from collections.abc import Awaitable, Callable, Mapping
from contextlib import suppress
from dataclasses import dataclass, replace
from typing import Any, TypeVar

import msgspec
from msgspec import Struct

from woolly.errors import BusyError, NotFoundError, RequestError, WoollyError, printable
from woolly.mcp.rpc import INVALID_REQUEST, RpcError
from woolly.server.accounts import Accounts, Resource
from woolly.server.generate.answering import Answering
from woolly.server.generate.generate import answer
from woolly.server.http.body import read_json
from woolly.server.http.caller import Caller
from woolly.server.http.errors import in_http, kind_of, too_many
from woolly.server.http.guard import Guard
from woolly.server.http.log import Log
from woolly.server.http.reply import Reply
from woolly.server.http.request import Http, Receive, Scope, Send
from woolly.server.mcp.mcp import Mcp
from woolly.server.models.admission import ending
from woolly.server.routes import Generation
from woolly.server.services import ServerState
from woolly.server.websocket.messages import (
    CAPITAL,
    FrameStyle,
    Id,
    StreamProgress,
    framed,
    generation_of,
    now,
    refused,
)
from woolly.server.workers import LARGE
from woolly.version import __version__

PATHS = ("/api/v1/ws", "/api/v1/mcp/ws", "/ws", "/v1/stream")
AT_ONCE = 32  # most requests of one connection at a time
PROTOCOL = "bearer."  # in Sec-WebSocket-Protocol: a browser can send a key by no other way
SLOW, ENDING = 1008, 1001  # codes of a close
T = TypeVar("T")
OLD_VERSION = "0.1.0"  # the version of the protocol in Woolly's older documents
OLD_HANDSHAKE = {"protocol_version": OLD_VERSION, "server_info": {"name": "Woolly MCP Server", "version": __version__}}

_encode = msgspec.json.Encoder().encode


class GoneError(Exception):
    """The client has gone, or reads nothing."""


@dataclass(frozen=True, slots=True)
class Sockets:
    """The services of all connections. complete, chat: the routes that answer messages. shape: makes the body of an
    error before there is a connection, by the path and id of the request."""

    answering: Answering
    accounts: Accounts
    guard: Guard
    mcp: Mcp
    state: ServerState
    log: Log
    complete: Generation
    chat: Generation
    shape: Callable[[str, WoollyError, str], Struct]


async def converse(sockets: Sockets, scope: Scope, receive: Receive, send: Send) -> None:
    """One connection, from its first byte to its last."""
    http = Http(dict(scope) | {"method": "GET"}, receive, send, sockets.guard.request_id(scope["headers"]))
    http.headers, protocol = _with_key(http.headers)
    await receive()  # websocket.connect
    try:
        sockets.guard.enter(http)
        if http.path not in PATHS:
            raise NotFoundError("there is no such route", suggestion=f"WebSockets are at {', '.join(PATHS)}")
        name = sockets.guard.admit(http, "anonymous").name
        if sockets.state.draining:
            raise ending()
    except WoollyError as error:
        return await _refuse(http, send, sockets.shape(http.path, error, http.id), error)
    await send({"type": "websocket.accept", "subprotocol": protocol})
    http.status = 101
    connection = Connection(sockets, http, send, name)
    sockets.state.sockets += 1
    try:
        await connection.listen(receive)
    finally:
        sockets.state.sockets -= 1
        await connection.stop_all()
        sockets.log.request(http, time.monotonic() - http.begun_s, None)


def _with_key(headers: Mapping[str, str]) -> tuple[Mapping[str, str], str | None]:
    """The headers with a key that came as a subprotocol, and that subprotocol, which the answer repeats."""
    offered = [word.strip() for word in headers.get("sec-websocket-protocol", "").split(",")]
    protocol = next((word for word in offered if word.startswith(PROTOCOL)), None)
    if protocol is None or "authorization" in headers:
        return headers, None
    return {**headers, "authorization": f"Bearer {protocol.removeprefix(PROTOCOL)}"}, protocol


async def _refuse(http: Http, send: Send, body: Struct, error: WoollyError) -> None:
    """Refuse a WebSocket with a status of HTTP and an error."""
    data = _encode(body)
    headers = [(b"content-type", b"application/json"), (b"content-length", str(len(data)).encode())]
    await send({"type": "websocket.http.response.start", "status": kind_of(error).status, "headers": headers})
    await send({"type": "websocket.http.response.body", "body": data})


class Connection:
    """One connection and its requests. name: of its caller, when it was opened."""

    def __init__(self, sockets: Sockets, http: Http, send: Send, name: str) -> None:
        self.id = secrets.token_hex(12)
        self.extra: dict[str, str] = {}  # headers of an answer, which a message does not have
        self._sockets, self._http, self._send, self._name = sockets, http, send, name
        self._tasks: dict[Id | None, tuple[asyncio.Task[None], FrameStyle, StreamProgress]] = {}
        self._mcp_tasks: set[asyncio.Task[None]] = set()  # answers of MCP
        self._write_lock = asyncio.Lock()  # frames go out one after another

    async def listen(self, receive: Receive) -> None:
        """Read messages until the other side leaves."""
        with suppress(GoneError):
            await self.send(self._welcome())
            while (message := await receive())["type"] != "websocket.disconnect":
                if message.get("text") is None:
                    await self.send({"code": INVALID_REQUEST, "message": "messages are text, not binary"})
                else:
                    await self._read(message.pop("text").encode("utf-8", "surrogatepass"))

    async def stop_all(self) -> None:
        """Cancel all requests."""
        tasks = [*(task for task, _, _ in self._tasks.values()), *self._mcp_tasks]
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)

    async def send(self, value: object) -> None:
        await self.write(value if isinstance(value, bytes) else _encode(value))

    # What `answer` writes to

    async def begin(self, status: int, headers: Mapping[str, str]) -> None:
        pass

    async def reply(self, reply: Reply[Any]) -> None:
        raise AssertionError("answers are streamed")

    async def write(self, data: bytes, *, more: bool = True) -> None:
        """Send one message; a client that reads none for too long is dropped."""
        if not data:
            return
        try:
            async with asyncio.timeout(self._sockets.answering.settings.limits.unread_s), self._write_lock:
                await self._send({"type": "websocket.send", "text": data.decode()})
        except TimeoutError:
            await self._close(SLOW)
            raise GoneError from None
        except (OSError, RuntimeError):  # the client has gone: servers report that by several exceptions
            raise GoneError from None

    async def _close(self, code: int) -> None:
        with suppress(Exception):
            await asyncio.wait_for(self._send({"type": "websocket.close", "code": code}), 1.0)

    # Messages

    async def _read(self, data: bytes) -> None:
        message: Mapping[str, Any] = {}
        id_: Any = None
        limits = self._sockets.answering.settings.limits
        task: asyncio.Task[None] | None = None
        try:
            memory = self._sockets.accounts.take(self._name, Resource.BODY_BYTES, len(data))
            try:
                message = await self._in_turn(len(data), lambda: read_json(data, limits))
                id_ = message.get("id") if isinstance(message.get("id"), str | int | float) else None
                task = await self._dispatch(message, id_, len(data))
            finally:
                if task is None:
                    memory.give_back()
                else:
                    task.add_done_callback(lambda _: memory.give_back())
        except WoollyError as error:
            capital = message.get("type") in ("Generate", "StopGeneration")
            await self.send(CAPITAL.error(StreamProgress(None), error) if capital else refused(error, id_))

    async def _in_turn(self, nbytes: int, work: Callable[[], T]) -> T:
        """Do what takes the longer the more bytes a message has; of a large one, in a thread."""
        return await self._sockets.answering.workers.run(self._name, work) if nbytes > LARGE else work()

    async def _dispatch(self, message: Mapping[str, Any], id_: Id | None, nbytes: int) -> asyncio.Task[None] | None:
        """Answer a message of so many bytes, or begin a task that does."""
        kind = message.get("type")
        if "jsonrpc" in message:
            return self._start(self._rpc(self._caller(), message))
        if kind == "request":
            return self._start(self._request(self._caller(), message))
        if kind == "cancel":
            await self._cancel(id_)
        elif kind == "StopGeneration":
            await self._cancel(None)
        elif kind == "Ping":
            await self.send({"type": "Pong"})
        elif kind == "GetStats":
            uptime = int(self._sockets.state.uptime_s)
            await self.send({"type": "Stats", "connections": self._sockets.state.sockets, "uptime_secs": uptime})
        elif (generation := generation_of(message, self._sockets.complete, self._sockets.chat)) is not None:
            return await self._answer(id_ if kind in ("generate", "chat") else None, *generation, nbytes)
        elif kind != "notification":
            raise RequestError(f"there is no message of type {printable(kind)}", param="type")
        return None

    def _caller(self) -> Caller:
        """The caller of a message, admitted like that of a request; raises where the connection has too many."""
        if len(self._tasks) + len(self._mcp_tasks) >= AT_ONCE:
            raise too_many(f"{AT_ONCE} requests of this connection are being answered", 1)
        if self._sockets.state.draining:
            raise ending()
        caller = self._sockets.guard.admit(self._http, "anonymous")
        begun = asyncio.get_running_loop().time()
        return replace(
            caller, begun_s=begun, deadline_s=begun + self._sockets.answering.settings.limits.request_timeout
        )

    async def _answer(
        self, id_: Id | None, style: FrameStyle, route: Generation, body: Mapping[str, Any], nbytes: int
    ) -> asyncio.Task[None]:
        if id_ in self._tasks:
            raise BusyError("a request with this id is being answered", code="conflict")
        caller, progress = self._caller(), StreamProgress(id_)
        job = await self._in_turn(nbytes, lambda: route.read(body, {}, self._sockets.answering.settings.limits))
        dialect, framed_route = framed(style, route, progress)

        async def work() -> None:
            try:
                await answer(self._sockets.answering, dialect, framed_route, job, caller, self)
            except WoollyError as error:
                with suppress(GoneError):
                    await self.send(style.error(progress, in_http(error)))
            except GoneError:
                pass
            finally:
                self._sockets.state.open -= 1
                self._tasks.pop(id_, None)

        self._sockets.state.open += 1
        task = asyncio.create_task(work())
        self._tasks[id_] = (task, style, progress)
        return task

    async def _cancel(self, id_: Id | None) -> None:
        if id_ not in self._tasks:
            raise RequestError("there is no request with this id to cancel", param="id")
        task, style, progress = self._tasks[id_]
        task.cancel()
        await asyncio.gather(task, return_exceptions=True)
        await self.send(style.end(progress, "cancelled"))

    # MCP

    def _start(self, work: Awaitable[None]) -> asyncio.Task[None]:
        async def run() -> None:
            with suppress(GoneError):
                await work

        task = asyncio.create_task(run())
        self._mcp_tasks.add(task)
        task.add_done_callback(self._mcp_tasks.discard)
        return task

    async def _rpc(self, caller: Caller, message: Mapping[str, Any]) -> None:
        reply = await self._sockets.mcp.reply(caller, message)
        if reply is not None:
            await self.send(reply)

    async def _request(self, caller: Caller, message: Mapping[str, Any]) -> None:
        """Answer an envelope of the older documents: it has a handshake of its own, all else is as over JSON-RPC."""
        method, params = str(message.get("method")), message.get("params")
        response: dict[str, Any] = {"type": "response", "id": message.get("id")}
        try:
            response["result"] = await self._sockets.mcp.call(
                caller, method, params if isinstance(params, Mapping) else {}
            )
            if method == "initialize":
                response["result"] = OLD_HANDSHAKE | {"capabilities": response["result"]["capabilities"]}
        except RpcError as error:
            response["error"] = {"code": error.code, "message": error.message}
        await self.send(response)

    def _welcome(self) -> dict[str, Any]:
        return {
            "type": "welcome",
            "connection_id": self.id,
            "server_info": {"name": "woolly-server", "version": __version__, "protocol_version": OLD_VERSION},
            "capabilities": {
                "inference": {"completion": True, "chat": True, "streaming": True},
                "models": {"list": True, "load": True},
                "sessions": {"supported": True},
                "mcp": {"tools": True, "resources": True, "prompts": True},
            },
            "timestamp": now(),
        }
