"""Servers behind a URL: good ones of both kinds, and every way in which one can misbehave."""

from __future__ import annotations

import json
import threading
import time
from collections.abc import Callable, Iterator
from dataclasses import replace
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any

import pytest

from tests.mcp.server import answer, text
from tests.server.process import Process, environ
from tests.tiny import tiny
from woolly.config.rows import McpServer
from woolly.errors import DownloadError
from woolly.mcp import Client

Fault = Callable[["Handler", dict[str, Any]], None]


class Handler(BaseHTTPRequestHandler):
    """Answers as the class of its server says; what came is kept."""

    server: Small

    def do_POST(self) -> None:
        message = json.loads(self.rfile.read(int(self.headers["content-length"])))
        self.server.seen.append((message, dict(self.headers)))
        if message["method"] == "tools/call" and self.server.fault:
            return self.server.fault(self, message)
        if self.server.newest and message["method"] == "initialize":
            return self.send(404, {"jsonrpc": "2.0", "id": 1, "error": {"code": -32601, "message": "no such method"}})
        reply = {"jsonrpc": "2.0", "id": message.get("id"), "result": {}} if self.server.newest else None
        if not self.server.newest or message["method"].startswith("tools/"):
            reply = answer(message)
        return self.send(202, b"") if reply is None else self.send(200, reply)

    def do_GET(self) -> None:
        self.server.resumed.append(self.headers["Last-Event-ID"])
        self.server.more(self)

    def send(self, status: int, body: Any, kind: str = "application/json", **headers: str) -> None:
        data = body if isinstance(body, bytes) else json.dumps(body).encode()
        self.send_response(status)
        self.send_header("Content-Type", kind)
        self.send_header("Content-Length", str(len(data)))
        for name, value in {"Mcp-Session-Id": "s1", **headers}.items():
            self.send_header(name, value)
        self.end_headers()
        self.wfile.write(data)

    def log_message(self, *_: object) -> None:
        pass


class Small(ThreadingHTTPServer):
    daemon_threads = True

    def __init__(self, fault: Fault | None = None, *, newest: bool = False) -> None:
        super().__init__(("127.0.0.1", 0), Handler)
        self.fault, self.newest = fault, newest
        self.seen: list[tuple[dict[str, Any], dict[str, str]]] = []
        self.resumed: list[str] = []
        self.more: Callable[[Handler], None] = lambda handler: handler.send(404, b"")

    def handle_error(self, *_: object) -> None:
        pass  # a client that cut the connection is what some tests are about

    @property
    def at(self) -> McpServer:
        return McpServer(url=f"http://127.0.0.1:{self.server_port}/mcp")

    def client(self, timeout_s: float = 60.0, **more: Any) -> Client:
        return Client("web", replace(self.at, **more), timeout_s)


@pytest.fixture
def serve() -> Iterator[Callable[..., Small]]:
    servers: list[Small] = []

    def start(*words: Any, **more: Any) -> Small:
        servers.append(Small(*words, **more))
        threading.Thread(target=servers[-1].serve_forever, args=(0.01,), daemon=True).start()
        return servers[-1]

    yield start
    for one in servers:
        one.shutdown()
        one.server_close()


def test_a_handshake_is_made_once_and_its_session_is_kept(serve: Callable[..., Small]) -> None:
    small = serve()
    client = small.client(headers={"Authorization": "Bearer of-the-settings"})
    assert [tool.name for tool in client.tools()] == ["add", "echo", "fail"]
    assert client.call("add", {"a": 2, "b": 3}).text == "5"
    methods = [message["method"] for message, _ in small.seen]
    assert methods == ["initialize", "notifications/initialized", "tools/list", "tools/list", "tools/call"]
    assert all(headers["Authorization"] == "Bearer of-the-settings" for _, headers in small.seen)
    assert small.seen[-1][1]["Mcp-Session-Id"] == "s1"
    assert small.seen[-1][1]["MCP-Protocol-Version"] == "2025-11-25"


def test_a_server_without_a_handshake_is_asked_by_the_newest_revision(serve: Callable[..., Small]) -> None:
    small = serve(newest=True)
    assert small.client().call("echo", {"text": "grün"}).text == "grün"
    message, headers = small.seen[-1]
    assert message["params"]["_meta"]["io.modelcontextprotocol/protocolVersion"] == "2026-07-28"
    assert (headers["Mcp-Method"], headers["Mcp-Name"]) == ("tools/call", "echo")


def events(handler: Handler, *messages: Any) -> None:
    rows = [b": a comment\n\n", *(b"event: message\ndata: " + json.dumps(m).encode() + b"\n\n" for m in messages)]
    handler.send(200, b"".join(rows), "text/event-stream")


