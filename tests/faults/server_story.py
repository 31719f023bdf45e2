"""The story of a server: sessions, files, batches, answers that are kept, and its log."""

from __future__ import annotations

import json
import time
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from functools import partial
from pathlib import Path
from typing import Any

import pytest

from tests.faults.calls import FailingCalls
from tests.faults.stories import Acknowledge, Story
from tests.server.batch.lines import HELLO, row
from tests.server.batch.uploads import BOUNDARY, form
from tests.server.conftest import Live, starting
from woolly.server.batch import jobs
from woolly.server.http.log import Log
from woolly.server.records import store

SESSIONS = "/api/v1/sessions"
ROWS = [row(f"r{number}", messages=HELLO, max_tokens=3) for number in range(4)]
UPLOAD = {"Content-Type": f"multipart/form-data; boundary={BOUNDARY}"}
REFUSED = (500, 503)  # statuses of a request for which the disk failed
ENDED = ("completed", "failed", "cancelled")


class User:
    """Somebody who uses a server, and notes what it has acknowledged."""

    def __init__(self, live: Live, acknowledge: Acknowledge) -> None:
        self._live, self._acknowledge = live, acknowledge
        self.problems: list[str] = []
        self._rows: dict[str, list[list[str]]] = {}

    def ask(self, method: str, path: str, body: Any = None, headers: dict[str, str] | None = None) -> Any:
        """The answer; None where the request was refused because of the disk."""
        status, _, answer = self._live.ask(method, path, body, headers)
        if status == 200:
            return answer
        if status not in REFUSED:
            self.problems.append(f"{method} {path}: {status} {answer}")
        return None

    def chat(self) -> None:
        session = self.ask("POST", SESSIONS, {"metadata": {"step": 0}})
        if session is not None:
            id_ = session["session_id"]
            self._acknowledge(f"metadata {id_}", 0)
            self.turn(id_, "one")
            if self.ask("PATCH", f"{SESSIONS}/{id_}", {"metadata": {"step": 1}}) is not None:
                self._acknowledge(f"metadata {id_}", 1)
            self.turn(id_, "two")
        other = self.ask("POST", SESSIONS, {})
        if other is not None and self.ask("DELETE", f"{SESSIONS}/{other['session_id']}") is not None:
            self._acknowledge(f"removed {SESSIONS}/{other['session_id']}", True)

    def turn(self, id_: str, text: str) -> None:
        body = {"messages": [{"role": "user", "content": text}], "session_id": id_, "max_tokens": 5}
        answer = self.ask("POST", "/api/v1/inference/chat", body)
        if answer is not None:
            rows = self._rows.setdefault(id_, [])
            rows += [["user", text], ["assistant", answer["choices"][0]["message"]["content"]]]
            self._acknowledge(f"turns {id_}", list(rows))

    def batch(self, calls: FailingCalls) -> None:
        content = b"\n".join(json.dumps(each).encode() for each in ROWS)
        file = self.ask("POST", "/v1/files", form(content, purpose="batch"), UPLOAD)
        if file is not None:
            self._acknowledge(f"file {file['id']}", content.decode())
            body = {"input_file_id": file["id"], "endpoint": "/v1/chat/completions", "completion_window": "24h"}
            batch = self.ask("POST", "/v1/batches", body)
            if batch is not None:
                self._acknowledge(f"batch {batch['id']}", True)
                if not calls.lasting:
                    _ended(self._live, batch["id"])
        other = self.ask("POST", "/v1/files", form(b"x", purpose="batch"), UPLOAD)
        if other is not None and self.ask("DELETE", f"/v1/files/{other['id']}") is not None:
            self._acknowledge(f"removed /v1/files/{other['id']}", True)

    def responses(self) -> None:
        first = self.ask("POST", "/v1/responses", {"input": "one", "max_output_tokens": 16})
        if first is None:
            return
        self._acknowledge(f"response {first['id']}", True)
        body = {"input": "two", "max_output_tokens": 16, "previous_response_id": first["id"]}
        if (second := self.ask("POST", "/v1/responses", body)) is not None:
            self._acknowledge(f"response {second['id']}", True)


