"""How tokens are chosen: the parameters of a request that say so, each checked when it is given.

`engine/sampling/stages.py` defines what each does.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, fields, replace
from types import MappingProxyType
from typing import Any

from woolly.errors import RequestError
from woolly.limits import LIMITS
from woolly.request.parameters import read_integer, read_number, read_texts, shown


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
            return read_number(self.name, value, self.least, self.most)
        number = read_integer(self.name, value, int(self.least), int(self.most))
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
    that with it the six others do not count. `engine/sampling/stages.py` defines each.

    SAMPLING is the table of its parameters, which the library, the command line, HTTP and the page read.
    dry_sequence_breakers: no repetition that DRY sees goes across one of these texts.
    logit_bias: added to the logits of these token ids; of a text, to those of all its tokens.
    ignore_eos: no token that would end the answer is chosen. infill: the stage of llama.cpp for a text with a gap.
    seed: the same seed gives the same text. None draws one; `End.seed` tells which.
    unset: names of SAMPLING that nobody chose a value for; `recommended` sets these and no others.
    """

    temperature: float = _parameter(0.7, 0.0, 100.0, "0 always takes the most likely token; higher is more daring")
    dynatemp_range: float = _parameter(
        0.0, 0.0, 100.0, "the temperature goes up and down by this as the model is unsure"
    )
    dynatemp_exponent: float = _parameter(1.0, 0.0, 100.0, "how much doubt it takes for the higher temperature")
    top_k: int = _parameter(50, -1, 2**31 - 1, "choose among the K most likely tokens; 0 or -1: all")
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
    ignore_eos: bool = False
    infill: bool = False
    seed: int | None = None
    unset: frozenset[str] = field(default=frozenset(), compare=False, repr=False)

    @classmethod
    def of(cls, chosen: Mapping[str, Any]) -> Sampling:
        """The sampling of a caller that chose these values, and left the others to the model."""
        return cls(**chosen, unset=frozenset(SAMPLING.keys() - chosen.keys()))

    def recommended(self, values: Mapping[str, Any]) -> Sampling:
        """With these values for parameters that nobody chose; they count as chosen then."""
        taken = {name: value for name, value in values.items() if name in self.unset}
        return replace(self, **taken, unset=self.unset - taken.keys()) if taken else self

    def __post_init__(self) -> None:
        put = object.__setattr__
        for parameter in SAMPLING.values():
            put(self, parameter.name, parameter.check(getattr(self, parameter.name)))
        put(self, "top_k", max(self.top_k, 0))
        put(self, "dry_sequence_breakers", read_texts("dry_sequence_breakers", self.dry_sequence_breakers))
        put(self, "logit_bias", MappingProxyType(_biases(self.logit_bias)))
        for name in ("ignore_eos", "infill"):
            if not isinstance(value := getattr(self, name), bool):
                raise RequestError(f"{name} is true or false, not {shown(value)}", param=name)
        if self.infill and self.mirostat:
            raise RequestError("infill is a stage, of which mirostat takes the place", param="infill")
        if self.seed is not None:
            put(self, "seed", read_integer("seed", self.seed, 0, 2**64 - 1))


SAMPLING: Mapping[str, Parameter] = {
    row.name: Parameter(row.name, {"int": int, "float": float}[str(row.type)], default=row.default, **row.metadata)
    for row in fields(Sampling)
    if row.metadata
}


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
        _biased(token): read_number(f"logit_bias[{token}]", bias, -LIMITS.bias, LIMITS.bias)
        for token, bias in biases.items()
    }


def _biased(token: object) -> int | str:
    """The key of a bias: a token id, or a short text."""
    if isinstance(token, str):
        return read_texts("logit_bias", token)[0]
    return read_integer("logit_bias", token, 0, 2**31 - 1)
