"""The wire between a gate and its replicas: what goes over it, as msgspec Structs, and what that means.

A gate sends an `Order`: the tokens of a prompt, how to go on from them, and what it has of the answer already. A
replica answers with lines, an event each. An order says everything: seed, limits, format, scales of adapters. So its
answer is a pure function of it and of the model, whichever replica gives it.

Both sides read what comes as strangers' bytes: of the right types and sizes, or refused.
"""

from __future__ import annotations

import dataclasses
from array import array
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Annotated, Any, TypeAlias

import msgspec
from msgspec import Meta, Struct

from woolly.answer_format import Format
from woolly.errors import (
    BusyError,
    ContextError,
    DownloadError,
    FileError,
    NativeError,
    NotFoundError,
    RequestError,
    UnsupportedError,
    WoollyError,
    printable,
)
from woolly.limits import LIMITS
from woolly.request import (
    End,
    Event,
    Failed,
    Logprob,
    Prompt,
    Reason,
    Request,
    Sampling,
    Start,
    Text,
    Timings,
    Usage,
)

if TYPE_CHECKING:
    from woolly.prompter import Prepared, Prompter

SUBMIT, POOL, HEADER = "/woolly/v1/submit", "/woolly/v1/pool", "/woolly/v1/header"

Count = Annotated[int, Meta(ge=0, le=2**53)]
Name = Annotated[str, Meta(min_length=1, max_length=256)]
Digest = Annotated[str, Meta(pattern=r"\Asha256:[0-9a-f]{64}\Z")]
Kind = Annotated[str, Meta(min_length=1, max_length=128)]

# An order


class FormatTerms(Struct, array_like=True, forbid_unknown_fields=True):
    kind: str
    value: Any
    strict: bool

    @classmethod
    def of(cls, format: Format) -> FormatTerms:
        return cls(format.kind, format.value, format.strict)

    def format(self) -> Format:
        return Format(self.kind, self.value, self.strict)  # type: ignore[arg-type]  # it refuses what is none


class GrammarTerms(Struct, forbid_unknown_fields=True):
    """What a grammar is made of, as `engine.Terms`."""

    format: FormatTerms
    frame: Annotated[str, Meta(max_length=LIMITS.wire_frame)]
    parts: Annotated[list[tuple[Name, FormatTerms]], Meta(max_length=LIMITS.tools)] = []


class Order(Struct, forbid_unknown_fields=True, kw_only=True):
    """What a replica is to compute. Token ids are 32-bit numbers, the lowest byte first.

    digest, kind: what the model must be. marked: marks of thoughts and calls stay in the text. lora: scales of all
    adapters, in their order. salt, key, protect_s: as of `LLM.submit`. given, pieces: as of `Prepared`.
    """

    model: Name
    digest: Digest
    kind: Kind
    ids: bytes
    max_tokens: Annotated[int, Meta(ge=1, le=2**31 - 1)]
    sampling: dict[str, Any]
    biases: Annotated[list[tuple[int, float]], Meta(max_length=LIMITS.biases)] = []
    stop: list[str] = []
    grammar: GrammarTerms | None = None
    marked: bool = False
    lora: Annotated[list[float], Meta(max_length=LIMITS.adapters)] = []
    logprobs: int | None = None
    prompt_logprobs: bool = False
    salt: Annotated[bytes, Meta(max_length=64)] = b""
    key: Annotated[str, Meta(max_length=256)] = ""
    protect_s: Annotated[float, Meta(ge=0, le=86_400)] = 0.0
    given: bytes = b""
    pieces: Count = 0


