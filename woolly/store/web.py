"""One HTTP request for bytes: which hosts may be asked, and which redirects are followed.

At most five redirects; none to a weaker scheme; none from outside to an address of this machine or its network, because
a server must not make us send requests to the user's own devices. A token goes to the host it is for and to no other.
"""

from __future__ import annotations

import http.client
import ipaddress
import socket
import urllib.error
import urllib.parse
import urllib.request
from collections.abc import Mapping
from typing import IO

from woolly.errors import DownloadError, printable
from woolly.limits import LIMITS
from woolly.version import __version__

AGENT = f"woolly/{__version__}"


def open_url(url: str, headers: Mapping[str, str]) -> http.client.HTTPResponse:
    """The answer to a GET, its body not yet read; urllib's errors for what goes wrong on the way."""
    try:
        request = urllib.request.Request(url, headers={"User-Agent": AGENT, "Accept-Encoding": "identity", **headers})
        answer: http.client.HTTPResponse = urllib.request.build_opener(_Redirects).open(request, timeout=LIMITS.stall_s)
        return answer
    except ValueError:  # a scheme, a host or a port that cannot be; the address itself may hold a secret
        raise DownloadError(
            "the address, or one that the server sends on to, is none", suggestion="look at it, and at HF_ENDPOINT"
        ) from None


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
        if new.hostname != old.hostname and not _is_public(new.hostname or ""):
            raise DownloadError(f"{printable(old.hostname)} sends on to {printable(new.hostname)}, a private address")
        request = super().redirect_request(req, fp, code, msg, headers, newurl)
        if request is not None and (new.scheme, new.netloc) != (old.scheme, old.netloc):
            request.remove_header("Authorization")
        return request


def _is_public(host: str) -> bool:
    """Whether every address of a host is public; a host without one here is left to the proxy, or fails."""
    try:
        addresses = {str(row[4][0]) for row in socket.getaddrinfo(host, None)}
    except OSError:
        return True
    return all(ipaddress.ip_address(address.partition("%")[0]).is_global for address in addresses)
