"""The types that answers of several dialects are made of; others stand beside the function that builds them.

A field that may be missing has the type UnsetType; one that may be null says so.
"""

from __future__ import annotations

from collections.abc import Sequence
from datetime import UTC, datetime
from typing import Annotated, Any, Literal, TypeAlias, TypeVar

from msgspec import UNSET, Meta, Struct, UnsetType

from woolly.errors import ContextError, WoollyError
from woolly.request import Completion, End, Text, Thought

Count = Annotated[int, Meta(ge=0)]
Number = Annotated[float, Meta(ge=0)]
Share = Annotated[float, Meta(ge=0, le=1)]
Status = Annotated[int, Meta(ge=400, le=599)]
# request.Reason has `cancelled` too, but a cancelled answer has no reader.
Reason: TypeAlias = Annotated[str, Meta(extra_json_schema={"enum": ["stop", "length"]})]


class Shape(Struct, forbid_unknown_fields=True, kw_only=True):
    """All shapes are closed: a field that is not described is a bug."""


class Headed(Shape):
    """What answers and their chunks have in common: routes.Head."""

    id: str
    created: int
    model: str


TOO_LONG = "exceed_context_size_error"  # the type of an error about a prompt that does not fit


def too_long_of(problem: WoollyError) -> dict[str, Any]:
    """The numbers of an error about a prompt that does not fit, as llama-server calls them."""
    if not isinstance(problem, ContextError):
        return {}
    return {"n_prompt_tokens": problem.facts["prompt"], "n_ctx": problem.facts["limit"]}


class CachedTokens(Shape):
    cached_tokens: Count


class Usage(Shape):
    prompt_tokens: Count
    completion_tokens: Count
    total_tokens: Count
    prompt_tokens_details: CachedTokens


class Reasoning(Shape):
    """What the model thought before it answered, under both names that clients know; missing where there is none."""

    reasoning_content: str | UnsetType = UNSET
    reasoning: str | UnsetType = UNSET


class Delta(Reasoning):
    role: Literal["assistant"] | UnsetType = UNSET
    content: str | UnsetType = UNSET


D = TypeVar("D", bound=Delta)


def delta(piece: Text | Thought, kind: type[D]) -> D:
    return kind(content=piece.text) if isinstance(piece, Text) else kind(**reasoning(piece.text))


def reasoning(thought: str) -> dict[str, Any]:
    """The fields of Reasoning."""
    return {"reasoning_content": thought, "reasoning": thought} if thought else {}


def time_text(seconds: int) -> str:
    return datetime.fromtimestamp(seconds, UTC).strftime("%Y-%m-%dT%H:%M:%SZ")


def usage(answers: Sequence[Completion | End], choices: int) -> Usage:
    """Counts of all answers; a prompt with several `choices` counts once."""
    firsts = answers[::choices]
    prompt = sum(answer.usage.prompt_tokens for answer in firsts)
    completion = sum(answer.usage.completion_tokens for answer in answers)
    return Usage(
        prompt_tokens=prompt,
        completion_tokens=completion,
        total_tokens=prompt + completion,
        prompt_tokens_details=CachedTokens(cached_tokens=sum(answer.usage.cached_tokens for answer in firsts)),
    )
