"""Requests to other servers: the one client of Woolly that waits in a thread. (A gateway's, on its event loop, is in
`fleet/http.py`.)

What differs from use to use is in `Terms`: how long, through whose proxy, how many redirects. How much is read of an
answer, its reader says with each piece. A request has a connection of its own.

A redirect leads to no weaker scheme, and to another host only at an address that is public: a server must not make us
send requests to the user's own devices. A token goes to the host it is for and to no other. What a name means can
change from one moment to the next: the addresses that were looked at are those that are connected to. Behind a proxy it
is the proxy that looks names up, so what they mean here is all that can be checked.
"""

from __future__ import annotations

import base64
import contextlib
import http.client
import ipaddress
import math
import os
import re
import select
import socket
import ssl
import string
import threading
import time
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from typing import Self
from urllib.parse import SplitResult, quote, unquote, urljoin, urlsplit

from woolly.errors import DownloadError, printable
from woolly.io.cancellation import POLL_S, check, stopping
from woolly.version import __version__

AGENT = f"woolly/{__version__}"
REDIRECTS = (301, 302, 303, 307, 308)
PLACE = re.compile(r"(?:[A-Za-z0-9._-]+|\[[0-9A-Fa-f:.]+\])(?::\d{1,5})?")  # a host as every reader of URLs reads it


@dataclass(frozen=True, slots=True)
class Terms:
    """connect_s: to connect, and to send the request. wait_s: without a byte of the answer; None waits as long as the
    other machine is there. deadline_s: the time of the monotonic clock at which everything ends. redirects: that are
    followed after a GET. proxied: through the proxy that the environment names."""

    connect_s: float
    wait_s: float | None
    deadline_s: float = math.inf
    redirects: int = 0
    proxied: bool = False


class Response:
    """An answer whose body is not yet read. Each read raises OSError where the connection fails, and TimeoutError past
    the deadline. The end of the block closes the connection."""

    def __init__(self, connection: _Connection, response: http.client.HTTPResponse) -> None:
        self._connection, self._response = connection, response
        self.status, self.reason, self.headers = response.status, response.reason, response.headers

    def read(self, most: int) -> bytes:
        """The body, or its first `most` bytes."""
        with self._connection.failures(ValueError):
            return self._response.read(most)

    def read1(self, most: int) -> bytes:
        """At most so many bytes, as soon as there are any; none at the end."""
        with self._connection.failures(ValueError):
            return self._response.read1(most)

    def readline(self, most: int) -> bytes:
        with self._connection.failures(ValueError):
            return self._response.readline(most)

    def cut(self) -> None:
        """End what another thread, or the code that a signal interrupts, waits for."""
        self._connection.cut()

    def close(self) -> None:
        self._response.close()
        self._connection.close()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()


def ask(
    method: str,
    url: str,
    body: bytes | None = None,
    headers: Mapping[str, str] | None = None,
    *,
    terms: Terms,
    connected: Callable[[Callable[[], None]], None] = lambda cut: None,
) -> Response:
    """Send a request; the answer to it, of any status. Raises OSError as `Response` does, ValueError for a URL that is
    none, and DownloadError for a redirect to where none may lead. connected: given a function that ends the wait."""
    target, sent, followed = urlsplit(url), dict(headers or {}), 0
    foreign = False  # whether a redirect has led to another host
    while True:
        proxy = proxy_of(target) if terms.proxied else None
        connection = _Connection(target, proxy, _addresses(target, proxy) if foreign else (), terms)
        connected(connection.cut)
        answer = connection.exchange(method, body, sent)
        location = answer.headers.get("Location", "")
        if method != "GET" or answer.status not in REDIRECTS or not location or followed == terms.redirects:
            return answer
        answer.close()
        before, target, followed = target, _redirected(target, location), followed + 1
        foreign = foreign or target.hostname != before.hostname
        if (target.scheme, target.netloc) != (before.scheme, before.netloc):
            sent = {name: value for name, value in sent.items() if name.lower() != "authorization"}


def proxy_of(target: SplitResult) -> SplitResult | None:
    """The proxy that the environment names for requests to a URL."""
    import urllib.request  # late, because few requests have a proxy

    proxy = urllib.request.getproxies().get(target.scheme)
    if not proxy or urllib.request.proxy_bypass(target.netloc):
        return None
    return urlsplit(proxy if "://" in proxy else f"{target.scheme}://{proxy}")


