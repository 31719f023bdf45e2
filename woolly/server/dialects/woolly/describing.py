"""What the server says about itself: /openapi.json for programs, /docs for people."""

from __future__ import annotations

from functools import lru_cache
from typing import Any

from woolly.server.dialects.woolly.docs import POLICY, page
from woolly.server.dialects.woolly.openapi import describe
from woolly.server.http.reply import Reply
from woolly.server.routes import Call, Dialect, Query, Route, RouteTable
from woolly.server.workers import Workers

Routes = tuple[tuple[Dialect, Route], ...]


@lru_cache(maxsize=4)
def _document(routes: Routes) -> dict[str, Any]:
    return describe(routes)


@lru_cache(maxsize=4)
def _page(routes: Routes) -> bytes:
    return page(_document(routes))


async def openapi(workers: Workers, routes: RouteTable, call: Call) -> dict[str, Any]:
    """This description."""
    return await workers.run(call.caller.name, lambda: _document(routes.rows))


async def docs(workers: Workers, routes: RouteTable, call: Call) -> Reply[bytes]:
    """This description as a page."""
    headers = {"content-security-policy": POLICY, "cross-origin-resource-policy": "same-origin"}
    body = await workers.run(call.caller.name, lambda: _page(routes.rows))
    return Reply(body, media_type="text/html; charset=utf-8", headers=headers)


ROUTES = (
    Query("GET", "/openapi.json", openapi, "About", access="open"),
    Query("GET", "/docs", docs, "About", access="open", texts=("text/html",)),
)
