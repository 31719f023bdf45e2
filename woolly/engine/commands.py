"""The commands that other threads put into an engine's inbox. The engine thread handles them between two steps."""

from __future__ import annotations

from collections.abc import Callable
from concurrent.futures import Future
from dataclasses import dataclass
from typing import Any, TypeAlias

from woolly.engine.cache.disk_io import Fetched, Written
from woolly.engine.sequence import Sequence


@dataclass(frozen=True, slots=True)
class Add:
    sequence: Sequence


@dataclass(frozen=True, slots=True)
class Cancel:
    sequence: Sequence


@dataclass(frozen=True, slots=True)
class Resume:
    """A reader that was behind has caught up."""


@dataclass(frozen=True, slots=True)
class Work:
    """Something to do between two steps."""

    function: Callable[[], Any]
    done: Future[Any]

    def do(self) -> None:
        if not self.done.set_running_or_notify_cancel():
            return
        try:
            self.done.set_result(self.function())
        except Exception as error:
            self.done.set_exception(error)


@dataclass(frozen=True, slots=True)
class Close:
    pass


EngineCommand: TypeAlias = Add | Cancel | Resume | Work | Fetched | Written | Close
