"""WebSockets: several requests at once over one connection, each admitted and answered as over HTTP.

The guard is asked before a connection is accepted, and again for each message. A message is answered by `answer`, the
handler of all dialects; this only reads messages, keeps the tasks that answer them, and stops those that are cancelled.
Whoever goes away, with or without a word, takes all of its requests along.
"""

from __future__ import annotations

import asyncio
import secrets
import time
from collections.abc import Awaitable, Mapping
from contextlib import suppress
from dataclasses import replace
from typing import TYPE_CHECKING, Any

import msgspec

from woolly import __version__
from woolly.errors import BusyError, NotFoundError, RequestError, WoollyError, printable
from woolly.mcp.rpc import INVALID_REQUEST, RpcError
from woolly.server.answer import answer
from woolly.server.body import read_json
from woolly.server.dialects import dialect_of
from woolly.server.dialects.socket import CAPITAL, Id, Said, Way, asked, door, now, refused
from woolly.server.door import Caller, Reply
from woolly.server.errors import row, too_many
from woolly.server.http import Http, Receive, Scope, Send
from woolly.server.line import ending

if TYPE_CHECKING:
    from woolly.server.app import App

PATHS = ("/api/v1/ws", "/api/v1/mcp/ws", "/ws", "/v1/stream")
AT_ONCE = 32  # requests of one connection
PROTOCOL = "bearer."  # in Sec-WebSocket-Protocol: a browser can send a key by no other way
SLOW, ENDING = 1008, 1001  # codes of a close
OLD_VERSION = "0.1.0"  # of the protocol of the founding documents
OLD_HANDSHAKE = {"protocol_version": OLD_VERSION, "server_info": {"name": "Woolly MCP Server", "version": __version__}}

_encode = msgspec.json.Encoder().encode


class GoneError(Exception):
    """The other side is not there any more, or takes nothing."""


async def converse(app: App, scope: Scope, receive: Receive, send: Send) -> None:
    """One connection, from its first byte to its last."""
    http = Http(dict(scope) | {"method": "GET"}, receive, send, app.guard.request_id(scope["headers"]))
    http.headers, protocol = _with_key(http.headers)
    await receive()  # websocket.connect
    try:
        app.guard.enter(http)
        if http.path not in PATHS:
            raise NotFoundError("there is no such route", suggestion=f"WebSockets are at {', '.join(PATHS)}")
        app.guard.admit(http, "anonymous")
        if app.draining:
            raise ending()
    except WoollyError as error:
        return await _refuse(http, send, error)
    await send({"type": "websocket.accept", "subprotocol": protocol})
    http.status = 101
    connection = Connection(app, http, send)
    app.sockets.add(connection)
    try:
        await connection.listen(receive)
    finally:
        app.sockets.discard(connection)
        await connection.stop_all()
        app.log.request(http, time.monotonic() - http.begun_s, None)


def _with_key(headers: Mapping[str, str]) -> tuple[Mapping[str, str], str | None]:
    """The headers with a key that came as a protocol, and that protocol, which must be repeated."""
    offered = [word.strip() for word in headers.get("sec-websocket-protocol", "").split(",")]
    found = next((word for word in offered if word.startswith(PROTOCOL)), None)
    if found is None or "authorization" in headers:
        return headers, None
    return {**headers, "authorization": f"Bearer {found.removeprefix(PROTOCOL)}"}, found


async def _refuse(http: Http, send: Send, error: WoollyError) -> None:
    """Answer the request for a WebSocket with the status of HTTP that says why there is none."""
    reply: Reply[Any] = Reply(dialect_of(http.path).error(error, http.id), row(error).status)
    body = _encode(reply.body)
    headers = [(b"content-type", b"application/json"), (b"content-length", str(len(body)).encode())]
    await send({"type": "websocket.http.response.start", "status": reply.status, "headers": headers})
    await send({"type": "websocket.http.response.body", "body": body})


