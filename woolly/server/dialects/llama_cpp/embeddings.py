"""llama-server's own embeddings: a list, with a row for each text, or for each token where the model pools nothing."""

from __future__ import annotations

from typing import TYPE_CHECKING, Literal

from msgspec import Struct

from woolly.errors import RequestError
from woolly.io.cancellation import check
from woolly.server.dialects.base.shapes import Count, Shape
from woolly.server.dialects.llama_cpp.completion import TAG
from woolly.server.dialects.openai.embeddings import Inputs, read_inputs, shortest_of
from woolly.server.generate.answering import Answering
from woolly.server.generate.embedding import vectors_of
from woolly.server.routes import Call, Query, aliases

if TYPE_CHECKING:
    from woolly.llm.encoder import Encoder, Ids


class LlamaEmbeddingBody(Struct, kw_only=True):
    """The texts are in `content` or in `input`. embd_normalize: 2 gives rows of length 1, -1 those of the model,
    as rows of tokens always are."""

    content: Inputs | None = None
    input: Inputs | None = None
    model: str | None = None
    embd_normalize: Literal[-1, 2] | None = None
    encoding_format: Literal["float"] | None = None


class LlamaEmbedding(Shape):
    index: Count
    embedding: list[list[float]]


async def embeddings(services: Answering, call: Call) -> list[LlamaEmbedding]:
    """Embeddings of texts or token ids, in their order, as llama-server lists them."""
    body: LlamaEmbeddingBody = call.body
    inputs = body.input if body.content is None else body.content
    if inputs is None:
        raise RequestError("there is no text; send it as content or input", param="content")
    texts = read_inputs(inputs, services.settings.limits.inputs)

    def prepare(encoder: Encoder) -> list[Ids]:
        return encoder.texts(texts, truncate=False)

    result = await vectors_of(services, body.model or "", call, prepare)
    normalize = body.embd_normalize != -1 and not result.encoder.per_token

    def written() -> list[LlamaEmbedding]:
        embeddings = []
        for index, rows in enumerate(result.rows):
            check()
            shaped = result.encoder.shaped(rows, normalize=normalize, dimensions=None)
            embeddings.append(LlamaEmbedding(index=index, embedding=[*map(shortest_of, shaped)]))
        return embeddings

    return await services.workers.run(call.caller.name, written)


ROUTES = aliases(Query("POST", "", embeddings, TAG, LlamaEmbeddingBody, errors=(404,)), "/embedding", "/embeddings")
