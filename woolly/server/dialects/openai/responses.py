"""OpenAI's Responses: an answer as a record of items, streamed as events, kept so that a later request can go on.

Nothing runs in the background, no prompt is cut, and a tool is a function of the caller, or one of an MCP server that
the operator allows (responses_mcp.py): tools that only their provider could run are skipped and noted.
"""

from __future__ import annotations

from operator import itemgetter

from woolly.config.serving import Serving
from woolly.errors import NotFoundError, RequestError, printable
from woolly.server.dialects.base.paging import page
from woolly.server.dialects.base.response_store import ResponseStore, StoredResponse
from woolly.server.dialects.openai.chat_shapes import InputTokens
from woolly.server.dialects.openai.responses_answer import frames, render
from woolly.server.dialects.openai.responses_reading import keep, read, recall, request_of
from woolly.server.dialects.openai.responses_shapes import Deleted, InputItems, Response, ResponseBody
from woolly.server.generate.counting import prompt_tokens
from woolly.server.http.framing import NAMED
from woolly.server.models.lifecycle import Models
from woolly.server.routes import Call, Generation, Memory, Query, Route, aliases
from woolly.server.workers import Workers

PAGE, MOST = 20, 100  # input items that are listed at once


def _stored(store: ResponseStore, call: Call) -> StoredResponse:
    id_ = call.path["id"]
    stored: StoredResponse | None = store.find(call.caller.name, id_)
    if stored is None:
        raise NotFoundError(f"Response with id '{printable(id_)}' not found.", param="id")
    return stored


async def retrieve(store: ResponseStore, call: Call) -> Response:
    """An answer that was kept."""
    record: Response = _stored(store, call).record
    return record


async def delete(store: ResponseStore, call: Call) -> Deleted:
    """Forget an answer that was kept."""
    _stored(store, call)
    store.remove(call.caller.name, call.path["id"])
    return Deleted(id=call.path["id"])


async def cancel(store: ResponseStore, call: Call) -> Response:
    """Stop an answer in the background, where none is made."""
    _stored(store, call)
    raise RequestError("only a response in the background can be cancelled, and none is made there", param="background")


async def input_items(store: ResponseStore, call: Call) -> InputItems:
    """What an answer was asked, the newest first."""
    stored = _stored(store, call)
    items = list(stored.items[: stored.inputs])
    if call.query.get("order") != "asc":
        items.reverse()
    return InputItems(**page(items, call.query, MOST, PAGE, itemgetter("id")))


async def input_tokens(limits: Serving, models: Models, workers: Workers, call: Call) -> InputTokens:
    """How many tokens a request has."""
    body: ResponseBody = call.body
    request = request_of(body, limits)
    return InputTokens(input_tokens=await prompt_tokens(models, workers, call.caller, body.model, request))


RESPONSES = Generation(
    "/v1/responses",
    read,
    render,
    frames,
    ResponseBody,
    "OpenAI",
    prefix="resp_",
    framing=NAMED,
    memory=Memory(recall, keep),
    streamed_error_codes=frozenset(("context_error",)),
    last=lambda event: event.response,
)
COUNT = Query("POST", "", input_tokens, "OpenAI", ResponseBody, errors=(404, 504))
ROUTES: tuple[Route, ...] = (
    *aliases(RESPONSES, "/v1/responses", "/responses"),
    *aliases(COUNT, "/v1/responses/input_tokens", "/responses/input_tokens"),
    Query("GET", "/v1/responses/{id}", retrieve, "OpenAI"),
    Query("DELETE", "/v1/responses/{id}", delete, "OpenAI"),
    Query("POST", "/v1/responses/{id}/cancel", cancel, "OpenAI"),
    Query("GET", "/v1/responses/{id}/input_items", input_items, "OpenAI", query=("limit", "order", "after")),
)
