"""OpenAI's embeddings, and the ranking of documents as Jina, vLLM and llama-server have it."""

from __future__ import annotations

import base64
from collections.abc import Sequence
from typing import TYPE_CHECKING, Annotated, Any, Literal

from msgspec import UNSET, Meta, Struct, UnsetType

from woolly.errors import RequestError, UnsupportedError
from woolly.server.dialects.bodies import Positive
from woolly.server.dialects.shapes import Count, Shape, Share
from woolly.server.door import Call, Query, aliases
from woolly.server.embedding import Rows, rows_of

if TYPE_CHECKING:
    from woolly.encoder import Encoder, Ids
    from woolly.server.app import App

Inputs = str | list[str | int | list[int]]


class EmbeddingBody(Struct, kw_only=True):
    input: Inputs
    model: str | None = None
    encoding_format: Literal["float", "base64"] | None = None
    dimensions: Positive | None = None
    truncate: bool | None = None
    user: str | None = None


class TextUsage(Shape):
    prompt_tokens: Count
    total_tokens: Count


class Embedding(Shape, kw_only=True):
    object: Literal["embedding"] = "embedding"
    index: Count
    embedding: list[float] | str


class Embeddings(Shape, kw_only=True):
    object: Literal["list"] = "list"
    model: str
    data: list[Embedding]
    usage: TextUsage


async def embeddings(app: App, call: Call) -> Embeddings:
    """Embeddings of texts or token ids, in their order, each of length 1."""
    body: EmbeddingBody = call.body
    texts = read_inputs(body.input, app.settings.limits.inputs)
    found, made = await embedded(
        app, call, body.model or "", texts, truncate=bool(body.truncate), dimensions=body.dimensions
    )
    packed = body.encoding_format == "base64"
    rows = [base64.b64encode(row.astype("<f4").tobytes()).decode() if packed else shortest_of(row) for row in made]
    data = [Embedding(index=index, embedding=row) for index, row in enumerate(rows)]
    return Embeddings(model=found.model, data=data, usage=_usage(found))


async def embedded(
    app: App,
    call: Call,
    model: str,
    texts: Sequence[str | list[int]],
    *,
    truncate: bool = False,
    dimensions: int | None = None,
    normalize: bool = True,
    keep_s: float | None = None,
) -> tuple[Rows, list[Any]]:
    """What a model gave for texts, and their embeddings: rows of float32."""

    def prepare(encoder: Encoder) -> list[Ids]:
        encoder.need("embedding")
        encoder.check_dimensions(dimensions)
        if encoder.every:
            raise UnsupportedError(
                f"{encoder.name} pools nothing, so a text has no embedding but one for each token", param="model"
            )
        return encoder.texts(texts, truncate=truncate)

    found = await rows_of(app, model, call.caller, prepare, keep_s)
    return found, [found.encoder.shaped(rows, normalize=normalize, dimensions=dimensions)[0] for rows in found.rows]


def read_inputs(given: Inputs, most: int) -> list[str | list[int]]:
    """One input or several: a list of numbers is one, a list of texts or of lists is several."""
    several: list[Any] = [given] if isinstance(given, str) else given
    kinds = {type(part) for part in several}
    if kinds == {int}:
        several, kinds = [several], {list}
    if len(kinds) != 1:
        raise RequestError("input is a text, token ids, or a list of either, all of one kind", param="input")
    if len(several) > most:
        raise RequestError(f"input has {len(several):,} entries; at most {most:,} are read", param="input")
    for index, part in enumerate(several):
        if not part:
            place = "input" if isinstance(given, str) else f"input[{index}]"
            raise RequestError(f"{place} is empty", param=place)
    return several


def shortest_of(row: Any) -> list[float]:
    from woolly.encoder import shortest  # NumPy comes with it

    return shortest(row)


class DocumentText(Struct):
    text: str


Documents = Annotated[list[str | DocumentText], Meta(min_length=1)]


class RerankBody(Struct, kw_only=True):
    query: Annotated[str, Meta(min_length=1)]
    documents: Documents
    model: str | None = None
    top_n: Positive | None = None
    return_documents: bool | None = None
    truncate: bool | None = None


class RankedText(Shape):
    text: str


class Ranked(Shape):
    index: Count
    relevance_score: Share
    document: RankedText | UnsetType = UNSET


class Ranking(Shape, kw_only=True):
    object: Literal["list"] = "list"
    model: str
    results: list[Ranked]
    usage: TextUsage


async def rerank(app: App, call: Call) -> Ranking:
    """Documents by how well they answer a query, the best first; scores are from 0 to 1."""
    body: RerankBody = call.body
    texts = [each if isinstance(each, str) else each.text for each in body.documents]
    found, order, scores = await _ranked(app, call, body.model or "", body.query, texts, bool(body.truncate))
    results = [
        Ranked(
            index=index,
            relevance_score=scores[index],
            document=RankedText(text=texts[index]) if body.return_documents else UNSET,
        )
        for index in order[: body.top_n]
    ]
    return Ranking(model=found.model, results=results, usage=_usage(found))


async def _ranked(
    app: App, call: Call, model: str, query: str, texts: list[str], truncate: bool
) -> tuple[Rows, list[int], list[float]]:
    """Places of the texts, the best first (of equals the one that came first), and their scores."""
    most = app.settings.limits.inputs
    if len(texts) > most:
        raise RequestError(f"documents has {len(texts):,} entries; at most {most:,} are read", param="documents")
    found = await rows_of(app, model, call.caller, lambda encoder: encoder.pairs(query, texts, truncate=truncate))
    scores = [found.encoder.relevance(rows) for rows in found.rows]
    return found, sorted(range(len(scores)), key=lambda index: -scores[index]), scores


def _usage(found: Rows) -> TextUsage:
    return TextUsage(prompt_tokens=found.tokens, total_tokens=found.tokens)


TAG = "Embeddings"
EMBEDDINGS = Query("POST", "/v1/embeddings", embeddings, TAG, EmbeddingBody, errors=(404,))
RERANK = aliases(
    Query("POST", "", rerank, TAG, RerankBody, errors=(404,)),
    *("/v1/rerank", "/rerank", "/v1/reranking", "/reranking", "/v2/rerank"),
)
