"""The deadline of an answer: whatever takes longer ends with one error."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Coroutine
from contextlib import AbstractAsyncContextManager, AsyncExitStack, asynccontextmanager
from typing import Any, TypeVar

from woolly.errors import NativeError

T = TypeVar("T")


@asynccontextmanager
async def in_time(waited: AbstractAsyncContextManager[T], deadline: float) -> AsyncIterator[T]:
    """Enter what may take a while (a model that loads, a permit), but not past the deadline of the answer."""
    async with AsyncExitStack() as stack:
        yield await before(deadline, stack.enter_async_context(waited))


async def before(deadline: float, work: Coroutine[Any, Any, T]) -> T:
    try:
        async with asyncio.timeout_at(deadline):
            return await work
    except TimeoutError:
        raise too_late() from None


def too_late() -> NativeError:
    return NativeError("the answer took too long", suggestion="ask for less, or later", code="timeout")
