"""Ollama's dialect under /api: the table of its routes, and its errors, each of which is a text."""

from __future__ import annotations

from woolly.errors import WoollyError
from woolly.server.dialects.base.shapes import Shape
from woolly.server.dialects.ollama.embedding import EmbedBody, EmbeddingsBody, embed, embeddings
from woolly.server.dialects.ollama.generation import CHAT, GENERATE, TAG
from woolly.server.dialects.ollama.models import (
    CopyBody,
    NameBody,
    ShowBody,
    copy,
    create,
    delete,
    ps,
    push,
    show,
    tags,
)
from woolly.server.dialects.ollama.pull import PullBody, pull
from woolly.server.routes import Call, Dialect, Query
from woolly.version import __version__

VERSION = "0.30.0"  # the version of Ollama to clients, which check whether it is new enough


class OllamaVersion(Shape, kw_only=True):
    version: str = VERSION
    woolly: str = __version__


async def version(_call: Call) -> OllamaVersion:
    """The version of Ollama that these routes are like, and our own."""
    return OllamaVersion()


class OllamaError(Shape):
    error: str


def error(problem: WoollyError, _id: str) -> OllamaError:
    """A text; the two errors that clients look for are in Ollama's own words."""
    name = problem.facts.get("model")
    if problem.code == "model_not_found":
        return OllamaError(error=f"model '{name}' not found")
    if problem.facts.get("param") == "think" and name:
        return OllamaError(error=f'"{name}" does not support thinking')
    return OllamaError(error=str(problem))


PATHS = ("version", "tags", "ps", "show", "pull", "delete", "copy", "create", "push", "embed", "blobs/")
DIALECT = Dialect(
    name="ollama",
    routes=(
        GENERATE,
        CHAT,
        Query("GET", "/api/version", version, TAG, access="open"),
        Query("GET", "/api/tags", tags, TAG),
        Query("GET", "/api/ps", ps, TAG),
        Query("POST", "/api/show", show, TAG, ShowBody, errors=(404,)),
        Query("POST", "/api/pull", pull, TAG, PullBody, access="key", errors=(404, 502)),
        Query(
            "DELETE", "/api/delete", delete, TAG, NameBody, access="key", texts=("text/plain",), errors=(404, 409, 500)
        ),
        Query("POST", "/api/copy", copy, TAG, CopyBody, access="key", errors=(404,)),
        Query("POST", "/api/create", create, TAG, access="key"),
        Query("POST", "/api/push", push, TAG, access="key"),
        Query("POST", "/api/embed", embed, TAG, EmbedBody, errors=(404,)),
        Query(
            "POST",
            "/api/embeddings",
            embeddings,
            TAG,
            EmbeddingsBody,
            errors=(404,),
            accepts=lambda body: "prompt" in body,
        ),
    ),
    error=error,
    prefixes=("/api/generate", "/api/chat", *(f"/api/{path}" for path in PATHS)),
)
