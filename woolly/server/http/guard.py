"""The guard before every route: it checks the host, the page that asks (origin), the key and the size of the body.

Denies by default. A name in `Host` that is not one of this server's is refused, because a page of another site may have
made that name point here. A page (`Origin`) that is neither of this machine nor listed is refused whatever it sends.
"""

from __future__ import annotations

import hashlib
import hmac
import ipaddress
import re
import secrets
import socket
from collections.abc import Callable, Mapping
from dataclasses import replace
from urllib.parse import urlsplit

from woolly.config import Settings
from woolly.config.serving import Serving
from woolly.errors import RequestError, printable
from woolly.server.http.addresses import client_address, neighbours_of
from woolly.server.http.caller import Access, Caller, has_key
from woolly.server.http.errors import key_needed, too_many
from woolly.server.http.rate import Rate
from woolly.server.http.request import Http, too_large
from woolly.server.http.tokens import Tokens
from woolly.server.settings import is_loopback

LOCAL = ("localhost", "127.0.0.1", "[::1]")
FLEET_SECRET = "x-woolly-fleet"  # the header of the secret that a gateway and its replicas share
SCHEMES = ("app", "file", "tauri", "vscode-webview")  # of desktop programs; no web site has one of these
WILDCARDS = ("0.0.0.0", "::", "")
ALLOW_HEADERS = (
    "Content-Type, Authorization, X-API-Key, X-Ole-Client, X-Request-Id, X-Woolly-Model, X-Woolly-Seed, "
    "X-Woolly-Strict, Last-Event-ID, Accept, User-Agent"
)
SDK_HEADERS = ("anthropic-", "openai-", "x-stainless-")  # of the official SDKs, which have new ones with time
ALLOW_METHODS = "GET, POST, PUT, PATCH, DELETE, OPTIONS"
EXPOSE = "X-Request-Id, X-Woolly-Cache, X-Woolly-Model, X-Woolly-Notes, X-Woolly-Sampling, X-Woolly-Seed, Retry-After"
SAFE = {"x-content-type-options": "nosniff", "x-frame-options": "DENY", "referrer-policy": "no-referrer"}

_HOST = re.compile(r"(?P<name>\[[0-9a-f:.]+\]|[a-z0-9._-]+)(?::(?P<port>\d{1,5}))?", re.IGNORECASE)
_ID = re.compile(r"[\x21-\x7e]+")
_HEADER = re.compile(r"[a-z0-9-]{1,64}")


