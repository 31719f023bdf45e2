"""Anthropic's dialect: how bodies are read, how answers are written whole and in pieces, its errors."""

from __future__ import annotations

import json
from typing import Any

import msgspec
import pytest

from tests.server.conftest import HELLO, Live, Start
from tests.server.test_guard import KEY, KEYS
from tests.server.transcripts import CALLED, SAID, byte_by_byte, end, rendered, streamed
from woolly.config.serving import SERVING
from woolly.errors import RequestError, WoollyError
from woolly.request import Request, Text
from woolly.server.dialects.anthropic.dialect import MESSAGES as ROUTE
from woolly.server.http.framing import NAMED
from woolly.server.routes import Job

PATH = "/v1/messages"
TOOL = {"name": "weather", "description": "Tells it.", "input_schema": {"type": "object", "properties": {"city": {}}}}


def read(**fields: Any) -> Job:
    return ROUTE.read({"max_tokens": 8, "messages": HELLO} | fields, {}, SERVING)


def request(**fields: Any) -> Request:
    return read(**fields).requests[0]


def spoken(message: Any) -> list[tuple[str, str]]:
    return [(str(row["role"]), str(row["content"])) for row in message.messages]


def text(*texts: str) -> list[dict[str, str]]:
    return [{"type": "text", "text": one} for one in texts]


def plain(answer: Any) -> Any:
    return json.loads(msgspec.json.encode(answer))


def test_system_and_content_may_be_texts_or_blocks() -> None:
    blocks = request(system=text("Be brief.", "Be kind."), messages=[{"role": "user", "content": text("Hello")}])
    assert spoken(blocks) == [("system", "Be brief.\nBe kind."), ("user", "Hello")]
    assert spoken(request(system="Be brief.")) == [("system", "Be brief."), ("user", "Hello")]


def test_a_system_message_in_the_middle_is_told_by_the_user() -> None:
    asked = request(messages=[*HELLO, {"role": "system", "content": "Note."}], system="First.")
    assert spoken(asked) == [("system", "First."), ("user", "Hello\n\nNote.")]
    assert spoken(request(messages=[{"role": "system", "content": "S"}, *HELLO]))[0] == ("system", "S")


def test_the_part_of_the_billing_line_that_changes_is_blanked() -> None:
    line = "x-anthropic-billing-header: cc_version=2.1; cc_entrypoint=cli; cch={};\nYou are"
    one, other = (request(system=line.format(sign)) for sign in ("a5145", "00f31"))
    assert spoken(one) == spoken(other)
    assert spoken(one)[0][1] == line.format("fffff")
    assert "cch=a" in spoken(request(system="Talk about cch=a"))[0][1]  # only there


def test_calls_and_results_become_messages_of_their_own() -> None:
    asked = request(
        tools=[TOOL],
        messages=[
            *HELLO,
            {
                "role": "assistant",
                "content": [
                    {"type": "thinking", "thinking": "Hm.", "signature": "x"},
                    {"type": "redacted_thinking", "data": "x"},
                    *text("Let me see."),
                    {"type": "tool_use", "id": "toolu_1", "name": "weather", "input": {"city": "Oslo"}},
                ],
            },
            {
                "role": "user",
                "content": [
                    {"type": "tool_result", "tool_use_id": "toolu_1", "content": text("cold"), "is_error": True},
                    *text("And now?"),
                ],
            },
        ],
    )
    assert spoken(asked)[1:] == [("assistant", "Let me see."), ("tool", "Error: cold"), ("user", "And now?")]
    assert asked.messages is not None
    assert asked.messages[1]["reasoning_content"] == "Hm."
    assert asked.messages[1]["tool_calls"][0]["function"] == {"name": "weather", "arguments": {"city": "Oslo"}}
    assert asked.messages[2]["name"] == "weather"


def test_what_the_assistant_has_begun_is_continued() -> None:
    asked = request(messages=[*HELLO, {"role": "assistant", "content": "The colours are"}])
    assert (spoken(asked), asked.begun) == ([("user", "Hello")], "The colours are")


@pytest.mark.parametrize(
    ("choice", "means"),
    [
        ({"type": "auto"}, ("auto", True)),
        ({"type": "any", "disable_parallel_tool_use": True}, ("required", False)),
        ({"type": "tool", "name": "weather"}, ("weather", True)),
        ({"type": "none"}, ("none", True)),
    ],
)
def test_a_choice_of_tools_is_the_requests(choice: dict[str, Any], means: tuple[str, bool]) -> None:
    asked = request(tools=[TOOL], tool_choice=choice)
    assert (asked.tool_choice, asked.parallel_tool_calls) == means
    assert asked.tools[0].parameters["properties"] == {"city": {}}


