"""The adapters of the loaded model, and their scales for requests that do not name any, as llama-server has them."""

from __future__ import annotations

from typing import Annotated

from msgspec import Meta, Struct

from woolly.server.dialects.base.bodies import LoraScale, scales_of
from woolly.server.dialects.base.shapes import Count, Shape
from woolly.server.models.lifecycle import Models
from woolly.server.routes import Call, Query


class LoraAdapter(Shape):
    id: Count
    name: str
    path: str  # the file's name
    scale: float


class LoraBody(Struct):
    """All that are to count; a body that is the list alone is taken, too."""

    adapters: Annotated[list[LoraScale], Meta(max_length=1024)]


async def adapters(models: Models, _call: Call) -> list[LoraAdapter]:
    """The adapters of the loaded model."""
    async with models.lease("") as loaded:
        known = loaded.model.adapters
        return [
            LoraAdapter(id=number, name=name, path=known.files[name], scale=scale)
            for number, (name, scale) in enumerate(known.scales.items())
        ]


async def put(models: Models, call: Call) -> list[LoraAdapter]:
    """Change the scales for requests that do not say; 0 for adapters that are not named."""
    body: LoraBody = call.body
    async with models.lease("") as loaded:
        loaded.model.adapters.put(scales_of(body.adapters) or {})
    return await adapters(models, call)


ROUTES = (
    Query("GET", "/lora-adapters", adapters, "Models", errors=(404,)),
    Query("POST", "/lora-adapters", put, "Models", LoraBody, access="key", errors=(404,), listed="adapters"),
)
