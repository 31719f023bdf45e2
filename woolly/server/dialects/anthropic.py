"""Anthropic's dialect: /v1/messages, whole or streamed, and the count of a conversation's tokens."""

from __future__ import annotations

import re
from collections.abc import AsyncGenerator, Iterator, Mapping
from datetime import UTC, datetime
from typing import Annotated, Any, Literal, TypeAlias

import msgspec
from msgspec import Meta

from woolly.config.serving import SERVING, Serving
from woolly.errors import RequestError, UnsupportedError, WoollyError, printable
from woolly.limits import LIMITS
from woolly.request import (
    Arguments,
    CallStart,
    Completion,
    End,
    Request,
    Start,
    Text,
    Thought,
)
from woolly.server.dialects.base.bodies import (
    Positive,
    SamplingFields,
    Seed,
    call_arguments,
    sampling_of,
    schema_format,
    seed_of,
    thinking,
)
from woolly.server.dialects.base.fields import REFUSED_EVERYWHERE, notes, one_system, read_struct, refuse
from woolly.server.dialects.base.shapes import Count, Shape
from woolly.server.generate.counting import prompt_tokens
from woolly.server.http.errors import kind_of
from woolly.server.http.framing import NAMED
from woolly.server.models.lifecycle import Models
from woolly.server.models.records import ModelRecord
from woolly.server.routes import Body, Call, Dialect, Events, Generation, Head, Job, Query
from woolly.server.workers import Workers

SIGNATURE = "d29vbGx5"  # the signature of every thought: clients send it back, and nothing here reads it
REASONS = {"stop": "end_turn", "calls": "tool_use", "length": "max_tokens"}
KINDS = {
    401: "authentication_error",
    403: "permission_error",
    404: "not_found_error",
    413: "request_too_large",
    429: "rate_limit_error",
    503: "overloaded_error",
}
REFUSED: dict[str, Any] = {"mcp_servers": lambda v: v == []}
# The characters after `cch=` in the first line of Claude Code's prompt change with each request, and nothing after them
# would be found in the prefix cache.
BILLING = "x-anthropic-billing-header:"
_CHANGING = re.compile(r"(?<=\bcch=)[^;\s]+")

# Checked by _messages, which names the place of a wrong message.
MESSAGE = {
    "type": "object",
    "properties": {
        "role": {"enum": ["user", "assistant", "system"]},
        "content": {"anyOf": [{"type": "string"}, {"type": "array", "items": {"type": "object"}}]},
    },
    "required": ["role", "content"],
}
Messages = Annotated[list[Any], Meta(extra_json_schema={"items": MESSAGE, "minItems": 1, "maxItems": SERVING.messages})]
Blocks: TypeAlias = str | list[dict[str, Any]]


class ToolChoice(msgspec.Struct):
    type: Literal["auto", "any", "tool", "none"]
    name: str = ""
    disable_parallel_tool_use: bool = False


class Thinking(msgspec.Struct):
    type: Literal["enabled", "disabled", "adaptive"]


class OutputFormat(msgspec.Struct):
    type: Literal["json_schema"]
    schema: dict[str, Any]


class OutputConfig(msgspec.Struct):
    effort: str | None = None
    format: OutputFormat | None = None


class AnthropicPrompt(SamplingFields, kw_only=True):
    """What is said to the model: a conversation, and the tools that it may ask for. To count its tokens, nothing else
    matters."""

    model: str | None = None
    messages: Messages
    system: Blocks | None = None
    tools: Annotated[list[dict[str, Any]], Meta(max_length=LIMITS.tools)] | None = None
    tool_choice: ToolChoice | None = None
    thinking: Thinking | None = None
    output_config: OutputConfig | None = None
    output_format: OutputFormat | None = None  # of clients that do not know output_config.format yet


class AnthropicBody(AnthropicPrompt, kw_only=True):
    max_tokens: Positive
    stop_sequences: list[str] | None = None
    stream: bool | None = None
    seed: Seed | None = None


KNOWN = frozenset((*AnthropicBody.__struct_fields__, *REFUSED, *REFUSED_EVERYWHERE))


class TextBlock(Shape, tag_field="type", tag="text"):
    text: str


class ThinkingBlock(Shape, tag_field="type", tag="thinking"):
    thinking: str
    signature: str = SIGNATURE


class ToolUseBlock(Shape, tag_field="type", tag="tool_use"):
    id: str
    name: str
    input: dict[str, Any]


Block: TypeAlias = TextBlock | ThinkingBlock | ToolUseBlock


