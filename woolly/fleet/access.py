"""The secret by which a gateway and its replicas know each other. The guard of each asks for it."""

from __future__ import annotations

from woolly.config import Settings
from woolly.errors import RequestError


def check_secret(settings: Settings) -> None:
    """Refuse to begin a gateway or a replica that could have no other beside it."""
    if settings.keys and not settings.fleet_key:
        raise RequestError(
            "clients need an API key here, and gate and replicas have no secret to know each other by",
            suggestion="set WOOLLY_FLEET_KEY to the same value at the gate and at every replica",
            param="fleet.key",
        )
