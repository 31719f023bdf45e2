"""Generation in Woolly's own dialect: completions, chats and batches, under the names that its clients know."""

from __future__ import annotations

from collections.abc import AsyncGenerator, Callable, Mapping
from dataclasses import replace
from typing import Annotated, Any, ClassVar, Literal, TypeVar

import msgspec
from msgspec import UNSET, Meta, UnsetType

from woolly.config.serving import SERVING, Serving
from woolly.errors import RequestError
from woolly.request import Completion, End, Request, Text, Thought
from woolly.server.dialects.base.bodies import (
    GenerationBody,
    ResponseFormat,
    format_of,
    length,
    samplings,
    scales_of,
    stops,
    wants_usage,
)
from woolly.server.dialects.base.fields import (
    REFUSED_EVERYWHERE,
    Messages,
    Variables,
    chat_messages,
    notes,
    read_struct,
    refuse,
)
from woolly.server.dialects.base.shapes import (
    Count,
    Delta,
    Headed,
    Number,
    Reason,
    Reasoning,
    Shape,
    Usage,
    delta,
    reasoning,
    usage,
)
from woolly.server.routes import Body, Events, Generation, Head, Job

T = TypeVar("T", bound=msgspec.Struct)

REFUSED: dict[str, Callable[[Any], bool]] = {
    "tools": lambda v: v == [],
    "tool_choice": lambda v: v in ("none", "auto"),
    "logprobs": lambda v: v is False,
    "top_logprobs": lambda v: v == 0,
    "truncate": lambda v: False,
    "parse_special": lambda v: v is True,
    "skip_special_tokens": lambda v: v is True,
}
PROMPT_REFUSED = REFUSED | {"chat_template_kwargs": lambda v: v == {}}


# Checked by _prompt, whose error says that the prompt is empty.
Prompt = Annotated[str, Meta(extra_json_schema={"pattern": r"\S"})]


class WoollyBody(GenerationBody, kw_only=True):
    """What all of Woolly's routes read."""

    # Other names of a field; the first that was sent counts.
    ALIASES: ClassVar[Mapping[str, tuple[str, ...]]] = {
        "max_tokens": ("max_completion_tokens", "max_length", "max_new_tokens", "n_predict"),
        "repetition_penalty": ("repeat_penalty",),
        "repeat_last_n": ("repetition_penalty_range",),
        "typical_p": ("typ_p",),
        "top_n_sigma": ("top_nsigma",),
        "mirostat": ("mirostat_mode",),
        "stop_sequences": ("stop",),
    }
    stop_sequences: str | list[str] | None = None
    # "json" or a JSON schema, as the library takes it; response_format is the same as OpenAI writes it.
    format: Literal["json"] | dict[str, Any] | None = None
    response_format: ResponseFormat | None = None


class PromptBody(WoollyBody, kw_only=True):
    prompt: Prompt
    session_id: str | None = None


class ChatBody(WoollyBody, kw_only=True):
    messages: Messages
    chat_template_kwargs: Variables | None = None
    session_id: str | None = None


class BatchBody(WoollyBody, kw_only=True):
    prompts: Annotated[list[Prompt], Meta(extra_json_schema={"minItems": 1, "maxItems": SERVING.prompts})]


KNOWN = frozenset(
    {
        *PromptBody.__struct_fields__,
        *ChatBody.__struct_fields__,
        *BatchBody.__struct_fields__,
        *REFUSED,
        *REFUSED_EVERYWHERE,
    }
    | {name for names in WoollyBody.ALIASES.values() for name in names}
)


class AssistantMessage(Reasoning, kw_only=True):
    role: Literal["assistant"] = "assistant"
    content: str


class Timings(Shape):
    prompt_ms: Number
    predicted_ms: Number
    ttft_ms: Number
    tokens_per_second: Number
    draft_n: Count
    draft_n_accepted: Count


class WoollyTextChoice(Shape, kw_only=True):
    index: Count
    text: str
    message: None = None
    finish_reason: Reason
    logprobs: None = None


class WoollyCompletion(Headed, kw_only=True):
    object: Literal["text_completion"] = "text_completion"
    choices: list[WoollyTextChoice]
    usage: Usage
    timings: Timings
    seed: Count
    tokens: list[Count] | UnsetType = UNSET
    notes: list[str] | UnsetType = UNSET


class WoollyChatChoice(Shape, kw_only=True):
    index: Count
    text: None = None
    message: AssistantMessage
    finish_reason: Reason
    logprobs: None = None


