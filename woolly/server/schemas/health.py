"""Whether the server answers, lives, and would take a request."""

from __future__ import annotations

from typing import Literal

from msgspec import UNSET, UnsetType

from woolly.server.dialects.shapes import Count, Shape


class Alive(Shape):
    status: Literal["alive"]
    service: str
    version: str
    timestamp: str
    uptime_seconds: Count


class Health(Shape):
    status: Literal["ok"]
    service: str
    version: str
    timestamp: str
    uptime_seconds: Count
    uptime: Count
    model: str | None
    requests_served: Count
    insecure: bool | UnsetType = UNSET


class Check(Shape):
    status: Literal["ok", "error"]
    message: str


class Checks(Shape):
    inference_engine: Check
    mcp: Check


class Ready(Shape):
    status: Literal["ready", "not_ready"]
    service: str
    version: str
    timestamp: str
    checks: Checks
