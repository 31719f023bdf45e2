"""The parser of a command's words, whose errors are one line that says what is wrong and what to do."""

from __future__ import annotations

import argparse
from collections.abc import Sequence
from difflib import get_close_matches
from typing import NoReturn

from woolly.errors import RequestError, printable

NO_VALUE = ": expected one argument"  # in argparse's words


class Parser(argparse.ArgumentParser):
    """The parser of one command. A number is read with a sentence for what is none."""

    def __init__(self, name: str, help: str | None) -> None:
        super().__init__(
            prog=f"woolly {name}",
            description=help,
            allow_abbrev=False,
            formatter_class=argparse.RawDescriptionHelpFormatter,
        )
        self.register("type", int, _integer)
        self.register("type", float, _number)

    def parse(self, words: Sequence[str]) -> argparse.Namespace:
        """The options and words of a command line; options may stand between the words."""
        args, unknown = self.parse_known_intermixed_args(words)
        if not unknown:
            return args
        option = next((word for word in unknown if word.startswith("-")), None)
        if option is None:
            raise RequestError(f"'{printable(unknown[0])}' is one word too many", suggestion=self._hint())
        name = option.partition("=")[0]
        shown = [
            known for action in self._actions if action.help != argparse.SUPPRESS for known in action.option_strings
        ]
        near = get_close_matches(name, shown, n=1)
        suggestion = f"did you mean {near[0]}?" if near else self._hint()
        raise RequestError(f"`{self.prog}` has no {printable(name)}", suggestion=suggestion, param=name)

    def error(self, message: str) -> NoReturn:
        text = message.removeprefix("argument ")
        if text.endswith(NO_VALUE):
            text = f"{text.removesuffix(NO_VALUE)} needs a value"
        raise RequestError(printable(text, 300), suggestion=self._hint())

    def _hint(self) -> str:
        return f"see `{self.prog} --help`"


def _integer(text: str) -> int:
    try:
        return int(text)
    except ValueError:
        raise argparse.ArgumentTypeError(f"'{printable(text)}' is no whole number") from None


def _number(text: str) -> float:
    try:
        return float(text)
    except ValueError:
        raise argparse.ArgumentTypeError(f"'{printable(text)}' is no number") from None