class WoollyChat(Headed, kw_only=True):
    object: Literal["chat.completion"] = "chat.completion"
    choices: list[WoollyChatChoice]
    usage: Usage
    timings: Timings
    seed: Count
    notes: list[str] | UnsetType = UNSET


class WoollyBatch(Shape, kw_only=True):
    object: Literal["list"] = "list"
    batch_size: Count
    data: list[WoollyCompletion]
    usage: Usage


class WoollyChatPiece(Shape):
    index: Count
    delta: Delta
    finish_reason: Reason | None = None


class WoollyChatChunk(Headed, kw_only=True):
    object: Literal["chat.completion.chunk"] = "chat.completion.chunk"
    choices: list[WoollyChatPiece]
    usage: Usage | UnsetType = UNSET


class WoollyTextPiece(Shape):
    """A piece stands in it twice: as `delta.content` and as `text`, because clients read one or the other."""

    index: Count
    delta: Delta
    text: str
    finish_reason: Reason | None = None


class WoollyTextChunk(Headed, kw_only=True):
    object: Literal["text_completion"] = "text_completion"
    choices: list[WoollyTextPiece]
    usage: Usage | UnsetType = UNSET


def read_fields(kind: type[T], body: Mapping[str, Any], **defaults: Any) -> T:
    """The body as a Struct, each field under its first name; an error has the name by which it was sent."""
    fields, sent = defaults | dict(body), {}
    for name, others in WoollyBody.ALIASES.items():
        for other in others:
            value = fields.pop(other, None)
            if value is not None and body.get(name) is None and name not in sent:
                fields[name], sent[name] = value, other
    return read_struct(kind, fields, sent)


def wishes(fields: WoollyBody) -> dict[str, Any]:
    """Where an answer ends, what it must be and which adapters it has, as a Request takes it."""
    return {
        "stop": stops(fields.stop_sequences),
        "format": format_of(fields.response_format, fields.format),
        "lora": scales_of(fields.lora),
    }


def _requests(fields: WoollyBody, limits: Serving, **what: Any) -> tuple[Request, ...]:
    first, *others = samplings(fields, limits)
    request = Request(**what, **wishes(fields), **length(fields.max_tokens, limits), sampling=first)
    return (request, *(request.with_values(sampling=sampling) for sampling in others))


def _job(fields: WoollyBody, body: Mapping[str, Any], requests: tuple[Request, ...]) -> Job:
    session = getattr(fields, "session_id", None) or ""
    return Job(requests, fields, fields.model or "", bool(fields.stream), notes(body, KNOWN), session)


def _prompt(prompt: str, param: str = "prompt") -> str:
    if not prompt.strip():
        raise RequestError(f"{param} is empty", param=param, error_code="EMPTY_PROMPT")
    return prompt


def read_completion(body: Body, path: Mapping[str, str], limits: Serving) -> Job:
    """Continue a prompt."""
    refuse(body, PROMPT_REFUSED)
    fields = read_fields(PromptBody, body)
    job = _job(fields, body, _requests(fields, limits, prompt=_prompt(fields.prompt)))
    return replace(job, model=path["name"]) if "name" in path else job


def read_chat(body: Body, _path: Mapping[str, str], limits: Serving) -> Job:
    """Answer a conversation."""
    refuse(body, REFUSED)
    fields = read_fields(ChatBody, body)
    return _job(fields, body, _requests(fields, limits, **conversation(fields, limits)))


def conversation(fields: ChatBody, limits: Serving) -> dict[str, Any]:
    """The fields of a Request that a chat decides."""
    return {
        "messages": chat_messages(fields.messages, limits),
        "chat_template_kwargs": fields.chat_template_kwargs or {},
    }


def read_batch(body: Body, _path: Mapping[str, str], limits: Serving) -> Job:
    """Continue several prompts at once."""
    single = {"stream": lambda v: v is False, "n": lambda v: v == 1, "session_id": lambda v: False}
    refuse(body, PROMPT_REFUSED | single)
    fields = read_fields(BatchBody, body)
    if not 1 <= len(fields.prompts) <= limits.prompts:
        raise RequestError(
            f"prompts has {len(fields.prompts):,} entries, but must have between 1 and {limits.prompts}",
            param="prompts",
        )
    requests = tuple(
        request
        for index, prompt in enumerate(fields.prompts)
        for request in _requests(fields, limits, prompt=_prompt(prompt, f"prompts[{index}]"))
    )
    return _job(fields, body, requests)


