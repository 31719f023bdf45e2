"""How models write calls of tools: a reader for each way of writing, which the rows of styles.py are made with.

A reader begins after the mark that opens a call, and gives the calls that it found. What it cannot read is `Broken`:
it stays text. Nothing is repaired, and nothing is evaluated.
"""

from __future__ import annotations

import json
import re
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Protocol

from woolly.messages import Tool
from woolly.text.schema import kinds, property_of, typed
from woolly.text.values import (
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

HEADER = 256  # characters of what may stand before arguments
NAMES = ("name", "tool_name", "function")
ARGUMENTS = ("arguments", "parameters", "args")
IDS = ("id", "tool_call_id")
_KEYS = (*NAMES, *ARGUMENTS, *IDS, "type")
_NAME = re.compile(r"[\w.-]+")
_KEYWORD = re.compile(r"\w*")


@dataclass(frozen=True, slots=True)
class Found:
    """A call that was read. id: where the model wrote one."""

    name: str
    arguments: dict[str, Any]
    id: str = ""

    @property
    def text(self) -> str:
        """The arguments as JSON."""
        return json.dumps(self.arguments, ensure_ascii=False)


class Reader(Protocol):
    def read(self, source: Source, tools: Mapping[str, Tool], known: bool, name: str = "") -> Reading[list[Found]]:
        """The calls that come next. known: only names of tools that were given are calls. name: the head told it."""
        ...


@dataclass(frozen=True, slots=True)
class JsonCalls:
    """{"name": ..., "arguments": {...}}, or a list of them. keyed: {NAME: {...}} too."""

    keyed: bool = False

    def read(self, source: Source, tools: Mapping[str, Tool], known: bool, name: str = "") -> Reading[list[Found]]:
        yield from source.space()
        if not (yield from source.take("[")):
            if not (yield from source.begins("{")):
                source.refuse("{", "[")
            return [(yield from self._one(source, tools, known))]
        made: list[Found] = []
        yield from source.space()
        if not known and (yield from source.take("]")):
            return made
        while True:
            yield from source.space()
            made.append((yield from self._one(source, tools, known)))
            yield from source.space()
            if (yield from source.expect(",", "]")) == "]":
                return made

    def _one(self, source: Source, tools: Mapping[str, Tool], known: bool) -> Reading[Found]:
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
        given = next((record[key] for key in ARGUMENTS if key in record), None)
        if self.keyed and name is None and len(record) == 1:
            ((name, given),) = record.items()
        if known and (name not in tools or given is None):
            raise Broken
        if not isinstance(name, str) or not name:
            raise Broken
        return Found(name, _arguments(given), str(_first(record, IDS) or ""))


def _first(record: Mapping[str, Any], keys: tuple[str, ...]) -> Any:
    return next((record[key] for key in keys if record.get(key) is not None), None)


def _arguments(given: Any) -> dict[str, Any]:
    """Arguments as an object; a text is decoded once."""
    if isinstance(given, str):
        try:
            given = json.loads(given, strict=False)
        except (ValueError, RecursionError):
            raise Broken from None
    if given is None:
        return {}
    if not isinstance(given, dict):
        raise Broken
    return given


def read_arguments(source: Source, name: str, id: str = "") -> Reading[dict[str, Any]]:
    """Arguments as a JSON object, whose text can be given on while it is read."""
    started = Started(name, id, source.at)
    source.started.append(started)
    made = yield from read_object(source, JSON, 1)
    started.end = source.at
    return made


@dataclass(frozen=True, slots=True)
class NamedCalls:
    """A name, and the arguments as a JSON object. header: matches all before it, with the groups `name` and `id`."""

    header: re.Pattern[str]

    def read(self, source: Source, tools: Mapping[str, Tool], known: bool, name: str = "") -> Reading[list[Found]]:
        header = yield from source.until("{", most=HEADER)
        found = self.header.fullmatch(header)
        if not found or (known and found["name"] not in tools):
            raise Broken
        name, id = found["name"], found.groupdict().get("id") or ""
        return [Found(name, (yield from read_arguments(source, name, id)), id)]


@dataclass(frozen=True, slots=True)
class MessageCalls:
    """The arguments alone, where the head of a message had the name. marks: what ends a message without any."""

    marks: tuple[str, ...] = ()

    def read(self, source: Source, tools: Mapping[str, Tool], known: bool, name: str = "") -> Reading[list[Found]]:
        yield from source.space()
        for mark in self.marks:
            if (yield from source.begins(mark)):
                return [Found(name, {})]
        return [Found(name, (yield from read_arguments(source, name)))]


@dataclass(frozen=True, slots=True)
class GemmaCalls:
    """call:NAME{key:value}. typed: strings become what the schema says."""

    typed: bool = False

    def read(self, source: Source, tools: Mapping[str, Tool], known: bool, name: str = "") -> Reading[list[Found]]:
        yield from source.expect("call:")
        name = yield from source.match(_NAME, HEADER)
        if not name:
            source.refuse("a")
        made = yield from read_object(source, GEMMA)
        if self.typed:
            made = {
                key: typed(value, property_of(tools, name, key)) if isinstance(value, str) else value
                for key, value in made.items()
            }
        return [Found(name, made)]


@dataclass(frozen=True, slots=True)
class PythonCalls:
    """[f(a=1), g()], or, with `closings`, a call on each line up to one of these."""

    closings: tuple[str, ...] = ()
    given: bool = False  # only names of given tools are calls

    def read(self, source: Source, tools: Mapping[str, Tool], known: bool, name: str = "") -> Reading[list[Found]]:
        yield from source.space()
        if self.closings:
            return (yield from self._lines(source, tools))
        begin = source.at
        yield from source.expect("[")
        yield from source.space()
        if (yield from source.begins("{")):
            source.at = begin
            return (yield from JsonCalls().read(source, tools, known))
        made = []
        while True:
            yield from source.space()
            made.append((yield from self._one(source, tools, known)))
            yield from source.space()
            if (yield from source.expect(",", "]")) == "]":
                return made

    def _lines(self, source: Source, tools: Mapping[str, Tool]) -> Reading[list[Found]]:
        made: list[Found] = []
        while True:
            yield from source.space()
            if made and ((yield from source.take(*self.closings)) or not (yield from source.peek())):
                return made
            made.append((yield from self._one(source, tools, self.given)))

    def _one(self, source: Source, tools: Mapping[str, Tool], known: bool) -> Reading[Found]:
        name = yield from source.match(_NAME, HEADER)
        if not name:
            source.refuse("a")
        yield from source.expect("(")
        if known and name not in tools:
            raise Broken
        order = iter(tools[name].parameters.get("properties", {}) if name in tools else ())
        made: dict[str, Any] = {}
        while True:
            yield from source.space()
            if (yield from source.take(")")):
                return Found(name, made)
            begin = source.at
            key = yield from source.match(_KEYWORD)
            yield from source.space()
            if not key or not (yield from source.take("=")):
                source.at, key = begin, next(order, "")
                if not key:
                    raise Broken if not source.ended else Cut
            made[key] = yield from read_value(source, PYTHON)
            yield from source.space()
            if (yield from source.expect(",", ")")) == ")":
                return Found(name, made)


@dataclass(frozen=True, slots=True)
class TagCalls:
    """A name, then parameters between tags.

    named: texts that end the name.
    key, keyed: stand round the key of a parameter; what follows a quote in it are attributes.
    value: ends a parameter. end: ends the call.
    wrapped: a newline after `keyed` and one before `value` are not of the value.
    """

    named: tuple[str, ...]
    key: str
    keyed: tuple[str, ...]
    value: str
    end: str
    wrapped: bool = False

    def read(self, source: Source, tools: Mapping[str, Tool], known: bool, name: str = "") -> Reading[list[Found]]:
        name, _ = _attributes((yield from source.until(*self.named, most=HEADER)))
        yield from source.take(*(mark for mark in self.named if mark not in (self.key, self.end)))
        if not _NAME.fullmatch(name) or (known and name not in tools):
            raise Broken
        made: dict[str, Any] = {}
        while True:
            yield from source.space()
            if (yield from source.take(self.end)):
                return [Found(name, made)]
            yield from source.expect(self.key)
            key, attributes = _attributes((yield from source.until(self.keyed[0], most=HEADER)))
            source.at += len(self.keyed[0])
            for mark in self.keyed[1:]:
                yield from source.space()
                yield from source.expect(mark)
            made[key] = typed((yield from self._value(source)), property_of(tools, name, key), attributes)

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
        while (yield from source.take(self.value)):  # once too often
            yield from source.space()
        for mark in (self.key, self.end):
            if (yield from source.begins(mark)):
                return True
        if not (yield from source.peek()):
            raise Cut
        return False


def _attributes(text: str) -> tuple[str, dict[str, str]]:
    """What stands before a quote, and the attributes after it."""
    first, _, rest = text.partition('"')
    return first.strip(), dict(re.findall(r'(\w+)="([^"]*)', rest))


@dataclass(frozen=True, slots=True)
class NestedCalls:
    """Parameters as tags within tags, each with `sign` before it; a list has tags of the name `item`."""

    sign: str

    def read(self, source: Source, tools: Mapping[str, Tool], known: bool, name: str = "") -> Reading[list[Found]]:
        name = yield from source.until('">', most=HEADER)
        source.at += 2
        if not _NAME.fullmatch(name) or (known and name not in tools):
            raise Broken
        made: dict[str, Any] = {}
        while True:
            yield from source.space()
            if (yield from source.take(f"{self.sign}</invoke>")):
                return [Found(name, made)]
            key, text = yield from self._element(source)
            made[key] = self._value(text, property_of(tools, name, key))

    def _element(self, source: Source) -> Reading[tuple[str, str]]:
        """The name of a tag, and all that stands in it."""
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
    """The part of a schema, or of one of its alternatives, that tells of what is in a value."""
    if not isinstance(schema, Mapping):
        return {}
    places = (schema, *(part for name in ("anyOf", "oneOf") for part in schema.get(name) or ()))
    return next((place[word] for place in places if isinstance(place, Mapping) and word in place), {})
