"""Access to the routes of a fleet: for processes that know its secret; without one, for those of this machine."""

from __future__ import annotations

import hmac

from woolly.errors import RequestError
from woolly.server.routes import Call
from woolly.server.settings import is_loopback

SECRET = "x-woolly-fleet"  # the header of the shared secret


def admit(key: str, call: Call) -> None:
    """Refuse a call without the secret of the fleet; where there is none, one from another machine."""
    if key and hmac.compare_digest(call.headers.get(SECRET, "").encode(), key.encode()):
        return
    if not key and is_loopback(call.caller.address):
        return
    raise RequestError(
        "this is for members of the fleet, which know its secret",
        suggestion="set WOOLLY_FLEET_KEY to the same value at the gate and at every replica",
        code="authentication_failed",
    )