def _shared(job: Job, head: Head, answers: list[Completion]) -> dict[str, Any]:
    """The fields that a completion and a chat have in common."""
    t = answers[0].timings
    return {
        **head,
        "usage": usage(answers, len(answers)),
        "timings": Timings(
            prompt_ms=round(t.prompt_s * 1e3, 3),
            predicted_ms=round(t.answer_s * 1e3, 3),
            ttft_ms=round(t.first_token_s * 1e3, 3),
            tokens_per_second=round(t.answer_rate, 3),
            draft_n=t.drafted,
            draft_n_accepted=t.accepted,
        ),
        "seed": answers[0].seed,
        "notes": list(job.notes) or UNSET,
    }


def render_completion(job: Job, head: Head, answers: list[Completion]) -> WoollyCompletion:
    choices = [WoollyTextChoice(index=i, text=a.text, finish_reason=a.finish_reason) for i, a in enumerate(answers)]
    return WoollyCompletion(choices=choices, **_shared(job, head, answers))


def render_with_tokens(job: Job, head: Head, answers: list[Completion]) -> WoollyCompletion:
    completion = render_completion(job, head, answers)
    completion.tokens = answers[0].tokens
    return completion


def render_chat(job: Job, head: Head, answers: list[Completion]) -> WoollyChat:
    choices = [
        WoollyChatChoice(
            index=index,
            message=AssistantMessage(content=answer.text, **reasoning(answer.thought)),
            finish_reason=answer.finish_reason,
        )
        for index, answer in enumerate(answers)
    ]
    return WoollyChat(choices=choices, **_shared(job, head, answers))


def render_batch(job: Job, head: Head, answers: list[Completion]) -> WoollyBatch:
    data = [render_completion(job, Head(**{**head, "id": f"{head['id']}-{i}"}), [a]) for i, a in enumerate(answers)]
    return WoollyBatch(batch_size=len(data), data=data, usage=usage(answers, 1))


async def frames_chat(job: Job, head: Head, events: Events) -> AsyncGenerator[WoollyChatChunk, None]:
    def chunk(*choices: WoollyChatPiece, usage: Usage | UnsetType = UNSET) -> WoollyChatChunk:
        return WoollyChatChunk(**head, choices=list(choices), usage=usage)

    for index in range(len(job.requests)):
        yield chunk(WoollyChatPiece(index=index, delta=Delta(role="assistant", content="")))
    ends: dict[int, End] = {}
    async for index, event in events:
        if isinstance(event, Text | Thought) and event.text:
            yield chunk(WoollyChatPiece(index=index, delta=delta(event, Delta)))
        elif isinstance(event, End):
            ends[index] = event
            yield chunk(WoollyChatPiece(index=index, delta=Delta(), finish_reason=event.reason))
    if wants_usage(job.fields):
        yield chunk(usage=usage([ends[index] for index in sorted(ends)], len(ends)))


async def frames_completion(job: Job, head: Head, events: Events) -> AsyncGenerator[WoollyTextChunk, None]:
    def chunk(*choices: WoollyTextPiece, usage: Usage | UnsetType = UNSET) -> WoollyTextChunk:
        return WoollyTextChunk(**head, choices=list(choices), usage=usage)

    ends: dict[int, End] = {}
    async for index, event in events:
        if isinstance(event, Text) and event.text:
            yield chunk(WoollyTextPiece(index=index, delta=Delta(content=event.text), text=event.text))
        elif isinstance(event, End):
            ends[index] = event
            yield chunk(WoollyTextPiece(index=index, delta=Delta(), text="", finish_reason=event.reason))
    if wants_usage(job.fields):
        yield chunk(usage=usage([ends[index] for index in sorted(ends)], len(ends)))


COMPLETE = Generation(
    "/api/v1/inference/complete",
    read_completion,
    render_completion,
    frames_completion,
    PromptBody,
    "Generation",
    prefix="cmpl-",
)
CHAT = Generation(
    "/api/v1/inference/chat", read_chat, render_chat, frames_chat, ChatBody, "Generation", prefix="chatcmpl-"
)
ROUTES = (
    COMPLETE,
    CHAT,
    replace(COMPLETE, path="/api/v1/inference/stream", render=None),
    replace(
        COMPLETE,
        path="/api/v1/inference/complete/batch",
        read=read_batch,
        render=render_batch,
        body=BatchBody,
        prefix="batch-",
        without=frozenset(("n", "stream", "stream_options")),
    ),
    replace(COMPLETE, path="/api/v1/models/{name:path}/generate", render=render_with_tokens),
    replace(COMPLETE, path="/api/v1/optimized/completions"),
    replace(CHAT, path="/api/v1/optimized/chat/completions"),
    replace(CHAT, path="/api/v1/mcp/chat", tag="MCP"),
)
