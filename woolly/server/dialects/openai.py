"""OpenAI's dialect under /v1: chat completions and completions, whole or streamed, with OpenAI's bodies and errors."""

from __future__ import annotations

import codecs
from collections.abc import Iterable, Mapping
from typing import Annotated, Any

import msgspec
from msgspec import Meta

from woolly.errors import RequestError, WoollyError
from woolly.limits import LIMITS, SERVING
from woolly.request import End, Logprob, Prompt, Request, Sampling, Text
from woolly.server.dialects import generation
from woolly.server.dialects.asks import load_failed, load_model, openai_model, openai_models
from woolly.server.dialects.fields import EVERYWHERE, Messages, Variables, notes, read_messages, read_struct, refuse
from woolly.server.dialects.generation import Count, samplings, stops, usage, wants_usage
from woolly.server.dialects.sse import DONE, event
from woolly.server.door import Ask, Asked, Dialect, Head, Reply, Say, Whole
from woolly.server.errors import headers, row

COMPLETION = 16  # tokens of a completion when no number is given, as OpenAI documents it

AS_IT_IS = Sampling(temperature=1.0, top_k=0, top_p=1.0)  # OpenAI's defaults: the model's own probabilities


class Body(generation.Body, kw_only=True):
    """What both routes read."""

    stop: str | list[str] | None = None


class ChatBody(Body, kw_only=True):
    messages: Messages
    logprobs: bool | None = None
    top_logprobs: Annotated[int, Meta(ge=0, le=LIMITS.logprobs)] | None = None
    max_completion_tokens: Count | None = None
    chat_template_kwargs: Variables | None = None


class CompletionBody(Body, kw_only=True):
    prompt: str | list[str | int | list[int]]
    echo: bool | None = None
    logprobs: Annotated[int, Meta(ge=0, le=LIMITS.logprobs)] | None = None


CHAT_REFUSED: dict[str, Any] = {
    "tools": lambda v: v == [],
    "tool_choice": lambda v: v in ("none", "auto"),
    "functions": lambda v: v == [],
    "function_call": lambda v: v in ("none", "auto"),
    "response_format": lambda v: isinstance(v, dict) and v.get("type") == "text",
    "modalities": lambda v: v == ["text"],
    "audio": lambda v: False,
    "prediction": lambda v: False,
    "web_search_options": lambda v: False,
    "reasoning_effort": lambda v: v == "none",
}
COMPLETION_REFUSED: dict[str, Any] = {
    "suffix": lambda v: v == "",
    "best_of": lambda v: v == 1,
    "chat_template_kwargs": lambda v: v == {},
}
CHAT_KNOWN = frozenset((*ChatBody.__struct_fields__, *CHAT_REFUSED, *EVERYWHERE))
COMPLETION_KNOWN = frozenset((*CompletionBody.__struct_fields__, *COMPLETION_REFUSED, *EVERYWHERE))


class Place:
    """Where in a text the next token begins, though some tokens end in the middle of a character."""

    def __init__(self, at: int = 0) -> None:
        self.at = at
        self._decoder = codecs.getincrementaldecoder("utf-8")("replace")

    def take(self, spelling: bytes) -> int:
        """Where a token begins; the place moves behind it."""
        at = self.at
        self.at += len(self._decoder.decode(spelling))
        return at


class About(msgspec.Struct, frozen=True):
    """What writing an answer needs to know."""

    usage: bool = False  # a chunk with the counts at the end of a stream
    echo: tuple[str, ...] = ()  # the prompt of each choice, where it is known without the model
    choices: int = 1  # of each prompt
    likely: bool = False  # logprobs were asked for
    places: dict[int, Place] = msgspec.field(default_factory=dict)  # how far the text of each choice has come


def read_chat(body: Mapping[str, Any], _path: Mapping[str, str]) -> Asked:
    refuse(body, CHAT_REFUSED)
    fields = read_struct(ChatBody, body)
    messages = read_messages(fields.messages)
    most = fields.max_completion_tokens or fields.max_tokens
    if fields.top_logprobs and not fields.logprobs:
        raise RequestError("top_logprobs needs logprobs to be true", param="top_logprobs")
    likely = (fields.top_logprobs or 0) if fields.logprobs else None
    requests = tuple(
        Request(
            messages=messages,
            sampling=sampling,
            max_tokens=most,
            stop=stops(fields.stop),
            logprobs=likely,
            chat_template_kwargs=fields.chat_template_kwargs or {},
        )
        for sampling in samplings(fields, AS_IT_IS)
    )
    return _asked(fields, requests, notes(body, CHAT_KNOWN), (), likely is not None)


