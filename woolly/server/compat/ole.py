"""The exceptions for the desktop client Ole, and for what reads the same lists."""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import Literal

from woolly.config.serving import Serving
from woolly.server.dialects.anthropic.shapes import AnthropicModels
from woolly.server.dialects.base.shapes import Shape
from woolly.server.dialects.openai import dialect as openai
from woolly.server.dialects.openai.dialect import OpenAIModels
from woolly.server.models.lifecycle import Models
from woolly.server.models.records import ModelRecord
from woolly.server.routes import Call, Query


class WrappedModels(Shape, kw_only=True):
    """The list as Ole reads it."""

    success: Literal[True] = True
    object: Literal["list"] = "list"
    data: list[ModelRecord]


def is_ole(headers: Mapping[str, str]) -> bool:
    """Whether Ole asks: it says so in a header of its own, or in its name."""
    return "x-ole-client" in headers or "Ole" in headers.get("user-agent", "")


def unstreamed_s(headers: Mapping[str, str], limits: Serving) -> float:
    """How long this client waits for an answer that is not streamed. Ole gives up before others do."""
    return limits.ole_s if is_ole(headers) else math.inf


async def models(models: Models, call: Call) -> list[ModelRecord] | WrappedModels:
    """All models; wrapped in an object for Ole."""
    records = await models.records()
    return WrappedModels(data=records) if is_ole(call.headers) else records


async def short_models(models: Models, call: Call) -> list[ModelRecord] | OpenAIModels | AnthropicModels:
    """All models, as OpenAI lists them; bare for Ole."""
    return await models.records() if is_ole(call.headers) else await openai.models(models, call)


ROUTES = (
    Query("GET", "/api/v1/models", models, "Models"),
    Query("GET", "/models", short_models, "Models"),
)
