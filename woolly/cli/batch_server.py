"""Rows of a batch that a server answers: each is a request of its own over HTTP, asked again where nobody answered.

A request changes nothing at the server and its answer depends on itself alone, so that asking twice does no harm: what
came of the first time is not there, and the second gives the same.
"""

from __future__ import annotations

import asyncio
import contextlib
import http.client
import socket
import threading
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor

import msgspec

from woolly.cli.chat.remote import Server
from woolly.errors import DownloadError, printable
from woolly.limits import LIMITS
from woolly.server.batch import Ask, Later, Row, Said

BUSY = (429, 502, 503)  # what passes by itself
KEY = (401, 403)  # no row would be answered
LONGEST_S = 60.0  # that a server may tell us to wait
LATE = {"message": "the answer took too long", "type": "server_error", "param": None, "code": "timeout"}


@contextlib.contextmanager
def asking(server: Server, at_once: int) -> Iterator[Ask]:
    """What asks the server; at the end of the block nothing is waited for any more."""
    threads = ThreadPoolExecutor(at_once, thread_name_prefix="woolly-row")
    sockets = _Sockets()

    async def ask(row: Row) -> Said:
        return await asyncio.get_running_loop().run_in_executor(threads, _ask, server, row, sockets)

    try:
        yield ask
    finally:
        threads.shutdown(wait=False, cancel_futures=True)
        sockets.shut_down()


class _Sockets:
    """Those over which answers are waited for."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._open: set[socket.socket] | None = set()

    def add(self, sock: socket.socket) -> None:
        with self._lock:
            if self._open is None:
                raise OSError("nobody waits any more")
            self._open.add(sock)

    def remove(self, sock: socket.socket) -> None:
        with self._lock:
            if self._open is not None:
                self._open.discard(sock)

    def shut_down(self) -> None:
        with self._lock:
            left, self._open = self._open or (), None
        for sock in left:
            with contextlib.suppress(OSError):  # the other side was faster
                sock.shutdown(socket.SHUT_RDWR)


def _ask(server: Server, row: Row, sockets: _Sockets) -> Said:
    path, headers = row.url.removeprefix("/v1"), {"X-Request-Id": row.request_id}
    try:
        reply = server.send("POST", path, row.body, headers=headers, connected=sockets.add)
        try:
            data = reply.answer.read(LIMITS.batch_answer)
        finally:
            sockets.remove(reply.sock)
            reply.connection.close()
        return _said(server, reply.answer, data)
    except DownloadError as error:
        raise Later(error.message) from None
    except (OSError, http.client.HTTPException) as error:
        raise Later(f"the server at {server.url} broke off: {printable(error)}") from None


def _said(server: Server, answer: http.client.HTTPResponse, data: bytes) -> Said:
    if answer.status in KEY:
        raise server.refusal(answer.status, data)
    if answer.status in BUSY:
        raise Later(server.refusal(answer.status, data).message, _seconds(answer.getheader("Retry-After")))
    if answer.status == 200 and "request_timeout" in (answer.getheader("X-Woolly-Notes") or ""):
        return Said(504, {"error": LATE})  # cut short by the clock: another run would cut it elsewhere
    try:
        body = msgspec.json.decode(data)
    except msgspec.DecodeError:
        raise Later(f"the server at {server.url} does not speak OpenAI's dialect") from None
    return Said(answer.status, body)


def _seconds(told: str | None) -> float:
    try:
        return min(max(float(told or 0), 0.0), LONGEST_S)
    except ValueError:  # a date
        return 0.0
