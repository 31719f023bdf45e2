"""The language between callers and engine: a `Request` goes in, `Event`s come out.

Everything here is a plain value, checked when it is made: a wrong parameter is a `RequestError` that names it, before
any work has begun. What only the model knows (its vocabulary, its context) is checked where the model is, in
`LLM.submit`.

    Request(prompt="Once", sampling=Sampling(temperature=0.0), max_tokens=20, stop=("\\n",))

Events of one answer: `Start`, then `Prompt` where it was asked for, then any number of `Thought`, `Text` and
`CallStart`, each of the last followed by its `Arguments`, then exactly one `End` or `Failed`.
"""

from __future__ import annotations

import math
import operator
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field, fields
from types import MappingProxyType
from typing import Any, Literal, TypeAlias, TypedDict

from woolly.answer_format import Format, read_format
from woolly.errors import RequestError, WoollyError, printable
from woolly.limits import LIMITS
from woolly.messages import Message, Tool, read_choice, read_messages, read_tools

Reason: TypeAlias = Literal["stop", "calls", "length", "cancelled"]
Scalar: TypeAlias = bool | int | float | str | None

# What a chat template is told by us, or by the function that renders it: not for a request to set.
TEMPLATE_NAMES = frozenset(
    (
        *("messages", "tools", "documents", "add_generation_prompt", "bos_token", "eos_token"),
        *("raise_exception", "strftime_now", "namespace", "range", "tojson"),
        *("chat_template", "conversation", "tokenize", "continue_final_message", "self", "now"),
    )
)


@dataclass(frozen=True, slots=True)
class Parameter:
    """A number that says how tokens are chosen: its type, its range, and what it does."""

    name: str
    type: type[int] | type[float]
    default: Any
    least: int | float
    most: int | float
    help: str
    step: int = 1  # a whole number is a multiple of it

    def check(self, value: object) -> int | float:
        """The value, if it is a number within the range."""
        if self.type is float:
            return _number(self.name, value, self.least, self.most)
        number = _integer(self.name, value, int(self.least), int(self.most))
        if number % self.step:
            raise RequestError(
                f"{self.name} is {number}, but must be a multiple of {self.step}", param=self.name, value=value
            )
        return number


def _parameter(default: Any, least: int | float, most: int | float, help: str, **more: Any) -> Any:
    """A field of Sampling that SAMPLING has a row of."""
    return field(default=default, metadata={"least": least, "most": most, "help": help, **more})


