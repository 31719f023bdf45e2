"""llama-server's own completions: prompts go on, or a gap is filled."""

from __future__ import annotations

import math
from collections import defaultdict
from collections.abc import AsyncGenerator, Iterable, Mapping
from dataclasses import replace
from typing import Annotated, Any, Literal, TypeAlias

import msgspec
from msgspec import UNSET, Meta, UnsetType

from woolly.config.serving import Serving
from woolly.errors import RequestError
from woolly.request import Completion, End, Logprob, Request, Text
from woolly.server.dialects.base.bodies import length, samplings, scales_of, stops
from woolly.server.dialects.base.fields import REFUSED_EVERYWHERE, notes, read_struct, refuse
from woolly.server.dialects.base.llama_fields import REFUSED, LlamaFields, chosen, course, form
from woolly.server.dialects.base.shapes import Count, Shape
from woolly.server.dialects.base.timings import LlamaTimings, Measured, timings_of
from woolly.server.dialects.llama_cpp.settings import settings_of
from woolly.server.http.framing import EVENTS
from woolly.server.routes import Body, Events, Generation, Head, Job, aliases

TAG = "llama-server"
Token = Annotated[int, Meta(ge=0, le=2**31 - 1)]


class LlamaBody(LlamaFields, kw_only=True):
    """temperature below 0 is greedy. response_fields: only these parts of the answer, as `timings/prompt_n`, by those
    names. post_sampling_probs: n_probs tells how likely tokens were among those that the sampling left."""

    temperature: Annotated[float, Meta(ge=-1, le=100)] | None = None
    stop: str | list[str] | None = None
    return_tokens: bool | None = None
    post_sampling_probs: bool | None = None
    response_fields: list[str] | None = None

    def __post_init__(self) -> None:
        super().__post_init__()
        if self.temperature is not None:
            self.temperature = max(self.temperature, 0.0)


class PromptText(msgspec.Struct):
    prompt_string: str


class LlamaCompletionBody(LlamaBody, kw_only=True):
    """A prompt is a text, or token ids with or without texts among them; a list of these is several."""

    prompt: str | PromptText | list[str | Token | list[Token | str] | PromptText]


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


class LlamaToken(Shape, kw_only=True):
    """How likely a token was: its logprob, or its prob among those that the sampling left."""

    id: Count
    token: str
    bytes: list[Count]
    logprob: float | UnsetType = UNSET
    prob: float | UnsetType = UNSET


class LlamaProbability(LlamaToken, kw_only=True):
    top_logprobs: list[LlamaToken] | UnsetType = UNSET
    top_probs: list[LlamaToken] | UnsetType = UNSET


class LlamaPiece(Shape, kw_only=True):
    index: Count = 0
    content: str
    tokens: list[Count]
    stop: Literal[False] = False
    id_slot: int = -1
    completion_probabilities: list[LlamaProbability] | UnsetType = UNSET
    timings: LlamaTimings | UnsetType = UNSET


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
    truncated: bool
    stop_type: Literal["eos", "limit", "word"]
    stopping_word: str
    tokens_cached: Count
    timings: LlamaTimings
    completion_probabilities: list[LlamaProbability] | UnsetType = UNSET


Parts: TypeAlias = dict[str, Any]  # of an answer, by their paths


def read_completion(body: Body, _path: Mapping[str, str], limits: Serving) -> Job:
    """Continue prompts, as llama-server does."""
    refuse(body, REFUSED)
    fields = read_struct(LlamaCompletionBody, body)
    return _job(fields, body, limits, _prompts(fields.prompt, limits.prompts))


def _prompts(prompt: Any, most: int) -> list[dict[str, Any]]:
    """Fields of a Request for each prompt: a list with numbers in it is one, any other list is several."""
    is_one = not isinstance(prompt, list) or any(isinstance(part, int) for part in prompt)
    prompts: list[Any] = [prompt] if is_one else prompt
    if not prompts or (isinstance(prompt, list) and is_one and any(isinstance(part, list) for part in prompt)):
        raise RequestError(
            "prompt is a text, token ids with or without texts among them, or a list of these", param="prompt"
        )
    if len(prompts) > most:
        raise RequestError(f"prompt has {len(prompts):,} entries; at most {most} are read", param="prompt")
    return [_prompt(part) for part in prompts]


def _prompt(part: Any) -> dict[str, Any]:
    if isinstance(part, list):
        return {"mixed" if any(isinstance(one, str | PromptText) for one in part) else "tokens": tuple(part)}
    return {"prompt": part.prompt_string if isinstance(part, PromptText) else part}


def read_infill(body: Body, _path: Mapping[str, str], limits: Serving) -> Job:
    """Fill a gap in a text, as llama-server does."""
    refuse(body, REFUSED)
    fields = read_struct(InfillBody, body)
    files = tuple((snippet.filename, snippet.text) for snippet in fields.input_extra or ())
    what = {"prompt": fields.input_prefix, "suffix": fields.input_suffix, "begun": fields.prompt or "", "files": files}
    return _job(fields, body, limits, [what])