def read_completion(body: Mapping[str, Any], _path: Mapping[str, str]) -> Asked:
    refuse(body, COMPLETION_REFUSED)
    fields = read_struct(CompletionBody, body)
    requests, echo = [], []
    for prompt in _prompts(fields.prompt):
        what: dict[str, Any] = {"prompt": prompt} if isinstance(prompt, str) else {"tokens": tuple(prompt)}
        if fields.echo and (fields.logprobs is not None or not isinstance(prompt, str)):
            what |= {"logprobs": fields.logprobs or 0, "prompt_logprobs": True}  # the model tells how it reads as text
        else:
            what |= {"logprobs": fields.logprobs}
        for sampling in samplings(fields, AS_IT_IS):
            most = fields.max_tokens or COMPLETION
            requests.append(Request(**what, sampling=sampling, max_tokens=most, stop=stops(fields.stop)))
            if fields.echo and isinstance(prompt, str) and fields.logprobs is None:
                echo.append(prompt)
    return _asked(fields, tuple(requests), notes(body, COMPLETION_KNOWN), tuple(echo), fields.logprobs is not None)


def _asked(
    fields: Body, requests: tuple[Request, ...], said: tuple[str, ...], echo: tuple[str, ...], likely: bool
) -> Asked:
    about = About(wants_usage(fields), echo, fields.n or 1, likely)
    return Asked(requests, fields.model or "", bool(fields.stream), said, about)


def _prompts(prompt: str | list[Any]) -> list[str | list[int]]:
    """One prompt or several: a list of numbers is one prompt, a list of texts or of lists is several."""
    if isinstance(prompt, str):
        return [prompt]
    kinds = {type(part) for part in prompt}
    if len(kinds) != 1:
        raise RequestError("prompt is a text, token ids, or a list of either, all of one kind", param="prompt")
    if kinds == {int}:
        return [prompt]
    if len(prompt) > SERVING.prompts:
        raise RequestError(f"prompt has {len(prompt):,} entries; at most {SERVING.prompts} are read", param="prompt")
    return prompt


def _echo(asked: Asked, index: int, prompt: Prompt | None) -> str:
    if prompt is not None:
        return _spelled(prompt)
    about: About = asked.about
    return about.echo[index] if about.echo else ""


def _chat_logprobs(asked: Asked, pieces: Iterable[Text]) -> dict[str, Any] | None:
    if asked.requests[0].logprobs is None:
        return None
    rows = [row for piece in pieces for row in piece.logprobs]
    content = [
        _likely(row.spelling, row.value) | {"top_logprobs": [_likely(text, value) for _, text, value in row.top]}
        for row in rows
    ]
    return {"content": content, "refusal": None}


def _likely(spelling: bytes, value: float) -> dict[str, Any]:
    return {"token": spelling.decode("utf-8", "replace"), "logprob": value, "bytes": list(spelling)}


def _text_logprobs(
    asked: Asked, pieces: Iterable[Text], place: Place, prompt: Prompt | None = None
) -> dict[str, Any] | None:
    """The older form: columns, and where in the text each token begins. A prompt's first token has no likelihood."""
    if not asked.about.likely:
        return None
    first = [Logprob(*prompt.first, 0.0)] if prompt else []
    rows = [*first, *(prompt.logprobs if prompt else ()), *(row for piece in pieces for row in piece.logprobs)]
    values: list[Any] = [row.value for row in rows]
    tops: list[Any] = [{s.decode("utf-8", "replace"): value for _, s, value in row.top} for row in rows]
    if prompt:
        values[0] = tops[0] = None
    return {
        "tokens": [row.spelling.decode("utf-8", "replace") for row in rows],
        "token_logprobs": values,
        "top_logprobs": tops,
        "text_offset": [place.take(row.spelling) for row in rows],
    }


def _spelled(prompt: Prompt) -> str:
    """The text of a prompt's tokens; control tokens have none."""
    return b"".join((prompt.first[1], *(row.spelling for row in prompt.logprobs))).decode("utf-8", "replace")


def whole_chat(asked: Asked, head: Head, answers: list[Whole]) -> object:
    return {
        "id": head.id,
        "object": "chat.completion",
        "created": head.created,
        "model": head.model,
        "choices": [
            {
                "index": index,
                "message": {"role": "assistant", "content": answer.text, "refusal": None},
                "logprobs": _chat_logprobs(asked, answer.pieces),
                "finish_reason": answer.reason,
            }
            for index, answer in enumerate(answers)
        ],
        "usage": usage(answers, asked.about.choices),
    }


def whole_completion(asked: Asked, head: Head, answers: list[Whole]) -> object:
    return {
        "id": head.id,
        "object": "text_completion",
        "created": head.created,
        "model": head.model,
        "choices": [
            {
                "index": index,
                "text": _echo(asked, index, answer.prompt) + answer.text,
                "logprobs": _text_logprobs(asked, answer.pieces, Place(), answer.prompt),
                "finish_reason": answer.reason,
            }
            for index, answer in enumerate(answers)
        ],
        "usage": usage(answers, asked.about.choices),
    }