@dataclass(frozen=True, slots=True)
class Sampling:
    """How the next token is chosen, in this order: penalties, DRY and biases change logits; then tokens are left out by
    top_n_sigma, top_k, typical_p, top_p, min_p and XTC; the temperature decides how one of the others is drawn.

    A temperature of 0 takes the most likely token whatever the rest says. Mirostat leaves out tokens in its own way, so
    that with it the six others do not count. `engine/sampling.py` defines each.

    SAMPLING is the table of its parameters, which the library, the command line, HTTP and the page read.
    dry_sequence_breakers: no repetition that DRY sees goes across one of these texts.
    logit_bias: added to the logits of these token ids; of a text, to those of all its tokens.
    seed: the same seed gives the same text. None draws one; `End.seed` tells which.
    """

    temperature: float = _parameter(0.7, 0.0, 100.0, "0 always takes the most likely token; higher is more daring")
    dynatemp_range: float = _parameter(
        0.0, 0.0, 100.0, "the temperature goes up and down by this as the model is unsure"
    )
    dynatemp_exponent: float = _parameter(1.0, 0.0, 100.0, "how much doubt it takes for the higher temperature")
    top_k: int = _parameter(50, 0, 2**31 - 1, "choose among the K most likely tokens; 0: all")
    top_p: float = _parameter(0.9, 0.0, 1.0, "choose among the fewest tokens that reach this probability together")
    min_p: float = _parameter(0.0, 0.0, 1.0, "leave out tokens less than this times as likely as the best")
    typical_p: float = _parameter(
        1.0, 0.0, 1.0, "the same for tokens about as likely as the model expects its words to be"
    )
    top_n_sigma: float = _parameter(0.0, -1.0, 100.0, "leave out logits this many deviations below the best; 0: off")
    xtc_probability: float = _parameter(0.0, 0.0, 1.0, "how often all likely tokens but the last of them are left out")
    xtc_threshold: float = _parameter(0.1, 0.0, 1.0, "the probability at which a token counts as likely for this")
    min_keep: int = _parameter(0, 0, 2**31 - 1, "the fewest tokens to choose among, whatever the above leave out")
    mirostat: int = _parameter(
        0, 0, 2, "2 keeps the answer's surprise near mirostat_tau, in place of the above", step=2
    )
    mirostat_tau: float = _parameter(5.0, 0.0, 100.0, "the surprise that mirostat aims at, in bits")
    mirostat_eta: float = _parameter(0.1, 0.0, 1.0, "how fast mirostat learns")
    repetition_penalty: float = _parameter(1.0, 0.01, 100.0, "makes the last repeat_last_n tokens less likely; 1: off")
    repeat_last_n: int = _parameter(64, -1, 2**31 - 1, "tokens that repetition_penalty looks back at; -1: all")
    presence_penalty: float = _parameter(0.0, -100.0, 100.0, "taken from tokens that the answer has already")
    frequency_penalty: float = _parameter(0.0, -100.0, 100.0, "the same for each time it has them")
    dry_multiplier: float = _parameter(0.0, 0.0, 100.0, "taken from what would go on with a repetition (DRY); 0: off")
    dry_base: float = _parameter(1.75, 1.0, 100.0, "how fast that grows with each token that is repeated")
    dry_allowed_length: int = _parameter(2, 1, 2**31 - 1, "tokens whose repetition DRY begins with")
    dry_penalty_last_n: int = _parameter(-1, -1, 2**31 - 1, "tokens that DRY looks back at; -1: all")
    dry_sequence_breakers: tuple[str, ...] = ("\n", ":", '"', "*")
    logit_bias: Mapping[int | str, float] = field(default_factory=dict)
    seed: int | None = None

    def __post_init__(self) -> None:
        put = object.__setattr__
        for parameter in SAMPLING.values():
            put(self, parameter.name, parameter.check(getattr(self, parameter.name)))
        put(self, "dry_sequence_breakers", _texts("dry_sequence_breakers", self.dry_sequence_breakers))
        put(self, "logit_bias", MappingProxyType(_biases(self.logit_bias)))
        if self.seed is not None:
            put(self, "seed", _integer("seed", self.seed, 0, 2**64 - 1))


SAMPLING: Mapping[str, Parameter] = {
    row.name: Parameter(row.name, {"int": int, "float": float}[str(row.type)], default=row.default, **row.metadata)
    for row in fields(Sampling)
    if row.metadata
}


class Options(TypedDict, total=False):
    """What the library's calls can be told: fields of `Request` and of `Sampling`, which explain them."""

    max_tokens: int | None
    stop: str | Iterable[str]
    format: Format | Mapping[str, Any] | Literal["json"] | None
    lora: Mapping[str | int, float] | None
    think: bool | None
    chat_template_kwargs: Mapping[str, Scalar]
    tools: Iterable[Tool | Mapping[str, Any]]
    tool_choice: str
    parallel_tool_calls: bool
    temperature: float
    dynatemp_range: float
    dynatemp_exponent: float
    top_k: int
    top_p: float
    min_p: float
    typical_p: float
    top_n_sigma: float
    xtc_probability: float
    xtc_threshold: float
    min_keep: int
    mirostat: int
    mirostat_tau: float
    mirostat_eta: float
    repetition_penalty: float
    repeat_last_n: int
    presence_penalty: float
    frequency_penalty: float
    dry_multiplier: float
    dry_base: float
    dry_allowed_length: int
    dry_penalty_last_n: int
    dry_sequence_breakers: str | Iterable[str]
    logit_bias: Mapping[int | str, float]
    seed: int | None


