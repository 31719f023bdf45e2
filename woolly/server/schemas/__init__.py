"""The shapes of what the server answers, as types: the description at /openapi.json is made from them.

Answers are built as plain objects where they come about; a test asks every route and holds its answers against these.
A field that may be missing has the type UnsetType; one that may be null says so.
"""

from woolly.server.schemas import access, documents, figures, health, models, openai, woolly

__all__ = ["access", "documents", "figures", "health", "models", "openai", "woolly"]
