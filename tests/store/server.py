"""A local HTTP server that serves one file, well or badly: each way to misbehave is a word of `how`."""

from __future__ import annotations

import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any


class Shop(ThreadingHTTPServer):
    """`how` holds, for each request in turn, how it is answered; the last word goes on for all that follow."""

    daemon_threads = True

    def __init__(self, data: bytes, how: tuple[str, ...] = ("well",), *, pause_s: float = 0.0) -> None:
        super().__init__(("127.0.0.1", 0), Handler)
        self.data = data
        self.how = list(how)
        self.pause_s = pause_s  # between pieces of 64 KiB
        self.etag = '"one"'
        self.asked: list[dict[str, str]] = []  # the headers of each request
        self.sent = 0
        self.pages: dict[str, bytes] = {}  # other paths, answered as JSON

    @property
    def url(self) -> str:
        return f"http://127.0.0.1:{self.server_port}/model.gguf"

    def handle_error(self, request: Any, client_address: Any) -> None:
        """Clients that go away in the middle are what these tests are about."""


class Handler(BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"
    server: Shop

    def log_message(self, format: str, *args: Any) -> None:
        pass

    def do_GET(self) -> None:
        shop = self.server
        self.close_connection = True
        page = shop.pages.get(self.path.partition("?")[0])
        if page is not None:
            return self._reply(200, page, {"Content-Type": "application/json"})
        shop.asked.append(dict(self.headers) | {"path": self.path})
        how = shop.how.pop(0) if len(shop.how) > 1 else shop.how[0]
        return self._serve(how)

    def _serve(self, how: str) -> None:
        shop, data = self.server, self.server.data
        start = int(self.headers.get("Range", "bytes=0-")[6:-1])
        part = bool(start) and self.headers.get("If-Range", shop.etag) == shop.etag
        word, _, value = how.partition(" ")
        headers = {"ETag": shop.etag}
        if word == "status":
            return self._reply(int(value), b"no", {"Retry-After": "0"})
        if word == "redirect":
            return self._reply(302, b"", {"Location": value.replace("SELF", shop.url.rsplit("/", 1)[0])})
        if word == "flood-redirect":
            self.send_response(302)
            self.send_header("Location", value.replace("SELF", shop.url.rsplit("/", 1)[0]))
            self.send_header("Transfer-Encoding", "chunked")
            self.end_headers()
            return self._flood()
        if word == "html":
            return self._reply(200, b"<html>log in</html>", {"Content-Type": "text/html; charset=utf-8"})
        if word == "packed":
            return self._reply(200, data, {"Content-Encoding": "gzip"})
        if word == "other":
            return self._reply(200, (value.encode() * len(data))[: len(data)], headers)
        if word == "longer":
            return self._reply(200, data + b"more", headers)
        if word == "endless":
            return self._endless()
        if word == "no-length":
            self.send_response(200)
            self.end_headers()
            self._send(data)
            return None
        if word == "ignore-range" or not part:
            start, part = 0, False
        if word == "wrong-range":
            return self._reply(206, data[: len(data) // 3], {"Content-Range": f"bytes 0-{len(data) - 1}/{len(data)}"})
        self.send_response(206 if part else 200)
        if part:
            headers["Content-Range"] = f"bytes {start}-{len(data) - 1}/{len(data)}"
        if word == "no-etag":
            headers = {name: text for name, text in headers.items() if name != "ETag"}
        for name, text in (headers | {"Content-Length": str(len(data) - start)}).items():
            self.send_header(name, text)
        self.end_headers()
        half = (start + len(data)) // 2
        end = half if word in ("cut", "stall") else len(data)
        self._send(data[start:end])
        if word == "stall":
            time.sleep(float(value))
        return None

    def _send(self, data: bytes) -> None:
        for at in range(0, len(data), 65536):
            self.wfile.write(data[at : at + 65536])
            self.server.sent += len(data[at : at + 65536])
            if self.server.pause_s:
                time.sleep(self.server.pause_s)

    def _endless(self) -> None:
        self.send_response(200)
        self.send_header("Transfer-Encoding", "chunked")
        self.end_headers()
        self._flood()

    def _flood(self) -> None:
        while True:
            self.wfile.write(b"10000\r\n" + b"GGUF" * 16384 + b"\r\n")
            self.server.sent += 65536

    def _reply(self, status: int, body: bytes, headers: dict[str, str]) -> None:
        self.send_response(status)
        for name, text in (headers | {"Content-Length": str(len(body))}).items():
            self.send_header(name, text)
        self.end_headers()
        self._send(body)


@contextmanager
def serving(data: bytes, *how: str, pause_s: float = 0.0) -> Iterator[Shop]:
    shop = Shop(data, how or ("well",), pause_s=pause_s)
    thread = threading.Thread(target=shop.serve_forever, kwargs={"poll_interval": 0.01}, daemon=True)
    thread.start()
    try:
        yield shop
    finally:
        shop.shutdown()
        shop.server_close()
