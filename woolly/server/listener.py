"""The listener: uvicorn's server around our own protocol, which ends in good order.

The first signal refuses new requests and those that wait, and lets those that run come to their end; a second signal
ends at once. A hangup is such a signal where a terminal started the server, which has been closed then; elsewhere it
has the log opened anew, and the keys and rate limits read again.

This is the only file that imports uvicorn. What it uses of it, public or not, is the same in all versions that
pyproject.toml allows:
- `Config` with `http=`, a factory of protocols, which is called with `server_state` by name, and more that we ignore;
- of `server_state`: `connections`, which have `shutdown()`, and `tasks`: both are waited for at the end;
  `default_headers`, which an answer begins with: the date;
- of `Server`: `run(sockets=)`, the coroutines `startup(sockets)` and `shutdown(sockets)`, the context manager
  `capture_signals`, which sets `handle_exit(sig, frame)` for SIGINT and SIGTERM, and the flags `should_exit` and
  `force_exit`, at which it looks ten times a second.
"""

from __future__ import annotations

import asyncio
import contextlib
import os
import signal
import socket
import threading
from collections.abc import Callable, Iterator
from types import FrameType
from typing import Any

import uvicorn

from woolly.config import Settings
from woolly.server.app import App
from woolly.server.dialect_table import dialect_of
from woolly.server.http.exchange import ConnectionSet
from woolly.server.http.protocol import Connection, Shared
from woolly.server.sockets import BACKLOG, tls

ACCEPTED = 16  # of those in one turn of the event loop: then others have theirs


class Listener(uvicorn.Server):
    """Waits at its end for answers, and not for idle connections."""

    def __init__(
        self,
        app: App,
        ready: Callable[[], None] | None = None,
        read_settings: Callable[[], Settings] | None = None,
    ) -> None:
        super().__init__(
            uvicorn.Config(
                app,
                http=_protocol(app),
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


def _protocol(app: App) -> Any:
    """What uvicorn makes its connections with."""
    shared = Shared(
        limits=app.settings.limits,
        accounts=app.accounts,
        shape=lambda path, error: dialect_of(path).error(error, "req_connection"),
        tls=tls(app.settings),
    )

    def connection(*, server_state: ConnectionSet, **_: Any) -> Connection:
        return Connection(shared, app, server_state)

    return connection
