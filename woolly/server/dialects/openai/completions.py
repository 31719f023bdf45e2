"""OpenAI's completions: one prompt or several, as text or token ids, whole or streamed."""

from __future__ import annotations

import codecs
from collections import defaultdict
from collections.abc import AsyncGenerator, Iterable, Mapping
from typing import Annotated, Any, Literal

from msgspec import UNSET, Meta, UnsetType

from woolly.config.serving import Serving
from woolly.errors import RequestError
from woolly.limits import LIMITS
from woolly.request import Completion, End, Logprob, Prompt, Request, Text
from woolly.server.dialects.base.bodies import length, samplings, scales_of, stops, wants_usage
from woolly.server.dialects.base.fields import REFUSED_EVERYWHERE, notes, read_struct, refuse
from woolly.server.dialects.base.llama_fields import REFUSED as LLAMA_REFUSED
from woolly.server.dialects.base.llama_fields import chosen, course, form
from woolly.server.dialects.base.shapes import Count, Headed, Reason, Shape, Usage, usage
from woolly.server.dialects.base.timings import LlamaTimings, Measured, timings_of
from woolly.server.dialects.openai.chat_shapes import FINGERPRINT, OpenAIBody
from woolly.server.routes import Body, Events, Generation, Head, Job

MAX_TOKENS = 16  # when no number is given, as OpenAI documents it
REFUSED: dict[str, Any] = {
    "best_of": lambda v: v == 1,
    "chat_template_kwargs": lambda v: v == {},
    **LLAMA_REFUSED,
    "post_sampling_probs": lambda v: v is False,
}


class OpenAICompletionBody(OpenAIBody, kw_only=True):
    prompt: str | list[str | int | list[int]]
    suffix: str | None = None
    echo: bool | None = None
    logprobs: Annotated[int, Meta(ge=0, le=LIMITS.logprobs)] | None = None

    def __post_init__(self) -> None:
        super().__post_init__()
        if self.logprobs is None:
            self.logprobs = self.n_probs or None


KNOWN = frozenset((*OpenAICompletionBody.__struct_fields__, *REFUSED, *REFUSED_EVERYWHERE))


class TextLogprobs(Shape):
    """Columns, a row for each token; a prompt's first token has no likelihood."""

    tokens: list[str]
    token_logprobs: list[float | None]
    top_logprobs: list[dict[str, float] | None]
    text_offset: list[Count]


class OpenAITextChoice(Shape):
    index: Count
    text: str
    logprobs: TextLogprobs | None
    finish_reason: Reason


class OpenAICompletion(Headed, kw_only=True):
    object: Literal["text_completion"] = "text_completion"
    choices: list[OpenAITextChoice]
    usage: Usage
    system_fingerprint: str = FINGERPRINT
    timings: LlamaTimings


class OpenAITextPiece(Shape):
    index: Count
    text: str
    logprobs: TextLogprobs | None = None
    finish_reason: Reason | None = None


class OpenAITextChunk(Headed, kw_only=True):
    object: Literal["text_completion"] = "text_completion"
    choices: list[OpenAITextPiece]
    usage: Usage | UnsetType | None = UNSET
    system_fingerprint: str = FINGERPRINT
    timings: LlamaTimings | UnsetType = UNSET


class Offset:
    """Where in a text the next token begins, though some tokens end in the middle of a character."""

    def __init__(self) -> None:
        self._at = 0
        self._decoder = codecs.getincrementaldecoder("utf-8")("replace")

    def take(self, spelling: bytes) -> int:
        """Where a token begins; the offset moves behind it."""
        at = self._at
        self._at += len(self._decoder.decode(spelling))
        return at


def read(body: Body, _path: Mapping[str, str], limits: Serving) -> Job:
    """Continue prompts, as OpenAI does."""
    refuse(body, REFUSED)
    fields = read_struct(OpenAICompletionBody, body)
    requests: list[Request] = []
    for prompt in _prompts(fields.prompt, limits.prompts):
        what: dict[str, Any] = {"prompt": prompt} if isinstance(prompt, str) else {"tokens": tuple(prompt)}
        what |= {"suffix": fields.suffix} if fields.suffix else {}
        if fields.echo and (fields.logprobs is not None or not isinstance(prompt, str)):
            what |= {"logprobs": fields.logprobs or 0, "prompt_logprobs": True}  # the model spells the prompt's tokens
        else:
            what |= {"logprobs": fields.logprobs}
        wishes: dict[str, Any] = {"stop": stops(fields.stop), "format": form(fields, fields.response_format)}
        wishes |= {"lora": scales_of(fields.lora), "indent": fields.n_indent or 0}
        wishes |= length(_most(fields), limits, MAX_TOKENS)
        first, *others = samplings(fields, limits, **chosen(fields))
        request = Request(**what, **wishes, sampling=first)
        requests += [request, *(request.with_values(sampling=sampling) for sampling in others)]
    noted = notes(body, KNOWN)
    return Job(tuple(requests), fields, fields.model or "", bool(fields.stream), noted, **course(fields))


