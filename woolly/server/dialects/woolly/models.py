"""The routes that list the models, and load and unload them."""

from __future__ import annotations

import time
from typing import Literal

from msgspec import Struct

from woolly.errors import RequestError, WoollyError
from woolly.server.dialects.base.shapes import Count, Shape, Status
from woolly.server.http.errors import kind_of
from woolly.server.models.lifecycle import Models
from woolly.server.models.records import ModelRecord
from woolly.server.routes import Call, Query, aliases


class LoadBody(Struct):
    model_path: str | None = None
    path: str | None = None
    name: str | None = None
    model: str | None = None


class UnloadBody(Struct):
    """Without a name, the model that was used last."""

    name: str | None = None
    model: str | None = None
    force: bool = False


class Loaded(Shape, kw_only=True):
    success: Literal[True] = True
    message: str
    load_time_ms: Count
    model_info: ModelRecord


class Unloaded(Shape, kw_only=True):
    success: Literal[True] = True
    message: str


class LoadFault(Shape):
    type: str
    message: str
    code: Status
    suggestion: str


class LoadError(Shape, kw_only=True):
    success: Literal[False] = False
    message: str
    model_info: None = None
    error: LoadFault


async def bare_models(models: Models, _call: Call) -> list[ModelRecord]:
    """All models."""
    return await models.records()


async def model(models: Models, call: Call) -> ModelRecord:
    """One model."""
    return await models.record(call.path["name"])


async def load(models: Models, call: Call) -> Loaded:
    """Load a model, named in the path or in the body; one that is loaded stays as it is."""
    body: LoadBody = call.body
    begun = time.perf_counter()
    file = body.model_path or body.path
    name = call.path.get("name") or body.name or body.model or ""
    if file is not None:
        loaded = await models.load_file(file)
    elif name:
        loaded = await models.load_by_hand(name)
    else:
        raise RequestError("there is no model to load; give model_path, path, name or model", param="name")
    took = round((time.perf_counter() - begun) * 1e3)
    record = await models.record(loaded.id)
    return Loaded(message=f"{loaded.id} is loaded", load_time_ms=took, model_info=record)


def load_failed(error: WoollyError, _id: str) -> LoadError:
    what = kind_of(error)
    fault = LoadFault(type=what.woolly, message=error.message, code=what.status, suggestion=error.suggestion)
    return LoadError(message=str(error), error=fault)


async def unload(models: Models, call: Call) -> Unloaded:
    """Free a model; one that answers is freed only by force."""
    body: UnloadBody = call.body
    name = call.path.get("name") or body.name or body.model
    if name is None:
        if models.current is None:
            return Unloaded(message="no model is loaded")
        name = models.current.id
    freed = await models.unload(name, force=body.force)
    return Unloaded(message=f"{freed} is unloaded")


LOAD = Query("POST", "", load, "Models", LoadBody, access="key", failed=load_failed, errors=(404,))
UNLOAD = Query("POST", "", unload, "Models", UnloadBody, access="key", errors=(404, 409))
ROUTES = (
    Query("GET", "/api/models", bare_models, "Models"),
    *aliases(LOAD, "/api/v1/models/load", "/api/models/load", "/models/load", "/api/v1/models/{name:path}/load"),
    *aliases(UNLOAD, "/api/models/unload", "/models/unload", "/api/v1/models/{name:path}/unload"),
    Query("GET", "/api/v1/models/{name:path}", model, "Models"),
)
