"""Generation in Woolly's own dialect: completions, chats and batches, under the names that its clients know."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import replace
from typing import Annotated, Any, TypeVar

import msgspec
from msgspec import Meta

from woolly.errors import RequestError
from woolly.limits import SERVING
from woolly.request import End, Request, Sampling, Text
from woolly.server.dialects import generation
from woolly.server.dialects.fields import EVERYWHERE, Messages, Variables, notes, read_messages, read_struct, refuse
from woolly.server.dialects.generation import samplings, stops, usage, wants_usage
from woolly.server.dialects.sse import DONE, event
from woolly.server.door import Asked, Head, Say, Whole

T = TypeVar("T", bound=msgspec.Struct)

# Other names of a field; the first that was sent counts.
ALIASES = {
    "max_tokens": ("max_completion_tokens", "max_length", "max_new_tokens", "n_predict"),
    "repetition_penalty": ("repeat_penalty",),
    "stop_sequences": ("stop",),
}
REFUSED: dict[str, Callable[[Any], bool]] = {
    "tools": lambda v: v == [],
    "tool_choice": lambda v: v in ("none", "auto"),
    "response_format": lambda v: isinstance(v, dict) and v.get("type") == "text",
    "logprobs": lambda v: v is False,
    "top_logprobs": lambda v: v == 0,
    "typical_p": lambda v: v == 1,
    "session_id": lambda v: False,
    "truncate": lambda v: False,
    "parse_special": lambda v: v is True,
    "skip_special_tokens": lambda v: v is True,
}
PROMPT_REFUSED = REFUSED | {"chat_template_kwargs": lambda v: v == {}}


# Read by _prompt, which says more about an empty one than that it is short.
Prompt = Annotated[str, Meta(extra_json_schema={"pattern": r"\S"})]


class Body(generation.Body, kw_only=True):
    """What all routes read."""

    stop_sequences: str | list[str] | None = None


class PromptBody(Body, kw_only=True):
    prompt: Prompt


class ChatBody(Body, kw_only=True):
    messages: Messages
    chat_template_kwargs: Variables | None = None


class BatchBody(Body, kw_only=True):
    prompts: Annotated[list[Prompt], Meta(extra_json_schema={"minItems": 1, "maxItems": SERVING.prompts})]


KNOWN = frozenset(
    {*PromptBody.__struct_fields__, *ChatBody.__struct_fields__, *BatchBody.__struct_fields__, *REFUSED, *EVERYWHERE}
    | {name for names in ALIASES.values() for name in names}
)


class About(msgspec.Struct, frozen=True):
    """What writing an answer needs to know."""

    usage: bool = False  # a chunk with the counts at the end of a stream
    notes: tuple[str, ...] = ()
    tokens: bool = False  # the ids of the answer too


def read_fields(kind: type[T], body: Mapping[str, Any], **defaults: Any) -> T:
    """The body as a Struct, each field under its first name; an error has the name by which it was sent."""
    made, sent = defaults | dict(body), {}
    for name, others in ALIASES.items():
        for other in others:
            value = made.pop(other, None)
            if value is not None and body.get(name) is None and name not in sent:
                made[name], sent[name] = value, other
    return read_struct(kind, made, sent)


def _requests(fields: Body, **what: Any) -> tuple[Request, ...]:
    return tuple(
        Request(**what, sampling=sampling, max_tokens=fields.max_tokens, stop=stops(fields.stop_sequences))
        for sampling in samplings(fields, Sampling())
    )


def _asked(fields: Body, body: Mapping[str, Any], requests: tuple[Request, ...], *, tokens: bool = False) -> Asked:
    said = notes(body, KNOWN)
    about = About(wants_usage(fields), said, tokens)
    return Asked(requests, fields.model or "", bool(fields.stream), said, about)


def _prompt(prompt: str, param: str = "prompt") -> str:
    if not prompt.strip():
        raise RequestError(f"{param} is empty", param=param, error_code="EMPTY_PROMPT")
    return prompt


def read_completion(body: Mapping[str, Any], path: Mapping[str, str]) -> Asked:
    refuse(body, PROMPT_REFUSED)
    fields = read_fields(PromptBody, body)
    asked = _asked(fields, body, _requests(fields, prompt=_prompt(fields.prompt)), tokens="name" in path)
    return replace(asked, model=path["name"]) if "name" in path else asked


def read_stream(body: Mapping[str, Any], path: Mapping[str, str]) -> Asked:
    return replace(read_completion(body, path), stream=True)


def read_chat(body: Mapping[str, Any], _path: Mapping[str, str]) -> Asked:
    refuse(body, REFUSED)
    fields = read_fields(ChatBody, body)
    return _asked(fields, body, _requests(fields, **conversation(fields)))


def conversation(fields: ChatBody) -> dict[str, Any]:
    """What a Request needs to know of a chat."""
    return {
        "messages": read_messages(fields.messages),
        "chat_template_kwargs": fields.chat_template_kwargs or {},
    }


def read_batch(body: Mapping[str, Any], _path: Mapping[str, str]) -> Asked:
    """Several prompts, computed together; each answer is that of a request of its own."""
    refuse(body, PROMPT_REFUSED | {"stream": lambda v: v is False, "n": lambda v: v == 1})
    fields = read_fields(BatchBody, body)
    if not 1 <= len(fields.prompts) <= SERVING.prompts:
        raise RequestError(
            f"prompts has {len(fields.prompts):,} entries, but must have between 1 and {SERVING.prompts}",
            param="prompts",
        )
    requests = tuple(
        request
        for index, prompt in enumerate(fields.prompts)
        for request in _requests(fields, prompt=_prompt(prompt, f"prompts[{index}]"))
    )
    return _asked(fields, body, requests)


def _timings(answer: Whole | End) -> dict[str, float]:
    t = answer.timings
    return {
        "prompt_ms": round(t.prompt_s * 1e3, 3),
        "predicted_ms": round(t.answer_s * 1e3, 3),
        "ttft_ms": round(t.first_token_s * 1e3, 3),
        "tokens_per_second": round(t.answer_rate, 3),
    }


def _whole(asked: Asked, head: Head, answers: list[Whole], kind: str, choices: list[dict[str, Any]]) -> dict[str, Any]:
    made: dict[str, Any] = {
        "id": head.id,
        "object": kind,
        "created": head.created,
        "model": head.model,
        "choices": choices,
        "usage": usage(answers, len(answers)),
        "timings": _timings(answers[0]),
        "seed": answers[0].seed,
    }
    if asked.about.tokens:
        made["tokens"] = list(answers[0].tokens)
    if asked.about.notes:
        made["notes"] = list(asked.about.notes)
    return made


def _choice(index: int, answer: Whole, text: str | None, message: object) -> dict[str, Any]:
    return {"index": index, "text": text, "message": message, "finish_reason": answer.reason, "logprobs": None}


def whole_completion(asked: Asked, head: Head, answers: list[Whole]) -> object:
    choices = [_choice(i, answer, answer.text, None) for i, answer in enumerate(answers)]
    return _whole(asked, head, answers, "text_completion", choices)


def whole_chat(asked: Asked, head: Head, answers: list[Whole]) -> object:
    choices = [_choice(i, a, None, {"role": "assistant", "content": a.text}) for i, a in enumerate(answers)]
    return _whole(asked, head, answers, "chat.completion", choices)


def whole_batch(asked: Asked, head: Head, answers: list[Whole]) -> object:
    data = [
        _whole(asked, replace(head, id=f"{head.id}-{i}"), [a], "text_completion", [_choice(0, a, a.text, None)])
        for i, a in enumerate(answers)
    ]
    return {"object": "list", "batch_size": len(data), "data": data, "usage": usage(answers, 1)}


def _chunk(head: Head, kind: str, choices: list[dict[str, Any]], **more: object) -> bytes:
    made = {"id": head.id, "object": kind, "created": head.created, "model": head.model, "choices": choices}
    return event(made | more)


def _chat(head: Head, index: int, delta: dict[str, str], reason: str | None) -> bytes:
    return _chunk(head, "chat.completion.chunk", [{"index": index, "delta": delta, "finish_reason": reason}])


def begin_chat(asked: Asked, head: Head) -> bytes:
    role = {"role": "assistant", "content": ""}
    return b"".join(_chat(head, index, role, None) for index in range(len(asked.requests)))


def piece_chat(_asked: Asked, head: Head, index: int, text: Text) -> bytes:
    return _chat(head, index, {"content": text.text}, None) if text.text else b""


def finish_chat(_asked: Asked, head: Head, index: int, end: End) -> bytes:
    return _chat(head, index, {}, end.reason)


def end_chat(asked: Asked, head: Head, ends: list[End]) -> bytes:
    last = _chunk(head, "chat.completion.chunk", [], usage=usage(ends, len(ends))) if asked.about.usage else b""
    return last + DONE


def _text(head: Head, index: int, text: str, delta: dict[str, str], reason: str | None) -> bytes:
    """A piece stands in it twice: as `delta.content` and as `text`, because clients read one or the other."""
    choice = {"index": index, "delta": delta, "text": text, "finish_reason": reason}
    return _chunk(head, "text_completion", [choice])


def begin_completion(_asked: Asked, _head: Head) -> bytes:
    return b""


def piece_completion(_asked: Asked, head: Head, index: int, text: Text) -> bytes:
    return _text(head, index, text.text, {"content": text.text}, None) if text.text else b""


def finish_completion(_asked: Asked, head: Head, index: int, end: End) -> bytes:
    return _text(head, index, "", {}, end.reason)


def end_completion(asked: Asked, head: Head, ends: list[End]) -> bytes:
    last = _chunk(head, "text_completion", [], usage=usage(ends, len(ends))) if asked.about.usage else b""
    return last + DONE


COMPLETE = Say(
    path="/api/v1/inference/complete",
    read=read_completion,
    whole=whole_completion,
    begin=begin_completion,
    piece=piece_completion,
    finish=finish_completion,
    end=end_completion,
    prefix="cmpl-",
)
CHAT = Say(
    path="/api/v1/inference/chat",
    read=read_chat,
    whole=whole_chat,
    begin=begin_chat,
    piece=piece_chat,
    finish=finish_chat,
    end=end_chat,
    prefix="chatcmpl-",
)
DOORS = (
    COMPLETE,
    CHAT,
    replace(COMPLETE, path="/api/v1/inference/stream", read=read_stream),
    replace(COMPLETE, path="/api/v1/inference/complete/batch", read=read_batch, whole=whole_batch, prefix="batch-"),
    replace(COMPLETE, path="/api/v1/models/{name:path}/generate"),
    replace(COMPLETE, path="/api/v1/optimized/completions"),
    replace(CHAT, path="/api/v1/optimized/chat/completions"),
)
