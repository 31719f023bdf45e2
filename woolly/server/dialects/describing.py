"""What the server says about itself: /openapi.json for programs, /docs for people."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from woolly.server.door import Call, Reply

if TYPE_CHECKING:
    from woolly.server.app import App


def _document(app: App) -> dict[str, Any]:
    from woolly.server.openapi import describe  # it knows all dialects, and they know this one

    return describe(tuple(pair for path in app.paths for pair in path.doors.values()))


async def openapi(app: App, _call: Call) -> Reply:
    """The description of every route."""
    return Reply(_document(app))


async def docs(app: App, _call: Call) -> Reply:
    """The same as a page."""
    from woolly.server.docs import POLICY, page

    headers = {"content-security-policy": POLICY, "cross-origin-resource-policy": "same-origin"}
    return Reply(page(_document(app)), media_type="text/html; charset=utf-8", headers=headers)
