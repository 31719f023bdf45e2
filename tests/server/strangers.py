"""What a stranger does to a server for as long as it may: `python -m tests.server.strangers ATTACK PORT KEY`.

A process of its own, from an address of its own (127.0.0.2), until it is killed. test_strangers.py looks at how the
server answers others meanwhile.
"""

from __future__ import annotations

import contextlib
import itertools
import json
import socket
import ssl
import sys
import threading
import time
from collections.abc import Callable
from typing import Any

from tests.server.test_socket import HANDSHAKE, PING, frame

ADDRESS = "127.0.0.2"
AT_ONCE = 8  # connections of an attack that is one of work
MANY = 600  # and of one of numbers: more than a server holds
BLOCK = 256 << 10  # bytes that are sent at once
LEFT_S = 0.3  # after which work is left alone
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


def tiny_records_of_tls(port: int, key: str) -> None:
    trusting = ssl.create_default_context()
    trusting.check_hostname, trusting.verify_mode = False, ssl.CERT_NONE

    def send(sock: socket.socket) -> None:
        sealed, wire = ssl.MemoryBIO(), ssl.MemoryBIO()
        client = trusting.wrap_bio(sealed, wire)
        while True:
            with contextlib.suppress(ssl.SSLWantReadError):
                client.do_handshake()
                break
            sock.sendall(wire.read())
            sealed.write(sock.recv(BLOCK))
        client.write(b"GET / HTTP/1.1\r\nHost: localhost\r\nContent-Length: 10000000\r\n\r\n")
        while True:
            for _ in range(BLOCK // 32):
                client.write(b"x")
            sock.sendall(wire.read())

    at_once(send, port)


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


def empty_lines_in_chunks(port: int, key: str) -> None:
    """The end of a body in chunks is an empty line: each may be it."""
    lines = b"%x\r\n%b\r\n" % (BLOCK, b"\r\n" * (BLOCK // 2))

    def send(sock: socket.socket) -> None:
        sock.sendall(b"GET / HTTP/1.1\r\nHost: localhost\r\nTransfer-Encoding: chunked\r\n\r\n")
        endless(sock, lines)

    at_once(send, port)


def tiny_chunks(port: int, key: str) -> None:
    """As tiny as the bytes around them allow."""
    chunks = b"7\r\n\r\n0\r\n\r\n\r\n" * (BLOCK // 12)

    def send(sock: socket.socket) -> None:
        sock.sendall(b"GET / HTTP/1.1\r\nHost: localhost\r\nTransfer-Encoding: chunked\r\n\r\n")
        endless(sock, chunks)

    at_once(send, port)


def again_and_left(port: int, key: str, path: str, body: dict[str, Any]) -> None:
    """Ask for work, again and again; every other time go in the middle of it."""
    data, number = json.dumps(body).encode(), itertools.count()

    def ask(sock: socket.socket) -> None:
        sock.sendall(post(path, key, data))
        if next(number) % 2:
            time.sleep(LEFT_S)
        else:
            sock.settimeout(60)
            sock.recv(BLOCK)

    at_once(ask, port)


def grammars(port: int, key: str) -> None:
    rules = "\n".join(f'r{number} ::= "a" | r{number + 1}' for number in range(2_500))
    again_and_left(port, key, "/completion", {"prompt": "x", "grammar": f"root ::= r0\n{rules}\nr2500 ::= root?"})


def strict_tools(port: int, key: str) -> None:
    words = {f"w{number}": {"type": "string", "pattern": f"^.*[a-z]{{{number}}}.*$"} for number in range(20)}
    tools = [
        {
            "type": "function",
            "function": {"name": f"f{number}", "strict": True, "parameters": {"type": "object"} | more},
        }
        for number in range(1_024)
        for more in [{"properties": words, "required": [f"w{number % 20}"], "additionalProperties": False}]
    ]
    chat = {"messages": [{"role": "user", "content": "x"}], "tools": tools[:800]}
    again_and_left(port, key, "/v1/chat/completions", chat)


def long_chats(port: int, key: str) -> None:
    words = [{"role": "assistant", "content": "<|im_start|><|im_end|>" * 1_500}, {"role": "user", "content": "x"}]
    again_and_left(port, key, "/v1/chat/completions", {"messages": words * 45})


def long_texts(port: int, key: str) -> None:
    again_and_left(port, key, "/tokenize", {"content": "wool " * 2_000_000, "with_pieces": True})


def many_texts(port: int, key: str) -> None:
    again_and_left(port, key, "/api/embed", {"model": "talker", "input": ["wool " * 900] * 2_000, "truncate": True})


def calls_of_tools(port: int, key: str) -> None:
    """Over MCP."""
    params = {"name": "tokenize", "arguments": {"text": "wool " * 2_000_000}}
    again_and_left(port, key, "/mcp", {"jsonrpc": "2.0", "id": 1, "method": "tools/call", "params": params})


def opened(sock: socket.socket, key: str) -> None:
    sock.sendall(HANDSHAKE + f"X-API-Key: {key}\r\n\r\n".encode())


def large_messages(port: int, key: str) -> None:
    """Over a WebSocket."""
    message = frame(1, b'"' * ((10 << 20) - 100))

    def send(sock: socket.socket) -> None:
        opened(sock, key)
        reading = threading.Thread(target=until_closed, args=(sock,), daemon=True)
        reading.start()
        endless(sock, message)

    at_once(send, port)


def tiny_fragments(port: int, key: str) -> None:
    fragments = frame(0, b"a", fin=False) * (BLOCK // 7)

    def send(sock: socket.socket) -> None:
        opened(sock, key)
        sock.sendall(frame(1, b"a", fin=False))
        endless(sock, fragments)

    at_once(send, port)


def unread_pongs(port: int, key: str) -> None:
    pings = frame(PING, bytes(125)) * (BLOCK // 131)

    def send(sock: socket.socket) -> None:
        opened(sock, key)
        endless(sock, pings)

    at_once(send, port)


PLAIN = (
    handshakes_with_a_body,
    pipelined_requests,
    bodies_of_open_routes,
    dear_bodies,
    headers_behind_answers,
    empty_lines_in_chunks,
    tiny_chunks,
    grammars,
    strict_tools,
    long_chats,
    long_texts,
    many_texts,
    calls_of_tools,
    large_messages,
    tiny_fragments,
    unread_pongs,
)
TLS = (silent_connections, handshakes_of_tls, tiny_records_of_tls)

if __name__ == "__main__":
    name, port, key = sys.argv[1:]
    attacks = {attack.__name__: attack for attack in (*PLAIN, *TLS)}
    attacks[name](int(port), key)