def _job(fields: LlamaBody, body: Body, limits: Serving, prompts: list[dict[str, Any]]) -> Job:
    sent = fields.n_predict if fields.n_predict is not None else fields.max_tokens
    wishes: dict[str, Any] = {
        **length(1 if fields.n_predict == 0 else sent if sent is not None else -1, limits),
        "stop": stops(fields.stop),
        "indent": fields.n_indent or 0,
        "format": form(fields),
        "lora": scales_of(fields.lora),
        "logprobs": fields.n_probs or None,
        "post_sampling": bool(fields.n_probs and fields.post_sampling_probs),
    }
    first, *others = samplings(fields, limits, **chosen(fields))
    requests: list[Request] = []
    for what in prompts:
        request = Request(**what, **wishes, sampling=first)
        requests += [request, *(request.with_values(sampling=sampling) for sampling in others)]
    noted = notes(body, KNOWN)
    return Job(tuple(requests), fields, fields.model or "", bool(fields.stream), noted, **course(fields))


def _ended(job: Job, head: Head, index: int, end: Completion | End, reason: str, text: str) -> dict[str, Any]:
    """The fields of the end of an answer."""
    request = job.requests[index]
    return {
        "index": index,
        "model": head["model"],
        "tokens_predicted": end.usage.completion_tokens,
        "tokens_evaluated": end.usage.prompt_tokens,
        "generation_settings": settings_of(job, request, end.seed),
        "prompt": request.prompt or "",
        "has_new_line": "\n" in text,
        "truncated": reason == "length" and end.usage.total_tokens >= job.window > 0,
        "stop_type": "limit" if reason == "length" else "word" if end.stopped_by else "eos",
        "stopping_word": end.stopped_by,
        "tokens_cached": end.usage.total_tokens,
        "timings": timings_of(end),
    }


def _probabilities(job: Job, rows: Iterable[Logprob]) -> list[LlamaProbability] | UnsetType:
    if not job.fields.n_probs:
        return UNSET
    shares = job.requests[0].post_sampling

    def likelihood(token: int, spelling: bytes, value: float) -> dict[str, Any]:
        how = {"prob": math.exp(value)} if shares else {"logprob": value}
        return {"id": token, "token": spelling.decode("utf-8", "replace"), "bytes": list(spelling), **how}

    likely = []
    for row in rows:
        top = [LlamaToken(**likelihood(*one)) for one in row.top]
        tops: dict[str, Any] = {"top_probs" if shares else "top_logprobs": top}
        likely.append(LlamaProbability(**likelihood(row.token, row.spelling, row.value), **tops))
    return likely


def render(
    job: Job, head: Head, answers: list[Completion]
) -> LlamaCompletion | Parts | list[LlamaCompletion] | list[Parts]:
    completions = [
        _parts(
            job,
            LlamaCompletion(
                content=answer.text,
                tokens=answer.tokens if job.fields.return_tokens else [],
                completion_probabilities=_probabilities(job, answer.logprobs),
                **_ended(job, head, index, answer, answer.finish_reason, answer.text),
            ),
        )
        for index, answer in enumerate(answers)
    ]
    return completions[0] if len(completions) == 1 else completions


def _parts(job: Job, answer: LlamaCompletion) -> Any:
    """The answer, or the parts of it that are wanted; one that it has not is left out."""
    if not job.fields.response_fields:
        return answer
    fields, parts = msgspec.to_builtins(answer), dict[str, Any]()
    for path in job.fields.response_fields:
        part: Any = fields
        for name in path.split("/"):
            part = part[name] if isinstance(part, dict) and name in part else UNSET
        if part is not UNSET:
            parts[path] = part
    return parts


async def frames(job: Job, head: Head, events: Events) -> AsyncGenerator[LlamaPiece | LlamaCompletion, None]:
    texts: dict[int, str] = defaultdict(str)
    so_far: Measured | None = None
    async for index, event in events:
        if isinstance(event, Measured):
            so_far = event
        elif isinstance(event, Text) and (event.text or event.logprobs):
            if "\n" in event.text:
                texts[index] = event.text  # the end tells whether there was a line break
            yield LlamaPiece(
                index=index,
                content=event.text,
                tokens=list(event.tokens),
                completion_probabilities=_probabilities(job, event.logprobs),
                timings=UNSET if so_far is None else timings_of(so_far),
            )
        elif isinstance(event, End):
            last = _ended(job, head, index, event, event.reason, texts[index])
            yield _parts(job, LlamaCompletion(content="", tokens=[], **last))


COMPLETION = Generation(
    "/completion",
    read_completion,
    render,
    frames,
    LlamaCompletionBody,
    TAG,
    prefix="cmpl-",
    framing=replace(EVENTS, last=b""),
    without=frozenset(("stream_options",)),
)
ROUTES = (
    *aliases(COMPLETION, "/completion", "/completions"),
    replace(COMPLETION, path="/infill", read=read_infill, body=InfillBody),
)
