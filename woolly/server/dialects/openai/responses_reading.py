"""What a request to OpenAI's Responses asks: items become messages, and an earlier answer is recalled."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from typing import Any

import msgspec
from msgspec import UNSET

from woolly.config.serving import Serving
from woolly.errors import RequestError, UnsupportedError, printable
from woolly.request import Request
from woolly.request.format import Format
from woolly.server.dialects.base.bodies import sampling_of, schema_format, seed_of, thinking
from woolly.server.dialects.base.fields import REFUSED_EVERYWHERE, notes, one_system, read_struct, refuse
from woolly.server.dialects.base.response_store import ResponseStore, StoredResponse
from woolly.server.dialects.openai.responses_items import as_items, read_items, stored_items
from woolly.server.dialects.openai.responses_mcp import read_remote
from woolly.server.dialects.openai.responses_shapes import Response, ResponseBody, ResponseEvent, TextFormat
from woolly.server.http.caller import Caller
from woolly.server.routes import Body, Job

REFUSED: dict[str, Callable[[Any], bool]] = {
    "background": lambda v: v is False,
    "conversation": lambda v: False,
    "prompt": lambda v: False,
    "truncation": lambda v: v == "disabled",
}
KNOWN = frozenset((*ResponseBody.__struct_fields__, *REFUSED, *REFUSED_EVERYWHERE))
LOGPROBS = "message.output_text.logprobs"  # an entry of `include`


def read(body: Body, _path: Mapping[str, str], limits: Serving) -> Job:
    """Answer items, as OpenAI's Responses do."""
    refuse(body, REFUSED)
    fields = read_struct(ResponseBody, body)
    noted = (*notes(body, KNOWN), *_skipped(fields))
    remote = read_remote(fields.tools or (), as_items(fields.input), fields.max_tool_calls)
    return Job((request_of(fields, limits),), fields, fields.model or "", bool(fields.stream), noted, remote=remote)


def request_of(fields: ResponseBody, limits: Serving) -> Request:
    messages = read_items(as_items(fields.input), fields.instructions, limits)
    effort = fields.reasoning.effort if fields.reasoning else None
    return Request(
        messages=tuple(one_system(messages)),
        tools=tuple(tool for tool in fields.tools or () if _is_function(tool)),  # type: ignore[misc]
        tool_choice=_choice(fields.tool_choice),
        parallel_tool_calls=fields.parallel_tool_calls is not False,
        format=_format(fields.text.format) if fields.text else None,
        sampling=sampling_of(fields, seed=seed_of(fields.seed)),
        max_tokens=fields.max_output_tokens,
        logprobs=(fields.top_logprobs or 0) if LOGPROBS in (fields.include or ()) else None,
        chat_template_kwargs={}
        if effort is None
        else thinking(None if effort == "minimal" else effort != "none", effort),
    )


def _is_function(tool: Mapping[str, Any]) -> bool:
    return tool.get("type") == "function"


def _skipped(fields: ResponseBody) -> Iterator[str]:
    kinds = (tool.get("type") for tool in fields.tools or () if tool.get("type") not in ("function", "mcp"))
    return (f"tools.{kind}" for kind in dict.fromkeys(printable(kind, 40) for kind in kinds))


def _choice(choice: str | dict[str, Any] | None) -> str:
    if isinstance(choice, dict):
        if choice.get("type") == "mcp" and choice.get("name") is None:
            return "required"
        if choice.get("type") not in ("function", "mcp"):
            kind = printable(choice.get("type"))
            raise UnsupportedError(f"tool_choice of the type '{kind}' is not supported", param="tool_choice")
        return str(choice.get("name"))
    if choice not in (None, "auto", "none", "required"):
        raise RequestError(
            f"tool_choice is '{printable(choice)}'; expected auto, none or required", param="tool_choice"
        )
    return choice or "auto"


def _format(format: TextFormat) -> Format | None:
    if format.type == "json_schema":
        if format.schema is UNSET:
            raise RequestError("text.format.schema is missing", param="text.format.schema")
        return schema_format(format.schema)
    return Format("json") if format.type == "json_object" else None


def recall(store: ResponseStore, caller: Caller, body: Body) -> Body:
    """The body with the conversation that it continues."""
    id_ = body.get("previous_response_id")
    if not isinstance(id_, str):
        return body
    previous = store.find(caller.name, id_)
    if previous is None:
        raise RequestError(
            f"Previous response with id '{printable(id_)}' not found.",
            code="previous_response_not_found",
            param="previous_response_id",
        )
    return {**body, "input": [*previous.items, *as_items(body.get("input"))]}


def keep(store: ResponseStore, caller: Caller, job: Job, answer: msgspec.Struct) -> None:
    """Keep an answer under its id, streamed or not, unless the caller does not want it."""
    record = answer.response if isinstance(answer, ResponseEvent) else answer
    if job.fields.store is False or not isinstance(record, Response) or record.status in ("in_progress", "failed"):
        return
    asked = stored_items(as_items(job.fields.input))
    items = (*asked, *map(msgspec.to_builtins, record.output))
    nbytes = len(msgspec.json.encode(items)) + len(msgspec.json.encode(record))
    store.put(caller.name, record.id, StoredResponse(record, items, len(asked), nbytes))
