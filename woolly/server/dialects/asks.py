"""The routes that tell and order instead of generate: health, and the models with their loading and unloading."""

from __future__ import annotations

import time
from datetime import UTC, datetime
from typing import TYPE_CHECKING, Any

import msgspec

from woolly import __version__
from woolly.errors import NotFoundError, RequestError, WoollyError
from woolly.server.dialects.fields import read_struct
from woolly.server.door import Call, Reply, is_ole
from woolly.server.errors import headers, row

if TYPE_CHECKING:
    from woolly.server.app import App

SERVICE = "woolly-server"


def _about(app: App, status: str) -> dict[str, Any]:
    return {
        "status": status,
        "service": SERVICE,
        "version": __version__,
        "timestamp": datetime.now(UTC).isoformat(timespec="seconds"),
    }


async def health(app: App, _call: Call) -> Reply:
    """Whether the process answers; never waits for a model."""
    current = app.models.current
    uptime = int(time.monotonic() - app.started_s)
    more = {
        "uptime_seconds": uptime,
        "uptime": uptime,
        "model": current.id if current else None,
        "requests_served": app.counts.done,
    }
    if app.settings.insecure:
        more["insecure"] = True
    return Reply(_about(app, "ok") | more)


async def live(app: App, _call: Call) -> Reply:
    return Reply(_about(app, "alive") | {"uptime_seconds": int(time.monotonic() - app.started_s)})


async def ready(app: App, _call: Call) -> Reply:
    """Whether a request would be taken now."""
    if app.draining:
        engine = {"status": "error", "message": "the server is ending"}
    elif app.models.loading:
        engine = {"status": "error", "message": "a model is being loaded"}
    else:
        current = app.models.current
        engine = {"status": "ok", "message": f"{current.id} is loaded" if current else "a model is loaded on demand"}
    fine = engine["status"] == "ok"
    checks = {"inference_engine": engine, "mcp": {"status": "ok", "message": "not enabled"}}
    body = _about(app, "ready" if fine else "not_ready") | {"checks": checks}
    return Reply(body, 200 if fine else 503, headers={} if fine else {"retry-after": "1"})


async def woolly_models(app: App, call: Call) -> Reply:
    """All models: wrapped for Ole, a bare array for everybody else."""
    records = await app.models.records()
    if is_ole(call.headers):
        return Reply({"success": True, "object": "list", "data": records})
    return Reply(records)


async def bare_models(app: App, _call: Call) -> Reply:
    return Reply(await app.models.records())


async def openai_models(app: App, _call: Call) -> Reply:
    return Reply({"object": "list", "data": [_openai(row) for row in await app.models.records()]})


async def openai_model(app: App, call: Call) -> Reply:
    return Reply(_openai(await app.models.record(call.path["name"])))


def _openai(row: dict[str, Any]) -> dict[str, Any]:
    """What OpenAI's own list has; its clients may refuse more."""
    return {name: row[name] for name in ("id", "object", "created", "owned_by")}


async def woolly_model(app: App, call: Call) -> Reply:
    return Reply(await app.models.record(call.path["name"]))


class LoadBody(msgspec.Struct):
    model_path: str | None = None
    path: str | None = None
    name: str | None = None
    model: str | None = None


async def load_model(app: App, call: Call) -> Reply:
    """Load a model, named in the path or in the body; one that is loaded stays as it is."""
    body = read_struct(LoadBody, call.body)
    begun = time.perf_counter()
    file = body.model_path or body.path
    name = call.path.get("name") or body.name or body.model or ""
    if file is not None:
        held = await app.models.load_file(file)
    elif name:
        held = await app.models.load(name)
    else:
        raise RequestError("there is no model to load; give model_path, path, name or model", param="name")
    took = round((time.perf_counter() - begun) * 1e3)
    record = await app.models.record(held.id)
    return Reply({"success": True, "message": f"{held.id} is loaded", "load_time_ms": took, "model_info": record})


def load_failed(error: WoollyError, _id: str) -> Reply:
    what = row(error)
    about = {"type": what.woolly, "message": error.message, "code": what.status, "suggestion": error.suggestion}
    body = {"success": False, "message": str(error), "model_info": None, "error": about}
    return Reply(body, what.status, headers=headers(error))


class UnloadBody(msgspec.Struct):
    force: bool = False


async def unload_model(app: App, call: Call) -> Reply:
    """Free a model; one that answers is freed only by force."""
    body = read_struct(UnloadBody, call.body)
    name = call.path.get("name")
    if name is None:
        if app.models.current is None:
            return Reply({"success": True, "message": "no model is loaded"})
        name = app.models.current.id
    freed = await app.models.unload(name, force=body.force)
    return Reply({"success": True, "message": f"{freed} is unloaded"})


class TokenBody(msgspec.Struct):
    user_id: str
    api_key: str | None = None


async def make_token(app: App, call: Call) -> Reply:
    """A token for an hour; where there are keys, only for who sends one."""
    body = read_struct(TokenBody, call.body)
    tokens = app.guard.tokens
    key = tokens.key_id(body.api_key or "")
    if key is None and (tokens.keys or body.api_key):
        raise RequestError("a valid API key is needed", suggestion="send api_key", code="authentication_failed")
    return Reply({"token": tokens.make(body.user_id, key), "expires_in": tokens.life_s, "token_type": "Bearer"})


class ValidateBody(msgspec.Struct):
    token: str


async def validate_token(app: App, call: Call) -> Reply:
    claims = app.guard.tokens.read(read_struct(ValidateBody, call.body).token)
    return Reply({"valid": claims is not None, "claims": claims, "expires_at": claims.exp if claims else None})


async def empty_list(_app: App, _call: Call) -> Reply:
    """Tools, resources and prompts: there are none."""
    return Reply([])


async def not_enabled(_app: App, _call: Call) -> Reply:
    raise NotFoundError("MCP is not enabled")
