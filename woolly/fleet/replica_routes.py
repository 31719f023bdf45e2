"""What gateways ask of a replica: an answer, the embedding or score of a text, and the header of a model's file.

Only for members of the fleet, as the guard knows them. An answer has a line for each event of the engine (wire.py).
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
from woolly.fleet.wire import (
    HEADER,
    POOL,
    SUBMIT,
    AnswerLine,
    EmbedReply,
    EmbedRequest,
    Refusal,
    RemoteRequest,
    failed_line,
    line_of,
    prepared_of,
    unpack_ids,
)
from woolly.request import End, SubmitOptions, Text
from woolly.server.generate.answering import Answering
from woolly.server.http.reply import Reply
from woolly.server.models.admission import ending
from woolly.server.models.lifecycle import Models
from woolly.server.models.loaded import LoadedModel
from woolly.server.routes import Call, Dialect, Query, Streamed
from woolly.server.services import ServerState

if TYPE_CHECKING:
    from woolly.engine import Stream
    from woolly.llm.encoder import Pooled


async def submit(services: Answering, state: ServerState, call: Call) -> Streamed[AnswerLine]:
    """Compute an answer, and stream its events as lines."""
    request: RemoteRequest = call.body
    if state.draining:
        raise ending()
    async with services.models.lease(request.model) as loaded:
        await _check(services.models, loaded, request)
        unread = services.settings.limits.unread_pieces
        stream: Stream = await services.workers.run(
            request.key, lambda: _begun(loaded, request, unread), drop=lambda stream: stream.cancel()
        )
    lines = _lines(services, loaded, stream, call.caller.begun_s)
    weakref.finalize(lines, stream.cancel)  # where the gateway leaves before the first line, the sequence ends
    return Streamed(lines)


async def pool(services: Answering, state: ServerState, call: Call) -> EmbedReply:
    """Read a text whole, and give its embedding or its score."""
    request: EmbedRequest = call.body
    if state.draining:
        raise ending()
    async with services.models.lease(request.model) as loaded:
        await _check(services.models, loaded, request)
        pooled: Pooled = await services.workers.run(
            request.key, lambda: _pooled(loaded, request), drop=lambda pooled: pooled.stream.cancel()
        )
        try:
            async with aclosing(aiter(pooled.stream)) as events:  # type: ignore[type-var]
                async for event in events:
                    pooled.check(event)
        finally:
            pooled.stream.cancel()
        services.counts.done += 1
        services.counts.of(loaded.id).prompt_tokens += len(request.ids) // 4
        return EmbedReply(pooled.rows.tobytes())


def _pooled(loaded: LoadedModel, request: EmbedRequest) -> Pooled:
    model, ids = loaded.model, unpack_ids(request.ids, "ids")
    model.prompter.check(ids)
    if not ids or len(ids) > model.info.context:
        raise ContextError(len(ids), model.info.context)
    lora = model.adapters.chosen(dict(enumerate(request.lora)))
    return model.encoder.begin(ids, lora=lora, salt=request.salt, key=request.key)


async def _check(models: Models, loaded: LoadedModel, request: RemoteRequest | EmbedRequest) -> None:
    if await models.digest(loaded) != request.digest or loaded.model.numerics_id != request.numerics_id:
        raise BusyError("the model here is another version than the one that is asked for", code="conflict")


def _begun(loaded: LoadedModel, request: RemoteRequest, unread: int) -> Stream:
    options = SubmitOptions(request.salt, request.key, unread, request.protect_s)
    return loaded.model.submit(prepared_of(request, loaded.model.prompter), options)


async def _lines(
    services: Answering, loaded: LoadedModel, stream: Stream, begun_s: float
) -> AsyncGenerator[AnswerLine, None]:
    services.counts.active += 1
    begun = False
    try:
        async with services.models.lease(loaded.id), aclosing(aiter(stream)) as events:  # type: ignore[type-var]
            async for event in events:
                if not begun and isinstance(event, Text):
                    begun = True
                    services.counts.first(loaded.id, time.monotonic() - begun_s)
                elif isinstance(event, End):
                    services.counts.add(loaded.id, event, time.monotonic() - begun_s)
                yield line_of(event)
        services.counts.done += 1
    finally:
        services.counts.active -= 1
        stream.cancel()


async def header(models: Models, call: Call) -> Reply[bytes]:
    """The header of a file of a loaded model: everything but the weights."""
    name, part = call.query.get("model", ""), call.query.get("part", "0")
    loaded = next((one for one in models.loaded if one.id == name), None)
    if loaded is None:
        raise NotFoundError("this replica has not loaded that model", code="model_not_found")
    data = await asyncio.to_thread(_header, loaded, part)
    return Reply(data, media_type="application/octet-stream")


def _header(loaded: LoadedModel, part: str) -> bytes:
    from woolly import gguf  # late, because it imports NumPy

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
    routes=(
        Query("POST", SUBMIT, submit, "Fleet", RemoteRequest, access="fleet", errors=(404, 409)),
        Query("POST", POOL, pool, "Fleet", EmbedRequest, access="fleet", errors=(404, 409)),
        Query("GET", HEADER, header, "Fleet", access="fleet", query=("model", "part"), errors=(404,)),
    ),
    error=error,
    prefixes=("/woolly/v1/",),
)
