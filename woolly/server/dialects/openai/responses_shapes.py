"""The shapes of OpenAI's Responses: what is asked, the record of an answer with its items, the events of a stream."""

from __future__ import annotations

from typing import Annotated, Any, Literal, TypeAlias

import msgspec
from msgspec import UNSET, Meta, UnsetType

from woolly.limits import LIMITS
from woolly.server.dialects.base.bodies import Positive, SamplingFields, Seed
from woolly.server.dialects.base.shapes import CachedTokens, Count, Shape
from woolly.server.dialects.base.timings import LlamaTimings
from woolly.server.dialects.openai.chat_shapes import TokenLogprob


class TextFormat(msgspec.Struct):
    type: Literal["text", "json_object", "json_schema"] = "text"
    name: str | UnsetType = UNSET
    schema: dict[str, Any] | UnsetType = UNSET
    strict: bool | UnsetType | None = UNSET
    description: str | UnsetType | None = UNSET


class TextConfig(msgspec.Struct, kw_only=True):
    format: TextFormat = msgspec.field(default_factory=TextFormat)
    verbosity: str | UnsetType | None = UNSET


class ReasoningConfig(msgspec.Struct, kw_only=True):
    effort: str | None = None
    summary: str | None = None


ITEM = {"type": "object", "properties": {"type": {"type": "string"}}}


class ResponseBody(SamplingFields, kw_only=True):
    input: Annotated[str | list[Any], Meta(extra_json_schema={"items": ITEM})]
    model: str | None = None
    instructions: str | None = None
    previous_response_id: str | None = None
    tools: Annotated[list[dict[str, Any]], Meta(max_length=LIMITS.tools)] | None = None
    tool_choice: str | dict[str, Any] | None = None
    parallel_tool_calls: bool | None = None
    max_tool_calls: Positive | None = None
    text: TextConfig | None = None
    reasoning: ReasoningConfig | None = None
    max_output_tokens: Positive | None = None
    seed: Seed | None = None
    store: bool | None = None
    stream: bool | None = None
    include: list[str] | None = None
    top_logprobs: Annotated[int, Meta(ge=0, le=LIMITS.logprobs)] | None = None
    metadata: dict[str, Any] | None = None
    user: str | None = None


class OutputText(Shape, kw_only=True, tag_field="type", tag="output_text"):
    text: str
    annotations: list[None] = msgspec.field(default_factory=list)
    logprobs: list[TokenLogprob] = msgspec.field(default_factory=list)


class ReasoningText(Shape, tag_field="type", tag="reasoning_text"):
    text: str


Status: TypeAlias = Literal["in_progress", "completed", "incomplete"]


class MessageItem(Shape, kw_only=True, tag_field="type", tag="message"):
    id: str
    role: Literal["assistant"] = "assistant"
    status: Status
    content: list[OutputText]


class ReasoningItem(Shape, kw_only=True, tag_field="type", tag="reasoning"):
    id: str
    status: Status
    summary: list[None] = msgspec.field(default_factory=list)
    content: list[ReasoningText]


class CallItem(Shape, kw_only=True, tag_field="type", tag="function_call"):
    id: str
    call_id: str
    name: str
    arguments: str
    status: Status


class ListedTool(Shape, kw_only=True):
    name: str
    description: str
    input_schema: dict[str, Any]
    annotations: None = None


class McpToolsItem(Shape, kw_only=True, tag_field="type", tag="mcp_list_tools"):
    id: str
    server_label: str
    tools: list[ListedTool]
    error: str | None = None


class McpCallItem(Shape, kw_only=True, tag_field="type", tag="mcp_call"):
    id: str
    server_label: str
    name: str
    arguments: str
    output: str | None = None
    error: str | None = None
    approval_request_id: str | None = None
    status: Literal["in_progress", "completed", "failed"]


class McpQuestionItem(Shape, kw_only=True, tag_field="type", tag="mcp_approval_request"):
    id: str
    server_label: str
    name: str
    arguments: str


Item: TypeAlias = MessageItem | ReasoningItem | CallItem | McpToolsItem | McpCallItem | McpQuestionItem


class InputDetails(CachedTokens, kw_only=True):
    cache_write_tokens: Count = 0


class ReasoningTokens(Shape, kw_only=True):
    reasoning_tokens: Count = 0


class ResponseUsage(Shape, kw_only=True):
    input_tokens: Count
    input_tokens_details: InputDetails
    output_tokens: Count
    output_tokens_details: ReasoningTokens
    total_tokens: Count


class ResponseFault(Shape):
    code: str
    message: str


class Incomplete(Shape, kw_only=True):
    reason: Literal["max_output_tokens"] = "max_output_tokens"


