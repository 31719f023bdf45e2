"""Listening: bind, answer, and end in good order.

The first signal refuses new requests and those that wait, and lets those that run come to their end; a second signal
ends at once. A hangup is such a signal where a terminal started the server, which has been closed then; elsewhere it
has the log opened anew, and the keys and rate limits read again.
"""

from __future__ import annotations

import asyncio
import contextlib
import errno
import logging
import os
import signal
import socket
import ssl
import threading
from collections.abc import Callable, Iterator
from types import FrameType
from typing import Any

import uvicorn

from woolly.config import HOST, Settings
from woolly.errors import BusyError, NotFoundError, RequestError, printable
from woolly.server.app import App
from woolly.server.dialect_table import dialect_of
from woolly.server.http.log import OwnWarnings
from woolly.server.http.protocol import Shared, protocol

BACKLOG = 512  # connections that wait to be accepted
ACCEPTED = 16  # of those in one turn of the event loop: then others have theirs


def bind(host: str, port: int) -> socket.socket:
    """A listening socket; port 0 takes one that is free."""
    try:
        family = socket.getaddrinfo(host, port, type=socket.SOCK_STREAM, flags=socket.AI_PASSIVE)[0][0]
        sock = socket.socket(family, socket.SOCK_STREAM)
        try:
            sock.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
            sock.bind((host, port))
            sock.listen(BACKLOG)
        except BaseException:
            sock.close()
            raise
        return sock
    except (OSError, UnicodeError) as error:  # the second: a name that no host can have
        number = getattr(error, "errno", None)
        taken = number == errno.EADDRINUSE
        reason = "it is in use" if taken else printable(getattr(error, "strerror", None) or error)
        raise BusyError(
            f"cannot listen at {printable(host)}:{port}: {reason}",
            suggestion="choose another with --port, or --port 0 for any that is free"
            if taken or number == errno.EACCES
            else "look at --host: it must be an address or a name of this machine",
            code="address_in_use",
            taken=taken,
        ) from None


def bind_all(settings: Settings) -> list[socket.socket]:
    """A socket for each address. A default one is this machine by both of its names, 127.0.0.1 and ::1."""
    socks: list[socket.socket] = []
    try:
        for host, port in settings.addresses:
            socks.append(bind("127.0.0.1" if host == "localhost" else host, port))
            if host == "localhost" or (host == HOST and not settings.bind and not settings.host):
                taken = socks[-1].getsockname()[1]
                try:
                    socks.append(bind("::1", taken))
                except BusyError as error:
                    if error.facts.get("taken") and port:  # another process would answer under the same name
                        raise
    except BaseException:
        for sock in socks:
            sock.close()
        raise
    return socks


def tls(settings: Settings) -> ssl.SSLContext | None:
    """What handshakes are made with, checked before the server listens; None where it speaks plain HTTP."""
    if settings.certificate is None and settings.certificate_key is None:
        return None
    if settings.certificate is None or settings.certificate_key is None:
        raise RequestError("TLS needs both --tls-cert and --tls-key (tls.cert_path and tls.key_path)", param="tls")
    for path in (settings.certificate, settings.certificate_key):
        if not path.is_file():
            raise NotFoundError(f"there is no file '{printable(path)}' for TLS", path=str(path))
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    try:
        context.load_cert_chain(settings.certificate, settings.certificate_key)
    except (ssl.SSLError, OSError) as error:
        raise RequestError(
            f"the certificate '{printable(settings.certificate)}' cannot be used: {printable(error)}",
            suggestion="give a PEM file with the certificate, and one with its key without a password",
            param="tls",
        ) from None
    return context


