"""Services: what the functions behind routes work with. Each is given those that it names, and no more.

    async def upload(files: Files, batches: Batches, call: Call) -> FileRecord: ...

`bind` puts them in by their types when the server is built, so that a service that does not exist is an error before
the first request. Services without a module of their own stand below.
"""

from __future__ import annotations

import functools
import inspect
import time
from collections.abc import Awaitable, Callable, Mapping
from dataclasses import dataclass, field
from typing import Any, get_type_hints


@dataclass(slots=True)
class ServerState:
    """The state of the server. Owned by the event loop."""

    started_s: float = field(default_factory=time.monotonic)
    draining: bool = False  # it takes nothing new
    open: int = 0  # requests that have not been answered to their end
    answering: int = 0  # of those, the ones that a model answers
    sockets: int = 0  # WebSockets that are open

    @property
    def uptime_s(self) -> float:
        return time.monotonic() - self.started_s


def bind(function: Callable[..., Awaitable[object]], services: Mapping[type, object]) -> Callable[..., Any]:
    """The function with its services; only its last parameter, the call, is left."""
    *names, _ = inspect.signature(function).parameters
    hints = get_type_hints(function) if names else {}
    if missing := [name for name in names if hints[name] not in services]:
        where = f"{function.__module__}.{function.__qualname__}"
        raise TypeError(f"{where} asks for {', '.join(missing)}; the server has no service of that type")
    return functools.partial(function, *(services[hints[name]] for name in names))