@dataclass(frozen=True, slots=True)
class Request:
    """What to answer: exactly one of `prompt` (text), `tokens` (ids, taken as they are) and `messages` (a chat).

    max_tokens: None is 100 for a prompt or ids, and up to the end of the context for a chat.
    suffix: what follows after a gap that the answer is to fill; the prompt is what stands before it.
    begun: how the answer to a chat, or what fills a gap, begins; the model goes on from there and does not repeat it.
    shorten: an answer of max_tokens that the context has no room for is shorter; otherwise it is refused.
    stop: the answer ends before the first of these texts; nothing of it is sent.
    format: what the text must be: a `Format`; "json" and a JSON schema are taken for one.
    lora: the adapters that count, by name or number, and the scale of each; None: as the model was loaded.
    logprobs: tell how likely each token was, and so many of the likeliest beside it. None: do not.
    prompt_logprobs: tell the same of the prompt's own tokens, all of which are computed for it; needs logprobs.
    think: whether a model that can think first does, in a chat; None is its template's own way.
    chat_template_kwargs: other variables that the model's chat template knows: numbers, texts, true or false by name.
    tools: what the model may ask for in a chat. tool_choice: "auto" leaves it to the model whether it calls one, "none"
    forbids it, "required" asks for a call, and a name for a call of that tool.
    parallel_tool_calls: whether an answer may have more than one call.
    """

    prompt: str | None = None
    tokens: tuple[int, ...] | None = None
    messages: tuple[Message, ...] | None = None
    suffix: str | None = None
    begun: str = ""
    sampling: Sampling = field(default_factory=Sampling)
    max_tokens: int | None = None
    shorten: bool = False
    stop: tuple[str, ...] = ()
    format: Format | None = None
    lora: Mapping[str | int, float] | None = None
    logprobs: int | None = None
    prompt_logprobs: bool = False
    think: bool | None = None
    chat_template_kwargs: Mapping[str, Scalar] = field(default_factory=dict)
    tools: tuple[Tool, ...] = ()
    tool_choice: str = "auto"
    parallel_tool_calls: bool = True

    def __post_init__(self) -> None:
        given = [name for name in ("prompt", "tokens", "messages") if getattr(self, name) is not None]
        if len(given) != 1:
            raise RequestError(
                f"a request has exactly one of prompt, tokens and messages, not {' and '.join(given) or 'none'}",
                param="prompt",
            )
        if self.prompt is not None and not isinstance(self.prompt, str):
            raise RequestError(f"prompt is text or token ids, not {type(self.prompt).__name__}", param="prompt")
        put = object.__setattr__
        if self.tokens is not None:
            put(self, "tokens", tuple(_integer(f"tokens[{i}]", t, 0, 2**31 - 1) for i, t in enumerate(self.tokens)))
        if self.messages is not None:
            put(self, "messages", read_messages(self.messages))
        elif self.begun and self.suffix is None:
            raise RequestError("only the answer to a chat, or what fills a gap, can be begun", param="begun")
        if self.suffix is not None and self.prompt is None:
            raise RequestError("only a prompt has a suffix", param="suffix")
        if self.max_tokens is not None:
            put(self, "max_tokens", _integer("max_tokens", self.max_tokens, 1, 2**31 - 1))
        put(self, "stop", _texts("stop", self.stop))
        put(self, "format", read_format(self.format))
        if self.lora is not None:
            put(self, "lora", MappingProxyType(_scales(self.lora)))
        if self.logprobs is not None:
            put(self, "logprobs", _integer("logprobs", self.logprobs, 0, LIMITS.logprobs))
        elif self.prompt_logprobs:
            raise RequestError(
                "prompt_logprobs needs logprobs, the number of likeliest tokens to tell", param="logprobs"
            )
        if self.think is not None and not isinstance(self.think, bool):
            raise RequestError(f"think is true or false, not {_shown(self.think)}", param="think", value=self.think)
        put(self, "chat_template_kwargs", MappingProxyType(_variables(self.chat_template_kwargs)))
        if self.chat_template_kwargs and self.messages is None:
            raise RequestError("only a chat has a template that takes variables", param="chat_template_kwargs")
        put(self, "tools", read_tools(self.tools))
        put(self, "tool_choice", read_choice(self.tool_choice, self.tools))
        if self.tools and self.messages is None:
            raise RequestError("only a chat has tools", param="tools")


