"""Where the time of an answer went, in llama-server's words: at its end, and before each piece where a request asks."""

from __future__ import annotations

from dataclasses import dataclass

from msgspec import UNSET, UnsetType

from woolly.request import Completion, End, Timings, Usage
from woolly.server.dialects.base.shapes import Count, Number, Shape


@dataclass(frozen=True, slots=True)
class Measured:
    """How far an answer has come. Beside the events of a model, before each of its pieces."""

    usage: Usage
    timings: Timings


class LlamaTimings(Shape, kw_only=True):
    """cache_n: tokens of the prompt that were remembered; prompt_n: the others. predicted_n: tokens of the answer; the
    time of one is that of those after the first. draft_n: tokens that were guessed; missing where none were."""

    cache_n: Count
    prompt_n: Count
    prompt_ms: Number
    prompt_per_token_ms: Number
    prompt_per_second: Number
    predicted_n: Count
    predicted_ms: Number
    predicted_per_token_ms: Number
    predicted_per_second: Number
    draft_n: Count | UnsetType = UNSET
    draft_n_accepted: Count | UnsetType = UNSET


def timings_of(answer: Completion | End | Measured) -> LlamaTimings:
    usage, timings = answer.usage, answer.timings
    prompt, later = usage.prompt_tokens - usage.cached_tokens, usage.completion_tokens - 1
    prompt_ms, answer_ms = timings.prompt_s * 1e3, timings.answer_s * 1e3
    drafted = timings.drafted
    return LlamaTimings(
        cache_n=usage.cached_tokens,
        prompt_n=prompt,
        prompt_ms=prompt_ms,
        prompt_per_token_ms=prompt_ms / prompt if prompt else 0.0,
        prompt_per_second=timings.prompt_rate,
        predicted_n=usage.completion_tokens,
        predicted_ms=answer_ms,
        predicted_per_token_ms=answer_ms / later if later > 0 else 0.0,
        predicted_per_second=timings.answer_rate,
        draft_n=drafted or UNSET,
        draft_n_accepted=timings.accepted if drafted else UNSET,
    )
