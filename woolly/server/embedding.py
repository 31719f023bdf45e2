"""Texts that a model reads whole, over HTTP: embeddings and scores. The event loop only carries.

A request takes one place in line, whatever number of texts it has; of these a few steps' worth are with the engine at a
time, so that others have their turn. A client that goes away takes them with it.
"""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import AsyncGenerator, Callable
from contextlib import aclosing
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from woolly.errors import NativeError
from woolly.server.door import Caller
from woolly.server.registry import ANY

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from woolly.encoder import Encoder, Ids, Pooled
    from woolly.server.app import App


@dataclass(frozen=True, slots=True)
class Rows:
    """What a model gave for each text."""

    encoder: Encoder
    model: str  # by the name that it was asked by
    rows: list[NDArray[Any]]
    tokens: int  # of all texts


async def rows_of(
    app: App, model: str, caller: Caller, texts: Callable[[Encoder], list[Ids]], keep_s: float | None = None
) -> Rows:
    """What a model gives for the texts that `texts` tokenises and checks, in a thread. keep_s: as of `Models.lease`."""
    try:
        async with asyncio.timeout_at(caller.deadline_s):
            return await _rows_of(app, model, caller, texts, keep_s if caller.trusted else None)
    except TimeoutError:
        raise NativeError("the answer took too long", suggestion="ask for less, or later", code="timeout") from None


async def _rows_of(
    app: App, model: str, caller: Caller, texts: Callable[[Encoder], list[Ids]], keep_s: float | None
) -> Rows:
    async with app.models.lease(model, keep_s) as loaded:
        encoder = loaded.model.encoder
        ids = await app.in_thread(lambda: texts(encoder))
        app.counts.active += 1
        try:
            place = loaded.line.place(caller.name, row=caller.row)
            async with place, aclosing(_each(encoder, ids, caller)) as found:
                rows = [row async for row in found]
        finally:
            app.counts.active -= 1
        tokens = sum(map(len, ids))
        app.counts.done += 1
        app.counts.of(loaded.id).prompt_tokens += tokens
        return Rows(encoder, loaded.id if model in ANY else model, rows, tokens)


async def _each(encoder: Encoder, texts: list[Ids], caller: Caller) -> AsyncGenerator[NDArray[Any], None]:
    """The rows of each text, in their order."""
    begun: deque[Pooled] = deque()
    try:
        for ids in texts:
            begun.append(encoder.submit(ids, salt=caller.salt, key=caller.name))
            if len(begun) >= encoder.most:
                yield await _finished(begun.popleft())
        while begun:
            yield await _finished(begun.popleft())
    finally:
        for pooled in begun:
            pooled.stream.cancel()


async def _finished(pooled: Pooled) -> NDArray[Any]:
    async with aclosing(aiter(pooled.stream)) as events:  # type: ignore[type-var]
        async for event in events:
            pooled.check(event)
    return pooled.rows
