"""The messages between a gateway and its replicas, as msgspec Structs, and what they mean.

A gateway sends a `RemoteRequest`: the tokens of a prompt, how to go on from them, and the part of the answer that the
gateway has already. A replica answers with lines, an event each. A request says everything: seed, limits, format,
scales of adapters. So its answer is a pure function of the request and the model, whichever replica computes it.

Neither side trusts the other: a message whose types or sizes are wrong is refused.
"""

from __future__ import annotations

import dataclasses
from array import array
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Annotated, Any, TypeAlias

import msgspec
from msgspec import Meta, Struct, field

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
from woolly.request.format import Format

if TYPE_CHECKING:
    from woolly.llm.prompter import Prepared, Prompter

SUBMIT, POOL, HEADER = "/woolly/v1/submit", "/woolly/v1/pool", "/woolly/v1/header"

Count = Annotated[int, Meta(ge=0, le=2**53)]
Name = Annotated[str, Meta(min_length=1, max_length=256)]
Digest = Annotated[str, Meta(pattern=r"\Asha256:[0-9a-f]{64}\Z")]
NumericsId = Annotated[str, Meta(min_length=1, max_length=128)]

# A request


class FormatTerms(Struct, array_like=True, forbid_unknown_fields=True):
    kind: str
    value: Any
    strict: bool

    @classmethod
    def of(cls, format: Format) -> FormatTerms:
        return cls(format.kind, format.value, format.strict)

    def format(self) -> Format:
        return Format(self.kind, self.value, self.strict)  # type: ignore[arg-type]  # Format refuses an unknown kind


class GrammarTerms(Struct, forbid_unknown_fields=True):
    """What a grammar is made of, as `engine.Terms`."""

    format: FormatTerms
    frame: Annotated[str, Meta(max_length=LIMITS.wire_frame)]
    parts: Annotated[list[tuple[Name, FormatTerms]], Meta(max_length=LIMITS.tools)] = []


class RemoteRequest(Struct, forbid_unknown_fields=True, kw_only=True):
    """What a replica is to compute. Token ids are 32-bit numbers, the lowest byte first.

    digest, numerics_id: what the model must be. marked: marks of thoughts and calls stay in the text. lora: scales of
    all adapters, in their order. salt, key, protect_s: as of `SubmitOptions`. resumed, pieces: as of `Prepared`.
    """

    model: Name
    digest: Digest
    numerics_id: NumericsId = field(name="kind")
    ids: bytes
    max_tokens: Annotated[int, Meta(ge=1, le=2**31 - 1)]
    sampling: dict[str, Any]
    biases: Annotated[list[tuple[int, float]], Meta(max_length=LIMITS.biases)] = []
    stop: list[str] = []
    indent: Annotated[int, Meta(ge=0, le=2**31 - 1)] = 0
    grammar: GrammarTerms | None = None
    marked: bool = False
    lora: Annotated[list[float], Meta(max_length=LIMITS.adapters)] = []
    logprobs: int | None = None
    prompt_logprobs: bool = False
    post_sampling: bool = False
    salt: Annotated[bytes, Meta(max_length=64)] = b""
    key: Annotated[str, Meta(max_length=256)] = ""
    protect_s: Annotated[float, Meta(ge=0, le=86_400)] = 0.0
    resumed: bytes = field(default=b"", name="given")
    pieces: Count = 0


_PARAMETERS = tuple(row for row in dataclasses.fields(Sampling) if row.name != "unset")


def remote_request_of(
    prepared: Prepared,
    seed: int,
    *,
    prompter: Prompter,
    digest: str,
    numerics_id: str,
    lora: Sequence[float],
    **more: Any,
) -> RemoteRequest:
    """The remote request of a prepared request. more: fields that a prepared request does not have."""
    request = prepared.request
    sampling = prompter.sampling(request.sampling)
    values = {row.name: (getattr(sampling, row.name), row.default) for row in _PARAMETERS}
    plain = {name: value for name, (value, default) in values.items() if value != default and name != "logit_bias"}
    grammar = None
    if prepared.grammar is not None:
        terms = prepared.grammar.terms
        parts = [(name, FormatTerms.of(part)) for name, part in terms.parts]
        grammar = GrammarTerms(FormatTerms.of(terms.format), terms.frame, parts)
    return RemoteRequest(
        digest=digest,
        numerics_id=numerics_id,
        ids=pack_ids(prepared.ids),
        max_tokens=prepared.max_tokens,
        sampling=plain | {"seed": seed},
        biases=[(int(token), bias) for token, bias in sampling.logit_bias.items()],
        stop=list(request.stop),
        indent=request.indent,
        grammar=grammar,
        marked=request.messages is not None,
        lora=list(lora),
        logprobs=request.logprobs,
        prompt_logprobs=request.prompt_logprobs,
        post_sampling=request.post_sampling,
        **more,
    )