class AnthropicUsage(Shape, kw_only=True):
    """The tokens of a prompt are the sum of three: those that were computed, and those of the cache."""

    input_tokens: Count
    cache_creation_input_tokens: Count = 0
    cache_read_input_tokens: Count
    output_tokens: Count


class AnthropicMessage(Shape, kw_only=True, tag_field="type", tag="message"):
    id: str
    role: Literal["assistant"] = "assistant"
    model: str
    content: list[Block]
    stop_reason: str | None
    stop_sequence: str | None
    usage: AnthropicUsage


class MessageStart(Shape, tag_field="type", tag="message_start"):
    message: AnthropicMessage


class BlockStart(Shape, tag_field="type", tag="content_block_start"):
    index: Count
    content_block: Block


class TextDelta(Shape, tag_field="type", tag="text_delta"):
    text: str


class ThinkingDelta(Shape, tag_field="type", tag="thinking_delta"):
    thinking: str


class SignatureDelta(Shape, tag_field="type", tag="signature_delta"):
    signature: str


class InputDelta(Shape, tag_field="type", tag="input_json_delta"):
    partial_json: str


class BlockDelta(Shape, tag_field="type", tag="content_block_delta"):
    index: Count
    delta: TextDelta | ThinkingDelta | SignatureDelta | InputDelta


class BlockStop(Shape, tag_field="type", tag="content_block_stop"):
    index: Count


class Stopped(Shape):
    stop_reason: str
    stop_sequence: str | None


class MessageDelta(Shape, tag_field="type", tag="message_delta"):
    delta: Stopped
    usage: AnthropicUsage


class MessageStop(Shape, tag_field="type", tag="message_stop"):
    pass


AnthropicEvent: TypeAlias = MessageStart | BlockStart | BlockDelta | BlockStop | MessageDelta | MessageStop


class AnthropicFault(Shape):
    type: str
    message: str


class AnthropicError(Shape, tag_field="type", tag="error"):
    error: AnthropicFault
    request_id: str


class TokenCount(Shape):
    input_tokens: Count


class AnthropicModel(Shape, tag_field="type", tag="model"):
    id: str
    display_name: str
    created_at: str


class AnthropicModels(Shape, kw_only=True):
    data: list[AnthropicModel]
    has_more: Literal[False] = False
    first_id: str | None
    last_id: str | None


def read(body: Body, _path: Mapping[str, str], limits: Serving) -> Job:
    """Answer a conversation, as Anthropic does."""
    refuse(body, REFUSED)
    fields = read_struct(AnthropicBody, body)
    request = Request(
        **_conversation(fields, limits),
        sampling=sampling_of(fields, seed=seed_of(fields.seed)),
        max_tokens=fields.max_tokens,
        stop=tuple(fields.stop_sequences or ()),
    )
    noted = (*notes(body, KNOWN), *_skipped(fields))
    return Job((request,), fields, fields.model or "", bool(fields.stream), noted)


def _conversation(fields: AnthropicPrompt, limits: Serving) -> dict[str, Any]:
    """The fields of a Request that a conversation decides."""
    if len(fields.messages) > limits.messages:
        raise RequestError(
            f"messages has {len(fields.messages):,} entries; at most {limits.messages:,} are read", param="messages"
        )
    if not fields.messages:
        raise RequestError("messages is empty, but a chat needs at least one", param="messages")
    system = _text(fields.system or "", "system", limits)
    if system.startswith(BILLING):
        first, line, rest = system.partition("\n")
        system = _CHANGING.sub("fffff", first) + line + rest
    messages: list[dict[str, Any]] = [{"role": "system", "content": system}] if system else []
    for index, message in enumerate(fields.messages):
        messages += _messages(message, f"messages[{index}]", limits)
    messages = one_system(messages)
    last = messages[-1]
    begun = ""
    if last["role"] == "assistant" and not last.get("tool_calls") and len(messages) > 1:
        begun = messages.pop()["content"]
    choice, config = fields.tool_choice or ToolChoice("auto"), fields.output_config or OutputConfig()
    wanted = config.format or fields.output_format
    switch = {"enabled": True, "disabled": False}.get(fields.thinking.type) if fields.thinking else None
    return {
        "messages": messages,
        "begun": begun,
        "tools": [_tool(tool) for tool in fields.tools or () if _ours(tool)],
        "tool_choice": {"any": "required", "tool": choice.name}.get(choice.type, choice.type),
        "parallel_tool_calls": not choice.disable_parallel_tool_use,
        "format": schema_format(wanted.schema) if wanted else None,
        "chat_template_kwargs": thinking(switch, config.effort),
    }


