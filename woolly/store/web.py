"""One HTTP request for bytes: which hosts may be asked, and which redirects are followed.

At most five redirects; none to a weaker scheme; none from outside to an address of this machine or its network, because
a server must not make us send requests to the user's own devices. A token goes to the host it is for and to no other.

What a name means can change from one moment to the next: the addresses that were looked at are those that are connected
to. Behind a proxy it is the proxy that looks names up, so what they mean here is all that can be checked.
"""

from __future__ import annotations

import contextlib
import http.client
import ipaddress
import re
import socket
import ssl
import urllib.error
import urllib.parse
import urllib.request
from collections.abc import Mapping
from typing import IO

from woolly.errors import DownloadError, printable
from woolly.limits import LIMITS
from woolly.version import __version__

AGENT = f"woolly/{__version__}"
PLACE = re.compile(r"(?:[A-Za-z0-9._-]+|\[[0-9A-Fa-f:.]+\])(?::\d{1,5})?")  # a host as every reader of URLs reads it


def open_url(url: str, headers: Mapping[str, str]) -> http.client.HTTPResponse:
    """The answer to a GET, its body not yet read; urllib's errors for what goes wrong on the way."""
    try:
        request = urllib.request.Request(url, headers={"User-Agent": AGENT, "Accept-Encoding": "identity", **headers})
        opener = urllib.request.build_opener(_Redirects, _Http, _Https)
        answer: http.client.HTTPResponse = opener.open(request, timeout=LIMITS.stall_s)
        return answer
    except ValueError:  # a scheme, a host or a port that cannot be; the address itself may hold a secret
        raise DownloadError(
            "the address, or one that the server sends on to, is none", suggestion="look at it, and at HF_ENDPOINT"
        ) from None


class _SentOn(urllib.request.Request):
    """A request to another host than the one that was named here."""


class _Redirects(urllib.request.HTTPRedirectHandler):
    max_redirections = LIMITS.redirects
    max_repeats = LIMITS.redirects

    def redirect_request(
        self,
        req: urllib.request.Request,
        fp: IO[bytes],
        code: int,
        msg: str,
        headers: http.client.HTTPMessage,
        newurl: str,
    ) -> urllib.request.Request | None:
        old, new = urllib.parse.urlsplit(req.full_url), urllib.parse.urlsplit(newurl)
        if new.scheme not in ("https", old.scheme):
            raise DownloadError(f"{printable(old.hostname)} sends on to {printable(newurl)}, which is not https")
        if not PLACE.fullmatch(new.netloc):
            raise ValueError
        request = super().redirect_request(req, fp, code, msg, headers, newurl)
        if request is None:
            return None
        if isinstance(req, _SentOn) or new.hostname != old.hostname:
            request = _SentOn(request.full_url, headers=request.headers, unverifiable=True)
        if (new.scheme, new.netloc) != (old.scheme, old.netloc):
            request.remove_header("Authorization")
        return request


class _Http(urllib.request.HTTPHandler):
    def http_open(self, req: urllib.request.Request) -> http.client.HTTPResponse:
        return self.do_open(_Direct if _is_direct(req) else http.client.HTTPConnection, req)


class _Https(urllib.request.HTTPSHandler):
    def https_open(self, req: urllib.request.Request) -> http.client.HTTPResponse:
        return self.do_open(_DirectTls if _is_direct(req) else http.client.HTTPSConnection, req)


def _is_direct(request: urllib.request.Request) -> bool:
    """Whether we connect to the host that a server sends us on to; one that a proxy connects to is checked here."""
    if not isinstance(request, _SentOn):
        return False
    target = urllib.parse.urlsplit(request.full_url)
    if request.host == target.netloc:
        return True
    with contextlib.suppress(OSError):  # a host without an address here is left to the proxy
        _public_addresses(target.hostname or "")
    return False


class _Direct(http.client.HTTPConnection):
    """A connection to one of the addresses that were checked."""

    def connect(self) -> None:
        self.sock = _connect(self.host, self.port, self.timeout)


class _DirectTls(http.client.HTTPSConnection):
    def connect(self) -> None:
        context = ssl.create_default_context()
        self.sock = context.wrap_socket(_connect(self.host, self.port, self.timeout), server_hostname=self.host)


def _connect(host: str, port: int, timeout: float | None) -> socket.socket:
    *others, last = _public_addresses(host)
    for address in others:
        with contextlib.suppress(OSError):
            return socket.create_connection((address, port), timeout)
    return socket.create_connection((last, port), timeout)


def _public_addresses(host: str) -> list[str]:
    """The addresses of a host, all of which are public."""
    addresses = list(dict.fromkeys(str(row[4][0]) for row in socket.getaddrinfo(host, None)))
    if not all(map(_is_public, addresses)):
        raise DownloadError(f"the server sends on to {printable(host)}, a private address")
    return addresses


def _is_public(address: str) -> bool:
    ip = ipaddress.ip_address(address.partition("%")[0])
    return ip.is_global and not ip.is_multicast