def order_of(
    prepared: Prepared, seed: int, *, prompter: Prompter, digest: str, kind: str, lora: Sequence[float], **more: Any
) -> Order:
    """The order for a request whose prompt is prepared. more: fields that are not the request's."""
    request = prepared.request
    sampling = prompter.by_token(request.sampling)
    values = {row.name: (getattr(sampling, row.name), row.default) for row in dataclasses.fields(Sampling)}
    plain = {name: value for name, (value, default) in values.items() if value != default and name != "logit_bias"}
    grammar = None
    if prepared.grammar is not None:
        terms = prepared.grammar.terms
        parts = [(name, FormatTerms.of(part)) for name, part in terms.parts]
        grammar = GrammarTerms(FormatTerms.of(terms.format), terms.frame, parts)
    return Order(
        digest=digest,
        kind=kind,
        ids=packed(prepared.ids),
        max_tokens=prepared.max_tokens,
        sampling=plain | {"seed": seed},
        biases=[(int(token), bias) for token, bias in sampling.logit_bias.items()],
        stop=list(request.stop),
        grammar=grammar,
        marked=request.messages is not None,
        lora=list(lora),
        logprobs=request.logprobs,
        prompt_logprobs=request.prompt_logprobs,
        **more,
    )


def prepared_of(order: Order, prompter: Prompter) -> Prepared:
    """What an order asks of the model that a prompter belongs to; RequestError tells what of it cannot be."""
    from woolly.prompter import Prepared  # NumPy comes with it

    ids, given = unpacked(order.ids, "ids"), unpacked(order.given, "given")
    if order.sampling.keys() - {field.name for field in dataclasses.fields(Sampling)}:
        raise RequestError("sampling has a field that this version does not know", param="sampling")
    if not isinstance(order.sampling.get("seed"), int):
        raise RequestError("an order needs a seed", param="sampling")
    request = Request(
        tokens=ids,
        sampling=Sampling(**order.sampling | {"logit_bias": dict(order.biases)}),
        max_tokens=order.max_tokens,
        stop=tuple(order.stop),
        lora=dict(enumerate(order.lora)) if order.lora else {},
        logprobs=order.logprobs,
        prompt_logprobs=order.prompt_logprobs,
    )
    prompter.check((*ids, *given))
    if not ids or len(ids) + order.max_tokens > prompter.context:
        raise ContextError(len(ids), prompter.context, order.max_tokens)
    if len(given) > order.max_tokens:
        raise RequestError(f"given has {len(given):,} tokens, and the answer {order.max_tokens:,}", param="given")
    grammar = None
    if order.grammar is not None:
        if prompter.grammars is None:
            raise RequestError("a format needs a tokenizer", param="grammar")
        terms = order.grammar
        parts = tuple((name, part.format()) for name, part in terms.parts)
        grammar = prompter.grammars.grammar(terms.format.format(), terms.frame, parts)
    return Prepared(
        request,
        ids,
        order.max_tokens,
        grammar=grammar,
        marked=order.marked,
        given=given,
        pieces=order.pieces,
    )


def packed(ids: Sequence[int]) -> bytes:
    return array("i", ids).tobytes()


def unpacked(data: bytes, what: str) -> tuple[int, ...]:
    if len(data) % 4:
        raise RequestError(f"{what} has {len(data)} bytes, which is no whole number of ids", param=what)
    return tuple(array("i", data))


class PoolOrder(Struct, forbid_unknown_fields=True, kw_only=True):
    """A text that a replica is to read whole: its fields are those of an `Order`. salt: with the adapters in it."""

    model: Name
    digest: Digest
    kind: Kind
    ids: bytes
    lora: Annotated[list[float], Meta(max_length=LIMITS.adapters)] = []
    salt: Annotated[bytes, Meta(max_length=64)] = b""
    key: Annotated[str, Meta(max_length=256)] = ""


class PoolRows(Struct):
    """What the model gives for it: float32, row after row."""

    rows: bytes


# The lines of an answer


class LikelyLine(Struct, array_like=True):
    token: int
    spelling: bytes
    value: float
    top: list[tuple[int, bytes, float]] = []


class StartLine(Struct, array_like=True, tag="start"):
    prompt: Count
    cached: Count
    disk: Count


class PromptLine(Struct, array_like=True, tag="prompt"):
    first: tuple[int, bytes]
    likely: list[LikelyLine]


