"""llama-server's own completions: a prompt goes on, or a gap is filled."""

from __future__ import annotations

from collections.abc import AsyncGenerator, Callable, Iterable, Mapping
from dataclasses import replace
from typing import Annotated, Any, Literal

import msgspec
from msgspec import UNSET, Meta, UnsetType

from woolly.config.serving import Serving
from woolly.errors import RequestError
from woolly.limits import LIMITS
from woolly.request import Completion, End, Logprob, Request, Text
from woolly.request.format import Format
from woolly.server.dialects.base.bodies import GenerationBody, samplings, schema_format, stops
from woolly.server.dialects.base.fields import (
    REFUSED_EVERYWHERE,
    notes,
    read_struct,
    refuse,
)
from woolly.server.dialects.base.shapes import Count, Number, Shape
from woolly.server.dialects.openai.chat import TokenLogprob, token_logprobs
from woolly.server.http.framing import EVENTS
from woolly.server.routes import Body, Events, Generation, Head, Job, aliases

TAG = "llama-server"
NO_LIMIT = 2**31 - 1  # tokens: an answer ends where the context does
REFUSED: dict[str, Callable[[Any], bool]] = {
    "ignore_eos": lambda v: v is False,
    "n_cmpl": lambda v: v == 1,
    "post_sampling_probs": lambda v: v is False,
    "t_max_predict_ms": lambda v: v == 0,
    "image_data": lambda v: v == [],
    "response_fields": lambda v: v == [],
    "n": lambda v: v == 1,
}


class LlamaBody(GenerationBody, kw_only=True):
    """temperature below 0 is greedy. n_predict: -1 is no limit, 0 only fills the cache. seed: -1 draws one."""

    temperature: Annotated[float, Meta(ge=-1, le=100)] | None = None
    repeat_penalty: Annotated[float, Meta(ge=0.01, le=100)] | None = None
    n_predict: Annotated[int, Meta(ge=-2, le=2**31 - 1)] | None = None
    seed: Annotated[int, Meta(ge=-1)] | None = None
    stop: str | list[str] | None = None
    n_probs: Annotated[int, Meta(ge=0, le=LIMITS.logprobs)] | None = None
    grammar: str | None = None
    json_schema: dict[str, Any] | None = None
    return_tokens: bool | None = None


class LlamaCompletionBody(LlamaBody, kw_only=True):
    prompt: str | list[Annotated[int, Meta(ge=0, le=2**31 - 1)]]


class Snippet(msgspec.Struct):
    text: str
    filename: str = ""


class InfillBody(LlamaBody, kw_only=True):
    input_prefix: str = ""
    input_suffix: str = ""
    input_extra: list[Snippet] | None = None
    prompt: str | None = None


KNOWN = frozenset(
    (
        *LlamaCompletionBody.__struct_fields__,
        *InfillBody.__struct_fields__,
        *REFUSED,
        *REFUSED_EVERYWHERE,
        "cache_prompt",
    )
)


class LlamaTimings(Shape):
    cache_n: Count
    prompt_n: Count
    prompt_ms: Number
    prompt_per_token_ms: Number
    prompt_per_second: Number
    predicted_n: Count
    predicted_ms: Number
    predicted_per_token_ms: Number
    predicted_per_second: Number


class LlamaProbability(TokenLogprob, kw_only=True):
    id: Count


class LlamaPiece(Shape, kw_only=True):
    index: Count = 0
    content: str
    tokens: list[Count]
    stop: Literal[False] = False
    id_slot: int = -1
    completion_probabilities: list[LlamaProbability] | UnsetType = UNSET


class LlamaCompletion(Shape, kw_only=True):
    index: Count = 0
    content: str
    tokens: list[Count]
    id_slot: int = -1
    stop: Literal[True] = True
    model: str
    tokens_predicted: Count
    tokens_evaluated: Count
    generation_settings: dict[str, Any]
    prompt: str
    has_new_line: bool
    truncated: Literal[False] = False
    stop_type: Literal["eos", "limit", "word"]
    stopping_word: str
    tokens_cached: Count
    timings: LlamaTimings
    completion_probabilities: list[LlamaProbability] | UnsetType = UNSET


def read_completion(body: Body, _path: Mapping[str, str], limits: Serving) -> Job:
    """Continue a prompt, as llama-server does."""
    refuse(body, REFUSED)
    fields = read_struct(LlamaCompletionBody, body)
    prompt = fields.prompt
    what: dict[str, Any] = {"prompt": prompt} if isinstance(prompt, str) else {"tokens": tuple(prompt)}
    return _job(fields, body, limits, what)


def read_infill(body: Body, _path: Mapping[str, str], limits: Serving) -> Job:
    """Fill a gap in a text, as llama-server does."""
    refuse(body, REFUSED)
    fields = read_struct(InfillBody, body)
    before = "".join(f"{snippet.text}\n" for snippet in fields.input_extra or ()) + fields.input_prefix
    return _job(fields, body, limits, {"prompt": before, "suffix": fields.input_suffix, "begun": fields.prompt or ""})


