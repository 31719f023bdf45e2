"""Ollama's two routes of generation: a chat, and a prompt that becomes a chat unless it is raw.

A request without a prompt or messages loads the model and answers at once; with `keep_alive: 0` it unloads it. Else
`keep_alive` is how long the model stays loaded after the answer.
"""

from __future__ import annotations

from collections.abc import AsyncGenerator, Callable, Mapping
from typing import Any, TypeVar

from msgspec import UNSET

from woolly.config.rows import duration
from woolly.config.serving import Serving
from woolly.errors import RequestError, UnsupportedError, printable
from woolly.request import Arguments, Call, CallStart, Completion, End, Logprob, Request, Text, Thought
from woolly.request.format import Format
from woolly.server.dialects.base.bodies import call_arguments, sampling_of, schema_format, stops, thinking
from woolly.server.dialects.base.fields import REFUSED_EVERYWHERE, check_count, notes, read_struct, refuse
from woolly.server.dialects.base.shapes import time_text
from woolly.server.dialects.ollama.shapes import (
    OllamaBody,
    OllamaCall,
    OllamaChat,
    OllamaChatBody,
    OllamaFunction,
    OllamaGenerateBody,
    OllamaGenerated,
    OllamaLogprob,
    OllamaMessage,
    OllamaOptions,
    OllamaToken,
)
from woolly.server.http.framing import LINES
from woolly.server.routes import Body, Events, Generation, Head, Job

B = TypeVar("B", bound="OllamaBody")
TAG = "Ollama"
NO_LIMIT = 2**31 - 1  # tokens: an answer ends where the context does
REFUSED: dict[str, Callable[[Any], bool]] = {
    "images": lambda v: v == [],
    "template": lambda v: v == "",
    "context": lambda v: v == [],
}
# Options that would change an answer, each with a test for the values that do not.
OPTIONS_REFUSED: dict[str, Callable[[Any], bool]] = {
    "tfs_z": lambda v: v == 1,
    "penalize_newline": lambda v: v is True,
}
KNOWN = frozenset(
    (*OllamaGenerateBody.__struct_fields__, *OllamaChatBody.__struct_fields__, *REFUSED, *REFUSED_EVERYWHERE)
)


def read_generate(body: Body, _path: Mapping[str, str], limits: Serving) -> Job:
    """Answer a prompt, as Ollama does."""
    fields = _read(OllamaGenerateBody, body)
    if not fields.prompt and not fields.suffix:
        return _loading(fields, body)
    prompt = fields.prompt or ""
    if fields.raw or fields.suffix:
        if fields.system:
            raise RequestError("raw mode does not support template, system, or context", param="system")
        what: dict[str, Any] = {"prompt": prompt, "suffix": fields.suffix or None}
        return _job(fields, body, what, NO_LIMIT)
    system = [{"role": "system", "content": fields.system}] if fields.system else []
    return _job(fields, body, {"messages": [*system, {"role": "user", "content": prompt}]})


def read_chat(body: Body, _path: Mapping[str, str], limits: Serving) -> Job:
    """Answer a conversation, as Ollama does."""
    fields = _read(OllamaChatBody, body)
    if not fields.messages:
        return _loading(fields, body)
    check_count(fields.messages, limits)
    messages = [_message(message, f"messages[{index}]") for index, message in enumerate(fields.messages)]
    return _job(fields, body, {"messages": messages, "tools": fields.tools or ()})


def _read(kind: type[B], body: Body) -> B:
    """The body as a Struct. Whole numbers among its options may come as floats."""
    refuse(body, REFUSED)
    if isinstance(options := body.get("options"), dict):
        refuse(options, OPTIONS_REFUSED)
        integers = {
            name: int(value) for name, value in options.items() if isinstance(value, float) and value.is_integer()
        }
        body = {**body, "options": options | integers}
    return read_struct(kind, body)