def request_of(options: Mapping[str, Any], **what: Any) -> Request:
    """A request from options as callers give them, in one row: some are its own, the others those of its sampling."""
    sampling = {row.name for row in fields(Sampling)}
    own = {name: value for name, value in options.items() if name not in sampling}
    return Request(**what, **own, sampling=Sampling(**{name: options[name] for name in sampling & options.keys()}))


@dataclass(frozen=True, slots=True)
class Usage:
    """Counts of tokens: of the prompt, of those the ones whose state was still held, and of the answer; and how many of
    the held ones came from the disk."""

    prompt_tokens: int
    cached_tokens: int
    completion_tokens: int
    disk_tokens: int = 0

    @property
    def total_tokens(self) -> int:
        return self.prompt_tokens + self.completion_tokens


@dataclass(frozen=True, slots=True)
class Timings:
    """Where the seconds of an answer went, and the two rates they give.

    waited_s: until its first step began; prompt_s: from there to the first token; answer_s: from there to the end.
    prompt_rate: computed prompt tokens a second; answer_rate: tokens a second after the first. 0 where there were none.
    drafted: tokens that were guessed ahead; accepted: those of them that were right.
    """

    waited_s: float
    prompt_s: float
    answer_s: float
    prompt_rate: float
    answer_rate: float
    drafted: int = 0
    accepted: int = 0

    @property
    def first_token_s(self) -> float:
        return self.waited_s + self.prompt_s

    @property
    def total_s(self) -> float:
        return self.waited_s + self.prompt_s + self.answer_s


@dataclass(frozen=True, slots=True)
class Start:
    """The first event: work on the prompt begins; `cached_tokens` of it need no computing, `disk_tokens` of these
    because they were read from the disk."""

    prompt_tokens: int
    cached_tokens: int
    disk_tokens: int = 0


@dataclass(frozen=True, slots=True)
class Logprob:
    """How likely a token was by the model's own logits, before any sampling; `top` are the likeliest, best first."""

    token: int
    spelling: bytes
    value: float
    top: tuple[tuple[int, bytes, float], ...] = ()


@dataclass(frozen=True, slots=True)
class Prompt:
    """The prompt as the model read it, whole: how likely each token was after those before it.

    Nothing comes before the first token, so it has no value: `first` is its id and spelling.
    """

    first: tuple[int, bytes]
    logprobs: tuple[Logprob, ...]


@dataclass(frozen=True, slots=True)
class Text:
    """A piece of the answer, always whole characters, and the tokens that brought it. Without text: tokens of marks.

    logprobs: one for each token that was wanted with it; an end token has none.
    """

    text: str
    tokens: tuple[int, ...]
    logprobs: tuple[Logprob, ...] = ()


@dataclass(frozen=True, slots=True)
class Thought:
    """A piece of what a model thinks before it answers; in all else as `Text`."""

    text: str
    tokens: tuple[int, ...]
    logprobs: tuple[Logprob, ...] = ()


@dataclass(frozen=True, slots=True)
class CallStart:
    """The model asks for a tool. The pieces of its arguments follow, before any other piece."""

    id: str
    name: str


@dataclass(frozen=True, slots=True)
class Arguments:
    """A piece of the arguments of the call that began last: of the JSON text of an object; in all else as `Text`."""

    text: str
    tokens: tuple[int, ...]
    logprobs: tuple[Logprob, ...] = ()


