"""Messages with a head: some models write before each part of an answer its recipient and its channel."""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass

from woolly.request import PartText, Text, Thought
from woolly.request.messages import Tool
from woolly.text.output.values import Broken, Cut, Reading, Source

LONGEST = 256  # characters of a head
_TO = re.compile(r"\bto=([\w.-]+)")


@dataclass(frozen=True, slots=True)
class Head:
    """What a message is, by its head: text, a thought, or arguments of a tool."""

    kind: type[PartText]
    tool: str = ""


def harmony(source: Source, tools: Mapping[str, Tool], first: bool) -> Reading[Head]:
    """[<|start|>assistant][ to=NAME]<|channel|>CHANNEL[ to=NAME][ <|constrain|>json]<|message|>"""
    head = yield from _until_message(source, first)
    to = [name for name in _TO.findall(head) if name != "assistant"]
    channels = re.findall(r"<\|channel\|>(\w+)", head)
    if to and tools:
        name = to[-1].removeprefix("functions.")
        if name != to[-1] or name in tools:
            return Head(Text, name)
    hidden = (to and not to[-1].startswith("functions.")) or channels[-1:] == ["analysis"]
    return Head(Thought if hidden else Text)


def glimmer(source: Source, tools: Mapping[str, Tool], first: bool) -> Reading[Head]:
    """[<|start|>assistant] to=NAME<|message|>, where NAME is self, user or a tool."""
    head = yield from _until_message(source, first)
    to = _TO.findall(head)
    if not to or to[-1] in ("self", "user"):
        return Head(Thought if to and to[-1] == "self" else Text)
    return Head(Text, to[-1] if tools else "")


def functionary(source: Source, tools: Mapping[str, Tool], first: bool) -> Reading[Head]:
    """NAME and a newline, where NAME is all or a tool; the prompt has written the first >>>."""
    if not first:
        yield from source.expect(">>>")
    name = yield from source.match(re.compile(r"[\w.-]*"), LONGEST)
    yield from source.expect("\n")
    if name != "all" and name not in tools:
        raise Broken
    return Head(Text, "" if name == "all" else name)


def _until_message(source: Source, first: bool) -> Reading[str]:
    begin = source.at
    if first:  # at the beginning of an answer a head may have no mark: it begins with `to=`
        yield from source.space()
        yield from source.expect("to=")
    try:
        yield from source.until("<|message|>", most=LONGEST)
    except Cut:
        source.at = len(source.text)  # the answer ended within a head: it has no text
        return ""
    source.at += len("<|message|>")
    return source.text[begin : source.at]
