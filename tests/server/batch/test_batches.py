"""Batches of a server: each row answered once and in order, after other requests, and resumed by the next server."""

from __future__ import annotations

import dataclasses
import hashlib
import json
import stat
import threading
from pathlib import Path
from typing import Any

import pytest

from tests.server.batch.lines import HELLO, row
from tests.server.batch.uploads import Client, form
from tests.server.conftest import Live, Start
from tests.server.process import Process, environ
from tests.server.raw import Raw, status
from tests.server.stand_in import until
from tests.tiny import tiny
from woolly.errors import FileError
from woolly.server.accounts import Resource
from woolly.server.batch import Journal
from woolly.server.records import folder as record_folder

KEYS = ("the-first-key-of-thirty-two-signs", "another-key-of-thirty-two-signs-x")


def chats(count: int, tokens: int = 4) -> list[dict[str, Any]]:
    return [row(f"r{number}", messages=HELLO, max_tokens=tokens) for number in range(count)]


def ids(rows: list[dict[str, Any]]) -> list[str]:
    return [each["custom_id"] for each in rows]


def test_a_batch_is_answered_in_order_into_two_files(live: Live) -> None:
    client = Client(live.port)
    rows = chats(20)
    rows[7]["body"]["temperature"] = -1
    batch = client.ended(client.begin(rows, metadata={"who": "ada"}))
    assert batch["status"] == "completed" and batch["errors"] is None and batch["metadata"] == {"who": "ada"}
    assert batch["request_counts"] == {"total": 20, "completed": 19, "failed": 1}
    times = [batch[f"{name}_at"] for name in ("created", "in_progress", "finalizing", "completed")]
    assert times == sorted(times) and batch["failed_at"] is batch["cancelled_at"] is None
    answers, failed = client.lines(batch["output_file_id"]), client.lines(batch["error_file_id"])
    assert ids(answers) == [f"r{number}" for number in range(20) if number != 7] and ids(failed) == ["r7"]
    body = answers[0]["response"]["body"]
    assert (answers[0]["response"]["status_code"], body["object"]) == (200, "chat.completion")
    assert body["created"] == batch["created_at"]
    file = client.ask("GET", f"/v1/files/{batch['output_file_id']}")[1]
    assert file["purpose"] == "batch_output" and file["filename"] == f"{batch['id']}_output.jsonl"


def test_a_file_with_a_wrong_line_fails_whole_and_says_which(live: Live) -> None:
    client = Client(live.port)
    batch = client.ended(client.begin([*chats(3), *chats(1)]))
    assert batch["status"] == "failed" and batch["output_file_id"] is batch["error_file_id"] is None
    (fault,) = batch["errors"]["data"]
    assert (fault["code"], fault["line"], fault["param"]) == ("duplicate_custom_id", 4, "custom_id")
    assert "r0" in fault["message"] and "/" not in fault["message"]  # the message shows no path of the server
    other = client.ended(client.begin(chats(1), endpoint="/v1/completions"))
    assert other["errors"]["data"][0]["code"] == "invalid_url"
    assert not live.loader.talkers


def test_batches_are_bounded(start: Start) -> None:
    client = Client(start(limits={"rows": 3, "batches_per_key": 2}, step_s=0.01).port)
    assert client.ended(client.begin(chats(4)))["errors"]["data"][0]["code"] == "too_many_rows"
    long = [client.begin(chats(3, tokens=2000)) for _ in range(2)]  # the second replaces the batch that has ended
    assert {each["id"] for each in client.ask("GET", "/v1/batches")[1]["data"]} == set(long)
    body = {"input_file_id": client.upload(b"x"), "endpoint": "/v1/completions", "completion_window": "24h"}
    assert client.ask("POST", "/v1/batches", body)[0] == 429
    for batch in long:
        client.ask("POST", f"/v1/batches/{batch}/cancel")
    assert {client.ended(batch)["status"] for batch in long} == {"cancelled"}


def test_a_batch_that_is_cancelled_keeps_what_it_answered(start: Start) -> None:
    live = start(step_s=0.005)
    client = Client(live.port)
    batch = client.begin(chats(200))
    assert until(lambda: client.batch(batch)["request_counts"]["completed"] > 5)
    status, answer = client.ask("POST", f"/v1/batches/{batch}/cancel")
    assert (status, answer["status"]) == (200, "cancelling")
    ended = client.ended(batch)
    answered = ids(client.lines(ended["output_file_id"]))
    assert ended["status"] == "cancelled" and 5 < len(answered) < 200
    assert answered == [f"r{number}" for number in range(len(answered))]
    assert until(lambda: live.loader.talkers[0].idle)
    assert client.ask("POST", f"/v1/batches/{batch}/cancel")[0] == 409


