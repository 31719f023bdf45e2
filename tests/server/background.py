"""A server in a thread of this process."""

from __future__ import annotations

import threading

from woolly.server import App
from woolly.server.serve import Listener, bind_all


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
        self._started.wait(10)
        return self

    def stop(self) -> None:
        self._listener.stop()

    def __exit__(self, *_: object) -> None:
        self._listener.stop()
        self._listener.stop()
        self._thread.join(10)
