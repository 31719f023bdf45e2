"""`Request`: what a caller asks for. The answer is made of the events of events.py.

Everything here is a plain value, checked when it is made: a wrong parameter is a `RequestError` that names it, before
any work has begun. What only the model knows (its vocabulary, its context) is checked where the model is, in
`LLM.submit`.

    Request(prompt="Once", sampling=Sampling(temperature=0.0), max_tokens=20, stop=("\\n",))
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping
from copy import copy
from dataclasses import dataclass, field, fields
from types import MappingProxyType
from typing import Any, Literal, TypedDict

from woolly.config.rows import Scalar
from woolly.errors import RequestError, printable
from woolly.limits import LIMITS
from woolly.request.format import Format, read_format
from woolly.request.messages import Message, Tool, read_choice, read_messages, read_tools
from woolly.request.parameters import read_integer, read_number, read_texts, shown
from woolly.request.sampling import Sampling

# Variables that Woolly, or the function that renders a template, sets: a request may not.
TEMPLATE_NAMES = frozenset(
    (
        *("messages", "tools", "documents", "add_generation_prompt", "bos_token", "eos_token"),
        *("raise_exception", "strftime_now", "namespace", "range", "tojson"),
        *("chat_template", "conversation", "tokenize", "continue_final_message", "self", "now"),
    )
)


class Options(TypedDict, total=False):
    """The options of the library's calls: fields of `Request` and of `Sampling`, which explain them."""

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
    ignore_eos: bool
    infill: bool
    seed: int | None


@dataclass(frozen=True, slots=True)
class Request:
    """What to answer: exactly one of `prompt` (text), `tokens` (ids, taken as they are), `mixed` (ids and texts, in
    their order) and `messages` (a chat).

    max_tokens: None is 100 for a prompt or ids, and up to the end of the context for a chat.
    suffix: what follows after a gap that the answer is to fill; the prompt is what stands before it. files: names and
    texts of other files, which the model reads first.
    begun: how the answer to a chat, or what fills a gap, begins; the model goes on from there and does not repeat it.
    shorten: an answer of max_tokens that the context has no room for is shorter; otherwise it is refused.
    stop: the answer ends before the first of these texts; nothing of it is sent.
    indent: the answer ends at a line, behind its first, that begins with fewer blanks: where a block of code does.
    format: what the text must be: a `Format`; "json" and a JSON schema are taken for one.
    lora: the adapters that count, by name or number, and the scale of each; None: as the model was loaded.
    logprobs: tell how likely each token was, and so many of the likeliest beside it. None: do not.
    prompt_logprobs: tell the same of the prompt's own tokens, all of which are computed for it; needs logprobs.
    post_sampling: what logprobs tells is how likely tokens were among those that the sampling left, as they were drawn.
    think: whether a model that can think first does, in a chat; None is as the model was loaded.
    chat_template_kwargs: other variables that the model's chat template knows: numbers, texts, true or false by name.
    tools: what the model may ask for in a chat. tool_choice: "auto" leaves it to the model whether it calls one, "none"
    forbids it, "required" asks for a call, and a name for a call of that tool.
    parallel_tool_calls: whether an answer may have more than one call.
    """

    prompt: str | None = None
    tokens: tuple[int, ...] | None = None
    mixed: tuple[int | str, ...] | None = None
    messages: tuple[Message, ...] | None = None
    suffix: str | None = None
    files: tuple[tuple[str, str], ...] = ()
    begun: str = ""
    sampling: Sampling = field(default_factory=Sampling)
    max_tokens: int | None = None
    shorten: bool = False
    stop: tuple[str, ...] = ()
    indent: int = 0
    format: Format | None = None
    lora: Mapping[str | int, float] | None = None
    logprobs: int | None = None
    prompt_logprobs: bool = False
    post_sampling: bool = False
    think: bool | None = None
    chat_template_kwargs: Mapping[str, Scalar] = field(default_factory=dict)
    tools: tuple[Tool, ...] = ()
    tool_choice: str = "auto"
    parallel_tool_calls: bool = True

    def __post_init__(self) -> None:
        sources = [name for name in ("prompt", "tokens", "mixed", "messages") if getattr(self, name) is not None]
        if len(sources) != 1:
            several = " and ".join(sources) or "none"
            raise RequestError(
                f"a request has exactly one of prompt, tokens, mixed and messages, not {several}", param="prompt"
            )
        if self.prompt is not None and not isinstance(self.prompt, str):
            raise RequestError(f"prompt is text or token ids, not {type(self.prompt).__name__}", param="prompt")
        put = object.__setattr__
        if self.tokens is not None:
            put(self, "tokens", tuple(read_integer(f"tokens[{i}]", t, 0, 2**31 - 1) for i, t in enumerate(self.tokens)))
        if self.mixed is not None:
            put(self, "mixed", tuple(_part(f"mixed[{index}]", part) for index, part in enumerate(self.mixed)))
        if self.messages is not None:
            put(self, "messages", read_messages(self.messages))
        elif self.begun and self.suffix is None:
            raise RequestError("only the answer to a chat, or what fills a gap, can be begun", param="begun")
        if self.suffix is not None and self.prompt is None:
            raise RequestError("only a prompt has a suffix", param="suffix")
        if self.files and self.suffix is None:
            raise RequestError("only a text with a gap has files beside it", param="files")
        if self.max_tokens is not None:
            put(self, "max_tokens", read_integer("max_tokens", self.max_tokens, 1, 2**31 - 1))
        put(self, "stop", read_texts("stop", self.stop))
        put(self, "indent", read_integer("indent", self.indent, 0, 2**31 - 1))
        put(self, "format", read_format(self.format))
        if self.lora is not None:
            put(self, "lora", MappingProxyType(_scales(self.lora)))
        if self.logprobs is not None:
            put(self, "logprobs", read_integer("logprobs", self.logprobs, 0, LIMITS.logprobs))
        elif self.prompt_logprobs:
            raise RequestError(
                "prompt_logprobs needs logprobs, the number of likeliest tokens to tell", param="logprobs"
            )
        if self.post_sampling and (self.logprobs is None or self.prompt_logprobs or self.sampling.mirostat):
            raise RequestError(
                "post_sampling needs logprobs, and goes neither with prompt_logprobs nor with mirostat",
                param="post_sampling",
            )
        if self.think is not None and not isinstance(self.think, bool):
            raise RequestError(f"think is true or false, not {shown(self.think)}", param="think", value=self.think)
        put(self, "chat_template_kwargs", read_variables(self.chat_template_kwargs))
        if self.chat_template_kwargs and self.messages is None:
            raise RequestError("only a chat has a template that takes variables", param="chat_template_kwargs")
        put(self, "tools", read_tools(self.tools))
        put(self, "tool_choice", read_choice(self.tool_choice, self.tools))
        if self.tools and self.messages is None:
            raise RequestError("only a chat has tools", param="tools")

    def with_values(self, **values: Any) -> Request:
        """This request with other values of some fields, which are right already: nothing of it is read again."""
        changed = copy(self)
        for name, value in values.items():
            object.__setattr__(changed, name, value)
        return changed


