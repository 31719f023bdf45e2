"""OpenAI's dialect under /v1: generation, embeddings and rankings, files and batches, the list of models, errors."""

from __future__ import annotations

from dataclasses import replace
from typing import Literal

from msgspec import UNSET, UnsetType

from woolly.errors import WoollyError
from woolly.server.dialects.anthropic import dialect as anthropic
from woolly.server.dialects.anthropic.shapes import AnthropicModels
from woolly.server.dialects.base.shapes import TOO_LONG, Count, Shape, too_long_of
from woolly.server.dialects.openai import batches, chat, files, responses
from woolly.server.dialects.openai.completions import COMPLETIONS
from woolly.server.dialects.openai.embeddings import EMBEDDINGS, RERANK
from woolly.server.dialects.woolly.models import LOAD
from woolly.server.http.errors import kind_of
from woolly.server.models.lifecycle import Models
from woolly.server.models.records import ModelRecord
from woolly.server.routes import Call, Dialect, Query


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
    """n_prompt_tokens, n_ctx: of a prompt that is too long, as llama-server's clients look for them."""

    message: str
    type: str
    param: str | None
    code: str
    n_prompt_tokens: Count | UnsetType = UNSET
    n_ctx: Count | UnsetType = UNSET


class OpenAIError(Shape):
    error: OpenAIFault


async def models(models: Models, call: Call) -> OpenAIModels | AnthropicModels:
    """All models, as OpenAI lists them, each under its name and its aliases; or as Anthropic does, where one of its
    clients asks."""
    records = await models.records()
    if "anthropic-version" in call.headers:
        return anthropic.models(records)
    return OpenAIModels(data=[_model(record, name) for record in records for name in (record.id, *record.aliases)])


async def model(models: Models, call: Call) -> OpenAIModel:
    """One model, as OpenAI describes it."""
    record, name = await models.record(call.path["name"]), call.path["name"].lower()
    return _model(record, name if name in record.aliases else record.id)


def _model(record: ModelRecord, name: str) -> OpenAIModel:
    return OpenAIModel(id=name, created=record.created, owned_by=record.owned_by)


PARAMS = {"format": "response_format"}  # a parameter of a Request -> its name here


def error(problem: WoollyError, _id: str) -> OpenAIError:
    """OpenAI's shape: a message, a type, the parameter and a code."""
    param = PARAMS.get(str(problem.facts.get("param")), problem.facts.get("param"))
    too_long = too_long_of(problem)
    fault = OpenAIFault(
        message=str(problem),
        type=TOO_LONG if too_long else kind_of(problem).openai,
        param=str(param) if param else None,
        code="context_length_exceeded" if too_long else problem.code,
        **too_long,
    )
    return OpenAIError(error=fault)


DIALECT = Dialect(
    name="openai",
    routes=(
        *chat.ROUTES,
        COMPLETIONS,
        *responses.ROUTES,
        EMBEDDINGS,
        *RERANK,
        *files.ROUTES,
        *batches.ROUTES,
        Query("GET", "/v1/models", models, "OpenAI"),
        replace(LOAD, path="/v1/models/load"),
        Query("GET", "/v1/models/{name:path}", model, "OpenAI"),
    ),
    error=error,
    prefixes=("/v1/",),
)
