"""A clock that tests put forward, on top of real time, so that no test has to wait for a limit of minutes."""

from __future__ import annotations

import asyncio
import threading
import time

_real, _ahead_s, _lock = time.monotonic, 0.0, threading.Lock()


def _monotonic() -> float:
    return _real() + _ahead_s


def pass_by(seconds: float) -> None:
    """Put the monotonic clock of this process forward by so many seconds, until the process ends."""
    global _ahead_s
    with _lock:
        _ahead_s += seconds
    time.monotonic = _monotonic  # asyncio reads it, too


def forward(loop: asyncio.AbstractEventLoop, seconds: float) -> None:
    """Put the clock forward between two moments at which the loop has done all that is due."""
    asyncio.run_coroutine_threadsafe(_settled(), loop).result(60)
    pass_by(seconds)
    asyncio.run_coroutine_threadsafe(_settled(), loop).result(60)


async def _settled() -> None:
    for _ in range(5):  # work that is due begins in one round of the loop and goes on in the next ones
        await asyncio.sleep(0)
