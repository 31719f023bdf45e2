"""OpenAI's Responses: items in, a record or events out, and the stored answers."""

from __future__ import annotations

import hashlib
import json
from dataclasses import replace
from typing import Any

import msgspec
import pytest

from tests.server.conftest import Live, Start
from tests.server.test_guard import KEY
from tests.server.transcripts import CALLED, SAID, START, byte_by_byte, end, rendered, streamed
from woolly.config.serving import SERVING
from woolly.errors import NativeError, WoollyError
from woolly.request import Request
from woolly.server.dialects.base.response_store import ResponseStore, StoredResponse
from woolly.server.dialects.openai.responses import RESPONSES
from woolly.server.routes import Job

PATH = "/v1/responses"
TOOL = {"type": "function", "name": "weather", "parameters": {"type": "object"}, "strict": True}
CALL = {"type": "function_call", "call_id": "call_1", "name": "weather", "arguments": '{"city": "Oslo"}'}
RESULT = {"type": "function_call_output", "call_id": "call_1", "output": "cold"}


def read(**fields: Any) -> Job:
    return RESPONSES.read({"input": "Hello"} | fields, {}, SERVING)


def request(**fields: Any) -> Request:
    return read(**fields).requests[0]


def spoken(request: Request) -> list[tuple[str, str]]:
    return [(str(row["role"]), str(row["content"])) for row in request.messages or ()]


def plain(answer: Any) -> Any:
    return json.loads(msgspec.json.encode(answer))


def user(text: str) -> dict[str, Any]:
    return {"type": "message", "role": "user", "content": [{"type": "input_text", "text": text}]}


def test_a_text_and_items_are_one_conversation() -> None:
    assert spoken(request()) == spoken(request(input=[user("Hello")])) == [("user", "Hello")]
    assert spoken(request(input=[{"role": "user", "content": "Hello"}])) == [("user", "Hello")]


def test_instructions_and_what_developers_say_are_one_system_message() -> None:
    developer = {"role": "developer", "content": "Be kind."}
    messages = spoken(request(instructions="Be brief.", input=[developer, user("Hello"), developer]))
    assert messages == [("system", "Be brief.\n\nBe kind."), ("user", "Hello\n\nBe kind.")]


def test_what_an_assistant_thought_said_and_called_in_one_turn_is_one_message() -> None:
    thought = {"type": "reasoning", "id": "rs_1", "summary": [], "content": [{"type": "reasoning_text", "text": "Hm."}]}
    text = {"role": "assistant", "content": [{"type": "output_text", "text": "Let me see.", "annotations": []}]}
    other = CALL | {"call_id": "call_2"}
    parsed = request(
        input=[user("x"), thought, text, CALL, other, RESULT, RESULT | {"call_id": "call_2"}], tools=[TOOL]
    )
    assert [role for role, _ in spoken(parsed)] == ["user", "assistant", "tool", "tool"]
    assert parsed.messages is not None
    assert (parsed.messages[1]["content"], parsed.messages[1]["reasoning_content"]) == (
        "Let me see.",
        "Hm.",
    )
    assert [call["id"] for call in parsed.messages[1]["tool_calls"]] == ["call_1", "call_2"]
    assert parsed.messages[2]["name"] == "weather"


def test_tools_are_flat_and_those_of_a_provider_are_skipped_and_noted() -> None:
    others = [{"type": "web_search"}, {"type": "custom", "name": "p"}, {"type": "namespace", "tools": []}]
    job = read(tools=[TOOL, *others], tool_choice={"type": "function", "name": "weather"})
    (parsed,) = job.requests
    assert [(tool.name, tool.strict) for tool in parsed.tools] == [("weather", True)]
    assert parsed.tool_choice == "weather"
    assert job.notes == ("tools.web_search", "tools.custom", "tools.namespace")


def test_what_codex_sends_is_taken() -> None:
    job = read(
        include=["reasoning.encrypted_content"],
        prompt_cache_key="x",
        client_metadata={"x": "y"},
        reasoning=None,
        text={"verbosity": "medium"},
        store=False,
        parallel_tool_calls=False,
    )
    assert job.notes == ("prompt_cache_key", "client_metadata")
    assert job.requests[0].parallel_tool_calls is False


def test_formats_and_effort() -> None:
    schema = {"format": {"type": "json_schema", "name": "x", "schema": {"type": "object"}, "strict": True}}
    formats = [request(text=text).format for text in (schema, {"format": {"type": "json_object"}}, {})]
    assert [one and one.kind for one in formats] == ["schema", "json", None]
    assert request(reasoning={"effort": "none"}).chat_template_kwargs["enable_thinking"] is False