class _Connection:
    """A connection for one request."""

    def __init__(
        self, target: SplitResult, proxy: SplitResult | None, addresses: tuple[str, ...], terms: Terms
    ) -> None:
        """addresses: the only ones of the host that are connected to; none: whatever its name means."""
        if target.scheme not in ("http", "https") or not target.hostname:
            raise ValueError(f"'{printable(target.netloc, 100)}' is no server")
        self._secure = "https" in (target.scheme, proxy.scheme if proxy else "")
        place = proxy or target
        host = place.hostname or ""
        self._http = http.client.HTTPConnection(host, place.port)
        if self._secure:
            self._context = ssl.create_default_context()
            self._context.set_alpn_protocols(["http/1.1"])
            self._http = http.client.HTTPSConnection(host, place.port, context=self._context)
        self._target, self._proxy, self._addresses, self._terms = target, proxy, addresses, terms
        self._sock: socket.socket | None = None
        self._timer: threading.Timer | None = None
        self._cut = self._late = False

    def exchange(self, method: str, body: bytes | None, headers: Mapping[str, str]) -> Response:
        target, headers = self._target, dict(headers)
        path = (target.path or "/") + (f"?{target.query}" if target.query else "")
        if self._proxy is not None:
            rights = _rights(self._proxy)
            if target.scheme == "https":
                self._http.set_tunnel(target.hostname or "", target.port or 443, rights)
            else:
                headers |= rights
                path = f"http://{target.netloc}{path}"
        try:
            with self.failures():
                sock = self._connect()
                self._http.request(method, path, body, headers)
                sock.settimeout(self._terms.wait_s)
                if self._terms.wait_s is None:
                    sock.setsockopt(socket.SOL_SOCKET, socket.SO_KEEPALIVE, 1)  # a machine that is gone is noticed
                return Response(self, self._http.getresponse())
        except BaseException:
            self.close()
            raise

    def cut(self) -> None:
        """End every wait, from any thread."""
        self._cut = True
        if self._sock is not None:
            with contextlib.suppress(OSError):  # the other side has closed it already
                self._sock.shutdown(socket.SHUT_RDWR)

    def close(self) -> None:
        if self._timer is not None:
            self._timer.cancel()
        self._http.close()
        if self._sock is not None:
            self._sock.close()

    @contextlib.contextmanager
    def failures(self, *more: type[Exception]) -> Iterator[None]:
        """Failures of http.client, and those of the kinds `more`, become an OSError. Nobody waits longer than somebody
        waits for the result."""
        try:
            with stopping(self.cut):
                yield
        except (OSError, http.client.HTTPException, ValueError) as error:
            check()
            if self._late:
                raise TimeoutError from None
            if isinstance(error, OSError) or not isinstance(error, (http.client.HTTPException, *more)):
                raise
            raise ConnectionError(str(error) or type(error).__name__) from error
        check()
        if self._late:  # what was read may be a part of what was sent
            raise TimeoutError

    def _connect(self) -> socket.socket:
        left = self._terms.deadline_s - time.monotonic()
        timeout = min(self._terms.connect_s, left)
        if timeout <= 0:
            raise TimeoutError
        if left < math.inf:
            self._timer = threading.Timer(left, self._end)
            self._timer.daemon = True
            self._timer.start()
        if self._proxy is not None:
            self._http.timeout = timeout
            self._http.connect()
            self._sock = self._http.sock
        else:
            self._http.sock = self._connect_directly(timeout)
        if self._cut:
            raise ConnectionAbortedError("nobody waits any more")
        assert self._sock is not None
        return self._sock

    def _connect_directly(self, timeout: float) -> socket.socket:
        self._sock = _socket(self._addresses or (self._http.host,), self._http.port, timeout)
        if self._secure:
            host = self._http.host
            secure = self._context.wrap_socket(self._sock, server_hostname=host, do_handshake_on_connect=False)
            self._sock = secure  # before the handshake, so that `cut` ends it too
            if not self._cut:
                secure.do_handshake()
        return self._sock

    def _end(self) -> None:
        self._late = True
        self.cut()


def _socket(hosts: tuple[str, ...], port: int, timeout: float) -> socket.socket:
    """A connection to the first address that answers."""
    failure: OSError = ConnectionError("it has no address")
    for host in hosts:
        for family, _, _, _, address in socket.getaddrinfo(host, port, type=socket.SOCK_STREAM):
            try:
                return connected(family, address, timeout)
            except OSError as error:
                failure = error
    raise failure


def connected(family: int, address: tuple[object, ...], timeout: float) -> socket.socket:
    """A connection to an address."""
    sock = socket.socket(family, socket.SOCK_STREAM)
    try:
        sock.setblocking(False)
        with contextlib.suppress(BlockingIOError):
            sock.connect(address)
        _wait_connected(sock, time.monotonic() + timeout)
        sock.settimeout(timeout)
    except BaseException:
        sock.close()
        raise
    return sock


def _wait_connected(sock: socket.socket, end_s: float) -> None:
    """Wait until a socket is connected, as long as somebody waits for the result."""
    poll = select.poll()
    poll.register(sock, select.POLLOUT)
    while not poll.poll(1000 * max(0.0, min(end_s - time.monotonic(), POLL_S))):
        check()
        if time.monotonic() >= end_s:
            raise TimeoutError
    if number := sock.getsockopt(socket.SOL_SOCKET, socket.SO_ERROR):
        raise OSError(number, os.strerror(number))


def _rights(proxy: SplitResult) -> dict[str, str]:
    """The header that a proxy with a password wants."""
    if not proxy.username or not proxy.password:
        return {}
    both = f"{unquote(proxy.username)}:{unquote(proxy.password)}"
    return {"Proxy-Authorization": f"Basic {base64.b64encode(both.encode()).decode()}"}


def _redirected(target: SplitResult, location: str) -> SplitResult:
    """Where a redirect leads."""
    url = urljoin(target.geturl(), quote(location, encoding="iso-8859-1", safe=string.punctuation))
    new = urlsplit(url)
    if new.scheme not in ("https", target.scheme):
        raise DownloadError(f"{printable(target.hostname)} sends on to {printable(url)}, which is not https")
    if not PLACE.fullmatch(new.netloc):
        raise ValueError("a redirect to no host")
    return new


def _addresses(target: SplitResult, proxy: SplitResult | None) -> tuple[str, ...]:
    """The addresses to connect to where a server has sent us on to another host."""
    if proxy is None:
        return _public_addresses(target.hostname or "")
    with contextlib.suppress(OSError):  # a host without an address here is left to the proxy
        _public_addresses(target.hostname or "")
    return ()


def _public_addresses(host: str) -> tuple[str, ...]:
    """The addresses of a host, all of which are public."""
    addresses = tuple(dict.fromkeys(str(row[4][0]) for row in socket.getaddrinfo(host, None)))
    if not all(map(_is_public, addresses)):
        raise DownloadError(f"the server sends on to {printable(host)}, a private address")
    return addresses


def _is_public(address: str) -> bool:
    ip = ipaddress.ip_address(address.partition("%")[0])
    return ip.is_global and not ip.is_multicast
