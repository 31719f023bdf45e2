"""Requests between gates and replicas: to valid addresses, over private connections, never more bytes than allowed."""

from __future__ import annotations

import asyncio
import socket
import threading
from collections.abc import Iterator
from contextlib import contextmanager

import pytest

from woolly.errors import DownloadError, RequestError
from woolly.fleet.http import Address, ask, check_private, read_address


@pytest.mark.parametrize(
    ("url", "address"),
    [
        ("http://10.0.0.1:8080", Address("10.0.0.1", 8080)),
        ("https://gate", Address("gate", 443, secure=True)),
        ("http://[::1]:9/", Address("::1", 9)),
    ],
)
def test_an_address_is_read_and_written(url: str, address: Address) -> None:
    assert read_address(url, "--join") == address
    assert read_address(str(address), "--join") == address


@pytest.mark.parametrize(
    "url",
    [
        *("", "gate:80", "ftp://gate", "http://", "http://a:b", "http://gate/path", "http://u@gate"),
        *("http://a b:80", "http://gate\x00:80", "http://g%61te:80", "http://\u4e00:80", "http://a\\b:80"),
    ],
)
def test_what_is_no_address_is_refused(url: str) -> None:
    with pytest.raises(RequestError, match="expected a URL as http://HOST:PORT"):
        read_address(url, "--join")


@pytest.mark.parametrize("host", ["127.0.0.1", "10.1.2.3", "192.168.0.9", "::1", "fd00::1"])
def test_private_networks_need_no_encryption(host: str) -> None:
    asyncio.run(check_private(Address(host, 80)))


@pytest.mark.parametrize("host", ["8.8.8.8", "2001:4860:4860::8888"])
def test_other_networks_do(host: str) -> None:
    with pytest.raises(RequestError, match="not encrypted"):
        asyncio.run(check_private(Address(host, 80)))
    asyncio.run(check_private(Address(host, 443, secure=True)))


def test_s33_a_connection_is_made_to_the_address_that_was_checked(monkeypatch: pytest.MonkeyPatch) -> None:
    look_up, meanings = socket.getaddrinfo, iter(["127.0.0.1", "93.184.216.34", "93.184.216.34"])

    def rebinding(host: str, port: int, *args: int, **named: int) -> object:
        return look_up(next(meanings) if host == "gate.example" else host, port, *args, **named)

    monkeypatch.setattr(socket, "getaddrinfo", rebinding)

    async def asked_at(port: int) -> tuple[int, bytes]:
        address = await check_private(Address("gate.example", port))
        return await ask(address, "GET", "/", b"", {}, most=1000, timeout_s=5.0)

    with saying(b"HTTP/1.1 200 OK\r\ncontent-length: 3\r\n\r\nabc") as port:
        assert asyncio.run(asked_at(port)) == (200, b"abc")


def test_a_name_that_no_host_can_have_is_refused() -> None:
    with pytest.raises(RequestError, match="nobody knows the host"):
        asyncio.run(check_private(Address("a" * 70 + ".example", 80)))


@contextmanager
def saying(data: bytes) -> Iterator[int]:
    """A server that answers every connection with these bytes."""
    with socket.create_server(("127.0.0.1", 0)) as sock:

        def serve() -> None:
            while True:
                try:
                    client, _ = sock.accept()
                except OSError:
                    return
                with client:
                    client.recv(65536)
                    client.sendall(data)

        threading.Thread(target=serve, daemon=True).start()
        yield sock.getsockname()[1]


def asked(port: int, most: int = 1000, timeout_s: float = 60.0) -> tuple[int, bytes]:
    address = Address("127.0.0.1", port)
    return asyncio.run(ask(address, "GET", "/", b"", {}, most=most, timeout_s=timeout_s))


def test_an_answer_is_its_status_and_its_body() -> None:
    with saying(b"HTTP/1.1 404 Not Found\r\ncontent-length: 3\r\n\r\nabc") as port:
        assert asked(port) == (404, b"abc")


@pytest.mark.parametrize(
    "data",
    [
        b"",
        b"nonsense\r\n\r\n",
        b"HTTP/1.1 200 OK\r\ncontent-length: 9\r\n\r\nabc",
        b"HTTP/1.1 200 OK\r\ntransfer-encoding: chunked\r\n\r\nzz\r\n",
        b"HTTP/1.1 200 OK\r\ncontent-length: 2000\r\n\r\n" + b"a" * 2000,
    ],
    ids=["nothing", "nonsense", "half", "chunks", "too much"],
)
def test_an_answer_that_is_broken_or_too_large_is_an_error(data: bytes) -> None:
    with saying(data) as port, pytest.raises(DownloadError, match="broke off"):
        asked(port)


def test_who_does_not_listen_or_says_nothing_is_an_error() -> None:
    with socket.create_server(("127.0.0.1", 0)) as sock:
        port = sock.getsockname()[1]
        with pytest.raises(DownloadError, match="takes too long"):
            asked(port, timeout_s=0.2)
    with pytest.raises(DownloadError, match="does not answer"):
        asked(port)
