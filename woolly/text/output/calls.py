"""How models write calls of tools: a reader for each way of writing, which the rows of styles.py are made with.

A reader begins after the mark that opens a call, and returns the calls that follow. Text that it cannot read raises
`Broken`, and stays text. Nothing is repaired, and nothing is evaluated.
"""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any, Protocol

from woolly.request.messages import Tool
from woolly.text.output.schema import kinds, property_of, typed
from woolly.text.output.values import (
    GEMMA,
    JSON,
    PYTHON,
    Broken,
    Cut,
    Reading,
    Source,
    Started,
    read_object,
    read_value,
    run,
)

HEADER = 256  # characters that the header of a call, a name or a key may have
NAMES = ("name", "tool_name", "function")
ARGUMENTS = ("arguments", "parameters", "args")
IDS = ("id", "tool_call_id")
_KEYS = (*NAMES, *ARGUMENTS, *IDS, "type")
_NAME = re.compile(r"[\w.-]+")
_KEYWORD = re.compile(r"\w*")


@dataclass(frozen=True, slots=True)
class ParsedCall:
    """A call that was read. id: "" unless the model wrote one."""

    name: str
    arguments: dict[str, Any]
    id: str = ""

    @property
    def text(self) -> str:
        """The arguments as JSON."""
        return json.dumps(self.arguments, ensure_ascii=False)


class Reader(Protocol):
    def read(self, source: Source, tools: Mapping[str, Tool], known: bool, name: str = "") -> Reading[list[ParsedCall]]:
        """The calls that come next. known: only names of the request's tools are calls. name: of the tool, where
        the head of a message gave it."""
        ...


def _until_bracket(source: Source, one: Callable[[], Reading[ParsedCall]]) -> Reading[list[ParsedCall]]:
    """The calls of a list whose bracket was read, up to the one that closes it."""
    calls = []
    while True:
        yield from source.space()
        calls.append((yield from one()))
        yield from source.space()
        if (yield from source.expect(",", "]")) == "]":
            return calls


@dataclass(frozen=True, slots=True)
class JsonCalls:
    """{"name": ..., "arguments": {...}}, or a list of them. keyed: {NAME: {...}} is a call, too."""

    keyed: bool = False

    def read(self, source: Source, tools: Mapping[str, Tool], known: bool, name: str = "") -> Reading[list[ParsedCall]]:
        yield from source.space()
        if not (yield from source.take("[")):
            if not (yield from source.begins("{")):
                source.refuse("{", "[")
            return [(yield from self._one(source, tools, known))]
        yield from source.space()
        if not known and (yield from source.take("]")):
            return []
        return (yield from _until_bracket(source, lambda: self._one(source, tools, known)))

    def _one(self, source: Source, tools: Mapping[str, Tool], known: bool) -> Reading[ParsedCall]:
        def member(key: str, before: Mapping[str, Any]) -> Reading[Any]:
            if known and key not in _KEYS:
                raise Broken
            name = _first(before, NAMES)
            if key in ARGUMENTS and isinstance(name, str) and (yield from source.begins("{")):
                return (yield from read_arguments(source, name, str(_first(before, IDS) or "")))
            if self.keyed and not before and key in tools and (yield from source.begins("{")):
                return (yield from read_arguments(source, key))
            return (yield from read_value(source, JSON, 1))

        record = yield from read_object(source, JSON, 0, member)
        if isinstance(record.get("function"), dict):
            record = {**record, **record["function"]}
        name = record["name"] if "name" in record else _first(record, NAMES)
        arguments = next((record[key] for key in ARGUMENTS if key in record), None)
        if self.keyed and name is None and len(record) == 1:
            ((name, arguments),) = record.items()
        if known and (name not in tools or arguments is None):
            raise Broken
        if not isinstance(name, str) or not name:
            raise Broken
        return ParsedCall(name, _arguments(arguments), str(_first(record, IDS) or ""))


def _first(record: Mapping[str, Any], keys: tuple[str, ...]) -> Any:
    return next((record[key] for key in keys if record.get(key) is not None), None)


def _arguments(value: Any) -> dict[str, Any]:
    """Arguments as an object; a text is decoded once."""
    if isinstance(value, str):
        try:
            value = json.loads(value, strict=False)
        except (ValueError, RecursionError):
            raise Broken from None
    if value is None:
        return {}
    if not isinstance(value, dict):
        raise Broken
    return value


def read_arguments(source: Source, name: str, id: str = "") -> Reading[dict[str, Any]]:
    """Arguments as a JSON object, whose text can be handed to the caller while it is read."""
    started = Started(name, id, source.at)
    source.started.append(started)
    arguments = yield from read_object(source, JSON, 1)
    started.end = source.at
    return arguments