class Listener(uvicorn.Server):
    """uvicorn's server, with an end that waits for answers and not for idle connections."""

    def __init__(
        self,
        app: App,
        ready: Callable[[], None] | None = None,
        read_settings: Callable[[], Settings] | None = None,
    ) -> None:
        super().__init__(
            uvicorn.Config(
                app,
                http=protocol(
                    Shared(
                        limits=app.settings.limits,
                        accounts=app.accounts,
                        shape=lambda path, error: dialect_of(path).error(error, "req_connection"),
                        tls=tls(app.settings),
                    )
                ),
                ws="none",  # the protocol sees to them
                lifespan="off",
                log_config=None,
                log_level="critical",
                access_log=False,
                server_header=False,
                proxy_headers=False,  # the guard reads them, where they come from a proxy that the operator named
                timeout_graceful_shutdown=1,
                backlog=ACCEPTED,  # asyncio takes it for both
            )
        )
        self.app = app
        self.ready = ready
        self._read_settings = read_settings
        self._renewing: asyncio.Task[None] | None = None
        self._loop: asyncio.AbstractEventLoop | None = None
        self._signals = 0
        self._ending: asyncio.Task[None] | None = None

    async def startup(self, sockets: list[socket.socket] | None = None) -> None:
        self._loop = asyncio.get_running_loop()
        await super().startup(sockets)
        assert sockets
        for sock in sockets:
            sock.listen(BACKLOG)
        self.app.begin(sockets[0].getsockname()[:2], self.stop)
        if self.ready is not None:
            self.ready()

    async def shutdown(self, sockets: list[socket.socket] | None = None) -> None:
        await super().shutdown(sockets)
        await self.app.close()

    @contextlib.contextmanager
    def capture_signals(self) -> Iterator[None]:
        """As uvicorn does, and the two signals that end a process unless somebody listens."""
        before: dict[signal.Signals, Any] = {}
        if threading.current_thread() is threading.main_thread():
            before[signal.SIGUSR1] = signal.signal(signal.SIGUSR1, self._reopen_log)
            if signal.getsignal(signal.SIGHUP) is not signal.SIG_IGN:  # as `nohup` leaves it
                on_hangup = self.handle_exit if _has_terminal() else self._renew
                before[signal.SIGHUP] = signal.signal(signal.SIGHUP, on_hangup)
        try:
            with super().capture_signals():
                yield
        finally:
            for number, handler in before.items():
                signal.signal(number, handler)

    def _reopen_log(self, sig: int, frame: FrameType | None) -> None:
        """The log was moved away: write to a new one."""
        self.app.log.reopen()

    def _renew(self, sig: int, frame: FrameType | None) -> None:
        """The log was moved away, or the settings have changed."""
        self.app.log.reopen()
        if self._loop is not None and self._read_settings is not None:
            self._loop.call_soon_threadsafe(self._begin_renewing, self._read_settings)

    def _begin_renewing(self, read: Callable[[], Settings]) -> None:
        self._renewing = asyncio.create_task(self.app.renew(read))

    def handle_exit(self, sig: int, frame: FrameType | None) -> None:
        """A signal. It is not raised again at the end, as uvicorn would: ending when told to is a success."""
        self.stop()

    def stop(self) -> None:
        """From any thread, or a signal: end in good order; a second call ends at once."""
        self._signals += 1
        if self._loop is None or self._signals > 1:
            self.should_exit = self.force_exit = True
            return
        self._loop.call_soon_threadsafe(self._drain)

    def _drain(self) -> None:
        self.app.drain()
        self._ending = asyncio.create_task(self._end())

    async def _end(self) -> None:
        loop = asyncio.get_running_loop()
        deadline = loop.time() + self.app.settings.limits.drain_s
        while self.app.state.open and loop.time() < deadline and not self.force_exit:
            await asyncio.sleep(0.02)
        self.should_exit = True


def _has_terminal() -> bool:
    """Whether one of the standard streams is a terminal, whose end is a hangup."""
    return any(map(os.isatty, range(3)))


def serve(
    app: App,
    socks: list[socket.socket],
    ready: Callable[[], None] | None = None,
    read_settings: Callable[[], Settings] | None = None,
) -> None:
    """Answer at these sockets until a signal comes; returns when everything is freed. Raises where the server ends
    because a model that it was started with cannot be loaded. read_settings: reads them again."""
    logger, handler = logging.getLogger("woolly"), OwnWarnings(app.log)
    logger.addHandler(handler)
    try:
        Listener(app, ready, read_settings).run(sockets=socks)
    finally:
        logger.removeHandler(handler)
    if app.failure is not None:
        raise app.failure
