"""DIALECTS lists every way of speaking; the first that has a path, or else the first whose prefix fits it, shapes its
errors."""

from __future__ import annotations

from dataclasses import replace

from woolly.server.compat import access, benchmark, documents, ole
from woolly.server.dialects import page
from woolly.server.dialects.anthropic.dialect import DIALECT as ANTHROPIC
from woolly.server.dialects.llama_cpp.dialect import DIALECT as LLAMA_SERVER
from woolly.server.dialects.ollama.dialect import DIALECT as OLLAMA
from woolly.server.dialects.openai.dialect import DIALECT as OPENAI
from woolly.server.dialects.woolly import dialect as own
from woolly.server.dialects.woolly import mcp
from woolly.server.routes import Dialect

WOOLLY = replace(own.DIALECT, routes=(*own.DIALECT.routes, *benchmark.ROUTES, *access.ROUTES, *ole.ROUTES))
DIALECTS: tuple[Dialect, ...] = (
    ANTHROPIC,
    OPENAI,
    mcp.DIALECT,
    OLLAMA,
    LLAMA_SERVER,
    documents.DIALECT,
    WOOLLY,
    page.DIALECT,
)


_OWNERS = {route.path: dialect for dialect in reversed(DIALECTS) for route in dialect.routes}


def dialect_of(path: str) -> Dialect:
    """Whose error a path deserves, known or not."""
    return _OWNERS.get(path) or next((d for d in DIALECTS if path.startswith(d.prefixes)), WOOLLY)
