"""The routes of MCP, which is not enabled: the lists are empty, and calls are refused."""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated, Any, NoReturn

from msgspec import Meta

from woolly.errors import NotFoundError
from woolly.server.door import Access, Call, Query, aliases

if TYPE_CHECKING:
    from woolly.server.app import App

Nothing = Annotated[list[Any], Meta(max_length=0)]
LISTS = ("/api/v1/mcp/tools", "/api/v1/mcp/resources", "/api/v1/mcp/prompts")
CALLS: dict[str, Access] = {
    "/api/v1/mcp/tools/{name:path}": "key",
    "/api/v1/mcp/prompts/{name:path}": "anonymous",
    "/api/v1/mcp/sessions": "anonymous",
    "/api/v1/mcp/chat": "anonymous",
}


async def empty_list(_app: App, _call: Call) -> Nothing:
    """Tools, resources and prompts: there are none."""
    return []


async def not_enabled(_app: App, _call: Call) -> NoReturn:
    """MCP is not enabled."""
    raise NotFoundError("MCP is not enabled")


DOORS = (
    *aliases(
        Query("GET", "", empty_list, "MCP"), *(f"/api/v1/mcp/{what}" for what in ("tools", "resources", "prompts"))
    ),
    *(Query("POST", path, not_enabled, "MCP", access=access, errors=(404,)) for path, access in CALLS.items()),
)
