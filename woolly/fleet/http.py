"""Requests that a gateway and its replicas send each other: HTTP/1.1, each over a connection of its own.

httptools parses, as it does for our own server. A connection is never used twice: a new one costs a fraction of a
millisecond in these networks, and no request is sent on one that the other side has just closed.
"""

from __future__ import annotations

import asyncio
import contextlib
import ipaddress
import re
import ssl
from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from typing import cast
from urllib.parse import urlsplit

import httptools

from woolly.errors import DownloadError, RequestError, printable

CONNECT_S = 2.0
HOST = re.compile(r"[A-Za-z0-9._-]+|[0-9A-Fa-f:.]+(?:%[A-Za-z0-9._-]+)?")  # a name, or an address


@dataclass(frozen=True, slots=True)
class Address:
    """Where a process listens. checked: the IP addresses that its host may mean; none: whatever it means."""

    host: str
    port: int
    secure: bool = False
    checked: tuple[str, ...] = ()

    def __str__(self) -> str:
        return f"http{'s' * self.secure}://{self.netloc}"

    @property
    def netloc(self) -> str:
        return f"[{self.host}]:{self.port}" if ":" in self.host else f"{self.host}:{self.port}"


def read_address(url: str, what: str) -> Address:
    """The address of a URL that has a host and no path."""
    try:
        parts = urlsplit(url)
        host, port = parts.hostname or "", parts.port
    except ValueError:
        parts, host, port = urlsplit(""), "", None
    if (
        not HOST.fullmatch(host)
        or parts.scheme not in ("http", "https")
        or parts.path not in ("", "/")
        or parts.query
        or parts.username
    ):
        raise RequestError(f"{what} is '{printable(url)}'; expected a URL as http://HOST:PORT", param=what)
    secure = parts.scheme == "https"
    return Address(host, port or (443 if secure else 80), secure)


async def check_private(address: Address) -> Address:
    """Refuse an unencrypted connection that leaves the private networks: tokens and the secret could be read there.
    Connections are made to what the host means now, because a name can mean something else a moment later."""
    if address.secure:
        return address
    try:
        addresses = await asyncio.get_running_loop().getaddrinfo(address.host, address.port)
    except (OSError, UnicodeError):  # the second: a name that no host can have
        raise RequestError(f"nobody knows the host of {printable(str(address))}", param="url") from None
    for row in addresses:
        ip = ipaddress.ip_address(str(row[4][0]).partition("%")[0])
        if not (ip.is_private or ip.is_loopback or ip.is_link_local):
            raise RequestError(
                f"{printable(str(address))} lies outside of private networks, and the way there is not encrypted",
                suggestion="use https, or --insecure if nobody else can listen",
                param="url",
            )
    return replace(address, checked=tuple(dict.fromkeys(str(row[4][0]) for row in addresses)))


class Exchange(asyncio.Protocol):
    """One request, and its answer as it comes: `take` is given the body piece by piece.

    status: that of the answer; 0 where none came. complete: whether the answer came to its end. Neither future fails.
    """

    def __init__(self, take: Callable[[bytes], None]) -> None:
        loop = asyncio.get_running_loop()
        self.status: asyncio.Future[int] = loop.create_future()
        self.complete: asyncio.Future[bool] = loop.create_future()
        self.transport: asyncio.Transport | None = None
        self._parser = httptools.HttpResponseParser(self)
        self._take = take

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self.transport = cast(asyncio.Transport, transport)

    def data_received(self, data: bytes) -> None:
        try:
            self._parser.feed_data(data)
        except httptools.HttpParserError:
            self.abort()

    def connection_lost(self, exc: Exception | None) -> None:
        self._end(False)

    def on_headers_complete(self) -> None:
        if not self.status.done():
            self.status.set_result(self._parser.get_status_code())

    def on_body(self, body: bytes) -> None:
        self._take(body)

    def on_message_complete(self) -> None:
        self._end(True)

    def abort(self) -> None:
        """Drop the connection; the other side sees that nobody listens any more."""
        self._end(False)
        if self.transport is not None:
            self.transport.abort()

    def _end(self, complete: bool) -> None:
        if not self.status.done():
            self.status.set_result(0)
        if not self.complete.done():
            self.complete.set_result(complete)


async def begin(
    address: Address,
    method: str,
    path: str,
    body: bytes,
    headers: Mapping[str, str],
    take: Callable[[bytes], None],
) -> Exchange:
    """Send a request; raises DownloadError where nobody listens."""
    rows = {
        "host": address.netloc,
        "content-length": str(len(body)),
        "content-type": "application/json",
        "connection": "close",
        **headers,
    }
    head = f"{method} {path} HTTP/1.1\r\n" + "".join(f"{name}: {value}\r\n" for name, value in rows.items()) + "\r\n"
    try:
        async with asyncio.timeout(CONNECT_S):
            transport, exchange = await _connect(address, take)
    except (OSError, TimeoutError) as error:
        raise DownloadError(f"{address} does not answer: {printable(error or 'it takes too long')}") from None
    transport.write(head.encode("latin-1") + body)
    return exchange


async def _connect(address: Address, take: Callable[[bytes], None]) -> tuple[asyncio.Transport, Exchange]:
    """A connection to the first of the checked addresses that answers."""
    loop, context = asyncio.get_running_loop(), ssl.create_default_context() if address.secure else None
    *others, last = address.checked or (address.host,)
    for host in others:
        with contextlib.suppress(OSError):
            return await loop.create_connection(lambda: Exchange(take), host, address.port)
    return await loop.create_connection(lambda: Exchange(take), last, address.port, ssl=context)


async def ask(
    address: Address, method: str, path: str, body: bytes, headers: Mapping[str, str], *, most: int, timeout_s: float
) -> tuple[int, bytes]:
    """Send a request; returns the status and body of its answer, which has at most `most` bytes."""
    data = bytearray()
    exchange: Exchange | None = None

    def take(piece: bytes) -> None:
        data.extend(piece)
        if len(data) > most and exchange is not None:
            exchange.abort()

    try:
        async with asyncio.timeout(timeout_s):
            exchange = await begin(address, method, path, body, headers, take)
            complete = await exchange.complete
    except TimeoutError:
        raise DownloadError(f"{address} does not answer: it takes too long") from None
    finally:
        if exchange is not None:
            with contextlib.suppress(OSError):
                exchange.abort()
    if not complete or len(data) > most:
        raise DownloadError(f"{address} broke off its answer")
    return exchange.status.result(), bytes(data)