@dataclass(frozen=True, slots=True)
class End:
    """The last event of an answer.

    reason: "stop" (an end token or a stop text), "calls" (the same, and it asks for tools), "length" (max_tokens or the
    context), or "cancelled". stopped_by: the stop text that ended it, if one did. logprob: of the end
    token, where it was asked for.
    """

    reason: Reason
    usage: Usage
    timings: Timings
    seed: int
    stopped_by: str = ""
    logprob: Logprob | None = None


@dataclass(frozen=True, slots=True)
class Failed:
    """The last event of an answer that could not be finished."""

    error: WoollyError


Piece: TypeAlias = Text | Thought | Arguments
Event: TypeAlias = Start | Prompt | Text | Thought | CallStart | Arguments | End | Failed


@dataclass(frozen=True, slots=True)
class Call:
    """A tool that the model asks for; `arguments` is the JSON text of an object."""

    id: str
    name: str
    arguments: str


@dataclass(frozen=True, slots=True)
class Completion:
    """A whole answer. `tokens` are all that were generated, an end token included; `text` has no special tokens.

    thought: what the model thought first, in a chat. The text of a prompt that was continued has thoughts and marks.
    finish_reason: as `End.reason`. calls: the tools that the model asks for; where the limit cut the last one short,
    its arguments are no whole JSON.
    seed: gives this answer again. logprobs, prompt: where they were asked for. stopped_by: the stop text that ended it.
    end_logprob: of the end token, which `logprobs` does not have. pieces: what all this was made of, in order; answers
    are equal however they were cut.
    """

    text: str
    thought: str
    tokens: list[int]
    finish_reason: Reason
    usage: Usage
    timings: Timings
    seed: int
    logprobs: tuple[Logprob, ...] = ()
    calls: tuple[Call, ...] = ()
    prompt: Prompt | None = None
    stopped_by: str = ""
    end_logprob: Logprob | None = None
    pieces: tuple[Piece, ...] = field(default=(), repr=False, compare=False)


def complete(events: Iterable[Event]) -> Completion:
    """All events of one answer as a whole; an answer that failed raises its error."""
    pieces: list[Piece] = []
    calls: list[tuple[CallStart, list[str]]] = []
    prompt: Prompt | None = None
    for event in events:
        match event:
            case Text() | Thought():
                pieces.append(event)
            case CallStart():
                calls.append((event, []))
            case Arguments():
                pieces.append(event)
                calls[-1][1].append(event.text)
            case Prompt():
                prompt = event
            case Failed(error):
                raise error
            case End(reason, usage, timings, seed, stopped_by, end_logprob):
                return Completion(
                    text="".join(piece.text for piece in pieces if isinstance(piece, Text)),
                    thought="".join(piece.text for piece in pieces if isinstance(piece, Thought)),
                    tokens=[token for piece in pieces for token in piece.tokens],
                    finish_reason=reason,
                    usage=usage,
                    timings=timings,
                    seed=seed,
                    logprobs=tuple(row for piece in pieces for row in piece.logprobs),
                    calls=tuple(Call(call.id, call.name, "".join(parts)) for call, parts in calls),
                    prompt=prompt,
                    stopped_by=stopped_by,
                    end_logprob=end_logprob,
                    pieces=tuple(pieces),
                )
    raise AssertionError("an answer ends with End or Failed")


def _number(name: str, value: object, least: float, most: float) -> float:
    try:
        if isinstance(value, bool | str | bytes):
            raise TypeError
        number = float(value)  # type: ignore[arg-type]
    except (TypeError, ValueError, OverflowError):
        raise RequestError(f"{name} is a number, not {_shown(value)}", param=name, value=value) from None
    if not least <= number <= most:  # a NaN is not, either
        raise RequestError(f"{name} is {number:g}, but must be between {least:g} and {most:g}", param=name, value=value)
    return number


def _integer(name: str, value: object, least: int, most: int) -> int:
    try:
        if isinstance(value, bool):
            raise TypeError
        number = operator.index(value)  # type: ignore[arg-type]
    except TypeError:
        raise RequestError(f"{name} is a whole number, not {_shown(value)}", param=name, value=value) from None
    if not least <= number <= most:
        raise RequestError(
            f"{name} is {_shown(value)}, but must be between {least} and {most}", param=name, value=value
        )
    return number


