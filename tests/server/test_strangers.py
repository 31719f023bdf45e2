"""While a stranger does what costs it little, everybody else is answered (`make soak`: these have bounds in seconds).

A request of two tokens, under another key and from another address, takes at most a second more than alone; a stream
that runs pauses for at most a second; and a second after the stranger has gone, nothing is left of it.
"""

from __future__ import annotations

import contextlib
import hashlib
import http.client
import json
import os
import ssl
import statistics
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator
from itertools import pairwise
from pathlib import Path
from typing import Any

import pytest

from tests.server import strangers
from tests.server.conftest import Live, real_server
from tests.server.stand_in import until
from tests.server.test_socket import resident
from tests.server.tls import certificate, needs_openssl
from woolly.server.accounts import Resource

pytestmark = pytest.mark.soak

ROOT = Path(__file__).resolve().parents[2]
ATTACK_S = 20.0
MORE_S, GAP_S, LEFT_S = 1.0, 1.0, 1.0
GROWTH = 768 << 20  # bytes of the process: the bodies that one caller may have, read and copied, and two at work
STRANGER, FRIEND = "the-key-of-the-stranger-is-long-x", "the-key-of-somebody-else-is-long-x"


@contextlib.contextmanager
def serving(folders: pytest.TempPathFactory, patch: pytest.MonkeyPatch, **settings: Any) -> Iterator[Live]:
    patch.setattr("woolly.server.http.protocol.holder_of", lambda host, port: host)  # loopback is many addresses here
    keys = tuple(hashlib.sha256(key.encode()).digest() for key in (STRANGER, FRIEND))
    with real_server(folders, "talker", context=8192, limits={}, keys=keys, anonymous=False, **settings) as live:
        yield live


class Friend:
    """Asks a server: for two tokens, again and again, and for a stream beside it."""

    def __init__(self, port: int, trusted: Path | None) -> None:
        self._port = port
        self._context = ssl.create_default_context(cafile=str(trusted)) if trusted else None
        self._over = threading.Event()
        self.seconds: list[float] = []
        self.gaps: list[float] = []

    def _ask(self, **body: Any) -> tuple[http.client.HTTPConnection, http.client.HTTPResponse]:
        connection = (
            http.client.HTTPSConnection("127.0.0.1", self._port, timeout=60, context=self._context)
            if self._context
            else http.client.HTTPConnection("127.0.0.1", self._port, timeout=60)
        )
        headers = {"X-API-Key": FRIEND, "Content-Type": "application/json"}
        connection.request("POST", "/v1/completions", json.dumps({"model": "talker", **body}), headers)
        return connection, connection.getresponse()

    def two_tokens(self) -> float:
        begun = time.perf_counter()
        connection, response = self._ask(prompt=f"Hello {begun}", max_tokens=2)
        answer = response.read()
        connection.close()
        assert response.status == 200, answer
        return time.perf_counter() - begun

    def _stream(self) -> None:
        while not self._over.is_set():
            connection, response = self._ask(prompt=f"Hello {time.time()}", max_tokens=4000, stream=True)
            assert response.status == 200
            times = [time.perf_counter()]
            while not self._over.is_set() and response.read1(1 << 16):
                times.append(time.perf_counter())
            self.gaps += [later - sooner for sooner, later in pairwise(times)]
            connection.close()

    def ask_for(self, seconds: float) -> None:
        streaming = threading.Thread(target=self._stream)
        streaming.start()
        end = time.perf_counter() + seconds
        try:
            while time.perf_counter() < end:
                self.seconds.append(self.two_tokens())
                time.sleep(0.05)
        finally:
            self._over.set()
            streaming.join()


def suffer(live: Live, attack: Callable[[int, str], None], trusted: Path | None = None) -> None:
    alone, meanwhile = Friend(live.port, trusted), Friend(live.port, trusted)
    alone.ask_for(3)
    before = resident(os.getpid())
    words = [sys.executable, "-m", "tests.server.strangers", attack.__name__, str(live.port), STRANGER]
    with subprocess.Popen(words, cwd=ROOT) as stranger:
        try:
            assert until(lambda: live.app.accounts.out(Resource.CONNECTIONS, strangers.ADDRESS))
            meanwhile.ask_for(ATTACK_S)
        finally:
            stranger.kill()
    gone = time.perf_counter()
    grown = resident(os.getpid()) - before
    assert until(lambda: live.app.accounts.empty and not live.app.state.open)
    left = time.perf_counter() - gone
    usual = statistics.median(alone.seconds)
    print(
        f"{attack.__name__}: two tokens alone {usual:.3f} s (at most {max(alone.seconds):.3f}), "
        f"beside it {statistics.median(meanwhile.seconds):.3f} s (at most {max(meanwhile.seconds):.3f}, "
        f"{len(meanwhile.seconds)} requests); longest gap of a stream alone {max(alone.gaps):.3f} s, "
        f"beside it {max(meanwhile.gaps):.3f} s; {grown / 2**20:+.0f} MiB; nothing is left after {left:.3f} s"
    )
    assert left <= LEFT_S
    assert max(meanwhile.seconds) <= usual + MORE_S
    assert max(meanwhile.gaps) <= GAP_S
    assert grown < GROWTH


@pytest.mark.parametrize("attack", strangers.PLAIN)
def test_l21_a_stranger_delays_nobody(
    attack: Callable[[int, str], None], tmp_path_factory: pytest.TempPathFactory, monkeypatch: pytest.MonkeyPatch
) -> None:
    with serving(tmp_path_factory, monkeypatch) as live:
        suffer(live, attack)


@needs_openssl
@pytest.mark.parametrize("attack", strangers.TLS)
def test_l21_a_stranger_delays_nobody_over_tls(
    attack: Callable[[int, str], None],
    tmp_path: Path,
    tmp_path_factory: pytest.TempPathFactory,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    cert, key = certificate(tmp_path)
    with serving(tmp_path_factory, monkeypatch, certificate=cert, certificate_key=key) as live:
        suffer(live, attack, cert)