def _ours(tool: Mapping[str, Any]) -> bool:
    """Whether a tool is a function of the caller; others have a type that only their provider can run."""
    return tool.get("type") in (None, "custom")


def _skipped(fields: AnthropicPrompt) -> tuple[str, ...]:
    return tuple(f"tools.{printable(tool['type'], 40)}" for tool in fields.tools or () if not _ours(tool))


def _tool(tool: Mapping[str, Any]) -> dict[str, Any]:
    return {
        "name": tool.get("name"),
        "description": tool.get("description"),
        "parameters": tool.get("input_schema"),
        "strict": tool.get("strict"),
    }


def _messages(message: object, place: str, limits: Serving) -> Iterator[dict[str, Any]]:
    """A message as templates know it; results of tools, which come first, are messages of their own."""
    if not isinstance(message, Mapping) or message.get("role") not in ("user", "assistant", "system"):
        role = message.get("role") if isinstance(message, Mapping) else message
        raise RequestError(
            f"{place}.role is '{printable(role)}'; expected user, assistant or system", param=f"{place}.role"
        )
    role, content = str(message["role"]), message.get("content")
    place = f"{place}.content"
    if isinstance(content, str):
        yield {"role": role, "content": content}
        return
    texts, thoughts, calls, results = [], [], [], 0
    for index, block in enumerate(_blocks(content, place, limits)):
        match (role, block.get("type")):
            case _, "text":
                texts.append(_string(block, "text", f"{place}[{index}]"))
            case "assistant", "thinking":
                thoughts.append(_string(block, "thinking", f"{place}[{index}]"))
            case "assistant", "redacted_thinking":
                pass
            case "assistant", "tool_use":
                function = {"name": block.get("name"), "arguments": block.get("input")}
                calls.append({"id": block.get("id"), "type": "function", "function": function})
            case "user", "tool_result":
                results += 1
                result_text = _text(block.get("content") or "", f"{place}[{index}].content", limits)
                result_text = f"Error: {result_text}" if block.get("is_error") else result_text
                yield {"role": "tool", "tool_call_id": block.get("tool_use_id"), "content": result_text}
            case _, kind:
                raise _not_text(kind, f"{place}[{index}]")
    if texts or not results:
        converted: dict[str, Any] = {"role": role, "content": "\n".join(texts) if role == "user" else "".join(texts)}
        yield (
            converted
            | ({"reasoning_content": "\n".join(thoughts)} if thoughts else {})
            | ({"tool_calls": calls} if calls else {})
        )


def _text(content: object, place: str, limits: Serving) -> str:
    """A text, or blocks of text, each of which is one or more lines."""
    if isinstance(content, str):
        return content
    texts = []
    for index, block in enumerate(_blocks(content, place, limits)):
        if block.get("type") != "text":
            raise _not_text(block.get("type"), f"{place}[{index}]")
        texts.append(_string(block, "text", f"{place}[{index}]"))
    return "\n".join(texts)


def _blocks(content: object, place: str, limits: Serving) -> list[Mapping[str, Any]]:
    if not isinstance(content, list) or not all(isinstance(block, Mapping) for block in content):
        raise RequestError(f"{place} must be text or a list of blocks", param=place)
    if len(content) > limits.message_parts:
        raise RequestError(f"{place} has {len(content):,} blocks; at most {limits.message_parts} are read", param=place)
    return content


def _string(block: Mapping[str, Any], name: str, place: str) -> str:
    if not isinstance(value := block.get(name), str):
        raise RequestError(f"{place}.{name} must be text", param=f"{place}.{name}")
    return value


def _not_text(kind: object, place: str) -> UnsupportedError:
    return UnsupportedError(f"{place} is of the type '{printable(kind)}', which is not taken there", param=place)


def render(_job: Job, head: Head, answers: list[Completion]) -> AnthropicMessage:
    (answer,) = answers
    content: list[Block] = []
    if answer.thought:
        content.append(ThinkingBlock(thinking=answer.thought))
    if answer.text:
        content.append(TextBlock(text=answer.text))
    for call in answer.calls:
        content.append(ToolUseBlock(id=_id(call.id), name=call.name, input=call_arguments(call)))
    return AnthropicMessage(
        id=head["id"],
        model=head["model"],
        content=content,
        usage=_usage(answer),
        **_stopped(answer.finish_reason, answer.stopped_by),
    )


