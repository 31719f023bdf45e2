"""OpenAI's dialect: models, answers, events of a stream, errors."""

from __future__ import annotations

from typing import Literal

from woolly.server.dialects.shapes import Shape


class OpenAIModel(Shape):
    id: str
    object: Literal["model"]
    created: int
    owned_by: str


class OpenAIModels(Shape):
    object: Literal["list"]
    data: list[OpenAIModel]
