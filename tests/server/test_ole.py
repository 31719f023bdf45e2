"""The conversation of the desktop client Ole, replayed step by step against a live server."""

from __future__ import annotations

import hashlib
import json
import re
from typing import Any

import pytest

from tests.golden import SHARED, needs_shared
from tests.server.conftest import Live, Start
from tests.server.raw import Raw
from tests.server.stand_in import until
from tests.server.test_openai import events

# Tools and sockets are not enabled, E8 needs a fault inside the server, and benchmarks are not served.
LEFT_OUT = {"P1", "P2", "P3", "P4", "P5", "W1", "E8", "Q2", "Q3"}


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
        whole = re.fullmatch(r"\{\{([^}]*)\}\}", value)
        if whole:
            return known[whole[1]]
        return re.sub(r"\{\{([^}]*)\}\}", lambda m: str(known[m[1]]), value)
    return value


def folded(rows: list[Any]) -> str:
    """The text of a stream, whatever the name of its pieces."""
    text = ""
    for row in rows:
        if isinstance(row, dict) and row.get("choices"):
            text += row["choices"][0].get("delta", {}).get("content") or ""
        elif isinstance(row, dict) and "choices" not in row:
            text += row.get("token") or row.get("content") or ""
    return text


def run(live: Live, step: dict[str, Any], request: dict[str, Any], known: dict[str, Any]) -> None:
    request = filled(request, known)
    if "action" in step:
        raw = Raw(live.port).post(request["path"], request["body"])
        raw.read(600)
        raw.close()
        assert until(lambda: live.app.counts.active == 0, 1)
        return
    body = step["raw_body"].encode() if "raw_body" in step else request.get("body")
    if request.get("no_body"):
        body = None
    status, headers, said = live.ask(request["method"], request["path"], body, request.get("headers", {}))
    expect = step["expect"]
    assert status == expect["status"][0], said
    assert headers.get("content-type", "").startswith(expect.get("content_type", ""))
    for check in expect.get("json", ()):
        assert holds(said, *check), check
    for name, *check in step.get("expect_headers", ()):
        assert holds({"value": headers[name]}, "value", *check), name
    for name, path in step.get("capture", {}).items():
        known[name] = at(said, path)
    if "stream" in step:
        rows = events(said)
        assert rows[-1] == "[DONE]"
        known[f"{step['id']}.text"] = folded(rows)
        assert folded(rows)


@needs_shared
def test_every_step_of_the_conversation_is_answered_as_ole_expects(start: Start) -> None:
    steps = json.loads((SHARED / "ole_conversation.json").read_text("utf-8"))["steps"]
    live, locked = start(), start(keys=(hashlib.sha256(b"k-test").digest(),), anonymous=False)
    known: dict[str, Any] = {"model": "beta"}
    done = 0
    for step in steps:
        if step["id"] in LEFT_OUT:
            continue
        server = locked if "server" in step else live
        for change in ({}, *step.get("repeat_as", ())):
            try:
                run(server, step, step["request"] | change, known)
            except (AssertionError, KeyError, TypeError) as error:
                pytest.fail(f"step {step['id']} {change}: {error!r}")
            done += 1
    assert done > 55