def test_nobody_has_the_batches_of_another_key(start: Start) -> None:
    live = start(keys=tuple(hashlib.sha256(key.encode()).digest() for key in KEYS), anonymous=False)
    one, other = (Client(live.port, key) for key in KEYS)
    batch = one.begin(chats(2))
    assert other.ask("GET", f"/v1/batches/{batch}")[0] == other.ask("POST", f"/v1/batches/{batch}/cancel")[0] == 404
    assert other.ask("GET", "/v1/batches")[1]["data"] == []
    one.ended(batch)
    one.ask("POST", "/v1/chat/completions", {"messages": HELLO, "max_tokens": 2})
    other.ask("POST", "/v1/chat/completions", {"messages": HELLO, "max_tokens": 2})
    *rows, mine, theirs = live.loader.talkers[0].salts
    assert set(rows) == {mine} != {theirs}


def test_s34_a_batch_of_a_key_that_was_revoked_is_not_gone_on_with_until_the_key_is_back(start: Start) -> None:
    one, other = (hashlib.sha256(key.encode()).digest() for key in KEYS)
    first = start(keys=(one, other), anonymous=False, step_s=0.02)
    batch = Client(first.port, KEYS[0]).begin(chats(3, tokens=1000))
    assert until(lambda: first.loader.talkers and first.loader.talkers[0].engine.running)
    first.background.stop()
    first.background._thread.join(60)
    for settings in ({"keys": (other,), "anonymous": False}, {"keys": (other,), "anonymous": True}, {}):
        later = start(**settings)
        client = Client(later.port, KEYS[1])
        assert client.ended(client.begin(chats(1)))["status"] == "completed"  # that of another caller is answered
        assert client.ask("GET", f"/v1/batches/{batch}")[0] == 404
        assert len(later.loader.talkers[0].seen) == 1
        later.background.stop()
        later.background._thread.join(60)
    again = Client(start(keys=(one, other), anonymous=False).port, KEYS[0])
    assert again.ended(batch)["request_counts"]["completed"] == 3


def test_s34_a_batch_stops_where_its_key_is_taken_from_a_running_server(start: Start) -> None:
    one, other = (hashlib.sha256(key.encode()).digest() for key in KEYS)
    live = start(keys=(one, other), anonymous=False)
    settings = live.app.settings
    client, another = (Client(live.port, key) for key in KEYS)
    another.ended(another.begin(chats(1)))
    (talker,) = live.loader.talkers
    talker.runner.go.clear()  # no step is made until the key is gone
    batch = client.begin(chats(40))
    assert until(lambda: talker.engine.running)
    live.background.run(live.app.renew(lambda: dataclasses.replace(settings, keys=(other,))))
    talker.runner.go.set()
    assert another.ended(another.begin(chats(1)))["status"] == "completed"
    assert until(lambda: talker.idle) and len(talker.seen) < 40
    live.background.run(live.app.renew(lambda: settings))
    assert client.ended(batch)["request_counts"]["completed"] == 40


def test_s34_a_batch_of_an_address_waits_where_callers_need_a_key_by_now(start: Start) -> None:
    first = start(step_s=0.02)
    batch = Client(first.port).begin(chats(3, tokens=1000))
    assert until(lambda: first.loader.talkers and first.loader.talkers[0].engine.running)
    first.background.stop()
    first.background._thread.join(60)
    digest = hashlib.sha256(KEYS[0].encode()).digest()
    keyed = start(keys=(digest,), anonymous=False)
    client = Client(keyed.port, KEYS[0])
    client.ended(client.begin(chats(1)))
    assert len(keyed.loader.talkers[0].seen) == 1
    keyed.background.stop()
    keyed.background._thread.join(60)
    assert Client(start(keys=(digest,), anonymous=True).port).ended(batch)["request_counts"]["completed"] == 3


@pytest.fixture
def row_by_row(monkeypatch: pytest.MonkeyPatch) -> None:
    """One row is answered at a time, and after each a batch looks at its room."""
    monkeypatch.setattr("woolly.server.batch.jobs.AT_ONCE", 1)
    monkeypatch.setattr("woolly.server.batch.work.SYNC_S", 0.0)
    monkeypatch.setattr("woolly.server.batch.jobs.AGAIN_S", 0.05)


