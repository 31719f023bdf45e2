"""Recorded HTTP transcripts: what a shape keeps, what a comparison tells, that all routes are asked."""

from __future__ import annotations

import json

from tests.server.conftest import Live
from tools.http_transcripts.cases import CASES, without_case
from tools.http_transcripts.compare import differences
from tools.http_transcripts.description import pieces
from tools.http_transcripts.shape import body_of, headers_of, shape

JSON = "application/json"


def test_a_shape_keeps_codes_and_no_numbers_ids_or_texts() -> None:
    answer = {
        "id": "x-1",
        "object": "chat.completion",
        "created": 17,
        "ok": True,
        "text": "",
        "rate": 0.5,
    }
    assert shape(answer) == {
        "id": "string",
        "object": "= chat.completion",
        "created": "integer",
        "ok": True,
        "text": "",
        "rate": "number",
    }
    assert shape({"error": {"code": 404, "type": "a text of several words"}}) == {
        "error": {"code": 404, "type": "string"}
    }
    assert shape({"status": "completed"}, vague={"status"}) == {"status": "any"}


def test_items_of_a_list_that_are_alike_are_one_and_a_tagged_list_is_an_object() -> None:
    assert shape([{"a": 1}, {"a": 2}, {"a": "x"}]) == [{"a": "integer"}, {"a": "string"}]
    assert shape(["text", "Hello", [1, 2]]) == ["= text", "string", ["integer"]]


def test_events_keep_their_order_and_comments_are_left_out() -> None:
    data = b': here\n\nevent: a\nid: 7\ndata: {"n": 1}\n\nevent: a\nid: 8\ndata: {"n": 2}\n\ndata: [DONE]\n\n'
    rows = [{"event": "a", "id": "any", "data": {"n": "integer"}}, {"data": "[DONE]"}]
    assert body_of(data, "text/event-stream; charset=utf-8") == {"events": rows}
    assert body_of(b'{"n": 1}\n{"n": 2}\n{"m": 3}\n', "application/x-ndjson") == {
        "events": [{"n": "integer"}, {"m": "integer"}]
    }
    mixed = [b'{"a": 1}\n{"b": 1}\n{"a": 2}\n', b'{"b": 1}\n{"a": 1}\n{"b": 2}\n']
    assert len({json.dumps(body_of(one, "application/x-ndjson", unordered=True)) for one in mixed}) == 1


def test_metrics_are_names_with_the_names_of_their_labels() -> None:
    text = b'# HELP a b\n# TYPE a gauge\na{model="x",le="+Inf"} 5\na 6\n'
    assert body_of(text, "text/plain; version=0.0.4") == ["# TYPE a gauge", "a{model,le}", "a{}"]


def test_headers_are_names_and_values_that_readers_rely_on() -> None:
    assert headers_of([("Date", "now"), ("Content-Type", JSON)]) == [f"content-type: {JSON}", "date"]


def test_a_comparison_names_what_differs_is_gone_and_is_new() -> None:
    before = {"same": {"status": 200}, "other": {"status": 200}, "old": {}}
    after = {"same": {"status": 200}, "other": {"status": 404}, "new": {}}
    new, old, other = differences(before, after)
    assert (new, old) == ("new\n  only after", "old\n  only before")
    assert other.splitlines()[0] == "other" and '-  "status": 200' not in other
    assert '- "status": 200' in other and '+ "status": 404' in other


def test_another_name_of_a_schema_changes_no_route_of_a_description() -> None:
    def described(name: str) -> dict[str, object]:
        reference = {"$ref": f"#/components/schemas/{name}"}
        schema = {"title": name, "type": "object", "properties": {"more": reference, "n": {"type": "integer"}}}
        return {"paths": {"/a": {"get": reference}}, "components": {"schemas": {name: schema}}, "info": {}}

    before, after = pieces(described("Old")), pieces(described("New"))
    assert [name.split("\n")[0] for name in differences(before, after)] == ["names of schemas"]
    more = {"more": "the schema 1 around this", "n": {"type": "integer"}}
    assert after["/a"] == {"get": {"type": "object", "properties": more}}


def test_every_route_is_asked_and_no_two_cases_have_one_name(live: Live) -> None:
    assert not [*without_case(live.ask("GET", "/openapi.json")[2])]
    assert len({case.name for case in CASES}) == len(CASES) > 500