def _most(fields: OpenAICompletionBody) -> int | None:
    """The tokens of the answer; of llama-server's name, 0 is none that anybody sees."""
    return fields.max_tokens if fields.max_tokens is not None or fields.n_predict is None else fields.n_predict or 1


def _prompts(prompt: str | list[Any], most: int) -> list[str | list[int]]:
    """One prompt or several: a list of numbers is one prompt, a list of texts or of lists is several."""
    if isinstance(prompt, str):
        return [prompt]
    kinds = {type(part) for part in prompt}
    if len(kinds) != 1:
        raise RequestError("prompt is a text, token ids, or a list of either, all of one kind", param="prompt")
    if kinds == {int}:
        return [prompt]
    if len(prompt) > most:
        raise RequestError(f"prompt has {len(prompt):,} entries; at most {most} are read", param="prompt")
    return prompt


def render(job: Job, head: Head, answers: list[Completion]) -> OpenAICompletion:
    choices = [
        OpenAITextChoice(
            index=index,
            text=(_spelled(answer.prompt) if answer.prompt else _echo(job, index)) + answer.text,
            logprobs=_logprobs(job, Offset(), answer.logprobs, answer.prompt),
            finish_reason=answer.finish_reason,
        )
        for index, answer in enumerate(answers)
    ]
    counts = usage(answers, job.fields.n or 1)
    return OpenAICompletion(**head, choices=choices, usage=counts, timings=timings_of(answers[0]))


async def frames(job: Job, head: Head, events: Events) -> AsyncGenerator[OpenAITextChunk, None]:
    counted = wants_usage(job.fields)

    def chunk(
        *choices: OpenAITextPiece, usage: Usage | None = None, timed: End | Measured | None = None
    ) -> OpenAITextChunk:
        return OpenAITextChunk(
            **head,
            choices=list(choices),
            usage=usage if counted else UNSET,
            timings=UNSET if timed is None else timings_of(timed),
        )

    for index in range(len(job.requests)):
        if echoed := _echo(job, index):
            yield chunk(OpenAITextPiece(index=index, text=echoed))
    offsets: dict[int, Offset] = defaultdict(Offset)
    ends: dict[int, End] = {}
    so_far: Measured | None = None
    async for index, event in events:
        if isinstance(event, Measured):
            so_far = event
        elif isinstance(event, Prompt):
            likely = _logprobs(job, offsets[index], (), event)
            yield chunk(OpenAITextPiece(index=index, text=_spelled(event), logprobs=likely))
        elif isinstance(event, Text):
            likely = _logprobs(job, offsets[index], event.logprobs)
            if event.text or (likely and likely.tokens):
                yield chunk(OpenAITextPiece(index=index, text=event.text, logprobs=likely), timed=so_far)
        elif isinstance(event, End):
            ends[index] = event
            last = OpenAITextPiece(index=index, text="", finish_reason=event.reason)
            yield chunk(last, timed=None if counted else event)
    if counted:
        counts = usage([ends[index] for index in sorted(ends)], job.fields.n or 1)
        yield chunk(usage=counts, timed=ends[0])


def _echo(job: Job, index: int) -> str:
    """The prompt of a choice where it is echoed and known without the model."""
    request = job.requests[index]
    return request.prompt or "" if job.fields.echo and not request.prompt_logprobs else ""


def _spelled(prompt: Prompt) -> str:
    """The text of a prompt's tokens; control tokens have none."""
    return b"".join((prompt.first[1], *(row.spelling for row in prompt.logprobs))).decode("utf-8", "replace")


def _logprobs(job: Job, offset: Offset, answer: Iterable[Logprob], prompt: Prompt | None = None) -> TextLogprobs | None:
    if job.fields.logprobs is None:
        return None
    rows = [Logprob(*prompt.first, 0.0), *prompt.logprobs, *answer] if prompt else list(answer)
    values: list[float | None] = [row.value for row in rows]
    tops: list[dict[str, float] | None] = [
        {spelling.decode("utf-8", "replace"): value for _, spelling, value in row.top} for row in rows
    ]
    if prompt:
        values[0] = tops[0] = None
    return TextLogprobs(
        tokens=[row.spelling.decode("utf-8", "replace") for row in rows],
        token_logprobs=values,
        top_logprobs=tops,
        text_offset=[offset.take(row.spelling) for row in rows],
    )


COMPLETIONS = Generation("/v1/completions", read, render, frames, OpenAICompletionBody, "OpenAI", prefix="cmpl-")