def prepared_of(remote: RemoteRequest, prompter: Prompter) -> Prepared:
    """A remote request, prepared for the model of a prompter; raises RequestError or ContextError."""
    from woolly.llm.prompter import Prepared  # late, because it imports NumPy

    ids, answer_ids = unpack_ids(remote.ids, "ids"), unpack_ids(remote.resumed, "given")
    if remote.sampling.keys() - {row.name for row in _PARAMETERS}:
        raise RequestError("sampling has a field that this version does not know", param="sampling")
    if not isinstance(remote.sampling.get("seed"), int):
        raise RequestError("a request to a replica needs a seed", param="sampling")
    request = Request(
        tokens=ids,
        sampling=Sampling(**remote.sampling | {"logit_bias": dict(remote.biases)}),
        max_tokens=remote.max_tokens,
        stop=tuple(remote.stop),
        indent=remote.indent,
        lora=dict(enumerate(remote.lora)) if remote.lora else {},
        logprobs=remote.logprobs,
        prompt_logprobs=remote.prompt_logprobs,
        post_sampling=remote.post_sampling,
    )
    prompter.check((*ids, *answer_ids))
    if not ids or len(ids) + remote.max_tokens > prompter.context:
        raise ContextError(len(ids), prompter.context, remote.max_tokens)
    if len(answer_ids) > remote.max_tokens:
        raise RequestError(f"given has {len(answer_ids):,} tokens, and the answer {remote.max_tokens:,}", param="given")
    grammar = None
    if remote.grammar is not None:
        if prompter.grammars is None:
            raise RequestError("a format needs a tokenizer", param="grammar")
        terms = remote.grammar
        parts = tuple((name, part.format()) for name, part in terms.parts)
        grammar = prompter.grammars.grammar(terms.format.format(), terms.frame, parts)
    return Prepared(
        request,
        ids,
        remote.max_tokens,
        grammar=grammar,
        marked=remote.marked,
        resumed=answer_ids,
        pieces=remote.pieces,
    )


def pack_ids(ids: Sequence[int]) -> bytes:
    return array("i", ids).tobytes()


def unpack_ids(data: bytes, what: str) -> tuple[int, ...]:
    if len(data) % 4:
        raise RequestError(f"{what} has {len(data)} bytes, which is no whole number of ids", param=what)
    return tuple(array("i", data))


class EmbedRequest(Struct, forbid_unknown_fields=True, kw_only=True):
    """A text whose embedding or score a replica is to compute. Its fields are those of a `RemoteRequest`; the adapters
    count in `salt`."""

    model: Name
    digest: Digest
    numerics_id: NumericsId = field(name="kind")
    ids: bytes
    lora: Annotated[list[float], Meta(max_length=LIMITS.adapters)] = []
    salt: Annotated[bytes, Meta(max_length=64)] = b""
    key: Annotated[str, Meta(max_length=256)] = ""


class EmbedReply(Struct):
    """What the model gives for it: float32, row after row."""

    rows: bytes


# The lines of an answer


class LogprobLine(Struct, array_like=True):
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
    likely: list[LogprobLine]


class TextLine(Struct, array_like=True, tag="text"):
    text: str
    tokens: list[int]
    likely: list[LogprobLine] = []


class EndLine(Struct, array_like=True, tag="end"):
    reason: Reason
    usage: tuple[Count, Count, Count, Count]
    timings: tuple[float, float, float, float, float, Count, Count]
    seed: Count
    stopped_by: str
    likely: LogprobLine | None


class FailedLine(Struct, array_like=True, tag="failed"):
    kind: str
    code: str
    message: str
    suggestion: str


AnswerLine: TypeAlias = StartLine | PromptLine | TextLine | EndLine | FailedLine
_decode = msgspec.json.Decoder(AnswerLine).decode


def line_of(event: Event) -> AnswerLine:
    """An event of an engine as a line. Called for each token."""
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
    """The event of a line; raises RequestError where the line has none. Called for each token."""
    try:
        parsed = _decode(line)
    except (msgspec.MsgspecError, ValueError, RecursionError) as error:  # ValueError: bytes that are no UTF-8
        raise RequestError(f"the replica wrote a line that is no event: {printable(error)}") from None
    if type(parsed) is TextLine:  # as most lines are
        return Text(parsed.text, tuple(parsed.tokens), tuple(map(_logprob, parsed.likely)))
    match parsed:
        case StartLine(prompt, cached, disk):
            return Start(prompt, cached, disk)
        case PromptLine(first, likely):
            return Prompt(first, tuple(map(_logprob, likely)))
        case EndLine(reason, usage, timings, seed, stopped_by, last):
            end = None if last is None else _logprob(last)
            return End(reason, Usage(*usage), Timings(*timings), seed, stopped_by, end)
        case FailedLine(kind, code, message, suggestion):
            return Failed(error_of(kind, code, message, suggestion))
    raise AssertionError(parsed)


def _likely(one: Logprob) -> LogprobLine:
    return LogprobLine(one.token, one.spelling, one.value, list(one.top))


def _logprob(line: LogprobLine) -> Logprob:
    return Logprob(line.token, line.spelling, line.value, tuple(line.top))


_ERRORS: Mapping[str, type[WoollyError]] = {
    kind.__name__: kind
    for kind in (FileError, UnsupportedError, NotFoundError, RequestError, BusyError, DownloadError, NativeError)
} | {"ContextError": RequestError}  # a ContextError is made from numbers, which a line does not have


def error_of(kind: str, code: str, message: str, suggestion: str) -> WoollyError:
    """An error that a replica has reported, with the replica's message."""
    error_type = _ERRORS.get(kind, NativeError)
    return error_type(printable(message, 1000), suggestion=printable(suggestion, 1000), code=printable(code, 64))


class Refusal(Struct):
    """The body of an answer that is no stream, as `dialects/wire.py` shapes it."""

    failed: FailedLine


def refusal_of(body: bytes, status: int) -> WoollyError:
    try:
        line = msgspec.json.decode(body, type=Refusal).failed
    except msgspec.MsgspecError:
        return BusyError(f"the replica answered with status {status}", code="overloaded")
    return error_of(line.kind, line.code, line.message, line.suggestion)