class Guard:
    """unstreamed_s: how long a client with these headers waits for an answer that is not streamed."""

    def __init__(
        self, settings: Settings, secret: bytes, unstreamed_s: Callable[[Mapping[str, str], Serving], float]
    ) -> None:
        self.settings = settings
        self._unstreamed_s = unstreamed_s
        self._secret = secret  # of the user: equal keys have equal salts after a restart, and nobody can guess them
        self.tokens = Tokens(settings.keys, secret=settings.token_secret, life_s=settings.token_life_s)
        self._known = Rate(settings.known_rpm, settings.burst)
        self._strangers = Rate(settings.anonymous_rpm, settings.burst)
        self._proxies = tuple(map(ipaddress.ip_network, settings.proxies))
        bound = [host.lower() for host, _ in settings.addresses]
        self._names = {*LOCAL, *bound, *(f"[{host}]" for host in bound), *settings.hosts}
        self._wildcard = any(host in WILDCARDS for host in bound)
        if self._wildcard:
            self._names.add(socket.gethostname().lower())

    def renew(self, settings: Settings) -> None:
        """Take the keys, and how many requests a minute each may send, from settings that were read again."""
        names = ("keys", "anonymous", "known_rpm", "anonymous_rpm", "burst")
        self.settings = replace(self.settings, **{name: getattr(settings, name) for name in names})
        self.tokens.keys = settings.keys
        self._known = Rate(settings.known_rpm, settings.burst)
        self._strangers = Rate(settings.anonymous_rpm, settings.burst)

    def request_id(self, headers: list[tuple[bytes, bytes]]) -> str:
        """The client's own id if it is harmless, else a new one."""
        for name, value in headers:
            text = value.decode("latin-1")
            if name == b"x-request-id" and len(text) <= self.settings.limits.request_id and _ID.fullmatch(text):
                return text
        return "req_" + secrets.token_hex(12)

    def enter(self, http: Http) -> None:
        """The checks before any route is looked for."""
        http.extra |= SAFE | {"x-request-id": http.id}
        self._host(http)
        self._origin(http)
        self._readable(http)

    def fits(self, http: Http, most: int) -> None:
        """Refuse a body that is announced with more bytes than its route reads, before it comes."""
        if http.announced > most:
            raise too_large(most)

    def admit(self, http: Http, access: Access) -> Caller:
        """The caller of a request; raises where it may not use a route with this access."""
        key, address = self._key(http), client_address(http.peer, http.scope["headers"], self._proxies)
        caller = Caller(
            name=key or address,
            salt=hashlib.blake2b((key or "").encode(), key=self._secret, digest_size=16).digest(),
            begun_s=http.begun_s,
            deadline_s=http.begun_s + self.settings.limits.request_timeout,
            unstreamed_s=self._unstreamed_s(http.headers, self.settings.limits),
            strict=self.settings.strict or http.headers.get("x-woolly-strict", "0") not in ("", "0"),
            digest="x-woolly-model" in http.headers,
            trusted=self.trusts(key or address),
            seen=_number(http, "last-event-id"),
            seed=_number(http, "x-woolly-seed"),
            address=address,
        )
        if access == "fleet":
            self._fleet(http, address)
        if access in ("open", "fleet"):
            return caller
        wait = self._strangers.take(neighbours_of(caller.name)) if key is None else self._known.take(key)
        if wait:
            raise too_many("too many requests in a minute", wait)
        if key is None and (not self.settings.anonymous or (access == "key" and self.settings.keys)):
            raise key_needed()
        return caller

    def admits(self, name: str) -> bool:
        """Whether a caller of this name may ask at all: for work that outlives its request, and the server."""
        return name in self.tokens.names if has_key(name) else self.settings.anonymous

    def trusts(self, name: str) -> bool:
        """Whether a caller has a key, or none is asked for."""
        return has_key(name) or not self.settings.keys

    def _fleet(self, http: Http, address: str) -> None:
        """Refuse whoever does not know the secret of the fleet. Without a secret a fleet is of one machine, where any
        process may belong to it, but no page; and where clients need a key, so does a fleet."""
        secret = self.settings.fleet_key
        sent = http.headers.get(FLEET_SECRET, "")
        is_process = is_loopback(address) and "origin" not in http.headers
        if hmac.compare_digest(sent.encode(), secret.encode()) if secret else is_process and not self.settings.keys:
            return
        raise RequestError(
            "this is for members of the fleet, which know its secret",
            suggestion="set WOOLLY_FLEET_KEY to the same value at the gate and at every replica",
            code="authentication_failed",
        )

    def preflight(self, wanted: str) -> dict[str, str]:
        """The headers by which a browser decides whether a page may send a request. wanted: the names of headers, in
        lower case, that the page would send."""
        names = dict.fromkeys(map(str.strip, wanted.split(",")))
        sdk = [name for name in names if name.startswith(SDK_HEADERS) and _HEADER.fullmatch(name)]
        return {
            "access-control-allow-methods": ", ".join(self.settings.cors_methods) or ALLOW_METHODS,
            "access-control-allow-headers": ", ".join(self.settings.cors_headers or (ALLOW_HEADERS, *sdk)),
            "access-control-max-age": str(self.settings.cors_max_age),
        }

    def _host(self, http: Http) -> None:
        values = [value.decode("latin-1") for name, value in http.scope["headers"] if name == b"host"]
        if len(values) != 1:
            raise RequestError("a request has exactly one Host header", param="Host")
        match = _HOST.fullmatch(values[0])
        name = match["name"].lower() if match else ""
        if name in self._names or (self._wildcard and _is_address(name)):
            return
        raise RequestError(
            "this server does not answer to that Host",
            suggestion="use its address, or list the name in server.allowed_hosts",
            code="access_denied",
        )

    def _origin(self, http: Http) -> None:
        origins = [value.decode("latin-1") for name, value in http.scope["headers"] if name == b"origin"]
        if not origins:
            return
        origin = origins[0]
        if len(origins) > 1 or not self._allowed(origin, http.headers.get("host", "")):
            raise RequestError(
                "pages of that origin may not use this server",
                suggestion="list it in cors.allowed_origins",
                code="access_denied",
            )
        http.extra |= (
            {"vary": "Origin"}
            if not self.settings.cors
            else {
                "access-control-allow-origin": "*" if "*" in self.settings.origins else origin,
                "access-control-expose-headers": EXPOSE,
                "vary": "Origin",
            }
        )
        kind = http.headers.get("content-type", "").partition(";")[0].strip().lower()
        if http.method == "POST" and kind != "application/json":
            raise RequestError(  # a page can send the other types without asking the browser's leave first
                "a page must send application/json", code="unsupported_media_type", param="Content-Type"
            )

    def _allowed(self, origin: str, host: str) -> bool:
        if self.settings.cors and (origin in self.settings.origins or "*" in self.settings.origins):
            return True
        try:
            parts = urlsplit(origin)
            name, port = parts.hostname or "", parts.port
        except ValueError:
            return False
        if parts.scheme in SCHEMES:
            return self.settings.cors
        if parts.scheme not in ("http", "https") or parts.path or parts.query or parts.fragment or parts.username:
            return False
        if is_loopback(name) and self.settings.cors:
            return True
        return origin.partition("://")[2].lower() == host.lower() and port != 0

    def _readable(self, http: Http) -> None:
        encoding = http.headers.get("content-encoding", "identity").strip().lower()
        if encoding not in ("", "identity"):
            raise RequestError(
                "compressed bodies are not read", code="unsupported_media_type", param="Content-Encoding"
            )
        charset = re.search(r"charset=\"?([^\s;\"]+)", http.headers.get("content-type", ""), re.IGNORECASE)
        if charset and charset[1].lower() not in ("utf-8", "utf8", "us-ascii"):
            raise RequestError("a body is UTF-8", code="json_parse_error", param="Content-Type")

    def _key(self, http: Http) -> str | None:
        """The name of the key that was sent, if the server has it; never the key itself."""
        sent = http.headers.get("x-api-key", "")
        scheme, _, bearer = http.headers.get("authorization", "").partition(" ")
        if scheme.lower() == "bearer":
            sent = bearer.strip() or sent
            if sent.count(".") == 2 and (claims := self.tokens.read(sent)) is not None:
                return claims.api_key_id
        return self.tokens.key_id(sent)


def _number(http: Http, name: str) -> int | None:
    """The number that a header has, if it was sent."""
    text = http.headers.get(name)
    if text is None:
        return None
    if not text.isascii() or not text.isdigit() or len(text) > 20 or int(text) >= 2**64:
        raise RequestError(f"{name} is '{printable(text)}'; expected a number", param=name)
    return int(text)


def _is_address(name: str) -> bool:
    try:
        ipaddress.ip_address(name.strip("[]"))
    except ValueError:
        return False
    return True
