"""The routes of sessions, which server/sessions/sessions.py keeps. The routes of generation use one by `session_id`."""

from __future__ import annotations

from datetime import UTC, datetime
from typing import Annotated, Any, Literal

import msgspec
from msgspec import UNSET, Meta, Struct, UnsetType

from woolly.errors import RequestError
from woolly.request import SAMPLING
from woolly.server.dialects.base.bodies import SamplingFields
from woolly.server.dialects.base.shapes import Count, Shape
from woolly.server.mcp.mcp import Mcp
from woolly.server.models.lifecycle import Models
from woolly.server.routes import Call, Query
from woolly.server.sessions.sessions import Session, Sessions

METADATA = 16 << 10  # most bytes of a session's metadata as JSON


class SessionBody(Struct):
    """`config`: how tokens are chosen where a turn does not say; what else older clients put there has no effect."""

    config: SamplingFields | None = None
    metadata: dict[str, Any] | None = None
    model: str | None = None


class ChangeBody(Struct):
    config: SamplingFields | None = None
    metadata: dict[str, Any] | None = None


class SessionRecord(Shape, kw_only=True):
    id: str
    user_id: str
    created_at: str
    last_accessed: str
    message_count: Count
    context_length: Annotated[int, Meta(ge=0, description="tokens of all turns so far")]
    max_context_length: Count
    model_name: str
    active: bool
    metadata: dict[str, Any]


class SessionMade(Shape, kw_only=True):
    session_id: str
    message: str
    session_info: SessionRecord


class McpSession(Shape, kw_only=True):
    session_id: str
    id: str
    protocol_version: str
    server_info: dict[str, str]
    capabilities: dict[str, Any]


class SessionChanged(Shape, kw_only=True):
    success: Literal[True] = True
    message: str
    session_id: str


class KeptMessage(Shape, kw_only=True):
    role: str
    content: Any
    timestamp: str
    tool_calls: list[Any] | UnsetType = UNSET
    tool_call_id: str | UnsetType = UNSET
    name: str | UnsetType = UNSET


class History(Shape, kw_only=True):
    session_id: str
    messages: list[KeptMessage]
    total_messages: Count


def _when(seconds: float) -> str:
    return datetime.fromtimestamp(seconds, UTC).isoformat(timespec="milliseconds")


def _record(session: Session) -> SessionRecord:
    record = session.record
    return SessionRecord(
        id=record.id,
        user_id=record.owner,
        created_at=_when(record.created),
        last_accessed=_when(record.used),
        message_count=len(record.messages),
        context_length=record.tokens,
        max_context_length=record.most_tokens,
        model_name=record.model,
        active=not session.idle,
        metadata=record.metadata,
    )


def _sampling(config: SamplingFields | None) -> dict[str, float]:
    values = {name: getattr(config, name, None) for name in SAMPLING}
    return {name: value for name, value in values.items() if value is not None}


def _metadata(metadata: dict[str, Any]) -> dict[str, Any]:
    if len(msgspec.json.encode(metadata)) > METADATA:
        raise RequestError(f"metadata has more than {METADATA:,} bytes", param="metadata")
    return metadata


async def _find(sessions: Sessions, call: Call) -> Session:
    return await sessions.get(call.caller.name, call.path["id"])


async def make(models: Models, sessions: Sessions, call: Call) -> SessionMade:
    """Begin a session."""
    body: SessionBody = call.body
    metadata = _metadata(body.metadata or {})
    model = await models.record(body.model or "")
    sampling = _sampling(body.config)
    session = await sessions.make(call.caller.name, model.id, model.context_length, sampling, metadata)
    return SessionMade(session_id=session.record.id, message="the session has begun", session_info=_record(session))


async def make_for_mcp(models: Models, sessions: Sessions, mcp: Mcp, call: Call) -> McpSession:
    """Begin a session, as older clients of MCP ask for one."""
    created = await make(models, sessions, call)
    hello = await mcp.call(call.caller, "initialize", {})
    return McpSession(
        session_id=created.session_id,
        id=created.session_id,
        protocol_version=hello["protocolVersion"],
        server_info=hello["serverInfo"],
        capabilities=hello["capabilities"],
    )


async def listed(sessions: Sessions, call: Call) -> list[SessionRecord]:
    """The sessions of whoever asks."""
    return [_record(session) for session in await sessions.of(call.caller.name)]


async def one(sessions: Sessions, call: Call) -> SessionRecord:
    """One session."""
    return _record(await _find(sessions, call))


async def history(sessions: Sessions, call: Call) -> History:
    """What was said in a session."""
    record = (await _find(sessions, call)).record
    rows = [KeptMessage(**row | {"timestamp": _when(row["timestamp"])}) for row in record.messages]
    return History(session_id=record.id, messages=rows, total_messages=len(rows))


async def change(sessions: Sessions, call: Call) -> SessionChanged:
    """Change the settings or the metadata of a session."""
    body: ChangeBody = call.body
    session = await _find(sessions, call)
    metadata = session.record.metadata if body.metadata is None else _metadata(body.metadata)
    await session.change(metadata=metadata, sampling=session.record.sampling | _sampling(body.config))
    return SessionChanged(message="the session is changed", session_id=session.record.id)


async def clear(sessions: Sessions, call: Call) -> SessionChanged:
    """Forget what was said in a session."""
    async with sessions.turn(call.caller.name, call.path["id"]) as session:
        await session.change(messages=[], tokens=0)
    return SessionChanged(message="the session is empty", session_id=session.record.id)


async def delete(sessions: Sessions, call: Call) -> SessionChanged:
    """End a session."""
    session = await _find(sessions, call)
    await sessions.delete(session)
    return SessionChanged(message="the session has ended", session_id=session.record.id)


SESSIONS, SESSION = "/api/v1/sessions", "/api/v1/sessions/{id}"
ROUTES = (
    Query("GET", SESSIONS, listed, "Sessions"),
    Query("POST", SESSIONS, make, "Sessions", SessionBody, errors=(404,)),
    Query("GET", SESSION, one, "Sessions", errors=(404,)),
    Query("PATCH", SESSION, change, "Sessions", ChangeBody, errors=(404,)),
    Query("DELETE", SESSION, delete, "Sessions", errors=(404,)),
    Query("GET", f"{SESSION}/history", history, "Sessions", errors=(404,)),
    Query("POST", f"{SESSION}/clear", clear, "Sessions", errors=(404,)),
    Query("POST", "/api/v1/mcp/sessions", make_for_mcp, "MCP", SessionBody, errors=(404,)),
    Query("DELETE", "/api/v1/mcp/sessions/{id}", delete, "MCP", errors=(404,)),
)
