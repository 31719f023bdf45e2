"""dialects: one file for each way of speaking, all of them pure functions between bodies and `Request`s and `Event`s.

A dialect states its bodies as msgspec Structs (types, ranges, defaults) and gives them meaning in `read`. It knows
nothing of HTTP, of models or of the engine. DIALECTS lists them; the first that has a path, or else the first whose
prefix fits it, shapes its errors.
"""

from woolly.server.dialects import anthropic, api_v1, documents, llama_server, mcp, ollama, openai, page
from woolly.server.door import Dialect

DIALECTS: tuple[Dialect, ...] = (
    anthropic.DIALECT,
    openai.DIALECT,
    mcp.DIALECT,
    ollama.DIALECT,
    llama_server.DIALECT,
    documents.DIALECT,
    api_v1.DIALECT,
    page.DIALECT,
)


_OWNERS = {door.path: dialect for dialect in reversed(DIALECTS) for door in dialect.doors}


def dialect_of(path: str) -> Dialect:
    """Whose error a path deserves, known or not."""
    return _OWNERS.get(path) or next((d for d in DIALECTS if path.startswith(d.prefixes)), api_v1.DIALECT)


__all__ = ["DIALECTS", "dialect_of"]
