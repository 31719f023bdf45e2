"""The adapters of the loaded model, and the scales by which they count where a request does not say; as llama-server
has them."""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated

from msgspec import Meta, Struct

from woolly.server.dialects.bodies import LoraScale, scales_of
from woolly.server.dialects.shapes import Count, Shape
from woolly.server.door import Call, Query

if TYPE_CHECKING:
    from woolly.server.app import App


class LoraAdapter(Shape):
    id: Count
    name: str
    path: str  # the file's name
    scale: float


class LoraBody(Struct):
    """All that are to count; a body that is the list alone is taken, too."""

    adapters: Annotated[list[LoraScale], Meta(max_length=1024)]


async def adapters(app: App, _call: Call) -> list[LoraAdapter]:
    """The adapters of the loaded model."""
    async with app.models.lease("") as loaded:
        known = loaded.model.adapters
        return [
            LoraAdapter(id=number, name=name, path=known.files[name], scale=scale)
            for number, (name, scale) in enumerate(known.scales.items())
        ]


async def put(app: App, call: Call) -> list[LoraAdapter]:
    """Change the scales for requests that do not say; 0 for adapters that are not named."""
    body: LoraBody = call.body
    async with app.models.lease("") as loaded:
        loaded.model.adapters.put(scales_of(body.adapters) or {})
    return await adapters(app, call)


DOORS = (
    Query("GET", "/lora-adapters", adapters, "Models", errors=(404,)),
    Query("POST", "/lora-adapters", put, "Models", LoraBody, access="key", errors=(404,), listed="adapters"),
)
