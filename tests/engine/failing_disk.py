"""A disk that fails: system calls of a disk store are refused, and reads and writes end early, at random."""

from __future__ import annotations

import errno
import os
import random
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from functools import partial
from typing import Any, BinaryIO

import pytest

from woolly.engine.cache import disk as cache
from woolly.io import disk as io

CALLS = ("open", "replace", "unlink", "stat", "scandir", "utime", "pread", "pwrite")
FULL, BROKEN = (errno.ENOSPC, "No space left on device"), (errno.EIO, "Input/output error")


class Torn:
    """An open file whose reads and writes sometimes end early."""

    def __init__(self, file: BinaryIO, fails: Callable[[], bool], dice: random.Random) -> None:
        self.file, self.fails, self.dice = file, fails, dice

    def __enter__(self) -> Torn:
        return self

    def __exit__(self, *_: object) -> None:
        self.file.close()

    def read(self, count: int) -> bytes:
        data = self.file.read(count)
        return data[: self.dice.randrange(len(data) + 1)] if self.fails() else data

    def write(self, data: bytes) -> None:
        if self.fails():
            self.file.write(data[: self.dice.randrange(len(data) + 1)])
            raise OSError(*FULL)
        self.file.write(data)


@contextmanager
def failing(dice: random.Random, often: float) -> Iterator[None]:
    """Each system call of a disk store fails with probability `often`: the disk is full, or broken."""

    def fails() -> bool:
        return dice.random() < often

    def called(call: Callable[..., Any], *args: Any, **options: Any) -> Any:
        if fails():
            raise OSError(*dice.choice([FULL, BROKEN]))
        return call(*args, **options)

    with pytest.MonkeyPatch.context() as patch:
        for name in CALLS:
            patch.setattr(os, name, partial(called, getattr(os, name)))
        for module in (cache, io):
            patch.setattr(module, "open", lambda *args: Torn(open(*args), fails, dice), raising=False)  # noqa: SIM115
        yield
