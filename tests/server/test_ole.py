"""The conversation of the desktop client Ole, replayed step by step against `woolly serve` with a real model."""

from __future__ import annotations

import json
import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from websockets.sync.client import connect

from tests.golden import SHARED, needs_shared
from tests.server.process import Process, environ
from tests.server.raw import Raw
from tests.server.stand_in import until
from tests.server.test_openai import events
from woolly.device.cpu import TARGET

PAGE = TARGET.page

PAGE_OF_OLE = Path(__file__).resolve().parents[2] / "docs" / "ole.md"
CONVERSATION = Path(__file__).resolve().parents[1] / "data" / "ole_conversation.json"
LEFT_OUT = {"E8"}  # needs a fault inside the server (test_h47)


def at(value: Any, path: str) -> Any:
    for part in re.findall(r"[^.\[\]]+", path):
        value = value[int(part)] if isinstance(value, list) else value[part]
    return value


KINDS = {"string": str, "integer": int, "number": (int, float), "boolean": bool, "array": list, "object": dict}


def holds(body: Any, path: str, op: str, *wanted: Any) -> bool:
    value = at(body, path)
    (want,) = wanted or (None,)
    match op:
        case "eq":
            return bool(value == want)
        case "type":
            return isinstance(value, KINDS[want]) and (want == "boolean" or not isinstance(value, bool))
        case "nonempty":
            return len(value) > 0
        case "in":
            return value in want
        case "ge":
            return bool(value >= want)
        case "le":
            return bool(value <= want)
        case "lt":
            return bool(value < want)
        case "range":
            return value is None or want[0] <= value <= want[1]
        case "len_ge":
            return len(value) >= want
        case "contains":
            return want in value
        case "not_contains":
            return want not in value
        case "contains_ci":
            return want.lower() in value.lower()
        case "matches":
            return re.search(want, value) is not None
        case "any":
            return any(holds(item, *want) for item in value)
    raise AssertionError(f"unknown check {op}")


def filled(value: Any, known: dict[str, Any]) -> Any:
    if isinstance(value, dict):
        return {name: filled(item, known) for name, item in value.items()}
    if isinstance(value, list):
        return [filled(item, known) for item in value]
    if isinstance(value, str):
        placeholder = re.fullmatch(r"\{\{([^}]*)\}\}", value)
        if placeholder:
            return known[placeholder[1]]
        return re.sub(r"\{\{([^}]*)\}\}", lambda m: str(known[m[1]]), value)
    return value


def folded(rows: list[Any]) -> str:
    """The text of a stream, whichever field holds its pieces."""
    text = ""
    for row in rows:
        if isinstance(row, dict) and row.get("choices"):
            text += row["choices"][0].get("delta", {}).get("content") or ""
        elif isinstance(row, dict) and "choices" not in row:
            text += row.get("token") or row.get("content") or ""
    return text


def check_stream(data: bytes, kind: str) -> str:
    """The text of a stream that follows the rules: whole events, one head, one reason, and [DONE] at the end."""
    rows = events(data)
    assert rows.pop() == "[DONE]"
    if kind == "openai":
        chosen = [row for row in rows if row["choices"]]
        assert len({(row["id"], row["object"], row["created"], row["model"]) for row in rows}) == 1
        reasons = [row["choices"][0]["finish_reason"] for row in chosen]
        assert reasons[-1] in ("stop", "length")
        assert not any(reasons[:-1])
        if chosen[0]["object"] == "chat.completion.chunk":
            assert chosen[0]["choices"][0]["delta"]["role"] == "assistant"
        else:
            assert folded(rows) == "".join(row["choices"][0]["text"] for row in rows)
    text = folded(rows)
    assert text
    return text


def converse(server: Process, step: dict[str, Any], path: str) -> None:
    """A step over a WebSocket: send its messages, and compare the replies."""
    with connect(f"ws://127.0.0.1:{server.port}{path}", open_timeout=60) as socket:
        for part in step["exchange"]:
            if "send" in part:
                socket.send(json.dumps(part["send"]))
                continue
            wanted = part.get("recv") or part["recv_until"]
            while True:
                message = json.loads(socket.recv(timeout=60))
                assert all(holds(message, *check) for check in part.get("each", ())), message
                matches = all(holds(message, *check) for check in wanted)
                assert matches or "recv_until" in part, message
                if matches:
                    break