class Response(Shape, kw_only=True):
    id: str
    object: Literal["response"] = "response"
    created_at: int
    status: Literal["in_progress", "completed", "incomplete", "failed"]
    background: Literal[False] = False
    error: ResponseFault | None = None
    incomplete_details: Incomplete | None = None
    instructions: str | None
    max_output_tokens: int | None
    max_tool_calls: int | None = None
    metadata: dict[str, Any]
    model: str
    output: list[Item]
    parallel_tool_calls: bool
    previous_response_id: str | None
    reasoning: ReasoningConfig
    store: bool
    temperature: float
    text: TextConfig
    tool_choice: Any
    tools: list[dict[str, Any]]
    top_p: float
    timings: LlamaTimings | UnsetType = UNSET
    truncation: Literal["disabled"] = "disabled"
    usage: ResponseUsage | None = None
    user: str | None


class Event(Shape, kw_only=True):
    """One event of a stream; the numbers have no gaps."""

    sequence_number: Count


class ResponseEvent(Event, kw_only=True):
    response: Response


class Created(ResponseEvent, tag_field="type", tag="response.created"):
    pass


class InProgress(ResponseEvent, tag_field="type", tag="response.in_progress"):
    pass


class Completed(ResponseEvent, tag_field="type", tag="response.completed"):
    pass


class Cut(ResponseEvent, tag_field="type", tag="response.incomplete"):
    pass


class FailedEvent(ResponseEvent, tag_field="type", tag="response.failed"):
    pass


class ItemAdded(Event, kw_only=True, tag_field="type", tag="response.output_item.added"):
    output_index: Count
    item: Item


class ItemDone(Event, kw_only=True, tag_field="type", tag="response.output_item.done"):
    output_index: Count
    item: Item


class InItem(Event, kw_only=True):
    item_id: str
    output_index: Count


class InPart(InItem, kw_only=True):
    content_index: Count = 0


class PartAdded(InPart, kw_only=True, tag_field="type", tag="response.content_part.added"):
    part: OutputText


class PartDone(InPart, kw_only=True, tag_field="type", tag="response.content_part.done"):
    part: OutputText


class OutputTextDelta(InPart, kw_only=True, tag_field="type", tag="response.output_text.delta"):
    delta: str
    logprobs: list[TokenLogprob]


class OutputTextDone(InPart, kw_only=True, tag_field="type", tag="response.output_text.done"):
    text: str
    logprobs: list[TokenLogprob]


class ReasoningDelta(InPart, kw_only=True, tag_field="type", tag="response.reasoning_text.delta"):
    delta: str


class ReasoningDone(InPart, kw_only=True, tag_field="type", tag="response.reasoning_text.done"):
    text: str


class ArgumentsDelta(InItem, kw_only=True, tag_field="type", tag="response.function_call_arguments.delta"):
    delta: str


class ArgumentsDone(InItem, kw_only=True, tag_field="type", tag="response.function_call_arguments.done"):
    name: str
    arguments: str


class McpListing(InItem, kw_only=True, tag_field="type", tag="response.mcp_list_tools.in_progress"):
    pass


class McpListed(InItem, kw_only=True, tag_field="type", tag="response.mcp_list_tools.completed"):
    pass


class McpNotListed(InItem, kw_only=True, tag_field="type", tag="response.mcp_list_tools.failed"):
    pass


class McpCalling(InItem, kw_only=True, tag_field="type", tag="response.mcp_call.in_progress"):
    pass


class McpArgumentsDelta(InItem, kw_only=True, tag_field="type", tag="response.mcp_call_arguments.delta"):
    delta: str


class McpArgumentsDone(InItem, kw_only=True, tag_field="type", tag="response.mcp_call_arguments.done"):
    arguments: str


class McpCalled(InItem, kw_only=True, tag_field="type", tag="response.mcp_call.completed"):
    pass


class McpCallFailed(InItem, kw_only=True, tag_field="type", tag="response.mcp_call.failed"):
    pass


ResponseEvents: TypeAlias = (
    Created
    | InProgress
    | Completed
    | Cut
    | FailedEvent
    | ItemAdded
    | ItemDone
    | PartAdded
    | PartDone
    | OutputTextDelta
    | OutputTextDone
    | ReasoningDelta
    | ReasoningDone
    | ArgumentsDelta
    | ArgumentsDone
    | McpListing
    | McpListed
    | McpNotListed
    | McpCalling
    | McpArgumentsDelta
    | McpArgumentsDone
    | McpCalled
    | McpCallFailed
)


class Deleted(Shape, kw_only=True):
    id: str
    object: Literal["response"] = "response"
    deleted: Literal[True] = True


class InputItems(Shape, kw_only=True):
    object: Literal["list"] = "list"
    data: list[dict[str, Any]]
    first_id: str | None
    last_id: str | None
    has_more: bool