@pytest.mark.parametrize(
    ("fields", "word"),
    [
        ({"input": []}, "input"),
        ({"input": [5]}, r"input\[0\]"),
        ({"input": [{"role": "wizard", "content": "x"}]}, "wizard"),
        ({"input": [{"role": "user", "content": [{"type": "input_image", "image_url": "x"}]}]}, "input_image"),
        ({"input": [{"type": "item_reference", "id": "x"}]}, "item_reference"),
        ({"input": [user("x"), RESULT]}, "call_1"),
        ({"input": [user("x")] * 2049}, "at most 2,048"),
        ({"tools": [{"type": "mcp"}]}, "server_label"),
        ({"tool_choice": {"type": "web_search"}}, "tool_choice"),
        ({"tool_choice": "perhaps"}, "tool_choice"),
        ({"background": True}, "background"),
        ({"conversation": "conv_1"}, "conversation"),
        ({"truncation": "auto"}, "truncation"),
        ({"temperature": -1}, "temperature"),
        ({"text": {"format": {"type": "json_schema", "name": "x"}}}, r"text\.format\.schema"),
        ({"max_output_tokens": 0}, "max_output_tokens"),
    ],
)
def test_what_is_wrong_is_named(fields: dict[str, Any], word: str) -> None:
    with pytest.raises(WoollyError, match=word):
        read(**fields)


def test_a_record_has_an_item_for_each_part() -> None:
    answer = plain(rendered(RESPONSES, read(metadata={"k": "v"}), CALLED))
    assert [item["type"] for item in answer["output"]] == ["reasoning", "message", "function_call", "function_call"]
    call = answer["output"][2]
    assert (call["call_id"], call["name"], call["arguments"]) == ("call_1", "weather", '{"city": "Oslo"}')
    assert call["id"].startswith("fc_")
    assert (answer["status"], answer["metadata"], answer["incomplete_details"]) == ("completed", {"k": "v"}, None)
    assert answer["usage"]["input_tokens_details"]["cached_tokens"] == 4
    cut = plain(rendered(RESPONSES, read(), (*SAID[:-1], end("length"))))
    assert (cut["status"], cut["incomplete_details"]) == ("incomplete", {"reason": "max_output_tokens"})


TEXT_EVENTS = [
    "response.created",
    "response.in_progress",
    "response.output_item.added",
    "response.content_part.added",
    "response.output_text.delta",
    "response.output_text.done",
    "response.content_part.done",
    "response.output_item.done",
    "response.completed",
]


def test_the_events_of_a_text_come_in_order() -> None:
    kinds = [row["type"] for row in map(plain, streamed(RESPONSES, read(), SAID))]
    assert list(dict.fromkeys(kinds)) == TEXT_EVENTS
    assert kinds.count("response.output_text.delta") == 2
    first, *_, last = map(plain, streamed(RESPONSES, read(), SAID))
    assert (first["response"]["status"], first["response"]["output"], first["response"]["usage"]) == (
        "in_progress",
        [],
        None,
    )
    assert last["response"]["usage"]["output_tokens"] == 5


def without_ids(output: list[dict[str, Any]]) -> list[dict[str, Any]]:
    return [{name: value for name, value in item.items() if name != "id"} for item in output]


@pytest.mark.parametrize("events", [SAID, CALLED, (START, end())])
def test_the_events_add_up_to_the_record_however_they_are_cut(events: Any) -> None:
    record = plain(rendered(RESPONSES, read(), events))
    for cut_events in (events, list(byte_by_byte(events))):
        rows = [plain(row) for row in streamed(RESPONSES, read(), cut_events)]
        assert [row["sequence_number"] for row in rows] == list(range(len(rows)))
        done = [row["item"] for row in rows if row["type"] == "response.output_item.done"]
        assert done == rows[-1]["response"]["output"]
        assert without_ids(done) == without_ids(record["output"])
        for index, item in enumerate(done):
            own = [row for row in rows if row.get("item_id") == item["id"]]
            assert {row["output_index"] for row in own} <= {index}
            joined = "".join(row["delta"] for row in own if row["type"].endswith(".delta"))
            parts = item.get("content") or [{"text": item.get("arguments", "")}]
            assert joined == parts[0]["text"]


def test_an_error_in_a_stream_is_its_last_event() -> None:
    def failing() -> Any:
        yield from SAID[:-1]
        raise NativeError("the middle of an answer")

    last = plain(streamed(RESPONSES, read(), failing())[-1])
    assert (last["type"], last["response"]["status"]) == ("response.failed", "failed")
    assert last["response"]["error"]["message"] == "the middle of an answer"


def ask(live: Live, headers: dict[str, str] | None = None, **fields: Any) -> tuple[int, dict[str, str], Any]:
    return live.ask("POST", PATH, {"input": "Hello", "max_output_tokens": 5, "temperature": 0} | fields, headers)


def events(body: bytes) -> list[dict[str, Any]]:
    return [json.loads(line[6:]) for line in body.decode().splitlines() if line.startswith("data: ")]


def test_a_prompt_that_is_too_long_fails_in_the_stream_where_agents_look_for_it(live: Live) -> None:
    long = "x" * 5000
    status, _, body = ask(live, input=long, stream=True)
    rows = events(body)
    assert (status, rows[0]["type"], rows[-1]["type"]) == (200, "response.created", "response.failed")
    assert rows[-1]["response"]["error"]["code"] == "context_length_exceeded"
    status, _, answer = ask(live, input=long)
    assert (status, answer["error"]["code"]) == (400, "context_length_exceeded")


