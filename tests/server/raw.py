"""Requests over plain sockets: no client library repairs what a test breaks. `ask` sends a correct request."""

from __future__ import annotations

import http.client
import json
import socket
import struct
from typing import Any


def ask(
    port: int,
    method: str,
    path: str,
    body: Any = None,
    headers: dict[str, str] | None = None,
    timeout: float = 60,
) -> tuple[int, dict[str, str], Any]:
    """Status, headers in lower case and the body, read as JSON where it is."""
    connection = http.client.HTTPConnection("127.0.0.1", port, timeout=timeout)
    data = body if isinstance(body, bytes | None) else json.dumps(body).encode()
    named = {"Content-Type": "application/json"} if data is not None else {}
    connection.request(method, path, data, named | (headers or {}))
    response = connection.getresponse()
    text = response.read()
    connection.close()
    kind = response.headers.get("content-type", "")
    answer = json.loads(text) if kind.startswith("application/json") and text else text
    return response.status, {k.lower(): v for k, v in response.headers.items()}, answer


class Raw:
    def __init__(self, port: int, *, receive_buffer: int = 0, timeout: float = 60) -> None:
        self.sock = socket.socket()
        if receive_buffer:
            self.sock.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, receive_buffer)
        self.sock.settimeout(timeout)
        self.sock.connect(("127.0.0.1", port))

    def send(self, data: bytes) -> Raw:
        self.sock.sendall(data)
        return self

    def post(self, path: str, body: Any, headers: dict[str, str] | None = None) -> Raw:
        data = body if isinstance(body, bytes) else json.dumps(body).encode()
        named = {"Host": "localhost", "Content-Length": str(len(data))} | (headers or {})
        lines = [f"POST {path} HTTP/1.1", *(f"{name}: {value}" for name, value in named.items()), "", ""]
        return self.send("\r\n".join(lines).encode() + data)

    def read(self, least: int = 1) -> bytes:
        data = b""
        while len(data) < least:
            piece = self.sock.recv(65536)
            if not piece:
                break
            data += piece
        return data

    def answer(self) -> bytes:
        """One whole answer with a Content-Length; the connection stays open."""
        data = b""
        while b"\r\n\r\n" not in data:
            data += self._more()
        head = data.partition(b"\r\n\r\n")[0]
        length = next(int(line[15:]) for line in head.lower().split(b"\r\n") if line.startswith(b"content-length:"))
        while len(data) < len(head) + 4 + length:
            data += self._more()
        return data

    def _more(self) -> bytes:
        piece = self.sock.recv(65536)
        if not piece:
            raise ConnectionError("the answer was cut off")
        return piece

    def rest(self) -> bytes:
        """Everything until the other side closes."""
        data = b""
        while True:
            try:
                piece = self.sock.recv(65536)
            except ConnectionResetError:
                return data
            if not piece:
                return data
            data += piece

    def close(self) -> None:
        """Close the connection with a FIN."""
        self.sock.close()

    def reset(self) -> None:
        """Close the connection with an RST."""
        self.sock.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
        self.sock.close()


def status(answer: bytes) -> int:
    return int(answer.split(b" ", 2)[1]) if answer.startswith(b"HTTP/1.1 ") else 0
