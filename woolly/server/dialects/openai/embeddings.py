"""OpenAI's embeddings, and the ranking of documents as Jina, vLLM and llama-server have it."""

from __future__ import annotations

import base64
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Annotated, Any, Literal, TypeVar

from msgspec import UNSET, Meta, Struct, UnsetType

from woolly.errors import RequestError, UnsupportedError
from woolly.io.cancellation import check
from woolly.server.dialects.base.bodies import Positive
from woolly.server.dialects.base.shapes import Count, Shape, Share
from woolly.server.generate.answering import Answering
from woolly.server.generate.embedding import TextVectors, vectors_of
from woolly.server.routes import Call, Query, aliases

if TYPE_CHECKING:
    from woolly.llm.encoder import Encoder, Ids

T = TypeVar("T")
Inputs = str | list[str | int | list[int | str]]


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


async def embeddings(services: Answering, call: Call) -> Embeddings:
    """Embeddings of texts or token ids, in their order, each of length 1."""
    body: EmbeddingBody = call.body
    texts = read_inputs(body.input, services.settings.limits.inputs)
    write: Callable[[Any], list[float] | str] = packed if body.encoding_format == "base64" else shortest_of
    result, rows = await embedded(
        services,
        call,
        body.model or "",
        texts,
        write=write,
        truncate=bool(body.truncate),
        dimensions=body.dimensions,
    )
    data = [Embedding(index=index, embedding=row) for index, row in enumerate(rows)]
    return Embeddings(model=result.model, data=data, usage=_usage(result))


async def embedded(
    services: Answering,
    call: Call,
    model: str,
    texts: Sequence[str | list[int | str]],
    *,
    write: Callable[[Any], T],
    truncate: bool = False,
    dimensions: int | None = None,
    normalize: bool = True,
    keep_s: float | None = None,
) -> tuple[TextVectors, list[T]]:
    """The result of a model for texts, and their embeddings. write: makes JSON of one, a row of float32."""

    def prepare(encoder: Encoder) -> list[Ids]:
        encoder.need("embedding")
        encoder.check_dimensions(dimensions)
        if encoder.per_token:
            raise UnsupportedError(
                f"{encoder.name} pools nothing, so a text has no embedding but one for each token", param="model"
            )
        return encoder.texts(texts, truncate=truncate)

    def written() -> list[T]:
        embeddings = []
        for rows in result.rows:
            check()
            embeddings.append(write(result.encoder.shaped(rows, normalize=normalize, dimensions=dimensions)[0]))
        return embeddings

    result = await vectors_of(services, model, call, prepare, keep_s)
    return result, await services.workers.run(call.caller.name, written)


def read_inputs(inputs: Inputs, most: int) -> list[str | list[int | str]]:
    """One input or several: a list with numbers in it is one, a list of texts and of lists is several."""
    several: list[Any] = [inputs] if isinstance(inputs, str) else inputs
    kinds = {type(part) for part in several}
    if int in kinds:
        several = [several]
    if not kinds or {int, list} <= kinds:
        raise RequestError(
            "input is a text, token ids with or without texts among them, or a list of these", param="input"
        )
    if len(several) > most:
        raise RequestError(f"input has {len(several):,} entries; at most {most:,} are read", param="input")
    for index, part in enumerate(several):
        if not part:
            place = "input" if isinstance(inputs, str) else f"input[{index}]"
            raise RequestError(f"{place} is empty", param=place)
    return several


def packed(row: Any) -> str:
    return base64.b64encode(row.astype("<f4").tobytes()).decode()


def shortest_of(row: Any) -> list[float]:
    from woolly.llm.encoder import shortest  # late, because it imports NumPy

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


async def rerank(services: Answering, call: Call) -> Ranking:
    """Documents by how well they answer a query, the best first; scores are from 0 to 1."""
    body: RerankBody = call.body
    texts = [each if isinstance(each, str) else each.text for each in body.documents]
    result, order, scores = await _ranked(services, call, body.model or "", body.query, texts, bool(body.truncate))
    results = [
        Ranked(
            index=index,
            relevance_score=scores[index],
            document=RankedText(text=texts[index]) if body.return_documents else UNSET,
        )
        for index in order[: body.top_n]
    ]
    return Ranking(model=result.model, results=results, usage=_usage(result))


class TextsBody(Struct, kw_only=True):
    """A ranking as text-embeddings-inference asks for it."""

    query: Annotated[str, Meta(min_length=1)]
    texts: Annotated[list[str], Meta(min_length=1)]
    model: str | None = None
    top_n: Positive | None = None
    return_text: bool | None = None
    raw_scores: Literal[False] | None = None
    truncate: bool | None = None


class ScoredText(Shape):
    index: Count
    score: Share
    text: str | UnsetType = UNSET


async def rank_texts(services: Answering, call: Call) -> list[ScoredText]:
    """Texts by how well they answer a query, the best first, as a bare list."""
    body: TextsBody = call.body
    _, order, scores = await _ranked(services, call, body.model or "", body.query, body.texts, bool(body.truncate))
    return [
        ScoredText(index=index, score=scores[index], text=body.texts[index] if body.return_text else UNSET)
        for index in order[: body.top_n]
    ]


async def _ranked(
    services: Answering, call: Call, model: str, query: str, texts: list[str], truncate: bool
) -> tuple[TextVectors, list[int], list[float]]:
    """Indices of the texts, the best first (of equals the one that came first), and their scores."""
    most = services.settings.limits.inputs
    if len(texts) > most:
        raise RequestError(f"documents has {len(texts):,} entries; at most {most:,} are read", param="documents")
    result = await vectors_of(
        services, model, call, lambda encoder: encoder.pairs(query, texts, truncate=truncate), wanted="rank"
    )
    scores = [result.encoder.relevance(rows) for rows in result.rows]
    return result, sorted(range(len(scores)), key=lambda index: -scores[index]), scores


def _usage(result: TextVectors) -> TextUsage:
    return TextUsage(prompt_tokens=result.tokens, total_tokens=result.tokens)


TAG = "Embeddings"
EMBEDDINGS = Query("POST", "/v1/embeddings", embeddings, TAG, EmbeddingBody, errors=(404,))
RANKINGS = ("/v1/rerank", "/rerank", "/v1/reranking", "/reranking", "/v2/rerank")
RERANK = (
    *aliases(
        Query("POST", "", rank_texts, TAG, TextsBody, errors=(404,), accepts=lambda body: "texts" in body), *RANKINGS
    ),
    *aliases(Query("POST", "", rerank, TAG, RerankBody, errors=(404,)), *RANKINGS),
)
