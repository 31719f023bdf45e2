"""OpenAI's chat completions, whole or streamed."""

from __future__ import annotations

from collections.abc import AsyncGenerator, Iterable, Mapping
from typing import Annotated, Any, Literal

from msgspec import UNSET, Meta, UnsetType

from woolly.errors import RequestError
from woolly.limits import LIMITS, Serving
from woolly.request import Completion, End, Logprob, Request, Sampling, Text, Thought
from woolly.server.dialects.bodies import GenerationBody, Positive, samplings, stops, wants_usage
from woolly.server.dialects.fields import EVERYWHERE, Messages, Variables, chat_messages, notes, read_struct, refuse
from woolly.server.dialects.shapes import Count, Delta, Headed, Reason, Reasoning, Shape, Usage, delta, reasoning, usage
from woolly.server.door import Body, Events, Generation, Head, Job

AS_IT_IS = Sampling(temperature=1.0, top_k=0, top_p=1.0)  # OpenAI's defaults: the model's own probabilities
REFUSED: dict[str, Any] = {
    "tools": lambda v: v == [],
    "tool_choice": lambda v: v in ("none", "auto"),
    "functions": lambda v: v == [],
    "function_call": lambda v: v in ("none", "auto"),
    "response_format": lambda v: isinstance(v, dict) and v.get("type") == "text",
    "modalities": lambda v: v == ["text"],
    "audio": lambda v: False,
    "prediction": lambda v: False,
    "web_search_options": lambda v: False,
}


class OpenAIBody(GenerationBody, kw_only=True):
    """What both of OpenAI's routes read."""

    stop: str | list[str] | None = None


class OpenAIChatBody(OpenAIBody, kw_only=True):
    messages: Messages
    logprobs: bool | None = None
    top_logprobs: Annotated[int, Meta(ge=0, le=LIMITS.logprobs)] | None = None
    max_completion_tokens: Positive | None = None
    chat_template_kwargs: Variables | None = None


KNOWN = frozenset((*OpenAIChatBody.__struct_fields__, *REFUSED, *EVERYWHERE))


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


class OpenAIMessage(Reasoning, kw_only=True):
    role: Literal["assistant"] = "assistant"
    content: str
    refusal: None = None


class OpenAIChatChoice(Shape):
    index: Count
    message: OpenAIMessage
    logprobs: ChatLogprobs | None
    finish_reason: Reason


class OpenAIChat(Headed, kw_only=True):
    object: Literal["chat.completion"] = "chat.completion"
    choices: list[OpenAIChatChoice]
    usage: Usage


class OpenAIChatPiece(Shape):
    index: Count
    delta: Delta
    logprobs: ChatLogprobs | None = None
    finish_reason: Reason | None = None


class OpenAIChatChunk(Headed, kw_only=True):
    object: Literal["chat.completion.chunk"] = "chat.completion.chunk"
    choices: list[OpenAIChatPiece]
    usage: Usage | UnsetType | None = UNSET


def read(body: Body, _path: Mapping[str, str], limits: Serving) -> Job:
    """Answer a conversation, as OpenAI does."""
    refuse(body, REFUSED)
    fields = read_struct(OpenAIChatBody, body)
    if fields.top_logprobs and not fields.logprobs:
        raise RequestError("top_logprobs needs logprobs to be true", param="top_logprobs")
    messages = tuple(chat_messages(fields.messages, limits))
    requests = tuple(
        Request(
            messages=messages,
            sampling=sampling,
            max_tokens=fields.max_completion_tokens or fields.max_tokens,
            stop=stops(fields.stop),
            logprobs=(fields.top_logprobs or 0) if fields.logprobs else None,
            chat_template_kwargs=fields.chat_template_kwargs or {},
        )
        for sampling in samplings(fields, AS_IT_IS, limits)
    )
    return Job(requests, fields, fields.model or "", bool(fields.stream), notes(body, KNOWN))


def whole(job: Job, head: Head, answers: list[Completion]) -> OpenAIChat:
    choices = [
        OpenAIChatChoice(
            index=index,
            message=OpenAIMessage(content=answer.text, **reasoning(answer.thought)),
            logprobs=_logprobs(answer.logprobs) if job.fields.logprobs else None,
            finish_reason=answer.finish_reason,
        )
        for index, answer in enumerate(answers)
    ]
    counts = usage(answers, len(answers))
    return OpenAIChat(**head, choices=choices, usage=counts)


async def frames(job: Job, head: Head, events: Events) -> AsyncGenerator[OpenAIChatChunk, None]:
    counted = wants_usage(job.fields)

    def chunk(*choices: OpenAIChatPiece, usage: Usage | None = None) -> OpenAIChatChunk:
        return OpenAIChatChunk(
            **head,
            choices=list(choices),
            usage=usage if counted else UNSET,
        )

    for index in range(len(job.requests)):
        yield chunk(OpenAIChatPiece(index=index, delta=Delta(role="assistant", content="")))
    ends: dict[int, End] = {}
    async for index, event in events:
        if isinstance(event, Text | Thought) and (event.text or event.logprobs):
            likely = _logprobs(event.logprobs) if job.fields.logprobs else None
            yield chunk(OpenAIChatPiece(index=index, delta=delta(event), logprobs=likely))
        elif isinstance(event, End):
            ends[index] = event
            yield chunk(OpenAIChatPiece(index=index, delta=Delta(), finish_reason=event.reason))
    if counted:
        yield chunk(usage=usage([ends[index] for index in sorted(ends)], len(ends)))


def _logprobs(rows: Iterable[Logprob]) -> ChatLogprobs:
    return ChatLogprobs(
        content=[
            TokenLogprob(
                token=_text(row.spelling),
                logprob=row.value,
                bytes=list(row.spelling),
                top_logprobs=[
                    TopLogprob(token=_text(spelling), logprob=value, bytes=list(spelling))
                    for _, spelling, value in row.top
                ],
            )
            for row in rows
        ]
    )


def _text(spelling: bytes) -> str:
    return spelling.decode("utf-8", "replace")


CHAT = Generation("/v1/chat/completions", read, whole, frames, OpenAIChatBody, "OpenAI", prefix="chatcmpl-")
