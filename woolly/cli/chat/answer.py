"""One answer, shown as it comes."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass

from woolly.cli.chat.screen import Screen
from woolly.cli.chat.thoughts import Thoughts
from woolly.errors import NativeError
from woolly.request import THOUGHTS, End, Event, Failed, Start, Text

LONG = 512  # tokens of a prompt that take a while to read


@dataclass(frozen=True, slots=True)
class Answer:
    words: str
    thoughts: str
    end: End


def opened_thoughts(prompt: str) -> str:
    """The mark that will close the thoughts, where the template itself has opened them; else ""."""
    return next((closing for opening, closing in THOUGHTS if prompt.rstrip().endswith(opening)), "")


def show(
    events: Iterable[Event],
    screen: Screen,
    *,
    inside: str = "",
    hide: bool = False,
    split: bool = True,
    notes: bool = False,
) -> Answer:
    """Write the answer as it comes.

    split: thoughts are told from words, else all are words. inside: it begins with thoughts, which this mark closes.
    hide: do not show them. notes: say what takes a while.
    """
    parted = Thoughts(inside=inside)
    parts: dict[str, list[str]] = {"thoughts": [], "words": []}

    def take(pieces: Iterable[tuple[str, str]]) -> None:
        for kind, text in pieces:
            if kind == "words":
                screen.words(text)
            elif not hide:
                screen.thoughts(text)
            elif notes and not parts["thoughts"]:
                screen.note("thinking …")
            parts[kind].append(text)

    try:
        for event in events:
            match event:
                case Start(prompt_tokens=prompt, cached_tokens=cached) if notes and prompt - cached > LONG:
                    screen.note(f"reading {prompt - cached:,} tokens …")
                case Text(text=text) if text:
                    take(parted.feed(text) if split else [("words", text)])
                case Failed(error=error):
                    raise error
                case End():
                    take(parted.flush())
                    return Answer("".join(parts["words"]), "".join(parts["thoughts"]), event)
        raise NativeError("the answer ended without a word about how")
    finally:
        screen.end()
