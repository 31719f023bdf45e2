"""A GET for the bytes of a model, or for a list of them, from wherever the user's settings and the hub lead."""

from __future__ import annotations

from collections.abc import Mapping

from woolly.errors import DownloadError, printable
from woolly.io.http import AGENT, Response, Terms, ask
from woolly.limits import LIMITS


def open_url(url: str, headers: Mapping[str, str]) -> Response:
    """The answer, of any status but a redirect that is followed, its body not yet read. Raises OSError for what goes
    wrong on the way."""
    terms = Terms(LIMITS.stall_s, LIMITS.stall_s, redirects=LIMITS.redirects, proxied=True)
    try:
        return ask("GET", url, headers={"User-Agent": AGENT, "Connection": "close", **headers}, terms=terms)
    except ValueError:  # a scheme, a host or a port that cannot be; the address itself may hold a secret
        raise DownloadError(
            "the address, or one that the server sends on to, is none", suggestion="look at it, and at HF_ENDPOINT"
        ) from None


def short_reason(error: OSError) -> str:
    """The reason of a failed connection, in a few words."""
    if isinstance(error, TimeoutError):
        return f"nothing came for {LIMITS.stall_s:.0f} seconds"
    return printable(error.strerror or error) or type(error).__name__
