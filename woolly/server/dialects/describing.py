"""What the server says about itself: /openapi.json for programs, /docs for people."""

from __future__ import annotations

from functools import lru_cache
from typing import TYPE_CHECKING, Any

from woolly.server.docs import POLICY, page
from woolly.server.door import Call, Dialect, Door, Query, Reply
from woolly.server.openapi import describe

if TYPE_CHECKING:
    from woolly.server.app import App

Doors = tuple[tuple[Dialect, Door], ...]


@lru_cache(maxsize=4)
def _document(doors: Doors) -> dict[str, Any]:
    return describe(doors)


@lru_cache(maxsize=4)
def _page(doors: Doors) -> bytes:
    return page(_document(doors))


async def openapi(app: App, _call: Call) -> dict[str, Any]:
    """This description."""
    return await app.in_thread(lambda: _document(app.doors))


async def docs(app: App, _call: Call) -> Reply[bytes]:
    """This description as a page."""
    headers = {"content-security-policy": POLICY, "cross-origin-resource-policy": "same-origin"}
    body = await app.in_thread(lambda: _page(app.doors))
    return Reply(body, media_type="text/html; charset=utf-8", headers=headers)


DOORS = (
    Query("GET", "/openapi.json", openapi, "About", access="open"),
    Query("GET", "/docs", docs, "About", access="open", texts=("text/html",)),
)