@pytest.mark.usefixtures("row_by_row")
def test_s35_a_batch_ends_with_what_it_has_where_its_caller_has_no_more_room(start: Start) -> None:
    most = 20_000
    client = Client(start(limits={"file_bytes_per_key": most}).port)
    batch = client.ended(client.begin(chats(60)))
    assert batch["status"] == "failed" and batch["errors"]["data"][0]["code"] == "payload_too_large"
    answered = ids(client.lines(batch["output_file_id"]))
    assert answered == [f"r{number}" for number in range(len(answered))] and 0 < len(answered) < 60
    nbytes = sum(file["bytes"] for file in client.ask("GET", "/v1/files")[1]["data"])
    assert most <= nbytes < most + 1000  # one answer
    assert client.send(form(b"x", purpose="batch"))[0] == 413
    client.ask("DELETE", f"/v1/files/{batch['output_file_id']}")
    assert client.send(form(b"x", purpose="batch"))[0] == 200


@pytest.mark.usefixtures("row_by_row")
def test_s35_a_batch_waits_for_room_that_others_have(start: Start, monkeypatch: pytest.MonkeyPatch) -> None:
    digests = tuple(hashlib.sha256(key.encode()).digest() for key in KEYS)
    live = start(keys=digests, anonymous=False, limits={"file_bytes_in_all": 50_000})
    logged: list[str] = []
    monkeypatch.setattr(live.app.log, "line", lambda _level, message, **_: logged.append(message))
    one, other = (Client(live.port, key) for key in KEYS)
    large = other.upload(b"x" * 45_000)
    batch = one.begin(chats(20))
    assert until(lambda: "batch waits" in logged)
    assert one.batch(batch)["status"] == "in_progress" and one.send(form(b"x", purpose="batch"))[0] == 413
    other.ask("DELETE", f"/v1/files/{large}")
    ended = one.ended(batch)
    assert ended["status"] == "completed"
    assert ids(one.lines(ended["output_file_id"])) == [f"r{number}" for number in range(20)]


def test_s35_after_a_restart_the_answers_of_a_batch_that_waits_count(start: Start) -> None:
    one, other = (hashlib.sha256(key.encode()).digest() for key in KEYS)
    first = start(keys=(one,), anonymous=False, step_s=0.005)
    client = Client(first.port, KEYS[0])
    batch = client.begin(chats(200))
    assert until(lambda: client.batch(batch)["request_counts"]["completed"] > 30)
    (file,) = client.ask("GET", "/v1/files")[1]["data"]
    first.background.stop()
    first.background._thread.join(60)
    later = start(keys=(other,), anonymous=False, limits={"file_bytes_in_all": file["bytes"] + 1000})
    assert until(lambda: later.app.batches._files._growing)
    assert Client(later.port, KEYS[1]).send(form(b"x", purpose="batch"))[0] == 413


def test_h53_of_batches_that_are_made_at_once_no_more_are_kept_than_a_key_may_have(
    start: Start, monkeypatch: pytest.MonkeyPatch
) -> None:
    live = start(limits={"batches_per_key": 3})
    live.chat()
    live.loader.talkers[0].runner.go.clear()  # none of them ends
    client = Client(live.port)
    file = client.upload([row("a", messages=HELLO, max_tokens=2)])
    body = json.dumps({"input_file_id": file, "endpoint": "/v1/chat/completions", "completion_window": "24h"}).encode()
    go, write = threading.Event(), record_folder.write_private

    def slow(*args: Any, **named: Any) -> None:
        go.wait()
        write(*args, **named)

    monkeypatch.setattr(record_folder, "write_private", slow)
    begun = [Raw(live.port).post("/v1/batches", body, {"Content-Type": "application/json"}) for _ in range(20)]
    begun[0].close()  # whoever goes has its batch all the same
    assert until(lambda: live.app.state.open == 2)
    go.set()
    assert until(lambda: live.app.state.open == 0)
    assert sorted(status(raw.read()) for raw in begun[1:])[-17:] == [429] * 17
    assert len(client.ask("GET", "/v1/batches")[1]["data"]) == 3
    live.loader.talkers[0].runner.go.set()
    assert until(lambda: not live.app.accounts.out(Resource.BATCHES))


def test_what_is_wrong_with_a_batch_is_told_at_once(live: Live) -> None:
    client = Client(live.port)
    file = client.upload(b"x")
    right = {"input_file_id": file, "endpoint": "/v1/completions", "completion_window": "24h"}
    wrong: list[tuple[dict[str, Any], int]] = [
        ({"endpoint": "/v1/images"}, 400),
        ({"completion_window": "1h"}, 400),
        ({"input_file_id": "file-nothing"}, 404),
        ({"metadata": {"a": 1}}, 400),
        ({"metadata": {str(number): "" for number in range(17)}}, 400),
    ]
    for fields, code in wrong:
        assert client.ask("POST", "/v1/batches", right | fields)[0] == code