def _message(message: object, place: str) -> dict[str, Any]:
    if not isinstance(message, Mapping):
        raise RequestError(f"{place} must be an object with a role and a content", param=place)
    if message.get("images"):
        raise UnsupportedError(f"{place}.images: this model takes text", param=f"{place}.images")
    role = message.get("role")
    converted = {"role": role.lower() if isinstance(role, str) else role, "content": message.get("content") or ""}
    names = {"thinking": "reasoning_content", "tool_name": "name", "tool_call_id": "tool_call_id"}
    converted |= {ours: message[name] for name, ours in names.items() if message.get(name)}
    return converted | ({"tool_calls": message["tool_calls"]} if message.get("tool_calls") else {})


def _loading(fields: OllamaBody, body: Body) -> Job:
    """A job without an answer: the model is loaded, or unloaded."""
    keep_s = keep_alive_s(fields.keep_alive)
    return Job((), fields, _name(fields), False, notes(body, KNOWN), keep_s=keep_s, unload=keep_s == 0)


def keep_alive_s(keep_alive: float | str | None) -> float | None:
    """How long a model is to stay loaded; None where the request does not say."""
    try:
        return None if keep_alive in (None, "") else duration(keep_alive)
    except ValueError:
        raise RequestError(
            f"keep_alive is '{printable(keep_alive)}'; expected seconds, or a time as 5m or 1h30m", param="keep_alive"
        ) from None


def _name(fields: OllamaBody) -> str:
    return fields.model.removesuffix(":latest")


def _job(fields: OllamaBody, body: Body, what: dict[str, Any], most: int | None = None) -> Job:
    options = fields.options or OllamaOptions()
    think = fields.think if isinstance(fields.think, bool) else None
    if "messages" in what:
        switch = None if think else think  # true goes to Request.think, which a model that cannot think refuses
        effort = fields.think if isinstance(fields.think, str) else None
        what |= {"think": True if think else None, "chat_template_kwargs": thinking(switch, effort)}
    limit = options.num_predict if options.num_predict is not None and options.num_predict >= 0 else None
    penalty = {} if options.repeat_penalty is None else {"repetition_penalty": options.repeat_penalty}
    seed = options.seed if options.seed is not None and options.seed >= 0 else None
    request = Request(
        **what,
        sampling=sampling_of(options, seed=seed, **penalty),
        max_tokens=limit or most,
        shorten=limit is None,
        stop=stops(options.stop),
        format=_format(fields.format),
        logprobs=(fields.top_logprobs or 0) if fields.logprobs else None,
    )
    known = frozenset((*OllamaOptions.__struct_fields__, *OPTIONS_REFUSED))
    ignored = (f"options.{name}" for name in notes(body.get("options") or {}, known))
    return Job(
        (request,),
        fields,
        _name(fields),
        fields.stream is not False,
        (*notes(body, KNOWN), *ignored),
        context=options.num_ctx or 0,
        keep_s=keep_alive_s(fields.keep_alive),
    )


def _format(format: str | dict[str, Any] | None) -> Format | None:
    if isinstance(format, dict):
        return schema_format(format)
    return Format("json") if format else None


def _end(job: Job, head: Head, end: Completion | End, reason: str) -> dict[str, Any]:
    """The fields of the last message of an answer."""
    timings, load_ns = end.timings, round(job.load_s * 1e9)
    return {
        "model": head["model"],
        "created_at": time_text(head["created"]),
        "done": True,
        "done_reason": "length" if reason == "length" else "stop",
        "total_duration": load_ns + round(timings.total_s * 1e9),
        "load_duration": load_ns,
        "prompt_eval_count": end.usage.prompt_tokens,
        "prompt_eval_duration": round(timings.prompt_s * 1e9),
        "eval_count": end.usage.completion_tokens,
        "eval_duration": round(timings.answer_s * 1e9),
    }


def _loaded(job: Job, head: Head) -> dict[str, Any]:
    reason = "unload" if job.unload else "load"
    return {"model": head["model"], "created_at": time_text(head["created"]), "done": True, "done_reason": reason}


def _logprobs(job: Job, *rows: Logprob | None) -> dict[str, Any]:
    """One for each token; the end token has one, too."""
    if not job.fields.logprobs:
        return {}
    return {
        "logprobs": [
            OllamaLogprob(
                **_token(row.spelling, row.value),
                top_logprobs=[OllamaToken(**_token(spelling, value)) for _, spelling, value in row.top],
            )
            for row in rows
            if row is not None
        ]
    }


