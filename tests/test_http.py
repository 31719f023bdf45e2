"""io.http: one request, by every way that it may take, and ended whenever somebody wants."""

from __future__ import annotations

import math
import socket
import ssl
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from functools import partial
from pathlib import Path

import pytest

from tests.server.tls import certificate, needs_openssl
from tests.store.server import serving
from woolly.io.http import Terms, ask

PATIENT = Terms(connect_s=20.0, wait_s=20.0)
PROXIED = Terms(connect_s=20.0, wait_s=20.0, proxied=True)
ANSWER = b"HTTP/1.1 200 OK\r\nContent-Length: 5\r\n\r\nhello"


@contextmanager
def listening(serve: Callable[[socket.socket], None]) -> Iterator[int]:
    """A server that gives each connection to a function, in a thread of its own."""
    with socket.create_server(("127.0.0.1", 0)) as listener:

        def accept() -> None:
            while True:
                try:
                    client, _ = listener.accept()
                except OSError:
                    return
                threading.Thread(target=serve, args=(client,), daemon=True).start()

        threading.Thread(target=accept, daemon=True).start()
        yield listener.getsockname()[1]
        listener.shutdown(socket.SHUT_RDWR)


def answer_tls(context: ssl.SSLContext, client: socket.socket) -> None:
    with context.wrap_socket(client, server_side=True) as secure:
        secure.recv(65536)
        secure.sendall(ANSWER)


def tunnel(heads: list[bytes], client: socket.socket) -> None:
    """As a proxy does to whom CONNECT is said."""
    head = client.recv(65536)
    heads.append(head)
    host, _, port = head.split()[1].decode().rpartition(":")
    far = socket.create_connection((host, int(port)))
    client.sendall(b"HTTP/1.1 200 OK\r\n\r\n")

    def relay(source: socket.socket, target: socket.socket) -> None:
        while data := source.recv(65536):
            target.sendall(data)
        target.shutdown(socket.SHUT_WR)

    threading.Thread(target=relay, args=(far, client), daemon=True).start()
    relay(client, far)


@pytest.fixture
def context(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> ssl.SSLContext:
    """That of a server whose certificate is trusted here."""
    public, key = certificate(tmp_path)
    monkeypatch.setenv("SSL_CERT_FILE", str(public))
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.load_cert_chain(public, key)
    return context


@needs_openssl
def test_a_server_with_tls_is_asked_directly_and_through_a_proxy(
    context: ssl.SSLContext, monkeypatch: pytest.MonkeyPatch
) -> None:
    heads: list[bytes] = []
    with listening(partial(answer_tls, context)) as port, listening(partial(tunnel, heads)) as proxy:
        with ask("GET", f"https://localhost:{port}/a", terms=PATIENT) as answer:
            assert (answer.status, answer.read(100)) == (200, b"hello")
        monkeypatch.setenv("no_proxy", "")
        monkeypatch.setenv("https_proxy", f"http://user:pass%20word@127.0.0.1:{proxy}")
        with ask("GET", f"https://localhost:{port}/a", terms=PROXIED) as answer:
            assert (answer.status, answer.read(100)) == (200, b"hello")
    assert heads[0].startswith(b"CONNECT localhost:%d HTTP/1." % port)
    assert b"Proxy-Authorization: Basic dXNlcjpwYXNzIHdvcmQ=\r\n" in heads[0]


def test_a_proxy_is_told_the_whole_address_and_its_password(monkeypatch: pytest.MonkeyPatch) -> None:
    with serving(b"hello") as proxy:
        monkeypatch.setenv("no_proxy", "")
        monkeypatch.setenv("http_proxy", f"http://user:word@127.0.0.1:{proxy.server_port}")
        with ask("GET", "http://far.example/a?b=c", terms=PROXIED) as answer:
            assert answer.read(100) == b"hello"
    assert proxy.asked[0]["path"] == "http://far.example/a?b=c"
    assert (proxy.asked[0]["Host"], proxy.asked[0]["Proxy-Authorization"]) == ("far.example", "Basic dXNlcjp3b3Jk")


def test_a_proxy_is_for_uses_that_ask_for_it(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("no_proxy", "")
    monkeypatch.setenv("http_proxy", "http://127.0.0.1:1")
    with serving(b"hello") as shop, ask("GET", shop.url, terms=PATIENT) as answer:
        assert answer.read(100) == b"hello"


@pytest.mark.parametrize("scheme", ["http", "https"])
def test_a_deadline_ends_a_handshake_and_headers_that_do_not_come(scheme: str) -> None:
    terms = Terms(math.inf, None, deadline_s=time.monotonic() + 0.3)
    with listening(lambda client: client.recv(1) and time.sleep(30)) as port, pytest.raises(TimeoutError):
        ask("GET", f"{scheme}://127.0.0.1:{port}/", terms=terms)


@pytest.mark.parametrize("scheme", ["http", "https"])
def test_whoever_has_the_cut_ends_the_wait_from_another_thread(scheme: str) -> None:
    cuts: list[Callable[[], None]] = []

    def cut_off(client: socket.socket) -> None:
        client.recv(1)
        cuts[0]()
        time.sleep(30)

    with listening(cut_off) as port, pytest.raises(OSError):
        ask("GET", f"{scheme}://127.0.0.1:{port}/", terms=Terms(20.0, None), connected=cuts.append)


def test_a_cut_before_the_connection_counts() -> None:
    with serving(b"hello") as shop, pytest.raises(OSError, match="nobody waits"):
        ask("GET", shop.url, terms=PATIENT, connected=lambda cut: cut())


@pytest.mark.parametrize("url", ["", "ftp://a/b", "http://", "a/b", "http://a:x/", "file:///etc/passwd"])
def test_what_is_no_address_of_a_server_is_refused(url: str) -> None:
    with pytest.raises(ValueError):
        ask("GET", url, terms=PROXIED)
