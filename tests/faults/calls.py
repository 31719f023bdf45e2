"""A disk whose n-th call fails: every open, write, fsync and rename below a folder is counted, in all threads."""

from __future__ import annotations

import _pyio
import builtins
import io
import os
import signal
import threading
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any, Self

import pytest

KINDS = ("open", "write", "fsync", "rename")
KILL = -1  # in place of an errno: the process dies there, as by `kill -9`


class FailingCalls:
    """with FailingCalls(folder, at=7, failure=errno.EIO) as calls: ...

    at: the number of the call that fails, from 1; 0 for none. lasting: all after it fail, too. What a failing write was
    to write is there by half. Afterwards `kinds` has the kind of each call.
    """

    def __init__(self, folder: Path, *, at: int = 0, failure: int = 0, lasting: bool = False) -> None:
        self._folder = f"{folder}{os.sep}"
        self._at, self._failure, self.lasting = at, failure, lasting
        self._healthy = False
        self.kinds: list[str] = []
        self.failures = 0
        self._handles: set[int] = set()  # of files below the folder
        self._lock = threading.Lock()
        self._patch = pytest.MonkeyPatch()

    def heal(self) -> None:
        """From now on no call fails, and none is counted."""
        self._healthy = True

    def __enter__(self) -> Self:
        real = {name: getattr(os, name) for name in ("open", "close", "write", "fsync", "replace", "rename")}

        def opened(path: Any, *args: Any, **options: Any) -> int:
            ours = self._below(path)
            if ours:
                self._call("open")
            handle = int(real["open"](path, *args, **options))
            if ours:
                self._handles.add(handle)
            return handle

        def close(handle: int) -> None:
            self._handles.discard(handle)
            real["close"](handle)

        def write(handle: int, data: Any) -> int:
            if handle in self._handles:
                self._call("write", lambda: real["write"](handle, bytes(data)[: len(data) // 2]))
            return int(real["write"](handle, data))

        def fsync(handle: int) -> None:
            if handle in self._handles:
                self._call("fsync")
            real["fsync"](handle)

        def moving(name: str) -> Callable[..., None]:
            def move(source: Any, target: Any, **options: Any) -> None:
                if self._below(source) or self._below(target):
                    self._call("rename")
                real[name](source, target, **options)

            return move

        for name, call in (("open", opened), ("close", close), ("write", write), ("fsync", fsync)):
            self._patch.setattr(os, name, call)
        for name in ("replace", "rename"):
            self._patch.setattr(os, name, moving(name))
        for module in (builtins, io):  # the one in Python makes the calls above
            self._patch.setattr(module, "open", _pyio.open)
        return self

    def __exit__(self, *_: object) -> None:
        self._patch.undo()

    def _below(self, path: Any) -> bool:
        return isinstance(path, str | os.PathLike) and os.fspath(path).startswith(self._folder)

    def _call(self, kind: str, before: Callable[[], object] = lambda: None) -> None:
        with self._lock:
            if self._healthy:
                return
            self.kinds.append(kind)
            number = len(self.kinds)
            if not self._at or number < self._at or (number > self._at and not self.lasting):
                return
            self.failures += 1
        before()
        if self._failure == KILL:
            os.kill(os.getpid(), signal.SIGKILL)
            time.sleep(60)
        raise OSError(self._failure, os.strerror(self._failure))
