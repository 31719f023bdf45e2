"""The client of tests.measure.http: sends a request that it is given, reads bytes, and tells when they came.

A process of its own that does nothing else, so that what a client costs is as little as a client can cost. On standard
input: a line of JSON with `port`, `body` and perhaps `path` for each request. On standard output: a line with the
seconds to the first byte of the body and to the last, and the last event.
"""

from __future__ import annotations

import json
import socket
import sys
import time


def ask(port: int, path: str, body: bytes) -> tuple[float, float, bytes]:
    head = f"POST {path} HTTP/1.1\r\nHost: localhost\r\nContent-Length: {len(body)}\r\nConnection: close\r\n\r\n"
    with socket.create_connection(("127.0.0.1", port)) as sock:
        sock.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        begun = time.perf_counter()
        sock.sendall(head.encode() + body)
        first, tail = 0.0, b""
        while piece := sock.recv(65536):
            tail = (tail + piece)[-4096:]
            if not first and b"data: " in tail:
                first = time.perf_counter() - begun
        return first, time.perf_counter() - begun, tail


def main() -> None:
    for line in sys.stdin:
        asked = json.loads(line)
        first, last, tail = ask(asked["port"], asked.get("path", "/v1/completions"), json.dumps(asked["body"]).encode())
        print(json.dumps({"first_s": first, "last_s": last, "tail": tail.decode("utf-8", "replace")}), flush=True)


if __name__ == "__main__":
    main()
