"""Rows of a batch that a server answers: each is a request of its own over HTTP, sent again where no answer came.

A request changes nothing at the server and its answer depends on the request alone, so that sending it twice does no
harm: both give the same answer.
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
from woolly.server.batch import BatchRow, Retry, RowAnswerer, RowResult

BUSY = (429, 502, 503)  # the server may answer later
KEY = (401, 403)  # the server would refuse every row
LONGEST_S = 60.0  # the longest Retry-After that is obeyed
LATE = {"message": "the answer took too long", "type": "server_error", "param": None, "code": "timeout"}


@contextlib.contextmanager
def row_answerer(server: Server, at_once: int) -> Iterator[RowAnswerer]:
    """A function that sends a row to the server; the end of the block cuts every request that still waits."""
    threads = ThreadPoolExecutor(at_once, thread_name_prefix="woolly-row")
    sockets = _Sockets()

    async def ask(row: BatchRow) -> RowResult:
        return await asyncio.get_running_loop().run_in_executor(threads, _ask, server, row, sockets)

    try:
        yield ask
    finally:
        threads.shutdown(wait=False, cancel_futures=True)
        sockets.shut_down()


class _Sockets:
    """The sockets on which threads wait for answers, so that all of them can be shut down at once."""

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
            with contextlib.suppress(OSError):  # the server has closed it already
                sock.shutdown(socket.SHUT_RDWR)


def _ask(server: Server, row: BatchRow, sockets: _Sockets) -> RowResult:
    path, headers = row.url.removeprefix("/v1"), {"X-Request-Id": row.request_id}
    try:
        reply = server.send("POST", path, row.body, headers=headers, connected=sockets.add)
        try:
            data = reply.answer.read(LIMITS.batch_answer)
        finally:
            sockets.remove(reply.sock)
            reply.connection.close()
        return _result(server, reply.answer, data)
    except DownloadError as error:
        raise Retry(error.message) from None
    except (OSError, http.client.HTTPException) as error:
        raise Retry(f"the server at {server.url} broke off: {printable(error)}") from None


def _result(server: Server, answer: http.client.HTTPResponse, data: bytes) -> RowResult:
    if answer.status in KEY:
        raise server.refusal(answer.status, data)
    if answer.status in BUSY:
        raise Retry(server.refusal(answer.status, data).message, _seconds(answer.getheader("Retry-After")))
    if answer.status == 200 and "request_timeout" in (answer.getheader("X-Woolly-Notes") or ""):
        return RowResult(504, {"error": LATE})  # a time limit: another run would reach it elsewhere in the answer
    try:
        body = msgspec.json.decode(data)
    except msgspec.DecodeError:
        raise Retry(f"the server at {server.url} does not speak OpenAI's dialect") from None
    return RowResult(answer.status, body)


def _seconds(header: str | None) -> float:
    try:
        return min(max(float(header or 0), 0.0), LONGEST_S)
    except ValueError:  # Retry-After was a date
        return 0.0
