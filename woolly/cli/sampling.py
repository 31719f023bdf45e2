"""The sampling that a user can ask for: options of `run`, names of `/set`."""

from __future__ import annotations

import argparse
import functools

from woolly.config.rows import MOST
from woolly.errors import RequestError, printable
from woolly.request import SAMPLING

OPTIONS: dict[str, tuple[type[int] | type[float], str]] = {  # option -> (type, what it does)
    "max_tokens": (int, "the most tokens to answer with (default: to the end of the context)"),
    **{name: (row.type, f"{row.help} (default {row.default:g})") for name, row in SAMPLING.items()},
    "seed": (int, "the same seed gives the same answer"),
}
TEXTS: dict[str, tuple[str, str]] = {  # setting of several texts -> (option of `run` for one text, what it does)
    "stop": ("--stop", "end before this text"),
    "dry_sequence_breakers": ("--dry-sequence-breaker", "no repetition that DRY sees goes across this text"),
}
BIAS = "TEXT=X adds X to the logits of the text's tokens"


def add_options(parser: argparse.ArgumentParser | argparse._ArgumentGroup, *names: str) -> None:
    """Add the options with these names, or all."""
    for name in names or OPTIONS:
        kind, what = OPTIONS[name]
        flag = "--" + name.replace("_", "-")
        read = functools.partial(read_option, name, what=flag)
        parser.add_argument(flag, type=read, metavar="N" if kind is int else "X", help=what)


def option_values(args: argparse.Namespace, *names: str) -> dict[str, int | float]:
    """The values of these options, or of all, that the command line has."""
    return {name: value for name in names or OPTIONS if (value := getattr(args, name)) is not None}


def read_option(name: str, text: str, what: str) -> int | float:
    """The value of an option, of which the range is checked with those of all others. what: as the user knows it."""
    kind = OPTIONS[name][0]
    try:
        return kind(text)
    except ValueError:
        raise RequestError(f"{what} is '{printable(text)}'; expected {_expected(name)}", param=what) from None


def _expected(name: str) -> str:
    kind = "a whole number" if OPTIONS[name][0] is int else "a number"
    if name not in SAMPLING:
        return kind
    row = SAMPLING[name]
    return f"{kind} of at least {row.least:g}" if row.most == MOST else f"{kind} from {row.least:g} to {row.most:g}"


def read_bias(words: str) -> tuple[str, float]:
    """The text and the bias of TEXT=X; the text may contain an equals sign."""
    text, equals, number = words.rpartition("=")
    try:
        if not equals:
            raise ValueError
        return text, float(number)
    except ValueError:
        raise RequestError(
            f"'{printable(words)}' is no bias; expected a text, '=' and a number, such as 'wool=-5'", param="logit_bias"
        ) from None
