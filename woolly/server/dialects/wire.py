"""What gates ask of a replica: to compute an order, to read a text whole, and for the header of a model's file.

Only for who knows the secret of the fleet; without one, for this machine alone. An answer is a line for each event of
the engine, as `server/wire.py` has them.
"""

from __future__ import annotations

import asyncio
import time
import weakref
from collections.abc import AsyncGenerator
from contextlib import aclosing
from typing import TYPE_CHECKING

from woolly import store
from woolly.errors import BusyError, ContextError, NotFoundError, RequestError, WoollyError
from woolly.request import End, Text
from woolly.server.answer import begun_in_thread
from woolly.server.door import Call, Dialect, Query, Reply, Streamed
from woolly.server.line import ending
from woolly.server.membership import admit
from woolly.server.models import LoadedModel
from woolly.server.wire import (
    HEADER,
    POOL,
    SUBMIT,
    Line,
    Order,
    PoolOrder,
    PoolRows,
    Refusal,
    failed_line,
    line_of,
    prepared_of,
    unpacked,
)

if TYPE_CHECKING:
    from woolly.encoder import Pooled
    from woolly.engine import Stream
    from woolly.server.app import App


async def submit(app: App, call: Call) -> Streamed[Line]:
    """Compute an order, and stream the events of its answer as lines."""
    admit(app, call)
    order: Order = call.body
    if app.draining:
        raise ending()
    async with app.models.lease(order.model) as loaded:
        await _check(app, loaded, order)
        stream: Stream = await begun_in_thread(app, lambda: _begun(app, loaded, order))
    lines = _lines(app, loaded, stream, call.caller.begun_s)
    weakref.finalize(lines, stream.cancel)  # who goes away before the first line leaves no sequence behind
    return Streamed(lines)


async def pool(app: App, call: Call) -> PoolRows:
    """Read a text whole, and give its embedding or its score."""
    admit(app, call)
    order: PoolOrder = call.body
    if app.draining:
        raise ending()
    async with app.models.lease(order.model) as loaded:
        await _check(app, loaded, order)
        pooled: Pooled = await app.in_thread(lambda: _pooled(loaded, order))
        try:
            async with aclosing(aiter(pooled.stream)) as events:  # type: ignore[type-var]
                async for event in events:
                    pooled.check(event)
        finally:
            pooled.stream.cancel()
        app.counts.done += 1
        app.counts.of(loaded.id).prompt_tokens += len(order.ids) // 4
        return PoolRows(pooled.rows.tobytes())


def _pooled(loaded: LoadedModel, order: PoolOrder) -> Pooled:
    model, ids = loaded.model, unpacked(order.ids, "ids")
    model.prompter.check(ids)
    if not ids or len(ids) > model.info.context:
        raise ContextError(len(ids), model.info.context)
    lora = model.adapters.chosen(dict(enumerate(order.lora)))
    return model.encoder.begin(ids, lora=lora, salt=order.salt, key=order.key)


async def _check(app: App, loaded: LoadedModel, order: Order | PoolOrder) -> None:
    if await app.models.digest(loaded) != order.digest or loaded.model.kind != order.kind:
        raise BusyError("the model here is of another sort than the order is for", code="conflict")


def _begun(app: App, loaded: LoadedModel, order: Order) -> Stream:
    return loaded.model.submit(
        prepared_of(order, loaded.model.prompter),
        salt=order.salt,
        key=order.key,
        unread=app.settings.limits.unread_pieces,
        protect_s=order.protect_s,
    )


async def _lines(app: App, loaded: LoadedModel, stream: Stream, begun_s: float) -> AsyncGenerator[Line, None]:
    app.counts.active += 1
    begun = False
    try:
        async with app.models.lease(loaded.id), aclosing(aiter(stream)) as events:  # type: ignore[type-var]
            async for event in events:
                if not begun and isinstance(event, Text):
                    begun = True
                    app.counts.first(loaded.id, time.monotonic() - begun_s)
                elif isinstance(event, End):
                    app.counts.add(loaded.id, event, time.monotonic() - begun_s)
                yield line_of(event)
        app.counts.done += 1
    finally:
        app.counts.active -= 1
        stream.cancel()


async def header(app: App, call: Call) -> Reply[bytes]:
    """The header of a file of a loaded model: everything but the weights."""
    admit(app, call)
    name, part = call.query.get("model", ""), call.query.get("part", "0")
    loaded = next((one for one in app.models.loaded if one.id == name), None)
    if loaded is None:
        raise NotFoundError("this replica has not loaded that model", code="model_not_found")
    data = await asyncio.to_thread(_header, loaded, part)
    return Reply(data, media_type="application/octet-stream")


def _header(loaded: LoadedModel, part: str) -> bytes:
    from woolly import gguf  # NumPy comes with it

    parts = store.parts_of(loaded.path)
    if not part.isascii() or not part.isdigit() or len(part) > 4 or int(part) >= len(parts):
        raise RequestError(f"part must be a number below {len(parts)}", param="part")
    with gguf.open(parts[int(part)]) as file:
        one = next(one for one in file.parts if one.path == parts[int(part)])
        return bytes(one.view[: one.header.start])


def error(problem: WoollyError, _request_id: str) -> Refusal:
    return Refusal(failed_line(problem))


DIALECT = Dialect(
    name="wire",
    doors=(
        Query("POST", SUBMIT, submit, "Fleet", Order, access="open", errors=(404, 409)),
        Query("POST", POOL, pool, "Fleet", PoolOrder, access="open", errors=(404, 409)),
        Query("GET", HEADER, header, "Fleet", access="open", query=("model", "part"), errors=(404,)),
    ),
    error=error,
    prefixes=("/woolly/v1/",),
)
