"""Answering requests until somebody ends it."""

from __future__ import annotations

import logging
import socket
from collections.abc import Callable

from woolly.config import Settings
from woolly.server.app import App
from woolly.server.http.log import OwnWarnings
from woolly.server.listener import Listener


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
