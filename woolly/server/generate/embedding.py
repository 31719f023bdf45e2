"""Embeddings and scores of texts over HTTP.

A request takes one permit, however many texts it has; a few steps' worth of these are with the engine at a time, so
that other requests have their turn. When its client goes away, they are cancelled.
"""

from __future__ import annotations

from collections import deque
from collections.abc import AsyncGenerator, Callable
from contextlib import aclosing
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from woolly.server.generate.answering import Answering
from woolly.server.generate.deadline import before
from woolly.server.http.caller import Caller
from woolly.server.models.registry import ANY
from woolly.server.routes import Call

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from woolly.examine import OutputKind
    from woolly.llm.encoder import Encoder, Ids, Pooled


@dataclass(frozen=True, slots=True)
class TextVectors:
    """What a model gave for each text: an embedding, or a score."""

    encoder: Encoder
    model: str  # by the name in the request, where that is one of its names
    rows: list[NDArray[Any]]
    tokens: int  # of all texts


async def vectors_of(
    services: Answering,
    model: str,
    call: Call,
    texts: Callable[[Encoder], list[Ids]],
    keep_s: float | None = None,
    *,
    wanted: OutputKind = "embedding",
) -> TextVectors:
    """What a model gives for the texts that `texts` tokenises and checks, in a thread. keep_s and wanted: as of
    `Models.lease`."""
    vectors = _vectors_of(services, model, call, texts, keep_s if call.caller.trusted else None, wanted)
    return await before(call.caller.deadline_s, vectors)


async def _vectors_of(
    services: Answering,
    model: str,
    call: Call,
    texts: Callable[[Encoder], list[Ids]],
    keep_s: float | None,
    wanted: OutputKind,
) -> TextVectors:
    caller = call.caller
    async with services.models.lease(model, keep_s, wanted=wanted, any_name=not caller.strict) as loaded:
        encoder = loaded.model.encoder
        ids = await services.workers.run(caller.name, lambda: texts(encoder))
        services.counts.active += 1
        try:
            permit = loaded.admission.permit(caller.name, row=caller.row)
            async with permit, aclosing(_each(encoder, ids, caller)) as computed:
                rows = [row async for row in computed]
        finally:
            services.counts.active -= 1
        tokens = sum(map(len, ids))
        services.counts.done += 1
        services.counts.of(loaded.id).prompt_tokens += tokens
        name = services.models.answering_name(model, loaded)
        if model not in (*ANY, name):
            call.notes.append("model")
        return TextVectors(encoder, name, rows, tokens)


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