def result(message: dict[str, Any], what: str) -> dict[str, Any]:
    return {"jsonrpc": "2.0", "id": message["id"], "result": text(what)}


def test_an_answer_may_come_as_events_behind_others(serve: Callable[..., Small]) -> None:
    progress = {"jsonrpc": "2.0", "method": "notifications/progress", "params": {}}
    small = serve(lambda handler, message: events(handler, progress, result(message, "late but there")))
    assert small.client().call("add", {}).text == "late but there"


def test_events_that_end_early_are_gone_on_with_after_the_time_that_the_server_tells(
    serve: Callable[..., Small],
) -> None:
    begun = b"id: e1\nretry: 200\ndata: \n\n"
    small = serve(lambda handler, message: handler.send(200, begun, "text/event-stream"))
    small.more = lambda handler: events(handler, result(small.seen[-1][0], "in another one"))
    begun_s = time.monotonic()
    assert small.client().call("add", {}).text == "in another one"
    assert time.monotonic() - begun_s >= 0.2
    assert small.resumed == ["e1"]


def hangs(handler: Handler, _message: dict[str, Any]) -> None:
    """Until the client is gone."""
    handler.connection.recv(1)


def drips(handler: Handler, _message: dict[str, Any]) -> None:
    """As long as the client is there."""
    handler.wfile.write(b"HTTP/1.1 200 OK\r\n")
    while True:
        handler.wfile.write(b"X-More: a\r\n")
        handler.wfile.flush()
        time.sleep(0.05)


def floods(handler: Handler, _message: dict[str, Any]) -> None:
    handler.send_response(200)
    handler.send_header("Content-Type", "text/event-stream")
    handler.end_headers()
    while True:
        handler.wfile.write(b'data: {"jsonrpc": "2.0", "method": "x", "params": {"a": "' + b"x" * 60_000 + b'"}}\n\n')


FAULTS: dict[str, tuple[Fault, str]] = {
    "hangs": (hangs, "has not answered within 1 s"),
    "drips": (drips, "has not answered within 1 s"),
    "floods": (floods, "bytes and no answer"),
    "cuts": (lambda h, m: h.connection.close(), "cannot be reached"),
    "no_json": (lambda h, m: h.send(200, b"<html>"), "sent what is no JSON: <html>"),
    "deep": (lambda h, m: h.send(200, b"[" * 100_000), "sent what is no JSON"),
    "wrong_id": (lambda h, m: h.send(200, result({"id": "x"}, "")), "answered a request that nobody made"),
    "huge": (lambda h, m: h.send(200, b"x" * (5 << 20)), "a message of more than 4,194,304 bytes"),
    "huge_event": (lambda h, m: h.send(200, b"data: " + b"x" * (5 << 20), "text/event-stream"), "a message of more"),
    "no_answer": (lambda h, m: events(h), "ended its answer without a result"),
    "refuses": (lambda h, m: h.send(500, b"trouble"), "answered with the status 500"),
    "redirects": (lambda h, m: h.send(302, b"", Location="http://127.0.0.1:1/"), "another address"),
    "tells_error": (
        lambda h, m: h.send(400, {"jsonrpc": "2.0", "id": m["id"], "error": {"code": -32602, "message": "bad words"}}),
        "says: bad words",
    ),
}


@pytest.mark.parametrize("name", FAULTS)
def test_a_server_that_misbehaves_costs_one_line_and_is_asked_anew_the_next_time(
    serve: Callable[..., Small], name: str
) -> None:
    fault, says = FAULTS[name]
    small = serve(fault)
    client = small.client(1.0 if says.startswith("has not") else 20.0)
    with pytest.raises(DownloadError, match=says) as error:
        client.call("add", {})
    assert "\n" not in str(error.value)
    small.fault = None
    assert client.call("add", {"a": 1, "b": 1}).text == "2"


def test_nobody_at_the_address_is_one_line() -> None:
    with pytest.raises(DownloadError, match="'web' cannot be reached"):
        Client("web", McpServer(url="http://127.0.0.1:1/mcp"), 2.0).tools()


def test_our_own_server_is_one(tmp_path: Path) -> None:
    tiny(tmp_path / "talker.gguf", vocab=4096, seed=5)
    with Process(environ(tmp_path, tmp_path), "talker") as served:
        client = Client("woolly", McpServer(url=f"http://127.0.0.1:{served.port}/mcp"), 30.0)
        assert "generate" in [tool.name for tool in client.tools()]
        assert not client.call("generate", {"prompt": "Hi", "max_tokens": 3}).wrong
