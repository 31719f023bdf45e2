"""Ollama's two routes of embeddings."""

from __future__ import annotations

from time import perf_counter_ns

from msgspec import Struct

from woolly.errors import RequestError
from woolly.server.dialects.base.bodies import Positive
from woolly.server.dialects.base.shapes import Count, Shape
from woolly.server.dialects.ollama.generation import keep_alive_s
from woolly.server.dialects.openai.embeddings import embedded, shortest_of
from woolly.server.generate.answering import Answering
from woolly.server.routes import Call


class EmbedBody(Struct, kw_only=True):
    model: str
    input: str | list[str]
    truncate: bool | None = None
    dimensions: Positive | None = None
    keep_alive: float | str | None = None


class OllamaEmbeddings(Shape, kw_only=True):
    model: str
    embeddings: list[list[float]]
    total_duration: Count
    load_duration: Count = 0
    prompt_eval_count: Count


async def embed(services: Answering, call: Call) -> OllamaEmbeddings:
    """Embeddings of texts, each of length 1; longer texts than the context are cut unless `truncate` is false."""
    body: EmbedBody = call.body
    begun, texts = perf_counter_ns(), [body.input] if isinstance(body.input, str) else body.input
    if len(texts) > services.settings.limits.inputs:
        raise RequestError(f"input has {len(texts):,} entries; at most {services.settings.limits.inputs:,} are read")
    name, cut = body.model.removesuffix(":latest"), body.truncate is not False
    keep_s = keep_alive_s(body.keep_alive)
    result, rows = await embedded(
        services, call, name, texts, write=shortest_of, truncate=cut, dimensions=body.dimensions, keep_s=keep_s
    )
    return OllamaEmbeddings(
        model=body.model,
        embeddings=rows,
        total_duration=perf_counter_ns() - begun,
        prompt_eval_count=result.tokens,
    )


class EmbeddingsBody(Struct, kw_only=True):
    model: str
    prompt: str
    keep_alive: float | str | None = None


class OllamaEmbedding(Shape):
    embedding: list[float]


async def embeddings(services: Answering, call: Call) -> OllamaEmbedding:
    """The embedding of one text, as the model gives it; Ollama's older route."""
    body: EmbeddingsBody = call.body
    if not body.prompt:
        return OllamaEmbedding(embedding=[])
    name = body.model.removesuffix(":latest")
    keep_s = keep_alive_s(body.keep_alive)
    _, [row] = await embedded(
        services, call, name, [body.prompt], write=shortest_of, truncate=True, normalize=False, keep_s=keep_s
    )
    return OllamaEmbedding(embedding=row)