def _id(call: str) -> str:
    """The id of a call, with the beginning by which Anthropic's are known."""
    return "toolu_" + call.removeprefix("call_")


def _stopped(reason: str, by: str) -> dict[str, Any]:
    if reason == "stop" and by:
        return {"stop_reason": "stop_sequence", "stop_sequence": by}
    return {"stop_reason": REASONS[reason], "stop_sequence": None}


def _usage(answer: Completion | End) -> AnthropicUsage:
    usage = answer.usage
    return AnthropicUsage(
        input_tokens=usage.prompt_tokens - usage.cached_tokens,
        cache_read_input_tokens=usage.cached_tokens,
        output_tokens=usage.completion_tokens,
    )


async def frames(_job: Job, head: Head, events: Events) -> AsyncGenerator[AnthropicEvent, None]:
    index = -1  # the index of the open block
    kind: type | None = None  # the type of the open block's pieces
    block: Block

    def closing() -> Iterator[AnthropicEvent]:
        if kind is Thought:
            yield BlockDelta(index=index, delta=SignatureDelta(signature=SIGNATURE))
        if kind is not None:
            yield BlockStop(index=index)

    async for _, event in events:
        match event:
            case Text() | Thought() if event.text:
                if kind is not type(event):
                    for frame in closing():
                        yield frame
                    kind, index = type(event), index + 1
                    block = TextBlock(text="") if kind is Text else ThinkingBlock(thinking="", signature="")
                    yield BlockStart(index=index, content_block=block)
                delta = TextDelta(text=event.text) if kind is Text else ThinkingDelta(thinking=event.text)
                yield BlockDelta(index=index, delta=delta)
            case Arguments() if event.text:
                yield BlockDelta(index=index, delta=InputDelta(partial_json=event.text))
            case CallStart():
                for frame in closing():
                    yield frame
                kind, index = CallStart, index + 1
                block = ToolUseBlock(id=_id(event.id), name=event.name, input={})
                yield BlockStart(index=index, content_block=block)
            case Start(prompt_tokens=prompt, cached_tokens=cached):
                counts = AnthropicUsage(input_tokens=prompt - cached, cache_read_input_tokens=cached, output_tokens=0)
                yield MessageStart(
                    message=AnthropicMessage(
                        id=head["id"],
                        model=head["model"],
                        content=[],
                        stop_reason=None,
                        stop_sequence=None,
                        usage=counts,
                    )
                )
            case End(reason=reason):
                for frame in closing():
                    yield frame
                yield MessageDelta(delta=Stopped(**_stopped(reason, event.stopped_by)), usage=_usage(event))
                yield MessageStop()


def models(records: list[ModelRecord]) -> AnthropicModels:
    """All models, as Anthropic lists them."""
    ids = [record.id for record in records]
    rows = [AnthropicModel(id=row.id, display_name=row.name, created_at=_time(row.created)) for row in records]
    return AnthropicModels(data=rows, first_id=ids[0] if ids else None, last_id=ids[-1] if ids else None)


def _time(seconds: int) -> str:
    return datetime.fromtimestamp(seconds, UTC).strftime("%Y-%m-%dT%H:%M:%SZ")


async def count_tokens(limits: Serving, models: Models, workers: Workers, call: Call) -> TokenCount:
    """How many tokens a conversation has."""
    fields: AnthropicPrompt = call.body
    request = Request(**_conversation(fields, limits))
    return TokenCount(input_tokens=await prompt_tokens(models, workers, call.caller, fields.model, request))


def error(problem: WoollyError, id_: str) -> AnthropicError:
    """Anthropic's shape: a type and a message. Claude Code reads both numbers out of the error about the context."""
    status, message = kind_of(problem).status, str(problem)
    if problem.code == "context_error":
        prompt, limit = problem.facts["prompt"], problem.facts["limit"]
        message = f"prompt is too long: {prompt} tokens > {limit} maximum"
    kind = KINDS.get(status, "invalid_request_error" if status < 500 else "api_error")
    return AnthropicError(error=AnthropicFault(type=kind, message=message), request_id=id_)


TAG = "Anthropic"
MESSAGES = Generation("/v1/messages", read, render, frames, AnthropicBody, TAG, prefix="msg_", framing=NAMED)
DIALECT = Dialect(
    name="anthropic",
    routes=(
        MESSAGES,
        Query("POST", "/v1/messages/count_tokens", count_tokens, TAG, AnthropicPrompt, errors=(404, 504)),
    ),
    error=error,
    prefixes=("/v1/messages",),
    id_header="request-id",
)
