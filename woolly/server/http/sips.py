"""TLS in sips: asyncio decrypts all that came in one turn of its loop, each record by itself, however small it is.
Between a connection and its TLS this hands over a little in each turn: then others have theirs.
"""

from __future__ import annotations

import asyncio
from typing import cast

SIP = 8 << 10  # bytes: of the smallest records, 350


class Sips(asyncio.BufferedProtocol):
    def __init__(self, tls: asyncio.BufferedProtocol) -> None:
        self._tls = tls

    def get_buffer(self, sizehint: int) -> memoryview:
        return memoryview(self._tls.get_buffer(sizehint))[:SIP]

    def buffer_updated(self, nbytes: int) -> None:
        self._tls.buffer_updated(nbytes)

    def eof_received(self) -> bool | None:
        return self._tls.eof_received()

    def connection_lost(self, exc: Exception | None) -> None:
        self._tls.connection_lost(exc)

    def pause_writing(self) -> None:
        self._tls.pause_writing()

    def resume_writing(self) -> None:
        self._tls.resume_writing()


def sip(plain: asyncio.Transport) -> None:
    """From now on a connection whose TLS has begun reads a little at a time."""
    plain.set_protocol(Sips(cast(asyncio.BufferedProtocol, plain.get_protocol())))