def run(server: Process, step: dict[str, Any], request: dict[str, Any], known: dict[str, Any]) -> None:
    request = filled(request, known)
    if request["method"] == "WS":
        converse(server, step, request["path"])
        return
    if "action" in step:
        raw = Raw(server.port).post(request["path"], request["body"])
        data = b""
        while data.count(b"data: ") < step["action"]["close_after_events"]:
            data += raw.read()
        raw.close()
        assert until(lambda: server.ask("GET", "/api/v1/performance/stats")[2]["requests"]["active"] == 0)
        return
    body = step["raw_body"].encode() if "raw_body" in step else request.get("body")
    if request.get("no_body"):
        body = None
    status, headers, answer = server.ask(request["method"], request["path"], body, request.get("headers", {}))
    expect = step["expect"]
    assert status == expect["status"][0], answer
    assert headers.get("content-type", "").startswith(expect.get("content_type", ""))
    for check in expect.get("json", ()):
        assert holds(answer, *check), check
    for name, *check in step.get("expect_headers", ()):
        assert holds({"value": headers[name]}, "value", *check), name
    for name, path in step.get("capture", {}).items():
        known[name] = at(answer, path)
    if "stream" in step:
        known[f"{step['id']}.text"] = check_stream(answer, step["stream"])


def promises(server: Process, step: dict[str, Any], known: dict[str, Any]) -> None:
    """Check the promises of some steps that compare their answer with another one."""
    path, body = step["request"]["path"], filled(step["request"].get("body"), known)
    match step["id"]:
        case "T2":  # streamed or not, the text is the same
            unstreamed = server.ask("POST", path, body | {"stream": False})[2]
            assert unstreamed["choices"][0]["message"]["content"] == known["T2.text"]
        case "T3":  # the first turn is not computed again
            first = server.ask("POST", path, body | {"stream": False, "messages": body["messages"][:2]})[2]
            usage = events(server.ask("POST", path, body)[2])[-2]["usage"]
            cached = usage["prompt_tokens_details"]["cached_tokens"]
            assert cached >= first["usage"]["prompt_tokens"] // PAGE * PAGE > 0
        case "T4":  # a seed gives its text again
            texts = [server.ask("POST", path, body)[2]["choices"] for _ in range(2)]
            assert texts[0] == texts[1]
        case "V2":  # each of a batch is what it is alone
            data = server.ask("POST", path, body)[2]["data"]
            for prompt, row in zip(body.pop("prompts"), data, strict=True):
                alone = server.ask("POST", "/api/v1/inference/complete", body | {"prompt": prompt})[2]
                assert row["choices"] == alone["choices"]


@pytest.fixture
def locked(talkers: Path, tmp_path: Path) -> Iterator[Process]:
    """A server that wants a key, as some steps need it."""
    keys = {"WOOLLY_AUTH__API_KEYS": "k-test", "WOOLLY_AUTH__ALLOW_ANONYMOUS": "false"}
    with Process(environ(tmp_path, talkers) | keys) as process:
        yield process


@pytest.fixture
def unlocked(talkers: Path, tmp_path: Path) -> Iterator[Process]:
    with Process(environ(tmp_path, talkers)) as process:
        yield process


def test_every_step_of_the_conversation_is_answered_as_ole_expects(unlocked: Process, locked: Process) -> None:
    steps = json.loads(CONVERSATION.read_text("utf-8"))["steps"]
    known: dict[str, Any] = {"model": "talker"}
    done = set()
    for step in steps:
        if step["id"] in LEFT_OUT:
            continue
        server = locked if "server" in step else unlocked
        for change in ({}, *step.get("repeat_as", ())):
            try:
                run(server, step, step["request"] | change, known)
                if not change:
                    promises(server, step, known)
            except (AssertionError, KeyError, TypeError) as error:
                pytest.fail(f"step {step['id']} {change}: {error!r}")
        done.add(step["id"])
    assert done | LEFT_OUT == {step["id"] for step in steps}
    assert unlocked.end() == (0, "")


def test_the_page_about_ole_tells_of_every_step() -> None:
    page = PAGE_OF_OLE.read_text("utf-8")
    mentioned = {f"{kind}{number}" for kind, number in re.findall(r"\b([A-Z])(\d)\b", page)}
    for kind, first, last in re.findall(r"\b([A-Z])(\d) to [A-Z](\d)\b", page):
        mentioned |= {f"{kind}{number}" for number in range(int(first), int(last) + 1)}
    assert {step["id"] for step in json.loads(CONVERSATION.read_text("utf-8"))["steps"]} <= mentioned


@needs_shared
def test_the_conversation_is_that_of_the_golden_data() -> None:
    golden = json.loads((SHARED / "ole_conversation.json").read_text("utf-8"))["steps"]
    ours = json.loads(CONVERSATION.read_text("utf-8"))["steps"]
    for step, copy in zip(golden, ours, strict=True):
        assert all(step[name] == value for name, value in copy.items() if name != "stream"), step["id"]
