"""What the server says about itself: /openapi.json for programs, /docs for people."""

from __future__ import annotations

from functools import lru_cache
from typing import TYPE_CHECKING

import msgspec

from woolly.server.door import Call, Dialect, Door, Reply

if TYPE_CHECKING:
    from woolly.server.app import App

Doors = tuple[tuple[Dialect, Door], ...]


def _doors(app: App) -> Doors:
    return tuple(pair for path in app.paths for pair in path.doors.values())


@lru_cache(maxsize=4)
def _document(doors: Doors) -> bytes:
    from woolly.server.openapi import describe  # it knows all dialects, and they know this one

    return msgspec.json.encode(describe(doors))


@lru_cache(maxsize=4)
def _page(doors: Doors) -> bytes:
    from woolly.server.docs import page
    from woolly.server.openapi import describe

    return page(describe(doors))


async def openapi(app: App, _call: Call) -> Reply:
    """The description of every route; made once."""
    return Reply(await app.in_thread(lambda: _document(_doors(app))))


async def docs(app: App, _call: Call) -> Reply:
    """The same as a page."""
    from woolly.server.docs import POLICY

    headers = {"content-security-policy": POLICY, "cross-origin-resource-policy": "same-origin"}
    body = await app.in_thread(lambda: _page(_doors(app)))
    return Reply(body, media_type="text/html; charset=utf-8", headers=headers)
