"""Child processes of one script, so that work of one owner that takes its time delays no other owner's.

An owner has one request at a time, whose process nobody else waits for: where all are at work, another one is started,
and stays. So there is a single process until the first owner takes long, and never more than there are owners.
"""

from __future__ import annotations

import os
import threading
from collections.abc import Callable, Hashable, Iterator
from contextlib import contextmanager

from woolly.io.cancellation import POLL_S, check
from woolly.io.sandbox import Child


class ChildPool:
    def __init__(self, make: Callable[[], Child]) -> None:
        self._make = make
        self._children = [make()]
        self._forget()
        os.register_at_fork(after_in_child=self._forget)

    def _forget(self) -> None:
        """Nobody has a process, as in a forked child, where no other thread goes on."""
        self._changed = threading.Condition()
        self._free = list(self._children)
        self._owners: set[Hashable] = set()  # who has a process, or waits for one that is free

    def start(self) -> None:
        """Starts the first process, without waiting until it is ready."""
        self._children[0].start()

    def ask(self, owner: Hashable, request: bytes) -> tuple[str, str]:
        """Sends one request, as `Child.ask`, when the requests of this owner before it are answered."""
        with self._child_of(owner) as child:
            return child.ask(request)

    @contextmanager
    def _child_of(self, owner: Hashable) -> Iterator[Child]:
        with self._changed:
            while owner in self._owners:
                self._changed.wait(POLL_S)
                check()
            self._owners.add(owner)
            self._changed.wait_for(lambda: self._free, POLL_S)  # most work takes less than a process to come up
            if not self._free:
                self._children.append(self._make())
                self._free.append(self._children[-1])
            child = next((child for child in self._free if child.ready), self._free[0])
            self._free.remove(child)
        try:
            yield child
        finally:
            with self._changed:
                self._owners.remove(owner)
                self._free.append(child)
                self._changed.notify_all()

    def close(self) -> None:
        """Ends the processes and waits for them."""
        for child in self._children:
            child.close()
