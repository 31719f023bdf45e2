"""The fields of Anthropic's bodies, and the shapes of its answers and events."""

from __future__ import annotations

from typing import Annotated, Any, Literal, TypeAlias

import msgspec
from msgspec import Meta

from woolly.config.serving import SERVING
from woolly.limits import LIMITS
from woolly.server.dialects.base.bodies import Positive, SamplingFields, Seed
from woolly.server.dialects.base.shapes import Count, Shape

SIGNATURE = "d29vbGx5"  # the signature of every thought: clients send it back, and nothing here reads it
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
