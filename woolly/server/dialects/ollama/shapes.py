"""The fields of Ollama's bodies of generation, and the shapes of its answers."""

from __future__ import annotations

from typing import Annotated, Any, Literal

import msgspec
from msgspec import UNSET, Meta, UnsetType

from woolly.config.serving import SERVING
from woolly.limits import LIMITS
from woolly.server.dialects.base.bodies import SamplingFields
from woolly.server.dialects.base.shapes import Count, Shape


class OllamaOptions(SamplingFields, kw_only=True):
    """num_predict: tokens of the answer; below 0 there is no limit. num_ctx: refused where the model has fewer."""

    repeat_penalty: Annotated[float, Meta(ge=0.01, le=100)] | None = None
    seed: int | None = None
    stop: str | list[str] | None = None
    num_predict: Annotated[int, Meta(ge=-2, le=2**31 - 1)] | None = None
    num_ctx: Annotated[int, Meta(ge=0, le=2**31 - 1)] | None = None


class OllamaBody(msgspec.Struct, kw_only=True):
    model: str
    options: OllamaOptions | None = None
    format: Literal["", "json"] | dict[str, Any] | None = None
    stream: bool | None = None
    think: bool | Literal["low", "medium", "high", "max"] | None = None
    keep_alive: float | str | None = None
    logprobs: bool | None = None
    top_logprobs: Annotated[int, Meta(ge=0, le=LIMITS.logprobs)] | None = None


class OllamaGenerateBody(OllamaBody, kw_only=True):
    prompt: str | None = None
    suffix: str | None = None
    system: str | None = None
    raw: bool | None = None


MESSAGE = {
    "type": "object",
    "properties": {"role": {"type": "string"}, "content": {"type": "string"}},
    "required": ["role"],
}


class OllamaChatBody(OllamaBody, kw_only=True):
    messages: Annotated[list[Any], Meta(extra_json_schema={"items": MESSAGE, "maxItems": SERVING.messages})] | None = (
        None
    )
    tools: list[Any] | None = None


class OllamaToken(Shape):
    token: str
    logprob: float
    bytes: list[Count]


class OllamaLogprob(OllamaToken):
    top_logprobs: list[OllamaToken]


class OllamaFunction(Shape):
    index: Count
    name: str
    arguments: dict[str, Any]


class OllamaCall(Shape):
    id: str
    function: OllamaFunction


class OllamaMessage(Shape, kw_only=True):
    role: Literal["assistant"] = "assistant"
    content: str
    thinking: str | UnsetType = UNSET
    tool_calls: list[OllamaCall] | UnsetType = UNSET


class OllamaAnswer(Shape, kw_only=True):
    """Durations are nanoseconds; they and the counts come with the end."""

    model: str
    created_at: str
    done: bool
    done_reason: Literal["stop", "length", "load", "unload"] | UnsetType = UNSET
    logprobs: list[OllamaLogprob] | UnsetType = UNSET
    total_duration: Count | UnsetType = UNSET
    load_duration: Count | UnsetType = UNSET
    prompt_eval_count: Count | UnsetType = UNSET
    prompt_eval_duration: Count | UnsetType = UNSET
    eval_count: Count | UnsetType = UNSET
    eval_duration: Count | UnsetType = UNSET


class OllamaGenerated(OllamaAnswer, kw_only=True):
    response: str
    thinking: str | UnsetType = UNSET


class OllamaChat(OllamaAnswer, kw_only=True):
    message: OllamaMessage