def _token(spelling: bytes, value: float) -> dict[str, Any]:
    return {"token": spelling.decode("utf-8", "replace"), "logprob": value, "bytes": list(spelling)}


def _call(call: Call, index: int) -> OllamaCall:
    function = OllamaFunction(index=index, name=call.name, arguments=call_arguments(call))
    return OllamaCall(id=call.id, function=function)


def render_generate(job: Job, head: Head, answers: list[Completion]) -> OllamaGenerated:
    if not answers:
        return OllamaGenerated(response="", **_loaded(job, head))
    (answer,) = answers
    return OllamaGenerated(
        response=answer.text,
        thinking=answer.thought or UNSET,
        **_logprobs(job, *answer.logprobs, answer.end_logprob),
        **_end(job, head, answer, answer.finish_reason),
    )


def render_chat(job: Job, head: Head, answers: list[Completion]) -> OllamaChat:
    if not answers:
        return OllamaChat(message=OllamaMessage(content=""), **_loaded(job, head))
    (answer,) = answers
    calls = [_call(call, index) for index, call in enumerate(answer.calls)]
    message = OllamaMessage(content=answer.text, thinking=answer.thought or UNSET, tool_calls=calls or UNSET)
    return OllamaChat(
        message=message,
        **_logprobs(job, *answer.logprobs, answer.end_logprob),
        **_end(job, head, answer, answer.finish_reason),
    )


async def frames_generate(job: Job, head: Head, events: Events) -> AsyncGenerator[OllamaGenerated, None]:
    model, created = head["model"], time_text(head["created"])
    async for _, event in events:
        if isinstance(event, Text | Thought) and (event.text or event.logprobs):
            text_fields: dict[str, Any] = (
                {"response": event.text} if isinstance(event, Text) else {"response": "", "thinking": event.text}
            )
            yield OllamaGenerated(
                model=model, created_at=created, done=False, **text_fields, **_logprobs(job, *event.logprobs)
            )
        elif isinstance(event, End):
            last = _end(job, head, event, event.reason) | _logprobs(job, event.logprob)
            yield OllamaGenerated(response="", **last)


async def frames_chat(job: Job, head: Head, events: Events) -> AsyncGenerator[OllamaChat, None]:
    """A call is sent whole, when its last piece has come."""
    model, created = head["model"], time_text(head["created"])
    calls = 0
    call: CallStart | None = None
    pieces: list[str] = []

    def line(message: OllamaMessage, **more: Any) -> OllamaChat:
        return OllamaChat(model=model, created_at=created, done=False, message=message, **more)

    async for _, event in events:
        if call is not None and not isinstance(event, Arguments):
            tool_call = _call(Call(call.id, call.name, "".join(pieces)), calls)
            calls, call = calls + 1, None
            pieces.clear()
            yield line(OllamaMessage(content="", tool_calls=[tool_call]))
        match event:
            case Text() if event.text or event.logprobs:
                yield line(OllamaMessage(content=event.text), **_logprobs(job, *event.logprobs))
            case Thought() if event.text or event.logprobs:
                yield line(OllamaMessage(content="", thinking=event.text), **_logprobs(job, *event.logprobs))
            case CallStart():
                call = event
            case Arguments():
                pieces.append(event.text)
            case End():
                last = _end(job, head, event, event.reason) | _logprobs(job, event.logprob)
                yield OllamaChat(message=OllamaMessage(content=""), **last)


def names_a_model(body: Body) -> bool:
    """Ollama's clients always name one; those of the older documents, which have the same paths, never do."""
    return "model" in body


GENERATE = Generation(
    "/api/generate",
    read_generate,
    render_generate,
    frames_generate,
    OllamaGenerateBody,
    TAG,
    prefix="gen-",
    framing=LINES,
    accepts=names_a_model,
)
CHAT = Generation(
    "/api/chat",
    read_chat,
    render_chat,
    frames_chat,
    OllamaChatBody,
    TAG,
    prefix="chat-",
    framing=LINES,
    accepts=names_a_model,
)
