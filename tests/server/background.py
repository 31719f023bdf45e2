"""A server in a thread of this process."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Coroutine
from contextlib import suppress
from typing import Any, TypeVar

from tests.server.clock import forward, pass_by
from woolly.server import App
from woolly.server.listener import Listener
from woolly.server.sockets import bind_all

T = TypeVar("T")


class Background:
    """with Background(app) as background: ... background.url"""

    def __init__(self, app: App) -> None:
        self._socks = bind_all(app.settings)
        started = threading.Event()
        self._started = started
        self._listener = Listener(app, started.set)
        self._thread = threading.Thread(target=self._listener.run, args=(self._socks,), daemon=True)
        host, port = self._socks[0].getsockname()[:2]
        self.url = f"http://{host}:{port}"
        self.port = int(port)

    def __enter__(self) -> Background:
        self._thread.start()
        self._started.wait(60)
        return self

    def forward(self, seconds: float) -> None:
        """Put the clock forward, and wait until all that became due has been done."""
        assert self._listener._loop is not None
        forward(self._listener._loop, seconds)

    def run(self, work: Coroutine[Any, Any, T]) -> T:
        """Have something done on the server's event loop."""
        assert self._listener._loop is not None
        return asyncio.run_coroutine_threadsafe(work, self._listener._loop).result(60)

    def stop(self) -> None:
        self._listener.stop()

    def __exit__(self, *_: object) -> None:
        self._listener.stop()
        self._listener.stop()
        while self._thread.is_alive() and self._listener._loop is not None:
            with suppress(RuntimeError):  # the loop is closed
                self._listener._loop.call_soon_threadsafe(pass_by, 0.1)  # uvicorn checks ten times a second
            self._thread.join(0.005)
        self._thread.join()
