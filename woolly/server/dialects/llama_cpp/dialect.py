"""The routes of llama-server that programs rely on: what is loaded and how, tokens and prompts, completions, infill."""

from __future__ import annotations

from msgspec import UNSET, UnsetType

from woolly.errors import WoollyError
from woolly.server.dialects.base.shapes import TOO_LONG, Count, Shape, Status, too_long_of
from woolly.server.dialects.llama_cpp import completion, embeddings, state, text
from woolly.server.http.errors import kind_of
from woolly.server.routes import Dialect

KINDS = {401: "authentication_error", 403: "permission_error", 404: "not_found_error"}


class LlamaFault(Shape):
    code: Status
    message: str
    type: str
    n_prompt_tokens: Count | UnsetType = UNSET
    n_ctx: Count | UnsetType = UNSET


class LlamaError(Shape):
    error: LlamaFault


def error(problem: WoollyError, _id: str) -> LlamaError:
    """llama-server's shape: the status as a number, a message and a type."""
    status = kind_of(problem).status
    kind = KINDS.get(status, "invalid_request_error" if status < 500 else "server_error")
    kind = "unavailable_error" if status == 503 else kind
    too_long = too_long_of(problem)
    fault = LlamaFault(code=status, message=str(problem), type=TOO_LONG if too_long else kind, **too_long)
    return LlamaError(error=fault)


DIALECT = Dialect(
    name="llama_server",
    routes=(*completion.ROUTES, *embeddings.ROUTES, *text.ROUTES, *state.ROUTES),
    error=error,
    prefixes=(
        *("/completion", "/infill", "/embedding"),
        *("/tokenize", "/detokenize", "/apply-template", "/props", "/slots"),
    ),
)
