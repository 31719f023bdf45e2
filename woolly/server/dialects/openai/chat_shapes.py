"""The bodies of OpenAI's chats, and the shapes of their answers."""

from __future__ import annotations

from typing import Annotated, Any, Literal

from msgspec import UNSET, Meta, UnsetType

from woolly.limits import LIMITS
from woolly.server.dialects.base.bodies import Length, ResponseFormat
from woolly.server.dialects.base.fields import Messages, Variables
from woolly.server.dialects.base.llama_fields import LlamaFields
from woolly.server.dialects.base.shapes import Count, Delta, Headed, Reasoning, Shape, Usage
from woolly.server.dialects.base.timings import LlamaTimings
from woolly.version import __version__

FINGERPRINT = f"woolly-{__version__}"  # what made an answer
Reason = Annotated[str, Meta(extra_json_schema={"enum": ["stop", "length", "tool_calls"]})]
Effort = Literal["none", "minimal", "low", "medium", "high", "xhigh"]


class OpenAIBody(LlamaFields, kw_only=True):
    """What both of OpenAI's routes read."""

    stop: str | list[str] | None = None
    response_format: ResponseFormat | None = None


class OpenAIChatBody(OpenAIBody, kw_only=True):
    """continue_final_message: the last message, which is the model's, is the beginning of the answer."""

    messages: Messages
    logprobs: bool | None = None
    top_logprobs: Annotated[int, Meta(ge=0, le=LIMITS.logprobs)] | None = None
    max_completion_tokens: Length | None = None
    continue_final_message: bool | None = None
    add_generation_prompt: bool | None = None
    chat_template_kwargs: Variables | None = None
    tools: Annotated[list[dict[str, Any]], Meta(max_length=LIMITS.tools)] | None = None
    tool_choice: str | dict[str, Any] | None = None
    parallel_tool_calls: bool | None = None
    reasoning_effort: Effort | None = None

    def __post_init__(self) -> None:
        super().__post_init__()
        if self.n_probs and self.logprobs is None:
            self.logprobs, self.top_logprobs = True, self.n_probs


class TopLogprob(Shape):
    token: str
    logprob: float
    bytes: list[Count]


class TokenLogprob(Shape):
    token: str
    logprob: float
    bytes: list[Count]
    top_logprobs: list[TopLogprob]


class ChatLogprobs(Shape):
    content: list[TokenLogprob]
    refusal: None = None


class CalledFunction(Shape):
    name: str
    arguments: str


class ToolCall(Shape, kw_only=True):
    id: str
    type: Literal["function"] = "function"
    function: CalledFunction


class OpenAIMessage(Reasoning, kw_only=True):
    """content is null where there are calls alone."""

    role: Literal["assistant"] = "assistant"
    content: str | None
    refusal: None = None
    tool_calls: list[ToolCall] | UnsetType = UNSET


class OpenAIChatChoice(Shape):
    index: Count
    message: OpenAIMessage
    logprobs: ChatLogprobs | None
    finish_reason: Reason


class OpenAIChat(Headed, kw_only=True):
    object: Literal["chat.completion"] = "chat.completion"
    choices: list[OpenAIChatChoice]
    usage: Usage
    system_fingerprint: str = FINGERPRINT
    timings: LlamaTimings


class FunctionDelta(Shape, kw_only=True):
    name: str | UnsetType = UNSET
    arguments: str


class ToolCallDelta(Shape, kw_only=True):
    """A piece of a call: the first has its id and name, the others a piece of its arguments, which clients join."""

    index: Count
    id: str | UnsetType = UNSET
    type: Literal["function"] | UnsetType = UNSET
    function: FunctionDelta


class OpenAIDelta(Delta):
    tool_calls: list[ToolCallDelta] | UnsetType = UNSET


class OpenAIChatPiece(Shape):
    index: Count
    delta: OpenAIDelta
    logprobs: ChatLogprobs | None = None
    finish_reason: Reason | None = None


class InputTokens(Shape, kw_only=True):
    object: Literal["response.input_tokens"] = "response.input_tokens"
    input_tokens: Count


class OpenAIChatChunk(Headed, kw_only=True):
    object: Literal["chat.completion.chunk"] = "chat.completion.chunk"
    choices: list[OpenAIChatPiece]
    usage: Usage | UnsetType | None = UNSET
    system_fingerprint: str = FINGERPRINT
    timings: LlamaTimings | UnsetType = UNSET