def test_tools_that_only_their_provider_could_run_are_skipped_and_noted() -> None:
    job = read(tools=[TOOL, {"type": "web_search_20250305", "name": "web_search"}], metadata={"user_id": "x"})
    assert [tool.name for tool in job.requests[0].tools] == ["weather"]
    assert job.notes == ("metadata", "tools.web_search_20250305")
    with pytest.raises(WoollyError, match="mcp_servers"):
        read(mcp_servers=[{"type": "url", "url": "http://x"}])


def test_thinking_and_effort_are_variables_of_the_template() -> None:
    asked = request(thinking={"type": "disabled"}, output_config={"effort": "high"})
    assert asked.chat_template_kwargs == {"enable_thinking": False, "thinking": False, "reasoning_effort": "high"}
    assert request(thinking={"type": "adaptive"}).chat_template_kwargs == {}
    schema = {"type": "object", "properties": {}}
    parsed = request(output_config={"format": {"type": "json_schema", "schema": schema}}).format
    assert parsed is not None and parsed.kind == "schema"


@pytest.mark.parametrize(
    ("fields", "word"),
    [
        ({"max_tokens": None}, "max_tokens"),
        ({"max_tokens": 0}, "max_tokens"),
        ({"messages": []}, "messages"),
        ({"messages": [{"role": "wizard", "content": "x"}]}, "wizard"),
        ({"messages": ["x"]}, r"messages\[0\]"),
        ({"messages": [{"role": "user", "content": [{"type": "image", "source": {}}]}]}, "image"),
        ({"messages": [{"role": "user", "content": [{"type": "text"}]}]}, r"content\[0\]\.text"),
        ({"messages": [{"role": "user", "content": 5}]}, r"messages\[0\]\.content"),
        ({"messages": [{"role": "user", "content": text(*"x" * 65)}]}, "at most 64"),
        ({"messages": HELLO * 2049}, "at most 2,048"),
        ({"system": [{"type": "image"}]}, "image"),
        ({"temperature": -1}, "temperature"),
        ({"tools": [TOOL], "tool_choice": {"type": "tool", "name": "fly"}}, "fly"),
        ({"tools": [{"name": "a b", "input_schema": {}}]}, "a b"),
        ({"stop_sequences": [""]}, "stop"),
        (
            {"messages": [*HELLO, {"role": "user", "content": [{"type": "tool_result", "tool_use_id": "toolu_9"}]}]},
            "toolu_9",
        ),
    ],
)
def test_what_is_wrong_is_named(fields: dict[str, Any], word: str) -> None:
    with pytest.raises((RequestError, WoollyError), match=word):
        read(**fields)


def test_an_answer_has_a_block_for_each_part() -> None:
    answer = plain(rendered(ROUTE, read(), CALLED))
    assert [block["type"] for block in answer["content"]] == ["thinking", "text", "tool_use", "tool_use"]
    assert answer["content"][2] == {
        "type": "tool_use",
        "id": "toolu_1",
        "name": "weather",
        "input": {"city": "Oslo"},
    }
    assert answer["content"][3]["input"] == {}
    assert (answer["stop_reason"], answer["stop_sequence"]) == ("tool_use", None)
    assert answer["usage"] == {
        "input_tokens": 5,
        "cache_creation_input_tokens": 0,
        "cache_read_input_tokens": 4,
        "output_tokens": 5,
    }


def joined(events: list[Any]) -> list[dict[str, Any]]:
    """The blocks that the deltas of a stream add up to, as a client joins them."""
    blocks: list[dict[str, Any]] = []
    opened = None
    for event in map(plain, events):
        match event["type"]:
            case "content_block_start":
                assert opened is None and event["index"] == len(blocks)
                opened = event["index"]
                blocks.append(dict(event["content_block"]))
            case "content_block_delta":
                assert event["index"] == opened
                ((name, piece),) = [pair for pair in event["delta"].items() if pair[0] != "type"]
                name = "input" if name == "partial_json" else name
                before = "" if blocks[-1][name] == {} else blocks[-1][name]
                blocks[-1][name] = before + piece
            case "content_block_stop":
                assert event["index"] == opened
                opened = None
    assert opened is None
    for block in blocks:
        if block["type"] == "tool_use":
            block["input"] = json.loads(block["input"])
    return blocks


@pytest.mark.parametrize("events", [SAID, CALLED])
def test_the_pieces_of_a_stream_add_up_to_the_whole_however_they_are_cut(events: Any) -> None:
    content = plain(rendered(ROUTE, read(), events))["content"]
    for cut_events in (events, list(byte_by_byte(events))):
        frames = streamed(ROUTE, read(), cut_events)
        kinds = [row.__struct_config__.tag for row in frames]
        assert (kinds[0], kinds[-2:]) == ("message_start", ["message_delta", "message_stop"])
        assert joined(frames) == content
    start = plain(streamed(ROUTE, read(), events)[0])["message"]
    assert (start["content"], start["stop_reason"], start["usage"]["input_tokens"]) == ([], None, 5)


