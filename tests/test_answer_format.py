"""What the text of an answer must be: checked and bounded before anything is made of it."""

from __future__ import annotations

import json
import math

import pytest

from woolly.errors import RequestError
from woolly.limits import LIMITS
from woolly.request import Request
from woolly.request.format import Format, closed


@pytest.mark.parametrize(
    ("kind", "value"),
    [
        ("yaml", "x"),
        (None, "x"),
        ("json", "{}"),
        ("schema", "{"),
        ("schema", "[]"),
        ("schema", "[" * 100_000),
        ("schema", {"const": math.nan}),
        ("schema", {"const": object()}),
        ("schema", {"const": "\ud800"}),
        ("schema", {"enum": list(range(LIMITS.format_values))}),
        ("schema", {"description": "x" * LIMITS.format_bytes}),
        ("regex", ""),
        ("regex", "a" * (LIMITS.format_bytes + 1)),
        ("lark", b"start: A"),
        ("gbnf", None),
        ("choice", ()),
        ("choice", "yes"),
        ("choice", ("yes", "")),
        ("choice", (1, 2)),
    ],
)
def test_a_wrong_format_is_refused(kind: str, value: object) -> None:
    with pytest.raises(RequestError) as caught:
        Format(kind, value)  # type: ignore[arg-type]
    assert caught.value.param == "format"


def test_a_schema_that_is_no_json_is_refused_with_its_place() -> None:
    with pytest.raises(RequestError, match=r"no JSON: .* at line 2, column 2"):
        Format("schema", '{"type":\n "object}')
    with pytest.raises(RequestError, match="no JSON that can be read"):
        Format("schema", "[" * 100_000)


def test_a_schema_within_itself_is_refused() -> None:
    schema: dict[str, object] = {"type": "object"}
    schema["properties"] = {"child": schema}
    with pytest.raises(RequestError, match="nested"):
        Format("schema", schema)
    deep: object = True
    for _ in range(LIMITS.format_depth):
        deep = {"not": deep}
    with pytest.raises(RequestError, match="nested"):
        Format("schema", deep)


def test_formats_that_mean_the_same_are_equal_and_a_key() -> None:
    schema = {"type": "object", "properties": {"b": {}, "a": {}}}
    assert Request(prompt="x", format=schema).format == Format("schema", schema)  # type: ignore[arg-type]
    assert Request(prompt="x", format="json").format == Format("json")  # type: ignore[arg-type]
    assert len({Format("choice", ["a", "b", "a"]), Format("choice", ("a", "b"))}) == 1
    assert Format("schema", json.dumps(schema)) == Format("schema", schema)
    assert Format("schema", schema).value == '{"type":"object","properties":{"b":{},"a":{}}}'  # in its order
    with pytest.raises(RequestError, match="format is"):
        Request(prompt="x", format="xml")  # type: ignore[arg-type]


def test_only_a_schema_can_be_kept_to_in_part() -> None:
    assert Format("schema", {}, strict=False) != Format("schema", {})
    with pytest.raises(RequestError, match="in part"):
        Format("regex", "a", strict=False)


CLOSED = {"additionalProperties": False}


@pytest.mark.parametrize(
    ("schema", "expected"),
    [
        ({"properties": {"a": {}}}, {"properties": {"a": {}}} | CLOSED),
        ({"type": "object"}, {"type": "object"}),
        (
            {"items": {"properties": {"a": {"properties": {}}}}},
            {"items": {"properties": {"a": {"properties": {}} | CLOSED}} | CLOSED},
        ),
        (
            {"$defs": {"x": {"properties": {"a": {}}}}, "$ref": "#/$defs/x"},
            {"$defs": {"x": {"properties": {"a": {}}} | CLOSED}, "$ref": "#/$defs/x"},
        ),
        *(
            (open_, open_)
            for open_ in (
                {"properties": {}, "additionalProperties": {"type": "string"}},
                {"properties": {"a": {}}, "required": ["a", "b"]},
                {"properties": {"a": {}}, "minProperties": 2},
                {"properties": {"a": {}}, "patternProperties": {"^b": {}}},
                {"$defs": {"x": {"properties": {}}}, "allOf": [{"$ref": "#/$defs/x"}, {"properties": {"b": {}}}]},
                {"$defs": {"x": {"properties": {}}}, "$ref": "#/$defs/x", "properties": {"b": {}}},
            )
        ),
    ],
)
def test_a_schema_is_closed_where_it_lists_properties_and_says_nothing_of_others(
    schema: dict[str, object], expected: dict[str, object]
) -> None:
    assert json.loads(closed(Format("schema", schema)).value) == expected