def _job(fields: LlamaBody, body: Body, limits: Serving, what: dict[str, Any]) -> Job:
    sent = fields.n_predict if fields.n_predict is not None else fields.max_tokens
    limit = sent if sent is not None and sent >= 0 else None
    plain = msgspec.structs.replace(
        fields,
        temperature=None if fields.temperature is None else max(fields.temperature, 0.0),
        seed=None if fields.seed == -1 else fields.seed,
        repetition_penalty=fields.repetition_penalty if fields.repeat_penalty is None else fields.repeat_penalty,  # type: ignore[attr-defined]
    )
    request = Request(
        **what,
        sampling=samplings(plain, limits)[0],
        max_tokens=limits.answer_tokens or NO_LIMIT if limit is None else max(limit, 1),
        shorten=limit is None,
        stop=stops(fields.stop),
        format=_format(fields),
        logprobs=fields.n_probs or None,
    )
    return Job((request,), plain, fields.model or "", bool(fields.stream), notes(body, KNOWN))


def _format(fields: LlamaBody) -> Format | None:
    if fields.grammar and fields.json_schema is not None:
        raise RequestError("an answer follows a grammar or a json_schema, not both", param="grammar")
    if fields.grammar:
        return Format("gbnf", fields.grammar)
    return schema_format(fields.json_schema) if fields.json_schema is not None else None


def _timings(end: Completion | End) -> LlamaTimings:
    usage, timings = end.usage, end.timings
    prompt = usage.prompt_tokens - usage.cached_tokens
    prompt_ms, answer_ms = timings.prompt_s * 1e3, timings.answer_s * 1e3
    return LlamaTimings(
        cache_n=usage.cached_tokens,
        prompt_n=prompt,
        prompt_ms=prompt_ms,
        prompt_per_token_ms=prompt_ms / prompt if prompt else 0.0,
        prompt_per_second=timings.prompt_rate,
        predicted_n=usage.completion_tokens,
        predicted_ms=answer_ms,
        predicted_per_token_ms=answer_ms / usage.completion_tokens if usage.completion_tokens else 0.0,
        predicted_per_second=timings.answer_rate,
    )


def _ended(job: Job, head: Head, end: Completion | End, reason: str, text: str) -> dict[str, Any]:
    """The fields of the end of an answer."""
    (request,) = job.requests
    sampling = {name: getattr(request.sampling, name) for name in ("temperature", "top_k", "top_p", "min_p")}
    return {
        "model": head["model"],
        "tokens_predicted": end.usage.completion_tokens,
        "tokens_evaluated": end.usage.prompt_tokens,
        "generation_settings": {**sampling, "seed": end.seed, "n_predict": request.max_tokens},
        "prompt": request.prompt or "",
        "has_new_line": "\n" in text,
        "stop_type": "limit" if reason == "length" else "word" if end.stopped_by else "eos",
        "stopping_word": end.stopped_by,
        "tokens_cached": end.usage.total_tokens,
        "timings": _timings(end),
    }


def _probabilities(job: Job, rows: Iterable[Logprob]) -> list[LlamaProbability] | UnsetType:
    if not job.fields.n_probs:
        return UNSET
    rows = list(rows)
    pairs = zip(rows, token_logprobs(rows), strict=True)
    return [LlamaProbability(id=row.token, **msgspec.structs.asdict(one)) for row, one in pairs]


def render(job: Job, head: Head, answers: list[Completion]) -> LlamaCompletion:
    (answer,) = answers
    nothing = job.fields.n_predict == 0
    return LlamaCompletion(
        content="" if nothing else answer.text,
        tokens=answer.tokens if job.fields.return_tokens and not nothing else [],
        completion_probabilities=_probabilities(job, answer.logprobs),
        **_ended(job, head, answer, answer.finish_reason, answer.text),
    )


async def frames(job: Job, head: Head, events: Events) -> AsyncGenerator[LlamaPiece | LlamaCompletion, None]:
    text = ""
    async for _, event in events:
        if isinstance(event, Text) and (event.text or event.logprobs):
            text = event.text if "\n" in event.text else text  # the end tells whether there was a line break
            likely = _probabilities(job, event.logprobs)
            yield LlamaPiece(content=event.text, tokens=list(event.tokens), completion_probabilities=likely)
        elif isinstance(event, End):
            yield LlamaCompletion(content="", tokens=[], **_ended(job, head, event, event.reason, text))


COMPLETION = Generation(
    "/completion",
    read_completion,
    render,
    frames,
    LlamaCompletionBody,
    TAG,
    prefix="cmpl-",
    framing=replace(EVENTS, last=b""),
    without=frozenset(("n", "stream_options")),
)
ROUTES = (
    *aliases(COMPLETION, "/completion", "/completions"),
    replace(COMPLETION, path="/infill", read=read_infill, body=InfillBody),
)