def request_of(options: Mapping[str, Any], **what: Any) -> Request:
    """A request from one mapping of options, as callers give them: fields of `Request` and fields of `Sampling`."""
    names = {row.name for row in fields(Sampling)} - {"unset"}
    options_of_request = {name: value for name, value in options.items() if name not in names}
    sampling = Sampling.of({name: options[name] for name in names & options.keys()})
    return Request(**what, **options_of_request, sampling=sampling)


def _part(name: str, part: object) -> int | str:
    """A part of a prompt: an id or a text."""
    return part if isinstance(part, str) else read_integer(name, part, 0, 2**31 - 1)


def _scales(lora: object) -> dict[str | int, float]:
    """Scales of adapters by their names, or by their numbers in the order in which they were loaded."""
    if not isinstance(lora, Mapping) or not all(isinstance(name, str | int) for name in lora):
        raise RequestError("lora maps the names of adapters, or their numbers, to their scales", param="lora")
    if len(lora) > LIMITS.adapters:
        raise RequestError(f"lora has {len(lora)} adapters, but may have {LIMITS.adapters}", param="lora")
    return {
        name: read_number(f"lora.{printable(name)}", scale, -LIMITS.lora_scale, LIMITS.lora_scale)
        for name, scale in lora.items()
    }


def read_variables(variables: object) -> Mapping[str, Scalar]:
    """Variables of a template: a limited number, under names that Woolly does not set; a value is a scalar."""
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
                f"{name}.{key} is a number, a text, true, false or null, not {shown(value)}", param=f"{name}.{key}"
            )
    return MappingProxyType(dict(variables))