@dataclass(frozen=True, slots=True)
class NamedCalls:
    """A name, and the arguments as a JSON object. header: matches the text before it, with the groups `name`, `id`."""

    header: re.Pattern[str]

    def read(self, source: Source, tools: Mapping[str, Tool], known: bool, name: str = "") -> Reading[list[ParsedCall]]:
        header = yield from source.until("{", most=HEADER)
        match = self.header.fullmatch(header)
        if not match or (known and match["name"] not in tools):
            raise Broken
        name, id = match["name"], match.groupdict().get("id") or ""
        return [ParsedCall(name, (yield from read_arguments(source, name, id)), id)]


@dataclass(frozen=True, slots=True)
class MessageCalls:
    """The arguments alone; the head of the message had the name. marks: they end a message; one in place of the
    arguments stands for a call without any."""

    marks: tuple[str, ...] = ()

    def read(self, source: Source, tools: Mapping[str, Tool], known: bool, name: str = "") -> Reading[list[ParsedCall]]:
        yield from source.space()
        for mark in self.marks:
            if (yield from source.begins(mark)):
                return [ParsedCall(name, {})]
        return [ParsedCall(name, (yield from read_arguments(source, name)))]


@dataclass(frozen=True, slots=True)
class GemmaCalls:
    """call:NAME{key:value}. typed: strings are converted to the types of the tool's schema."""

    typed: bool = False

    def read(self, source: Source, tools: Mapping[str, Tool], known: bool, name: str = "") -> Reading[list[ParsedCall]]:
        yield from source.expect("call:")
        name = yield from source.match(_NAME, HEADER)
        if not name:
            source.refuse("a")
        arguments = yield from read_object(source, GEMMA)
        if self.typed:
            arguments = {
                key: typed(value, property_of(tools, name, key)) if isinstance(value, str) else value
                for key, value in arguments.items()
            }
        return [ParsedCall(name, arguments)]


@dataclass(frozen=True, slots=True)
class PythonCalls:
    """[f(a=1), g()], or, with `closings`, a call on each line up to one of these marks."""

    closings: tuple[str, ...] = ()
    known_only: bool = False  # only names of tools that the request has are calls

    def read(self, source: Source, tools: Mapping[str, Tool], known: bool, name: str = "") -> Reading[list[ParsedCall]]:
        yield from source.space()
        if self.closings:
            return (yield from self._lines(source, tools))
        begin = source.at
        yield from source.expect("[")
        yield from source.space()
        if (yield from source.begins("{")):
            source.at = begin
            return (yield from JsonCalls().read(source, tools, known))
        return (yield from _until_bracket(source, lambda: self._one(source, tools, known)))

    def _lines(self, source: Source, tools: Mapping[str, Tool]) -> Reading[list[ParsedCall]]:
        calls: list[ParsedCall] = []
        while True:
            yield from source.space()
            if calls and ((yield from source.take(*self.closings)) or not (yield from source.peek())):
                return calls
            calls.append((yield from self._one(source, tools, self.known_only)))

    def _one(self, source: Source, tools: Mapping[str, Tool], known: bool) -> Reading[ParsedCall]:
        name = yield from source.match(_NAME, HEADER)
        if not name:
            source.refuse("a")
        yield from source.expect("(")
        if known and name not in tools:
            raise Broken
        order = iter(tools[name].parameters.get("properties", {}) if name in tools else ())
        arguments: dict[str, Any] = {}
        while True:
            yield from source.space()
            if (yield from source.take(")")):
                return ParsedCall(name, arguments)
            begin = source.at
            key = yield from source.match(_KEYWORD)
            yield from source.space()
            if not key or not (yield from source.take("=")):
                source.at, key = begin, next(order, "")
                if not key:
                    raise Broken if not source.ended else Cut
            arguments[key] = yield from read_value(source, PYTHON)
            yield from source.space()
            if (yield from source.expect(",", ")")) == ")":
                return ParsedCall(name, arguments)