def _shown(value: object) -> str:
    """For a message; Python refuses to write out an integer of thousands of digits."""
    return "a huge number" if isinstance(value, int) and value.bit_length() > 256 else printable(value)


def _biases(biases: object) -> dict[int | str, float]:
    if not isinstance(biases, Mapping):
        raise RequestError(
            f"logit_bias maps token ids or texts to numbers, not {type(biases).__name__}", param="logit_bias"
        )
    if len(biases) > LIMITS.biases:
        raise RequestError(
            f"logit_bias has {len(biases):,} entries, but may have {LIMITS.biases:,}",
            param="logit_bias",
            limit=LIMITS.biases,
        )
    return {
        _biased(token): _number(f"logit_bias[{token}]", bias, -LIMITS.bias, LIMITS.bias)
        for token, bias in biases.items()
    }


def _scales(lora: object) -> dict[str | int, float]:
    """Scales of adapters by their names, or by their numbers in the order in which they were loaded."""
    if not isinstance(lora, Mapping) or not all(isinstance(name, str | int) for name in lora):
        raise RequestError("lora maps the names of adapters, or their numbers, to their scales", param="lora")
    if len(lora) > LIMITS.adapters:
        raise RequestError(f"lora has {len(lora)} adapters, but may have {LIMITS.adapters}", param="lora")
    return {
        name: _number(f"lora.{printable(name)}", scale, -LIMITS.lora_scale, LIMITS.lora_scale)
        for name, scale in lora.items()
    }


def _biased(token: object) -> int | str:
    """What a bias is for: a token id, or a short text."""
    if isinstance(token, str):
        return _texts("logit_bias", token)[0]
    return _integer("logit_bias", token, 0, 2**31 - 1)


def _variables(variables: object) -> dict[str, Scalar]:
    """Variables of a template: few, under names that it could use, none of them ours, no value that holds others."""
    name = "chat_template_kwargs"
    if not isinstance(variables, Mapping):
        raise RequestError(f"{name} maps names to values, not {type(variables).__name__}", param=name)
    if len(variables) > LIMITS.variables:
        raise RequestError(
            f"{name} has {len(variables):,} entries, but may have {LIMITS.variables}",
            param=name,
            limit=LIMITS.variables,
        )
    for key, value in variables.items():
        if not (isinstance(key, str) and key.isascii() and key.isidentifier() and len(key) <= LIMITS.variable_name):
            raise RequestError(f"{name} has '{printable(key)}', which is no name of a variable", param=name)
        if key in TEMPLATE_NAMES:
            raise RequestError(f"{name}.{key} is not for a request to set", param=f"{name}.{key}")
        if not isinstance(value, Scalar) or (isinstance(value, float) and not math.isfinite(value)):
            raise RequestError(
                f"{name}.{key} is a number, a text, true, false or null, not {_shown(value)}", param=f"{name}.{key}"
            )
    return dict(variables)


def _texts(name: str, given: object) -> tuple[str, ...]:
    """One text or several, as the stop texts are; each short, none empty."""
    texts = (given,) if isinstance(given, str) else tuple(given) if isinstance(given, Iterable) else None
    if texts is None or not all(isinstance(text, str) for text in texts):
        raise RequestError(f"{name} is a text or a list of texts", param=name)
    if len(texts) > LIMITS.stops:
        raise RequestError(
            f"{name} has {len(texts)} texts, but may have {LIMITS.stops}", param=name, limit=LIMITS.stops
        )
    for text in texts:
        size = len(text.encode("utf-8", "surrogatepass"))
        if not 1 <= size <= LIMITS.stop_bytes:
            raise RequestError(
                f"a text of {name} has {size} bytes, but must have between 1 and {LIMITS.stop_bytes}",
                param=name,
                limit=LIMITS.stop_bytes,
            )
    return texts