class TextLine(Struct, array_like=True, tag="text"):
    text: str
    tokens: list[int]
    likely: list[LikelyLine] = []


class EndLine(Struct, array_like=True, tag="end"):
    reason: Reason
    usage: tuple[Count, Count, Count, Count]
    timings: tuple[float, float, float, float, float, Count, Count]
    seed: Count
    stopped_by: str
    likely: LikelyLine | None


class FailedLine(Struct, array_like=True, tag="failed"):
    kind: str
    code: str
    message: str
    suggestion: str


Line: TypeAlias = StartLine | PromptLine | TextLine | EndLine | FailedLine
_decode = msgspec.json.Decoder(Line).decode


def line_of(event: Event) -> Line:
    """An event of an engine as a line. Once a token."""
    match event:
        case Text(text, tokens, logprobs):
            return TextLine(text, list(tokens), [_likely(one) for one in logprobs])
        case Start(prompt, cached, disk):
            return StartLine(prompt, cached, disk)
        case Prompt(first, logprobs):
            return PromptLine(first, [_likely(one) for one in logprobs])
        case End(reason, usage, timings, seed, stopped_by, logprob):
            return EndLine(
                reason,
                dataclasses.astuple(usage),
                dataclasses.astuple(timings),
                seed,
                stopped_by,
                None if logprob is None else _likely(logprob),
            )
        case Failed(error):
            return failed_line(error)
    raise AssertionError("an engine knows no thoughts and no calls")


def failed_line(error: WoollyError) -> FailedLine:
    return FailedLine(type(error).__name__, error.code, error.message, error.suggestion)


def event_of(line: bytes) -> Event:
    """The event of a line; RequestError where it is none. Once a token."""
    try:
        made = _decode(line)
    except (msgspec.MsgspecError, ValueError, RecursionError) as error:  # the second: bytes that are no UTF-8
        raise RequestError(f"the replica wrote a line that is no event: {printable(error)}") from None
    if type(made) is TextLine:  # most are
        return Text(made.text, tuple(made.tokens), tuple(map(_logprob, made.likely)))
    match made:
        case StartLine(prompt, cached, disk):
            return Start(prompt, cached, disk)
        case PromptLine(first, likely):
            return Prompt(first, tuple(map(_logprob, likely)))
        case EndLine(reason, usage, timings, seed, stopped_by, last):
            end = None if last is None else _logprob(last)
            return End(reason, Usage(*usage), Timings(*timings), seed, stopped_by, end)
        case FailedLine(kind, code, message, suggestion):
            return Failed(error_of(kind, code, message, suggestion))
    raise AssertionError(made)


def _likely(one: Logprob) -> LikelyLine:
    return LikelyLine(one.token, one.spelling, one.value, list(one.top))


def _logprob(line: LikelyLine) -> Logprob:
    return Logprob(line.token, line.spelling, line.value, tuple(line.top))


_ERRORS: Mapping[str, type[WoollyError]] = {
    kind.__name__: kind
    for kind in (FileError, UnsupportedError, NotFoundError, RequestError, BusyError, DownloadError, NativeError)
} | {"ContextError": RequestError}  # whose own sentence is made of numbers


def error_of(kind: str, code: str, message: str, suggestion: str) -> WoollyError:
    """An error that a replica told, in its own words."""
    made = _ERRORS.get(kind, NativeError)
    return made(printable(message, 1000), suggestion=printable(suggestion, 1000), code=printable(code, 64))


class Refusal(Struct):
    """The body of an answer that is no stream, as `dialects/wire.py` shapes it."""

    failed: FailedLine


def refusal_of(body: bytes, status: int) -> WoollyError:
    try:
        line = msgspec.json.decode(body, type=Refusal).failed
    except msgspec.MsgspecError:
        return BusyError(f"the replica answered with status {status}", code="overloaded")
    return error_of(line.kind, line.code, line.message, line.suggestion)
