"""What is done for the desktop client Ole and for nobody else."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Literal

from woolly.limits import Serving
from woolly.server.dialects.shapes import Shape
from woolly.server.door import Call, Caller, Job
from woolly.server.records import ModelRecord

if TYPE_CHECKING:
    from woolly.server.app import App


class WrappedModels(Shape, kw_only=True):
    """The list as Ole reads it."""

    success: Literal[True] = True
    object: Literal["list"] = "list"
    data: list[ModelRecord]


def is_ole(headers: Mapping[str, str]) -> bool:
    """Whether Ole asks: it says so in a header of its own, or in its name."""
    return "x-ole-client" in headers or "Ole" in headers.get("user-agent", "")


def deadline(caller: Caller, job: Job, limits: Serving) -> float:
    """When an answer must be there. Ole gives up on one that is not streamed before others do."""
    if caller.ole and not job.stream:
        return min(caller.deadline_s, caller.begun_s + limits.ole_s)
    return caller.deadline_s


async def models(app: App, call: Call) -> list[ModelRecord] | WrappedModels:
    """All models; wrapped in an object for Ole."""
    records = await app.models.records()
    return WrappedModels(data=records) if is_ole(call.headers) else records