class Connection:
    """What is being answered over one socket."""

    def __init__(self, app: App, http: Http, send: Send) -> None:
        self.id = secrets.token_hex(12)
        self.extra: dict[str, str] = {}  # headers, which a message has none of
        self._app, self._http, self._send = app, http, send
        self._tasks: dict[Id | None, tuple[asyncio.Task[None], Way, Said]] = {}
        self._others: set[asyncio.Task[None]] = set()  # answers of MCP
        self._one = asyncio.Lock()  # frames go out one after another

    async def listen(self, receive: Receive) -> None:
        """Read messages until the other side leaves."""
        with suppress(GoneError):
            await self.send(self._welcome())
            while (message := await receive())["type"] != "websocket.disconnect":
                if message.get("text") is None:
                    await self.send({"code": INVALID_REQUEST, "message": "messages are text, not binary"})
                else:
                    await self._read(message["text"])

    async def stop_all(self) -> None:
        """Stop all that is still being answered."""
        tasks = [*(task for task, _, _ in self._tasks.values()), *self._others]
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)

    async def send(self, value: object) -> None:
        await self.write(value if isinstance(value, bytes) else _encode(value))

    # A writer of `answer`

    async def begin(self, status: int, headers: Mapping[str, str]) -> None:
        pass

    async def reply(self, reply: Reply[Any]) -> None:
        raise AssertionError("answers are streamed")

    async def write(self, data: bytes, *, more: bool = True) -> None:
        """Send one message; whoever takes none of them for too long is dropped."""
        if not data:
            return
        try:
            async with asyncio.timeout(self._app.settings.limits.unread_s), self._one:
                await self._send({"type": "websocket.send", "text": data.decode()})
        except TimeoutError:
            await self._close(SLOW)
            raise GoneError from None
        except (OSError, RuntimeError):  # it has gone; what carries it says so in several ways
            raise GoneError from None

    async def _close(self, code: int) -> None:
        with suppress(Exception):
            await asyncio.wait_for(self._send({"type": "websocket.close", "code": code}), 1.0)

    # Messages

    async def _read(self, text: str) -> None:
        message: Mapping[str, Any] = {}
        id_: Any = None
        try:
            message = read_json(text.encode("utf-8", "surrogatepass"), self._app.settings.limits)
            id_ = message.get("id") if isinstance(message.get("id"), str | int | float) else None
            await self._dispatch(message, id_)
        except WoollyError as error:
            capital = message.get("type") in ("Generate", "StopGeneration")
            await self.send(CAPITAL.error(Said(None), error) if capital else refused(error, id_))

    async def _dispatch(self, message: Mapping[str, Any], id_: Id | None) -> None:
        kind = message.get("type")
        if "jsonrpc" in message:
            self._beside(self._rpc(self._caller(), message))
        elif kind == "request":
            self._beside(self._request(self._caller(), message))
        elif kind == "notification":
            return
        elif kind == "cancel":
            await self._cancel(id_)
        elif kind == "StopGeneration":
            await self._cancel(None)
        elif kind == "Ping":
            await self.send({"type": "Pong"})
        elif kind == "GetStats":
            uptime = int(time.monotonic() - self._app.started_s)
            await self.send({"type": "Stats", "connections": len(self._app.sockets), "uptime_secs": uptime})
        elif (found := asked(message)) is not None:
            self._answer(id_ if kind in ("generate", "chat") else None, *found)
        else:
            raise RequestError(f"there is no message of type {printable(kind)}", param="type")

    def _caller(self) -> Caller:
        """Who asks, as if by a request of its own, if there may be one more."""
        if len(self._tasks) + len(self._others) >= AT_ONCE:
            raise too_many(f"{AT_ONCE} requests of this connection are being answered", 1)
        if self._app.draining:
            raise ending()
        caller = self._app.guard.admit(self._http, "anonymous")
        begun = asyncio.get_running_loop().time()
        return replace(caller, begun_s=begun, deadline_s=begun + self._app.settings.limits.request_timeout)

    def _answer(self, id_: Id | None, way: Way, route: Any, body: Mapping[str, Any]) -> None:
        if id_ in self._tasks:
            raise BusyError("a request with this id is being answered", code="conflict")
        caller, said = self._caller(), Said(id_)
        job = route.read(body, {}, self._app.settings.limits)
        dialect, entered = door(way, route, said)

        async def work() -> None:
            try:
                await answer(self._app, dialect, entered, job, caller, self)
            except WoollyError as error:
                with suppress(GoneError):
                    await self.send(way.error(said, error))
            except GoneError:
                pass
            finally:
                self._app.open -= 1
                self._tasks.pop(id_, None)

        self._app.open += 1
        self._tasks[id_] = (asyncio.create_task(work()), way, said)

    async def _cancel(self, id_: Id | None) -> None:
        if id_ not in self._tasks:
            raise RequestError("there is no request with this id to cancel", param="id")
        task, way, said = self._tasks[id_]
        task.cancel()
        await asyncio.gather(task, return_exceptions=True)
        await self.send(way.end(said, "cancelled"))

    # MCP

    def _beside(self, work: Awaitable[None]) -> None:
        async def run() -> None:
            with suppress(GoneError):
                await work

        task = asyncio.create_task(run())
        self._others.add(task)
        task.add_done_callback(self._others.discard)

    async def _rpc(self, caller: Caller, message: Mapping[str, Any]) -> None:
        made = await self._app.mcp.reply(caller, message)
        if made is not None:
            await self.send(made)

    async def _request(self, caller: Caller, message: Mapping[str, Any]) -> None:
        """An envelope of the founding documents: its handshake has their words, all else is as over JSON-RPC."""
        method, params = str(message.get("method")), message.get("params")
        made: dict[str, Any] = {"type": "response", "id": message.get("id")}
        try:
            made["result"] = await self._app.mcp.call(caller, method, params if isinstance(params, Mapping) else {})
            if method == "initialize":
                made["result"] = OLD_HANDSHAKE | {"capabilities": made["result"]["capabilities"]}
        except RpcError as error:
            made["error"] = {"code": error.code, "message": error.message}
        await self.send(made)

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