def test_a_request_does_not_wait_for_rows(start: Start) -> None:
    live = start(step_s=0.01)
    client = Client(live.port)
    batch = client.begin(chats(10, tokens=3000))  # half a minute each
    assert until(lambda: live.loader.talkers and len(live.loader.talkers[0].engine.running) == 3)  # of four places
    assert live.chat(max_tokens=2)[0] == 200
    assert len(live.loader.talkers[0].engine.running) == 3
    assert client.batch(batch)["request_counts"]["completed"] == 0
    client.ask("POST", f"/v1/batches/{batch}/cancel")
    assert client.ended(batch)["output_file_id"] is None


def test_batches_of_one_caller_are_answered_one_after_another(start: Start) -> None:
    client = Client(start(step_s=0.002).port)
    first, second = client.begin(chats(30)), client.begin(chats(3))
    assert client.batch(second)["status"] == "validating"
    done = [client.ended(batch) for batch in (first, second)]
    assert done[0]["completed_at"] <= done[1]["in_progress_at"] + 1
    listed = client.ask("GET", "/v1/batches?limit=1")[1]
    assert listed["has_more"] is True and len(listed["data"]) == 1


def test_a_server_that_is_killed_goes_on_and_gives_the_same_bytes(tmp_path: Path) -> None:
    models = tmp_path / "models"
    models.mkdir()
    tiny(models / "small.gguf", context=2048)
    env = environ(tmp_path / "home", models)
    rows = [row(f"r{number}", messages=HELLO, max_tokens=40) for number in range(300)]
    with Process(env) as process:
        client = Client(process.port)
        batch = client.begin(rows)
        assert until(lambda: client.batch(batch)["request_counts"]["completed"] > 20, 30)
        process.process.kill()
        process.process.wait()
    folder = tmp_path / "home" / ".local" / "state" / "woolly" / "batches"
    assert {stat.S_IMODE(path.stat().st_mode) for path in folder.iterdir()} == {0o600}
    begun = (folder / f"{batch}.output").read_bytes()
    with Process(env) as process:
        client = Client(process.port)
        ended = client.ended(batch, 60)
        assert ended["request_counts"] == {"total": 300, "completed": 300, "failed": 0}
        data = client.ask("GET", f"/v1/files/{ended['output_file_id']}/content")[1]
        assert data.startswith(begun[: begun.rfind(b"\n") + 1])
        assert ids(client.lines(ended["output_file_id"])) == [f"r{number}" for number in range(300)]
        code, errors = process.end()
    assert (code, errors) == (0, "")
    with Process(env) as process:  # a finished batch stays finished
        assert Client(process.port).batch(batch) == ended


def test_a_server_that_is_told_to_end_does_not_wait_for_batches(start: Start) -> None:
    live = start(step_s=0.02)
    batch = Client(live.port).begin(chats(3, tokens=1000))  # 20 seconds
    assert until(lambda: live.loader.talkers and live.loader.talkers[0].engine.running)
    live.background.stop()
    live.background._thread.join(60)
    assert not live.background._thread.is_alive()
    assert Client(start().port).ended(batch)["request_counts"]["completed"] == 3


def test_a_text_that_cannot_be_embedded_fails_its_row(start: Start) -> None:
    client = Client(start().port)
    rows = [row("a", "/v1/embeddings", input="x", model="beta")]
    batch = client.ended(client.begin(rows, endpoint="/v1/embeddings"))
    (failed,) = client.lines(batch["error_file_id"])
    assert failed["response"]["status_code"] == 400


def test_two_servers_of_one_user_answer_a_batch_once(start: Start, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("woolly.server.batch.jobs.AGAIN_S", 0.05)
    first = start(step_s=0.005)
    client = Client(first.port)
    batch = client.begin(chats(60))
    assert until(lambda: client.batch(batch)["status"] == "in_progress")
    second = start()  # over the same files
    ended = client.ended(batch)
    other = Client(second.port)
    assert until(lambda: other.batch(batch)["status"] == "completed")
    assert not second.loader.talkers  # the second server has loaded no model
    assert len(client.lines(ended["output_file_id"])) == 60


def test_a_full_disk_makes_a_batch_wait_and_costs_no_row(start: Start, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("woolly.server.batch.jobs.AGAIN_S", 0.05)
    add, left = Journal.add, iter(range(7))

    def full(journal: Journal, line: bytes, *, failed: bool) -> None:
        if next(left, None) == 6:
            raise FileError("there is no room", code="disk_full")
        add(journal, line, failed=failed)

    monkeypatch.setattr(Journal, "add", full)
    client = Client(start().port)
    batch = client.ended(client.begin(chats(12)))
    assert batch["status"] == "completed"
    assert ids(client.lines(batch["output_file_id"])) == [f"r{number}" for number in range(12)]
