"""OpenAI's dialect under /v1: generation, embeddings and rankings, files and batches, the list of models, errors."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING, Literal

from woolly.errors import WoollyError
from woolly.server.dialects import anthropic, openai_batches, openai_files, responses
from woolly.server.dialects.model_routes import LOAD
from woolly.server.dialects.openai_chat import CHAT
from woolly.server.dialects.openai_completions import COMPLETIONS
from woolly.server.dialects.openai_embeddings import EMBEDDINGS, RERANK
from woolly.server.dialects.shapes import Shape
from woolly.server.door import Call, Dialect, Query
from woolly.server.errors import row
from woolly.server.records import ModelRecord

if TYPE_CHECKING:
    from woolly.server.app import App


class OpenAIModel(Shape, kw_only=True):
    """What OpenAI's own list has; its clients may refuse more."""

    id: str
    object: Literal["model"] = "model"
    created: int
    owned_by: str


class OpenAIModels(Shape, kw_only=True):
    object: Literal["list"] = "list"
    data: list[OpenAIModel]


class OpenAIFault(Shape):
    message: str
    type: str
    param: str | None
    code: str


class OpenAIError(Shape):
    error: OpenAIFault


async def models(app: App, call: Call) -> OpenAIModels | anthropic.AnthropicModels:
    """All models, as OpenAI lists them, or Anthropic where one of its clients asks."""
    if "anthropic-version" in call.headers:
        return anthropic.models(await app.models.records())
    return OpenAIModels(data=[_model(record) for record in await app.models.records()])


async def model(app: App, call: Call) -> OpenAIModel:
    """One model, as OpenAI describes it."""
    return _model(await app.models.record(call.path["name"]))


def _model(record: ModelRecord) -> OpenAIModel:
    return OpenAIModel(id=record.id, created=record.created, owned_by=record.owned_by)


PARAMS = {"format": "response_format"}  # of a Request -> as it is called here


def error(problem: WoollyError, _id: str) -> OpenAIError:
    """OpenAI's shape: a message, a type, the parameter and a code."""
    param = PARAMS.get(str(problem.facts.get("param")), problem.facts.get("param"))
    fault = OpenAIFault(
        message=str(problem),
        type=row(problem).openai,
        param=str(param) if param else None,
        code="context_length_exceeded" if problem.code == "context_error" else problem.code,
    )
    return OpenAIError(error=fault)


DIALECT = Dialect(
    name="openai",
    doors=(
        CHAT,
        COMPLETIONS,
        *responses.DOORS,
        EMBEDDINGS,
        *RERANK,
        *openai_files.DOORS,
        *openai_batches.DOORS,
        Query("GET", "/v1/models", models, "OpenAI"),
        replace(LOAD, path="/v1/models/load"),
        Query("GET", "/v1/models/{name:path}", model, "OpenAI"),
    ),
    error=error,
    prefixes=("/v1/",),
)
