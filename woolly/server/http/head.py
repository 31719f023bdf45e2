"""The head of a request as it comes: its address and headers, how large they may be, and what they ask for."""

from __future__ import annotations

from typing import Literal, TypeAlias
from urllib.parse import unquote

import httptools

from woolly.config.serving import Serving
from woolly.errors import RequestError
from woolly.server.http.request import Scope

Address: TypeAlias = tuple[str, int] | None


class Head:
    """Raises a RequestError where the head is no right one."""

    __slots__ = ("_fields", "_limits", "_named", "_size", "expects", "headers", "url")

    def __init__(self, limits: Serving) -> None:
        self.url = b""
        self.headers: list[tuple[bytes, bytes]] = []
        self.expects = False  # the client sends its body when it is told to
        self._limits = limits
        self._fields = self._size = 0  # headers, and their bytes
        self._named: dict[bytes, bytes] = {}  # by name, once the head is complete

    def add_url(self, url: bytes) -> None:
        self.url += url
        if len(self.url) > self._limits.request_line:
            raise self.too_large()

    def count(self, name: bytes, value: bytes) -> None:
        self._fields += 1
        self._size += len(name) + len(value) + 4
        if self._fields > self._limits.header_fields or self._size + len(self.url) > self._limits.headers:
            raise _headers_too_large()

    def add(self, name: bytes, value: bytes) -> None:
        name, value = name.lower(), value.strip(b" \t")  # the parser leaves what stands behind a value
        if name == b"expect" and value.lower() == b"100-continue":
            self.expects = True
        self.headers.append((name, value))

    def too_large(self) -> RequestError:
        """What is too large about it, where it has more bytes than it may."""
        most = self._limits.request_line
        if len(self.url) > most:
            return RequestError(f"the address has more than {most:,} bytes", code="uri_too_long")
        return _headers_too_large()

    def check(self, *, upgrades: bool) -> None:
        """Refuse a complete head that asks for what nobody answers. upgrades: it asks for another protocol."""
        self._named = dict(self.headers)
        if not self.url.startswith(b"/"):  # a whole URI names a host beside that in `Host`: one of them is a lie
            raise RequestError("the address in a request line begins with a slash")
        if upgrades and (self.length or b"transfer-encoding" in self._named):
            raise RequestError("a request for another protocol has no body")

    @property
    def length(self) -> int:
        """Bytes of the body, where the client tells them."""
        return int(self._named.get(b"content-length", b"0"))

    @property
    def chunked(self) -> bool:
        """Whether the body comes in chunks, and in nothing else."""
        return self._named.get(b"transfer-encoding", b"").lower() == b"chunked"

    @property
    def asks_for_socket(self) -> bool:
        words = [word.strip().lower() for word in self._named.get(b"connection", b"").split(b",")]
        return b"upgrade" in words and self._named.get(b"upgrade", b"").lower() == b"websocket"

    def scope(
        self,
        kind: Literal["http", "websocket"],
        parser: httptools.HttpRequestParser,
        *,
        client: Address,
        server: Address,
        secure: bool,
    ) -> Scope:
        """The request as ASGI has it."""
        url = httptools.parse_url(self.url)
        path = url.path.decode("ascii")
        scheme = ("https" if secure else "http") if kind == "http" else ("wss" if secure else "ws")
        return {
            "type": kind,
            "asgi": {"version": "3.0", "spec_version": "2.3"},
            "http_version": parser.get_http_version(),
            "server": server,
            "client": client,
            "scheme": scheme,
            "method": parser.get_method().decode("ascii"),
            "root_path": "",
            "path": unquote(path) if "%" in path else path,
            "raw_path": url.path,
            "query_string": url.query or b"",
            "headers": self.headers,
        }


def _headers_too_large() -> RequestError:
    return RequestError("the headers are too large", code="headers_too_large")
