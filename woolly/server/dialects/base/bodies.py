"""The fields that dialects share in a body that asks for an answer: how the answer is to be generated."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Annotated, Any, Literal

import msgspec
from msgspec import Meta

from woolly.config.serving import SERVING, Serving
from woolly.errors import RequestError
from woolly.limits import LIMITS
from woolly.request import SAMPLING, Call, Parameter, Sampling, Scalar
from woolly.request.format import Format, closed, read_format
from woolly.server.dialects.base.fields import read_biases
from woolly.text import finite

NO_LIMIT = 2**31 - 1  # tokens: an answer ends where the context does
Positive = Annotated[int, Meta(ge=1, le=2**31 - 1)]
# -1 is as many tokens as the context has room for; 0 is refused by Request.
Length = Annotated[int, Meta(ge=-1, le=2**31 - 1, extra_json_schema={"not": {"const": 0}})]
Seed = Annotated[int, Meta(ge=-1, description="-1 draws one")]
Scale = Annotated[float, Meta(ge=-LIMITS.lora_scale, le=LIMITS.lora_scale)]
Bias = Annotated[float, Meta(ge=-LIMITS.bias, le=LIMITS.bias)]
Biased = (
    Annotated[int, Meta(ge=0, le=2**31 - 1)] | Annotated[str, Meta(min_length=1, max_length=LIMITS.stop_bytes // 4)]
)


def _more(row: Parameter) -> dict[str, Any]:
    step = {"multiple_of": row.step} if row.step > 1 else {}
    return {"description": row.help, **step}


if TYPE_CHECKING:

    class SamplingFields(msgspec.Struct, kw_only=True): ...

else:  # a field for each sampling parameter; null is the dialect's own default
    SamplingFields = msgspec.defstruct(
        "SamplingFields",
        [
            *(
                (row.name, Annotated[row.type, Meta(ge=row.least, le=row.most, **_more(row))] | None, None)
                for row in SAMPLING.values()
            ),
            ("dry_sequence_breakers", list[str] | None, None),
        ],
        kw_only=True,
    )


class StreamOptions(msgspec.Struct):
    include_usage: bool = False


class NamedSchema(msgspec.Struct):
    """strict or not, a schema that cannot be kept to is refused; one without a name is, as OpenAI does. Its description
    is for people."""

    schema: dict[str, Any]
    name: str
    description: str | None = None
    strict: bool | None = None


class ResponseFormat(msgspec.Struct):
    """What the answer must be, as OpenAI says it: json_object, or json_schema with a schema. Beside these the kinds of
    Woolly, which have a `value`: the text of a pattern or grammar, or a list of texts."""

    type: Literal["text", "json_object", "json_schema", "regex", "lark", "gbnf", "choice"]
    json_schema: NamedSchema | None = None
    schema: dict[str, Any] | None = None
    value: str | list[str] | None = None


class LoraScale(msgspec.Struct):
    """An adapter by its number, as /lora-adapters tells it."""

    id: Annotated[int, Meta(ge=0, le=1023)]
    scale: Scale


class GenerationBody(SamplingFields, kw_only=True):
    """What every route that answers reads; null is the dialect's own default."""

    model: str | None = None
    max_tokens: Length | None = None
    # By texts and token ids, which JSON can only write as text; or pairs of an id or text and a bias. False is never.
    logit_bias: dict[str, Bias | Literal[False]] | list[tuple[Biased, Bias | Literal[False]]] | None = None
    seed: Seed | None = None
    lora: dict[str, Scale] | list[LoraScale] | None = None  # adapters by name, or by number as llama-server has them
    n: Annotated[int, Meta(ge=1, extra_json_schema={"maximum": SERVING.choices})] | None = None
    stream: bool | None = None
    stream_options: StreamOptions | None = None


def samplings(fields: GenerationBody, limits: Serving, **more: Any) -> list[Sampling]:
    """One for each choice: choice i is drawn with seed + i, as if it had been asked for alone. more: values that count
    before those of the fields."""
    choices = fields.n or 1
    if choices > limits.choices:
        raise RequestError(
            f"n: {choices:,} answers are asked for; at most {limits.choices} are given",
            code="validation_error",
            param="n",
        )
    biases = read_biases(fields.logit_bias or {})
    first = seed_of(fields.seed)
    seeds = [None if first is None else (first + index) % 2**64 for index in range(choices)]
    return [sampling_of(fields, logit_bias=biases, seed=seed, **more) for seed in seeds]


def seed_of(seed: int | None) -> int | None:
    return None if seed == -1 else seed


def length(tokens: int | None, limits: Serving, otherwise: int | None = None) -> dict[str, Any]:
    """The fields of a Request that say how long its answer is. otherwise: where neither it nor the server does."""
    if tokens is not None and tokens >= 0:
        return {"max_tokens": tokens}
    most = otherwise if tokens is None else NO_LIMIT
    return {"max_tokens": limits.answer_tokens or most, "shorten": tokens is not None} if most else {}


def sampling_of(fields: SamplingFields, **more: Any) -> Sampling:
    """The parameters that were sent; the others are the model's to recommend."""
    names = (*SAMPLING, "dry_sequence_breakers")
    sent = {name: value for name in names if (value := getattr(fields, name)) is not None}
    return Sampling.of(sent | more)


def thinking(think: bool | None, effort: str | None = None) -> dict[str, Scalar]:
    """Variables of a chat template that switch thinking and set its effort; a template may ignore them."""
    switch = {} if think is None else {"enable_thinking": think, "thinking": think}
    return switch | ({} if effort is None else {"reasoning_effort": effort})


def call_arguments(call: Call) -> dict[str, Any]:
    """The arguments of a call as an object; one that the token limit cut short is kept as text."""
    try:
        parsed = json.loads(call.arguments or "{}", parse_float=finite)
    except ValueError:
        parsed = None
    return parsed if isinstance(parsed, dict) else {"arguments": call.arguments}


def format_of(response: ResponseFormat | None, format: object = None) -> Format | None:
    """What the answer must be. format: the same as the library takes it, in dialects that have such a field."""
    if response is None or response.type == "text":
        return schema_format(format) if isinstance(format, dict) else read_format(format)
    if format is not None:
        raise RequestError("format and response_format say the same; send one of them", param="format")
    if response.type == "json_object" or response.type == "json_schema":
        schema = response.json_schema.schema if response.json_schema is not None else response.schema
        if schema is None and response.type == "json_schema":
            raise RequestError("response_format has no json_schema with a schema", param="format")
        return Format("json") if schema is None else schema_format(schema)
    return Format(response.type, response.value)


def schema_format(schema: Any) -> Format:
    """What an answer must be by a schema, in every dialect alike: an object has the properties that are named."""
    return closed(Format("schema", schema))


def scales_of(lora: dict[str, float] | list[LoraScale] | None) -> dict[str | int, float] | None:
    """The scales of adapters as a Request has them."""
    if lora is None:
        return None
    rows: list[tuple[str | int, float]] = [*lora.items()] if isinstance(lora, dict) else [(x.id, x.scale) for x in lora]
    return dict(rows)


def stops(stop: str | list[str] | None) -> tuple[str, ...]:
    return (stop,) if isinstance(stop, str) else tuple(stop or ())


def wants_usage(fields: GenerationBody) -> bool:
    """Whether a stream is to end with a chunk of counts."""
    return bool(fields.stream_options and fields.stream_options.include_usage)