def test_an_answer_is_kept_and_gone_on_from(live: Live) -> None:
    first = ask(live)[2]
    assert live.ask("GET", f"{PATH}/{first['id']}")[2] == first
    second = ask(live, input="More", previous_response_id=first["id"], instructions="Be brief.")[2]
    assert second["previous_response_id"] == first["id"]
    text = first["output"][0]["content"][0]["text"]
    seen = live.loader.talkers[0].seen[-1]
    assert spoken(seen) == [("system", "Be brief."), ("user", "Hello"), ("assistant", text), ("user", "More")]
    ask(live, input="Last", previous_response_id=second["id"])
    assert [role for role, _ in spoken(live.loader.talkers[0].seen[-1])] == ["user", "assistant"] * 2 + ["user"]


def test_a_stream_is_kept_too_and_what_nobody_wants_is_not(live: Live) -> None:
    last = events(ask(live, stream=True)[2])[-1]["response"]
    assert live.ask("GET", f"{PATH}/{last['id']}")[2] == last
    gone = ask(live, store=False)[2]["id"]
    assert live.ask("GET", f"{PATH}/{gone}")[0] == 404
    status, _, answer = ask(live, previous_response_id=gone)
    assert (status, answer["error"]["param"]) == (400, "previous_response_id")
    assert gone in answer["error"]["message"]


def test_what_was_asked_is_listed_in_pages(live: Live) -> None:
    id_ = ask(live, input=[user(str(index)) for index in range(5)])[2]["id"]
    page = live.ask("GET", f"{PATH}/{id_}/input_items?limit=2")[2]
    assert [item["content"][0]["text"] for item in page["data"]] == ["4", "3"]
    assert (page["has_more"], page["last_id"]) == (True, page["data"][1]["id"])
    rest = live.ask("GET", f"{PATH}/{id_}/input_items?after={page['last_id']}")[2]
    assert [item["content"][0]["text"] for item in rest["data"]] == ["2", "1", "0"]
    first = live.ask("GET", f"{PATH}/{id_}/input_items?order=asc&limit=1")[2]
    assert first["data"][0]["content"][0]["text"] == "0"
    for query in ("limit=0", "limit=x", "limit=101", "after=nobody"):
        assert live.ask("GET", f"{PATH}/{id_}/input_items?{query}")[0] == 400


def test_an_answer_is_deleted_and_one_that_is_over_is_not_cancelled(live: Live) -> None:
    id_ = ask(live)[2]["id"]
    status, _, answer = live.ask("POST", f"{PATH}/{id_}/cancel", {})
    assert (status, "background" in answer["error"]["message"]) == (400, True)
    assert live.ask("DELETE", f"{PATH}/{id_}")[2] == {"id": id_, "object": "response", "deleted": True}
    for method, path in (("GET", ""), ("DELETE", ""), ("POST", "/cancel"), ("GET", "/input_items")):
        status, _, answer = live.ask(method, f"{PATH}/{id_}{path}", {} if method == "POST" else None)
        assert (status, id_ in answer["error"]["message"]) == (404, True)


def test_nobody_finds_the_answers_of_another_key(start: Start) -> None:
    other = "another-key-of-thirty-two-chars-x"
    live = start(keys=tuple(hashlib.sha256(key.encode()).digest() for key in (KEY, other)), anonymous=False)
    mine, theirs = ({"authorization": f"Bearer {key}"} for key in (KEY, other))
    id_ = ask(live, mine)[2]["id"]
    assert live.ask("GET", f"{PATH}/{id_}", None, mine)[0] == 200
    assert live.ask("GET", f"{PATH}/{id_}", None, theirs)[0] == 404
    assert ask(live, theirs, previous_response_id=id_)[0] == 400
    assert live.ask("GET", f"{PATH}/{id_}")[0] == 401


def stored(nbytes: int) -> StoredResponse:
    return StoredResponse(None, (), 0, nbytes)


def limited(**limits: int) -> ResponseStore:
    return ResponseStore(replace(SERVING, **limits))


def test_what_was_used_longest_ago_is_forgotten_first() -> None:
    store = limited(kept_per_key=2)
    store.put("a", "1", stored(1))
    store.put("a", "2", stored(1))
    assert store.find("a", "1") is not None
    store.put("a", "3", stored(1))
    assert [store.find("a", id_) is not None for id_ in "123"] == [True, False, True]
    assert store.nbytes == 2


def test_bytes_are_bounded_for_each_key_and_for_all() -> None:
    store = limited(kept_bytes_per_key=10, kept_bytes=15)
    store.put("a", "1", stored(6))
    store.put("a", "2", stored(6))
    assert (store.find("a", "1"), store.nbytes) == (None, 6)
    store.put("b", "3", stored(10))
    assert (store.find("a", "2"), store.nbytes) == (None, 10)  # of the key whose last request is the oldest
    store.put(b"c", "4", stored(11))
    assert (store.find(b"c", "4"), store.nbytes) == (None, 10)  # larger than all that a key may have
    assert store.remove("b", "3") and not store.remove("b", "3")
    assert store.nbytes == 0
