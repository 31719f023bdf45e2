"""The routes that tell whether the server answers, lives, and would take a request."""

from __future__ import annotations

from datetime import UTC, datetime
from typing import Literal

from msgspec import UNSET, UnsetType

from woolly.config import Settings
from woolly.errors import printable
from woolly.server.dialects.base.shapes import Count, Shape
from woolly.server.http.reply import Reply
from woolly.server.models.counts import Counts
from woolly.server.models.lifecycle import Models
from woolly.server.models.loaded import LoadedModel
from woolly.server.routes import Call, Query, aliases
from woolly.server.services import ServerState
from woolly.version import __version__

SERVICE = "woolly-server"


class Service(Shape, kw_only=True):
    service: str = SERVICE
    version: str = __version__
    timestamp: str


class Alive(Service, kw_only=True):
    status: Literal["alive"] = "alive"
    uptime_seconds: Count


class Health(Service, kw_only=True):
    status: Literal["ok"] = "ok"
    uptime_seconds: Count
    uptime: Count
    model: str | None
    requests_served: Count
    insecure: bool | UnsetType = UNSET
    warnings: list[str] | UnsetType = UNSET


class Check(Shape):
    status: Literal["ok", "error"]
    message: str


class Checks(Shape):
    inference_engine: Check
    mcp: Check


class Ready(Service, kw_only=True):
    status: Literal["ready", "not_ready"]
    checks: Checks


def _now() -> str:
    return datetime.now(UTC).isoformat(timespec="seconds")


async def health(settings: Settings, state: ServerState, models: Models, counts: Counts, _call: Call) -> Health:
    """Whether the process answers; never waits for a model."""
    current = models.current
    uptime = int(state.uptime_s)
    warnings = [warning for warning in (_warning(loaded) for loaded in models.loaded) if warning]
    return Health(
        timestamp=_now(),
        uptime_seconds=uptime,
        uptime=uptime,
        model=current.id if current else None,
        requests_served=counts.done,
        insecure=True if settings.insecure else UNSET,
        warnings=warnings or UNSET,
    )


def _warning(loaded: LoadedModel) -> str:
    from woolly.examine import beyond_training  # NumPy, which the model has imported already

    return beyond_training(loaded.model.card, loaded.model.info.context)


async def live(state: ServerState, _call: Call) -> Alive:
    """Whether the process lives."""
    return Alive(timestamp=_now(), uptime_seconds=int(state.uptime_s))


async def ready(state: ServerState, models: Models, _call: Call) -> Reply[Ready]:
    """Whether a request would be taken now."""
    current = models.current
    if state.draining:
        engine = Check(status="error", message="the server is ending")
    elif models.loading:
        engine = Check(status="error", message="a model is being loaded")
    elif missing := models.missing:
        name, why = next(iter(missing.items()))
        engine = Check(status="error", message=f"{printable(name)} cannot be loaded: {why.message}")
    elif current and current.model.broken is not None:
        engine = Check(status="error", message=f"{current.id} is broken: {current.model.broken.message}")
    else:
        engine = Check(status="ok", message=f"{current.id} is loaded" if current else "a model is loaded on demand")
    fine = engine.status == "ok"
    checks = Checks(inference_engine=engine, mcp=Check(status="ok", message="at /mcp"))
    body = Ready(status="ready" if fine else "not_ready", timestamp=_now(), checks=checks)
    return Reply(body, 200) if fine else Reply(body, 503, headers={"retry-after": "1"})


ROUTES = (
    *aliases(Query("GET", "", health, "Health", access="open"), "/health", "/v1/health", "/api/v1/health"),
    *aliases(Query("GET", "", ready, "Health", access="open", status=(503,)), "/health/ready", "/api/v1/health/ready"),
    *aliases(Query("GET", "", live, "Health", access="open"), "/health/live", "/api/v1/health/live"),
)