def _chunk(asked: Asked, head: Head, kind: str, choices: list[dict[str, Any]], usage: object = None) -> bytes:
    made: dict[str, Any] = {
        "id": head.id,
        "object": kind,
        "created": head.created,
        "model": head.model,
        "choices": choices,
    }
    if asked.about.usage:
        made["usage"] = usage
    return event(made)


def _chat_chunk(
    asked: Asked, head: Head, index: int, delta: dict[str, str], reason: str | None, text: Text | None = None
) -> bytes:
    likely = _chat_logprobs(asked, [text]) if text is not None else None
    choice = {"index": index, "delta": delta, "logprobs": likely, "finish_reason": reason}
    return _chunk(asked, head, "chat.completion.chunk", [choice])


def begin_chat(asked: Asked, head: Head) -> bytes:
    role = {"role": "assistant", "content": ""}
    return b"".join(_chat_chunk(asked, head, index, role, None) for index in range(len(asked.requests)))


def piece_chat(asked: Asked, head: Head, index: int, text: Text) -> bytes:
    return _chat_chunk(asked, head, index, {"content": text.text}, None, text) if text.text or text.logprobs else b""


def finish_chat(asked: Asked, head: Head, index: int, end: End) -> bytes:
    return _chat_chunk(asked, head, index, {}, end.reason)


def end_chat(asked: Asked, head: Head, ends: list[End]) -> bytes:
    last = b""
    if asked.about.usage:
        last = _chunk(asked, head, "chat.completion.chunk", [], usage(ends, asked.about.choices))
    return last + DONE


def _text_chunk(
    asked: Asked, head: Head, index: int, text: str, reason: str | None, piece: Text | None = None
) -> bytes:
    likely = _text_logprobs(asked, [piece], _place(asked, index)) if piece is not None else None
    choice = {"index": index, "text": text, "logprobs": likely, "finish_reason": reason}
    return _chunk(asked, head, "text_completion", [choice])


def _place(asked: Asked, index: int) -> Place:
    places: dict[int, Place] = asked.about.places
    return places.setdefault(index, Place())


def begin_completion(asked: Asked, head: Head) -> bytes:
    return b"".join(_text_chunk(asked, head, index, text, None) for index, text in enumerate(asked.about.echo))


def prompt_completion(asked: Asked, head: Head, index: int, prompt: Prompt) -> bytes:
    likely = _text_logprobs(asked, [], _place(asked, index), prompt)
    choice = {"index": index, "text": _spelled(prompt), "logprobs": likely, "finish_reason": None}
    return _chunk(asked, head, "text_completion", [choice])


def piece_completion(asked: Asked, head: Head, index: int, text: Text) -> bytes:
    told = text.text or (asked.about.likely and text.logprobs)
    return _text_chunk(asked, head, index, text.text, None, text) if told else b""


def finish_completion(asked: Asked, head: Head, index: int, end: End) -> bytes:
    return _text_chunk(asked, head, index, "", end.reason)


def end_completion(asked: Asked, head: Head, ends: list[End]) -> bytes:
    last = b""
    if asked.about.usage:
        last = _chunk(asked, head, "text_completion", [], usage(ends, asked.about.choices))
    return last + DONE


def error(problem: WoollyError, _id: str) -> Reply:
    """OpenAI's shape: a message, a type, the parameter and a code."""
    what = row(problem)
    body = {
        "message": str(problem),
        "type": what.openai,
        "param": problem.facts.get("param") or None,
        "code": "context_length_exceeded" if problem.code == "context_error" else problem.code,
    }
    return Reply({"error": body}, what.status, headers=headers(problem))


CHAT = Say(
    path="/v1/chat/completions",
    read=read_chat,
    whole=whole_chat,
    begin=begin_chat,
    piece=piece_chat,
    finish=finish_chat,
    end=end_chat,
    prefix="chatcmpl-",
)
COMPLETIONS = Say(
    path="/v1/completions",
    read=read_completion,
    whole=whole_completion,
    begin=begin_completion,
    piece=piece_completion,
    finish=finish_completion,
    end=end_completion,
    prefix="cmpl-",
    prompt=prompt_completion,
)
DIALECT = Dialect(
    name="openai",
    doors=(
        CHAT,
        COMPLETIONS,
        Ask("GET", "/v1/models", openai_models),
        Ask("POST", "/v1/models/load", load_model, access="key", failed=load_failed),
        Ask("GET", "/v1/models/{name:path}", openai_model),
    ),
    error=error,
    prefixes=("/v1/",),
)
