"""Rows of a batch that a server answers: each is a request of its own over HTTP, sent again where no answer came.

A request changes nothing at the server and its answer depends on the request alone, so that sending it twice does no
harm: both give the same answer.
"""

from __future__ import annotations

import asyncio
import contextlib
import threading
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor

import msgspec

from woolly.cli.chat.remote import Server
from woolly.errors import DownloadError, printable
from woolly.io.http import Response
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
    waits = _Waits()

    async def ask(row: BatchRow) -> RowResult:
        return await asyncio.get_running_loop().run_in_executor(threads, _ask, server, row, waits)

    try:
        yield ask
    finally:
        threads.shutdown(wait=False, cancel_futures=True)
        waits.end()


class _Waits:
    """What threads wait for, so that all of it can be ended at once."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._cuts: set[Callable[[], None]] | None = set()

    @contextlib.contextmanager
    def one(self) -> Iterator[Callable[[Callable[[], None]], None]]:
        """A function for `connected`, whose wait counts until the end of the block."""
        mine: list[Callable[[], None]] = []

        def begin(cut: Callable[[], None]) -> None:
            with self._lock:
                if self._cuts is None:
                    raise OSError("nobody waits any more")
                self._cuts.add(cut)
            mine.append(cut)

        try:
            yield begin
        finally:
            with self._lock:
                if self._cuts is not None:
                    self._cuts.difference_update(mine)

    def end(self) -> None:
        with self._lock:
            cuts, self._cuts = self._cuts or (), None
        for cut in cuts:
            cut()


def _ask(server: Server, row: BatchRow, waits: _Waits) -> RowResult:
    path, headers = row.url.removeprefix("/v1"), {"X-Request-Id": row.request_id}
    try:
        with waits.one() as begin, server.send("POST", path, row.body, headers=headers, connected=begin) as answer:
            return _result(server, answer, answer.read(LIMITS.batch_answer))
    except DownloadError as error:
        raise Retry(error.message) from None
    except OSError as error:
        raise Retry(f"the server at {server.url} broke off: {printable(error)}") from None


def _result(server: Server, answer: Response, data: bytes) -> RowResult:
    status, headers = answer.status, answer.headers
    if status in KEY:
        raise server.refusal(status, data)
    if status in BUSY:
        raise Retry(server.refusal(status, data).message, _seconds(headers.get("Retry-After")))
    if status == 200 and "request_timeout" in headers.get("X-Woolly-Notes", ""):
        return RowResult(504, {"error": LATE})  # a time limit: another run would reach it elsewhere in the answer
    try:
        body = msgspec.json.decode(data)
    except msgspec.DecodeError:
        raise Retry(f"the server at {server.url} does not speak OpenAI's dialect") from None
    return RowResult(status, body)


def _seconds(header: str | None) -> float:
    try:
        return min(max(float(header or 0), 0.0), LONGEST_S)
    except ValueError:  # Retry-After was a date
        return 0.0