def _ended(live: Live, id_: str) -> dict[str, Any]:
    """The batch when it has ended, however often it has to be asked for."""
    late = time.monotonic() + 60
    while True:
        status, _, batch = live.ask("GET", f"/v1/batches/{id_}")
        if status == 200 and batch["status"] in ENDED:
            return dict(batch)
        assert time.monotonic() < late, batch
        time.sleep(0.005)


@contextmanager
def _server(models: Path, home: Path) -> Iterator[tuple[Live, list[str]]]:
    """A server that tries again at once, and the faults of Woolly that it has logged."""
    faults: list[str] = []
    with pytest.MonkeyPatch.context() as patch, starting(models, home) as start:
        patch.setattr(jobs, "AGAIN_S", 0.01)
        patch.setattr(store, "AGAIN_S", 0.0)
        patch.setattr(Log, "internal_error", lambda self, id_, error: faults.append(f"{id_}: {error!r}"))
        yield start(log_level="info", log_file=home / "log"), faults


def use_server(models: Path, home: Path, acknowledge: Acknowledge, calls: FailingCalls) -> list[str]:
    acknowledged: dict[str, Any] = {}

    def note(key: str, value: Any) -> None:
        acknowledged[key] = value
        acknowledge(key, value)

    with _server(models, home) as (live, faults):
        user = User(live, note)
        user.chat()
        user.batch(calls)
        user.responses()
        calls.heal()
        losses = _lost(live, acknowledged)
        before = len(acknowledged)
        user.chat()  # without a restart everything works again
        user.batch(calls)
        user.responses()
        if len(acknowledged) < before + 8:
            losses.append("work after the disk was well again")
    lines = (home / "log").read_text().splitlines()
    if not all(line[:2] == "20" or line == "" for line in lines[1:]) or not lines:
        losses.append(f"lines of the log: {lines}")
    return [*user.problems, *faults, *losses]


def lost_by_server(models: Path, home: Path, acknowledged: Mapping[str, Any]) -> list[str]:
    with _server(models, home) as (live, faults):
        on_disk = {key: value for key, value in acknowledged.items() if not key.startswith("response")}
        return [*_lost(live, on_disk), *faults]


def _lost(live: Live, acknowledged: Mapping[str, Any]) -> list[str]:
    return [f"{key}: {value}" for key, value in acknowledged.items() if not _is_there(live, *key.split(" "), value)]


def _is_there(live: Live, kind: str, id_: str, value: Any) -> bool:
    match kind:
        case "metadata":
            status, _, session = live.ask("GET", f"{SESSIONS}/{id_}")
            return status == 200 and session["metadata"]["step"] >= value
        case "turns":
            status, _, answer = live.ask("GET", f"{SESSIONS}/{id_}/history")
            rows = [[each["role"], each["content"]] for each in answer["messages"]] if status == 200 else []
            return rows[: len(value)] == value
        case "file":
            return live.ask("GET", f"/v1/files/{id_}/content")[::2] == (200, value.encode())
        case "batch":
            return _is_complete(live, _ended(live, id_))
        case "removed":
            return live.ask("GET", id_)[0] == 404
        case "response":
            return live.ask("GET", f"/v1/responses/{id_}")[0] == 200
    raise AssertionError(kind)


def _is_complete(live: Live, batch: dict[str, Any]) -> bool:
    if batch["status"] != "completed" or batch["request_counts"]["completed"] != len(ROWS):
        return False
    content = live.ask("GET", f"/v1/files/{batch['output_file_id']}/content")[2]
    return [json.loads(line)["custom_id"] for line in content.splitlines()] == [each["custom_id"] for each in ROWS]


def server_story(models: Path) -> Story:
    return Story("a server", partial(use_server, models), partial(lost_by_server, models))
