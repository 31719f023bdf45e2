"""What a server writes to a connection, and whether its reader takes it.

A reader that is slow is waited for; one that takes nothing for too long is dropped, with what it was to read. That
holds for output that has piled up, and for what is still unread when the connection is closed. What has piled up is on
the account of the reader: beyond its bound it is dropped at once.
"""

from __future__ import annotations

import asyncio
import contextlib
import fcntl
import socket
import sys
import termios
import time

from woolly.config.serving import Serving
from woolly.errors import BusyError
from woolly.server.accounts import Bound, Grant

UNREAD = Bound(each=256 << 20, all=1 << 30)  # bytes of answers: of one reader, and of all


class Output:
    """The writing side of a connection. Owned by the event loop."""

    def __init__(self, transport: asyncio.Transport, limits: Serving, memory: Grant | None = None) -> None:
        self.transport = transport
        self._limits, self._memory = limits, memory
        self._writable = asyncio.Event()
        self._writable.set()
        self._check: asyncio.TimerHandle | None = None  # of a reader that is behind
        self._left = 0  # bytes that it had not taken at the last check
        self._taken_s = 0.0  # when they had become fewer
        transport.set_write_buffer_limits(high=limits.unread)
        sock = transport.get_extra_info("socket")
        if sock is not None and sock.family in (socket.AF_INET, socket.AF_INET6):
            with contextlib.suppress(OSError):  # else megabytes would lie in the kernel for a reader that never reads
                sock.setsockopt(socket.SOL_SOCKET, socket.SO_SNDBUF, limits.unread)
                sock.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)  # asyncio's own only fits its own sockets

    @property
    def paused(self) -> bool:
        """More lies here than a reader may leave unread."""
        return not self._writable.is_set()

    async def writable(self) -> None:
        await self._writable.wait()

    def write(self, data: bytes) -> None:
        """Write, unless the connection is being closed: asyncio would tell of it on standard error."""
        if not self.transport.is_closing():
            self.transport.write(data)

    def close(self) -> None:
        """Close the connection when what was written has been read."""
        if not self.transport.is_closing():  # a transport of TLS takes being closed twice for an abort
            self.transport.close()
            self._watch()

    def pause(self) -> None:
        """The buffer is full: the transport says so."""
        self._writable.clear()
        try:
            self._account(self.transport.get_write_buffer_size())
        except BusyError:
            self.transport.abort()
        else:
            self._watch()

    def resume(self) -> None:
        """The buffer has room again."""
        self._account(0)
        self._writable.set()

    def lost(self) -> None:
        """The connection is over; whoever waits for room goes on."""
        self._account(0)
        self._writable.set()
        if self._check is not None:
            self._check.cancel()
            self._check = None

    def _account(self, nbytes: int) -> None:
        if self._memory is not None:
            self._memory.resize(nbytes)

    def _watch(self) -> None:
        """Watch a buffer that gets nothing more: it waits for its reader, or to be empty before the close."""
        if not self.transport.get_write_buffer_size():
            return
        self._left, self._taken_s = self._unread(), time.monotonic()
        if self._check is None:
            self._look_later()

    def _look_later(self) -> None:
        self._check = asyncio.get_running_loop().call_later(self._limits.unread_s / 4, self._look)

    def _look(self) -> None:
        """Drop the connection if the reader has taken nothing for too long."""
        self._check = None
        if not self.transport.get_write_buffer_size() or not (self.paused or self.transport.is_closing()):
            return
        left, now = self._unread(), time.monotonic()
        if left < self._left:
            self._left, self._taken_s = left, now
        if now - self._taken_s < self._limits.unread_s:
            self._look_later()
        else:
            self.transport.abort()

    def _unread(self) -> int:
        """Bytes that the other side has not taken: in the buffer of the process, and in the kernel's."""
        sock, queued = self.transport.get_extra_info("socket"), 0
        if sock is not None and sock.fileno() >= 0 and sys.platform == "linux":
            with contextlib.suppress(OSError):
                queued = int.from_bytes(fcntl.ioctl(sock.fileno(), termios.TIOCOUTQ, bytes(4)), sys.byteorder)
        return self.transport.get_write_buffer_size() + queued
