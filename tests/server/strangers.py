"""What a stranger does to a server for as long as it may: `python -m tests.server.strangers ATTACK PORT KEY`.

A process of its own, from an address of its own (127.0.0.2), until it is killed. test_strangers.py looks at how the
server answers others meanwhile.
"""

from __future__ import annotations

import contextlib
import json
import socket
import ssl
import sys
import threading
import time
from collections.abc import Callable

from tests.server.test_socket import HANDSHAKE, PING, frame

ADDRESS = "127.0.0.2"
AT_ONCE = 8  # connections of an attack that is one of work
MANY = 600  # and of one of numbers: more than a server holds
BLOCK = 256 << 10  # bytes that are sent at once
TINY = b"GET / HTTP/1.1\r\n\r\n"
OPEN = b"POST /api/v1/auth/token HTTP/1.1\r\nHost: localhost\r\n"


def connect(port: int) -> socket.socket:
    return socket.create_connection(("127.0.0.1", port), timeout=2, source_address=(ADDRESS, 0))


def again(work: Callable[[socket.socket], None], port: int, rest_s: float) -> None:
    """Work on one connection after another, each for as long as it lives."""
    while True:
        with contextlib.suppress(OSError), connect(port) as sock:
            work(sock)
        time.sleep(rest_s)


def at_once(work: Callable[[socket.socket], None], port: int, count: int = AT_ONCE) -> None:
    rest_s = 1.0 if count == MANY else 0.0  # else this would be one of work, too
    threads = [threading.Thread(target=again, args=(work, port, rest_s), daemon=True) for _ in range(count)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()


def until_closed(sock: socket.socket) -> None:
    sock.settimeout(60)
    while sock.recv(BLOCK):
        pass


def endless(sock: socket.socket, block: bytes) -> None:
    """Send without reading."""
    while True:
        sock.sendall(block)


def post(path: str, key: str, body: bytes, length: int | None = None) -> bytes:
    head = f"POST {path} HTTP/1.1\r\nHost: localhost\r\nX-API-Key: {key}\r\n"
    return f"{head}Content-Length: {len(body) if length is None else length}\r\n\r\n".encode() + body


def handshakes_with_a_body(port: int, key: str) -> None:
    def hold(sock: socket.socket) -> None:
        sock.sendall(HANDSHAKE + b"Content-Length: 1\r\n\r\nx")
        until_closed(sock)

    at_once(hold, port, MANY)


def pipelined_requests(port: int, key: str) -> None:
    at_once(lambda sock: endless(sock, TINY * (BLOCK // len(TINY))), port, 12)


def silent_connections(port: int, key: str) -> None:
    at_once(until_closed, port, MANY)


def handshakes_of_tls(port: int, key: str) -> None:
    trusting = ssl.create_default_context()
    trusting.check_hostname, trusting.verify_mode = False, ssl.CERT_NONE

    def shake(sock: socket.socket) -> None:
        trusting.wrap_socket(sock).close()

    at_once(shake, port)


def bodies_of_open_routes(port: int, key: str) -> None:
    quotes = b'"' * (10 << 20)

    def fill(sock: socket.socket) -> None:
        sock.sendall(OPEN + b"Content-Length: %d\r\n\r\n" % len(quotes))
        sock.sendall(quotes)
        until_closed(sock)

    at_once(fill, port, 40)


def dear_bodies(port: int, key: str) -> None:
    quotes = post("/v1/completions", key, b'"' * (10 << 20))

    def fill(sock: socket.socket) -> None:
        sock.sendall(quotes)
        until_closed(sock)

    at_once(fill, port)


def headers_behind_answers(port: int, key: str) -> None:
    body = json.dumps({"prompt": "x", "max_tokens": 5}).encode()

    def begin(sock: socket.socket) -> None:
        sock.sendall(post("/v1/completions", key, body))
        sock.sendall(b"GET /hea")
        until_closed(sock)

    at_once(begin, port, MANY)


def tiny_fragments(port: int, key: str) -> None:
    fragments = frame(0, b"a", fin=False) * (BLOCK // 7)

    def send(sock: socket.socket) -> None:
        sock.sendall(HANDSHAKE + f"X-API-Key: {key}\r\n\r\n".encode() + frame(1, b"a", fin=False))
        endless(sock, fragments)

    at_once(send, port)


def unread_pongs(port: int, key: str) -> None:
    pings = frame(PING, bytes(125)) * (BLOCK // 131)

    def send(sock: socket.socket) -> None:
        sock.sendall(HANDSHAKE + f"X-API-Key: {key}\r\n\r\n".encode())
        endless(sock, pings)

    at_once(send, port)


PLAIN = (
    handshakes_with_a_body,
    pipelined_requests,
    bodies_of_open_routes,
    dear_bodies,
    headers_behind_answers,
    tiny_fragments,
    unread_pongs,
)
TLS = (silent_connections, handshakes_of_tls)

if __name__ == "__main__":
    name, port, key = sys.argv[1:]
    attacks = {attack.__name__: attack for attack in (*PLAIN, *TLS)}
    attacks[name](int(port), key)