@dataclass(frozen=True, slots=True)
class TagCalls:
    """A name, then parameters between tags.

    named: marks that end the name.
    key, keyed: the marks before and after the key of a parameter; after a quote in the key come attributes.
    value: the mark that ends a parameter. end: the mark that ends the call.
    wrapped: a newline after `keyed` and one before `value` do not belong to the value.
    """

    named: tuple[str, ...]
    key: str
    keyed: tuple[str, ...]
    value: str
    end: str
    wrapped: bool = False

    def read(self, source: Source, tools: Mapping[str, Tool], known: bool, name: str = "") -> Reading[list[ParsedCall]]:
        name, _ = _attributes((yield from source.until(*self.named, most=HEADER)))
        yield from source.take(*(mark for mark in self.named if mark not in (self.key, self.end)))
        if not _NAME.fullmatch(name) or (known and name not in tools):
            raise Broken
        arguments: dict[str, Any] = {}
        while True:
            yield from source.space()
            if (yield from source.take(self.end)):
                return [ParsedCall(name, arguments)]
            yield from source.expect(self.key)
            key, attributes = _attributes((yield from source.until(self.keyed[0], most=HEADER)))
            source.at += len(self.keyed[0])
            for mark in self.keyed[1:]:
                yield from source.space()
                yield from source.expect(mark)
            arguments[key] = typed((yield from self._value(source)), property_of(tools, name, key), attributes)

    def _value(self, source: Source) -> Reading[str]:
        """The text of a value. Its closing tag counts only where another tag of the call follows."""
        if (yield from source.take("<![CDATA[")):
            text = yield from source.until("]]>")
            source.at += 3
            yield from source.expect(self.value)
            return text
        begin = source.at
        forgotten = (f"\n{self.key}",) if self.wrapped else ()
        while True:
            yield from source.until(self.value, *forgotten)
            end = source.at
            if not (yield from source.take(self.value)):
                source.at += 1
                break  # the next parameter begins without an end of this one
            yield from source.space()
            if (yield from self._follows(source)):
                break
            source.at = end + 1
        text = source.text[begin:end]
        return text[1:].removesuffix("\n") if self.wrapped and text.startswith("\n") else text

    def _follows(self, source: Source) -> Reading[bool]:
        while (yield from source.take(self.value)):  # a closing tag that is repeated
            yield from source.space()
        for mark in (self.key, self.end):
            if (yield from source.begins(mark)):
                return True
        if not (yield from source.peek()):
            raise Cut
        return False


def _attributes(text: str) -> tuple[str, dict[str, str]]:
    """The text before the first quote, and the attributes after it."""
    first, _, rest = text.partition('"')
    return first.strip(), dict(re.findall(r'(\w+)="([^"]*)', rest))


@dataclass(frozen=True, slots=True)
class NestedCalls:
    """Parameters as nested tags, each with `sign` before it; the items of a list are tags named `item`."""

    sign: str

    def read(self, source: Source, tools: Mapping[str, Tool], known: bool, name: str = "") -> Reading[list[ParsedCall]]:
        name = yield from source.until('">', most=HEADER)
        source.at += 2
        if not _NAME.fullmatch(name) or (known and name not in tools):
            raise Broken
        arguments: dict[str, Any] = {}
        while True:
            yield from source.space()
            if (yield from source.take(f"{self.sign}</invoke>")):
                return [ParsedCall(name, arguments)]
            key, text = yield from self._element(source)
            arguments[key] = self._value(text, property_of(tools, name, key))

    def _element(self, source: Source) -> Reading[tuple[str, str]]:
        """The name of a tag, and the text up to its closing tag."""
        yield from source.expect(f"{self.sign}<")
        key = yield from source.until(">", most=HEADER)
        source.at += 1
        opening, closing = f"{self.sign}<{key}>", f"{self.sign}</{key}>"
        begin, depth, end = source.at, 1, source.at
        while depth:
            yield from source.until(opening, closing)
            end = source.at
            depth += 1 if (yield from source.take(opening, closing)) == opening else -1
        return key, source.text[begin:end]

    def _value(self, text: str, schema: Any) -> Any:
        allowed = kinds(schema)
        if f"{self.sign}<" not in text or "string" in allowed or (allowed and not allowed & {"object", "array"}):
            return typed(text, schema)
        source, members = Source(text), []
        source.ended = True
        while text[source.at :].strip():
            run(source.space())
            members.append(run(self._element(source)))
        if all(key == "item" for key, _ in members):
            return [self._value(part, _inner(schema, "items")) for _, part in members]
        properties = _inner(schema, "properties")
        return {key: self._value(part, properties.get(key, {})) for key, part in members}


def _inner(schema: Any, word: str) -> Mapping[str, Any]:
    """The entry `word` of a schema, or of the first of its alternatives that has one; else {}."""
    if not isinstance(schema, Mapping):
        return {}
    places = (schema, *(part for name in ("anyOf", "oneOf") for part in schema.get(name) or ()))
    return next((place[word] for place in places if isinstance(place, Mapping) and word in place), {})
