"""A queue for a device: its engines compute one after another, so that none halves another's caches.

A queue, because a lock has none: the engine that gives its turn back would be the first to take it again, and two
models that are both busy would not share the machine.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from threading import Lock


class DeviceQueue:
    """For any thread. The thread that has waited longest has the next turn."""

    def __init__(self) -> None:
        self._lock = Lock()
        self._taken = False
        self._line: deque[Lock] = deque()  # each is held until its owner's turn comes

    @contextmanager
    def turn(self) -> Iterator[Callable[[], None]]:
        """Wait for the device and hold it for one step. The function that is given ends the turn early, from any
        thread: for a step that hangs."""
        with self._lock:
            called = None
            if self._taken:
                called = Lock()
                called.acquire()
                self._line.append(called)
            self._taken = True
        if called is not None:
            called.acquire()
        over = False

        def end() -> None:
            nonlocal over
            with self._lock:
                if over:
                    return
                over = True
                if self._line:
                    self._line.popleft().release()  # the first that waits has the turn now
                else:
                    self._taken = False

        try:
            yield end
        finally:
            end()

    def forget(self) -> None:
        """In a forked child, where the threads that have or await a turn do not exist."""
        self.__init__()  # type: ignore[misc]
