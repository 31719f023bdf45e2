"""The threads in which files are read and models loaded: two, so that one that loads does not keep names from being
looked up."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from typing import TypeVar, TypeVarTuple

from woolly.server.workers import begin_all

T = TypeVar("T")
Ts = TypeVarTuple("Ts")
THREADS = 2


class FileThreads:
    def __init__(self) -> None:
        self._executor = ThreadPoolExecutor(THREADS, thread_name_prefix="woolly-models")

    def begin(self) -> None:
        begin_all(self._executor, THREADS)

    async def run(self, function: Callable[[*Ts], T], *args: *Ts) -> T:
        return await asyncio.get_running_loop().run_in_executor(self._executor, function, *args)

    def close(self) -> None:
        self._executor.shutdown(wait=False)
