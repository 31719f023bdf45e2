"""Fields for which llama-server has words of its own: its routes and OpenAI's read them alike."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from typing import Annotated, Any

from msgspec import Meta

from woolly.errors import RequestError, UnsupportedError, printable
from woolly.limits import LIMITS
from woolly.request.format import Format
from woolly.server.dialects.base.bodies import GenerationBody, ResponseFormat, format_of, schema_format

Milliseconds = Annotated[int, Meta(ge=-1, le=2**31 - 1)]

# Stages by llama-server's names, in the order that they have here, and the parameters that leave each out.
STAGES: Mapping[str, Mapping[str, float]] = {
    "penalties": {"repetition_penalty": 1.0, "presence_penalty": 0.0, "frequency_penalty": 0.0},
    "dry": {"dry_multiplier": 0.0},
    "top_n_sigma": {"top_n_sigma": 0.0},
    "top_k": {"top_k": 0},
    "typ_p": {"typical_p": 1.0},
    "top_p": {"top_p": 1.0},
    "min_p": {"min_p": 0.0},
    "xtc": {"xtc_probability": 0.0},
    "infill": {},
    "temperature": {"temperature": 1.0, "dynatemp_range": 0.0},
}
LETTERS = dict(zip("edskypmxit", STAGES, strict=True))
OTHER_NAMES = {"typical_p": "typ_p", "typical": "typ_p", "typ": "typ_p", "nucleus": "top_p", "temp": "temperature"}
# Fields that would change an answer, each with a test for the values that do not.
REFUSED: Mapping[str, Callable[[Any], bool]] = {
    "adaptive_target": lambda v: isinstance(v, int | float) and v < 0,
    "grammar_lazy": lambda v: v is False,
    "grammar_triggers": lambda v: v == [],
    "preserved_tokens": lambda v: v == [],
    "image_data": lambda v: v == [],
}


class LlamaFields(GenerationBody, kw_only=True):
    """n_predict: -1 is no limit, 0 only reads the prompt. samplers: the stages that count, by their names or letters,
    in the order that they have here. n_indent: the answer ends at a line with fewer blanks. t_max_predict_ms: and
    behind its first line, when so much time has passed since its first token. n_cmpl: another name of n."""

    n_predict: Annotated[int, Meta(ge=-2, le=2**31 - 1)] | None = None
    n_cmpl: Annotated[int, Meta(ge=1)] | None = None
    n_probs: Annotated[int, Meta(ge=0, le=LIMITS.logprobs)] | None = None
    n_indent: Annotated[int, Meta(ge=0, le=2**31 - 1)] | None = None
    t_max_predict_ms: Milliseconds | None = None
    repeat_penalty: Annotated[float, Meta(ge=0.01, le=100)] | None = None
    ignore_eos: bool | None = None
    samplers: str | list[str] | None = None
    grammar: str | None = None
    json_schema: dict[str, Any] | None = None
    timings_per_token: bool | None = None

    def __post_init__(self) -> None:
        if self.n is None:
            self.n = self.n_cmpl


def chosen(fields: LlamaFields) -> dict[str, Any]:
    """What these fields say of a Sampling."""
    values: dict[str, Any] = {}
    if fields.repeat_penalty is not None:
        values["repetition_penalty"] = fields.repeat_penalty
    if fields.samplers is not None:
        named = list(_stages(fields.samplers))
        for name, off in STAGES.items():
            values |= {} if name in named else off
        values["infill"] = "infill" in named
    return values if fields.ignore_eos is None else values | {"ignore_eos": fields.ignore_eos}


def _stages(samplers: str | list[str]) -> Iterator[str]:
    """The names of stages, which must stand in our order: in another, the same values would choose other tokens."""
    order, before = list(STAGES), -1
    for index, sent in enumerate(samplers):
        name = sent.lower().replace("-", "_")
        name = LETTERS.get(sent, "") if isinstance(samplers, str) else OTHER_NAMES.get(name, name)
        if name not in STAGES:
            raise UnsupportedError(
                f"samplers[{index}] is '{printable(sent, 40)}'; known are {', '.join(STAGES)}", param="samplers"
            )
        if order.index(name) <= before:
            raise UnsupportedError(f"samplers stand in one order: {', '.join(STAGES)}", param="samplers")
        before = order.index(name)
        yield name


def form(fields: LlamaFields, response: ResponseFormat | None = None) -> Format | None:
    """What the answer must be, however it is said."""
    formats = [format_of(response), Format("gbnf", fields.grammar) if fields.grammar else None]
    formats += [None if fields.json_schema is None else schema_format(fields.json_schema)]
    present = [one for one in formats if one is not None]
    if len(present) > 1:
        raise RequestError(
            "an answer has one form: send one of grammar, json_schema and response_format", param="grammar"
        )
    return present[0] if present else None


def course(fields: LlamaFields) -> dict[str, Any]:
    """What these fields say of a Job."""
    most_ms = fields.t_max_predict_ms or 0
    return {
        "silent": fields.n_predict == 0,
        "answer_s": most_ms / 1e3 if most_ms > 0 else None,
        "timed": bool(fields.timings_per_token),
    }