def test_a_stop_sequence_is_told() -> None:
    events = (*SAID[:-1], end(stopped_by="END"))
    answer = plain(rendered(ROUTE, read(), events))
    assert (answer["stop_reason"], answer["stop_sequence"]) == ("stop_sequence", "END")
    assert plain(streamed(ROUTE, read(), events)[-2])["delta"] == {
        "stop_reason": "stop_sequence",
        "stop_sequence": "END",
    }
    cut = plain(rendered(ROUTE, read(), (*SAID[:-1], end("length"))))
    assert cut["stop_reason"] == "max_tokens"


def test_every_event_is_named_on_the_wire_and_is_one_line() -> None:
    (delta,) = [
        row for row in streamed(ROUTE, read(), (Text("a\u2028b\u0085c\u2029\n", (1,)), end())) if "delta" in str(row)
    ][:1]
    frame = NAMED.frame(delta).decode()
    assert len(frame.splitlines()) == 3 and frame.endswith("\n\n")
    name, data = frame.splitlines()[:2]
    assert name == f"event: {json.loads(data[6:])['type']}"
    assert json.loads(data[6:])["delta"]["text"] == "a\u2028b\u0085c\u2029\n"


def ask(live: Live, headers: dict[str, str] | None = None, **fields: Any) -> tuple[int, dict[str, str], Any]:
    return live.ask("POST", PATH + "?beta=true", {"max_tokens": 5, "messages": HELLO} | fields, headers)


def test_a_message_is_answered_whole_and_streamed_alike(start: Start) -> None:
    live = start(script="<think>Let me see.</think>It is cold.")
    status, headers, answer = ask(live, max_tokens=50)
    assert (status, headers["request-id"]) == (200, headers["x-request-id"])
    assert [block["type"] for block in answer["content"]] == ["thinking", "text"]
    assert answer["id"].startswith("msg_")
    body = ask(live, max_tokens=50, stream=True)[2].decode()
    rows = [json.loads(line[6:]) for line in body.splitlines() if line.startswith("data: ")]
    text = "".join(row["delta"].get("text", "") for row in rows if row["type"] == "content_block_delta")
    assert text == answer["content"][1]["text"]
    assert "[DONE]" not in body


def test_tokens_are_counted(live: Live) -> None:
    status, _, answer = live.ask("POST", PATH + "/count_tokens", {"messages": HELLO})
    assert (status, set(answer)) == (200, {"input_tokens"})


@pytest.mark.parametrize(
    ("fields", "status", "kind"),
    [
        ({"model": "nobody"}, 404, "not_found_error"),
        ({"max_tokens": 0}, 400, "invalid_request_error"),
        ({"messages": [{"role": "user", "content": "x" * 5000}]}, 400, "invalid_request_error"),
    ],
)
def test_an_error_has_anthropics_shape(live: Live, fields: dict[str, Any], status: int, kind: str) -> None:
    got, headers, answer = ask(live, **fields)
    assert (got, answer["type"], answer["error"]["type"]) == (status, "error", kind)
    assert answer["request_id"] == headers["request-id"]


def test_a_prompt_that_is_too_long_is_told_in_the_words_that_clients_read(live: Live) -> None:
    answer = ask(live, messages=[{"role": "user", "content": "x" * 5000}])[2]
    assert answer["error"]["message"].startswith("prompt is too long: 50")
    assert answer["error"]["message"].endswith(" tokens > 4096 maximum")


def test_errors_before_a_route_is_entered_have_that_shape_too(start: Start) -> None:
    live = start(keys=KEYS, anonymous=False)
    for method, path, body, key, status, kind in (
        ("POST", PATH, b"{", KEY, 400, "invalid_request_error"),
        ("GET", PATH, None, KEY, 405, "invalid_request_error"),
        ("GET", PATH + "/nothing", None, KEY, 404, "not_found_error"),
        ("POST", PATH, {}, "wrong", 401, "authentication_error"),
        ("POST", PATH + "/count_tokens", {}, "", 401, "authentication_error"),
    ):
        got, _, answer = live.ask(method, path, body, {"x-api-key": key})
        assert (got, answer["type"], answer["error"]["type"]) == (status, "error", kind), path


def test_models_are_listed_in_the_shape_of_who_asks(live: Live) -> None:
    answer = live.ask("GET", "/v1/models", None, {"anthropic-version": "2023-06-01"})[2]
    assert (answer["data"][0]["type"], answer["data"][0]["id"], answer["has_more"]) == ("model", "beta", False)
    assert live.ask("GET", "/v1/models")[2]["object"] == "list"
