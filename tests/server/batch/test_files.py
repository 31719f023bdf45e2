"""Files that a server keeps: visible only to the key that uploaded them, in private files, within bounds."""

from __future__ import annotations

import errno
import hashlib
import stat
import threading
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import pytest

from tests.server.batch.lines import row
from tests.server.batch.uploads import BOUNDARY, Client, form
from tests.server.conftest import Live, Start
from tests.server.raw import Raw, status
from tests.server.stand_in import until
from woolly.server.accounts import Resource
from woolly.server.batch import files

KEYS = ("the-first-key-of-thirty-two-signs", "another-key-of-thirty-two-signs-x")


def test_a_file_is_uploaded_listed_read_and_deleted(live: Live) -> None:
    client = Client(live.port)
    status, answer = client.send(form(b"one\ntwo\n", filename="my rows.jsonl", purpose="batch", other="x"))
    assert status == 200
    assert answer.items() >= {"bytes": 8, "object": "file", "filename": "my rows.jsonl", "purpose": "batch"}.items()
    assert client.ask("GET", "/v1/files")[1]["data"] == [answer]
    assert client.ask("GET", f"/v1/files/{answer['id']}") == (200, answer)
    assert client.ask("GET", f"/v1/files/{answer['id']}/content") == (200, b"one\ntwo\n")
    assert client.ask("DELETE", f"/v1/files/{answer['id']}")[1]["deleted"] is True
    assert client.ask("GET", f"/v1/files/{answer['id']}")[0] == 404
    assert client.ask("GET", "/v1/files")[1]["data"] == []


def test_a_purpose_behind_the_file_counts_too(live: Live) -> None:
    data = form(b"x", purpose="batch")
    field, _, rest = data.partition(b"\r\n--" + BOUNDARY.encode() + b"\r\n")
    swapped = b"--" + BOUNDARY.encode() + b"\r\n" + rest.replace(b"--\r\n", b"\r\n") + field.partition(b"\r\n")[2]
    status, answer = Client(live.port).send(swapped + b"\r\n--" + BOUNDARY.encode() + b"--\r\n")
    assert (status, answer["purpose"]) == (200, "batch")


def test_lists_come_in_pages(live: Live) -> None:
    client = Client(live.port)
    ids = {client.upload(b"x") for _ in range(5)}
    everything = [each["id"] for each in client.ask("GET", "/v1/files")[1]["data"]]
    assert set(everything) == ids
    seen: list[str] = []
    more = True
    while more:
        after = f"&after={seen[-1]}" if seen else ""
        page = client.ask("GET", f"/v1/files?limit=2{after}")[1]
        seen += [each["id"] for each in page["data"]]
        assert page["last_id"] == seen[-1]
        more = page["has_more"]
    assert seen == everything
    assert [each["id"] for each in client.ask("GET", "/v1/files?order=asc")[1]["data"]] == everything[::-1]
    assert client.ask("GET", "/v1/files?purpose=batch_output")[1]["data"] == []
    assert client.ask("GET", "/v1/files?limit=0")[0] == client.ask("GET", "/v1/files?after=nobody")[0] == 400


def test_files_are_private_and_outlive_the_server(start: Start, tmp_path: Path) -> None:
    live = start()
    id_ = Client(live.port).upload(b"secret")
    paths = [path for path in tmp_path.rglob(f"{id_}*") if path.is_file()]
    assert len(paths) == 2
    assert {stat.S_IMODE(path.stat().st_mode) for path in paths} == {0o600}
    assert {stat.S_IMODE(path.parent.stat().st_mode) for path in paths} == {0o700}
    live.background.__exit__()
    assert Client(start().port).ask("GET", f"/v1/files/{id_}/content") == (200, b"secret")


def test_nobody_has_the_files_of_another_key(start: Start) -> None:
    live = start(keys=tuple(hashlib.sha256(key.encode()).digest() for key in KEYS), anonymous=False)
    one, other = (Client(live.port, key) for key in KEYS)
    id_ = one.upload(b"x")
    assert other.ask("GET", "/v1/files")[1]["data"] == []
    for method, path in (("GET", ""), ("GET", "/content"), ("DELETE", "")):
        assert other.ask(method, f"/v1/files/{id_}{path}")[0] == 404
    body = {"input_file_id": id_, "endpoint": "/v1/chat/completions", "completion_window": "24h"}
    assert other.ask("POST", "/v1/batches", body)[0] == 404
    assert Client(live.port).send(form(b"x", purpose="batch"))[0] == 401
    assert one.ask("GET", f"/v1/files/{id_}")[0] == 200


@pytest.mark.parametrize(
    ("limits", "status"),
    [({"file_bytes": 1000}, 413), ({"files_per_key": 1}, 413), ({"file_bytes_per_key": 10}, 413)],
)
def test_what_is_too_much_is_refused_and_leaves_nothing(
    start: Start, tmp_path: Path, limits: dict[str, Any], status: int
) -> None:
    client = Client(start(limits=limits).port)
    client.upload(b"x" * 100)
    before = {path for path in tmp_path.rglob("*") if path.is_file()}
    assert client.send(form(b"x" * 2000, purpose="batch"))[0] == status
    assert {path for path in tmp_path.rglob("*") if path.is_file()} == before
    assert len(client.ask("GET", "/v1/files")[1]["data"]) == 1


def test_h53_room_for_a_file_is_taken_before_it_is_uploaded_and_given_back_however_that_ends(start: Start) -> None:
    live = start(limits={"files_per_key": 3})
    client, data, accounts = Client(live.port), form(b"x" * 100, purpose="batch"), live.app.accounts
    headers = {"Content-Type": f"multipart/form-data; boundary={BOUNDARY}", "Content-Length": str(len(data))}
    begun = [Raw(live.port).post("/v1/files", data[:50], headers) for _ in range(3)]
    assert until(lambda: accounts.out(Resource.UPLOADS) == 3)
    assert accounts.out(Resource.UPLOAD_BYTES) == 3 * len(data)
    others = [Raw(live.port).post("/v1/files", data[:50], headers) for _ in range(17)]
    assert {status(raw.rest()) for raw in others} == {413}
    assert status(begun[0].send(data[50:]).answer()) == 200
    begun[1].close()
    begun[2].reset()
    assert until(lambda: accounts.out(Resource.UPLOADS) == 0)
    assert client.upload(b"y") and client.upload(b"z")
    assert client.send(data)[0] == 413
    begun[0].close()
    assert until(lambda: accounts.empty)


def test_h53_the_bytes_of_an_upload_count_before_they_come(start: Start) -> None:
    live = start(limits={"file_bytes_per_key": 1000})
    data, headers = form(b"x" * 2000, purpose="batch"), {"Content-Type": f"multipart/form-data; boundary={BOUNDARY}"}
    first = Raw(live.port).post("/v1/files", data[:50], headers | {"Content-Length": str(len(data))})
    assert until(lambda: live.app.accounts.out(Resource.UPLOAD_BYTES) == len(data))
    assert Client(live.port).send(form(b"x", purpose="batch"))[0] == 413
    first.close()
    assert until(lambda: live.app.accounts.empty)
    assert Client(live.port).send(form(b"x", purpose="batch"))[0] == 200


def test_a_file_may_be_larger_than_any_other_body(start: Start) -> None:
    client = Client(start(limits={"max_body_size": 2000}).port)
    content = b"0123456789" * 100_000
    assert client.ask("GET", f"/v1/files/{client.upload(content)}/content") == (200, content)
    assert client.ask("POST", "/v1/completions", {"prompt": "x" * 3000})[0] == 413


@pytest.mark.parametrize(
    ("data", "headers", "status"),
    [
        (b"{}", {"Content-Type": "application/json"}, 415),
        (b"no form", {}, 400),
        (form(b"x", purpose="fine-tune"), {}, 400),
        (form(b"x"), {}, 400),
        (form(b"x", purpose="batch")[:-20], {}, 400),
        (form(b"x", purpose="batch" * 1000), {}, 400),
        (form(b"x", purpose="batch").replace(b'; filename="in.jsonl"', b""), {}, 400),
        (form(b"x", purpose="batch").replace(b'name="file"', b'name="other"'), {}, 400),
    ],
)
def test_an_upload_that_is_wrong_leaves_nothing(
    live: Live, tmp_path: Path, data: bytes, headers: dict[str, str], status: int
) -> None:
    sent_headers = {"Content-Type": f"multipart/form-data; boundary={BOUNDARY}"} | headers
    code, answer = Client(live.port).ask("POST", "/v1/files", data, sent_headers)
    assert code == status and answer["error"]["message"]
    assert not [path for path in tmp_path.rglob("*") if path.is_file() and "files" in path.parts]


@pytest.mark.parametrize("call", ["_begin", "write_all", "_move"])
def test_an_upload_to_a_disk_that_stands_still_holds_up_nobody(
    live: Live, monkeypatch: pytest.MonkeyPatch, call: str
) -> None:
    real, begun, go = getattr(files, call), threading.Event(), threading.Event()

    def stands_still(*args: Any) -> Any:
        begun.set()
        go.wait()
        return real(*args)

    monkeypatch.setattr(files, call, stands_still)
    client = Client(live.port)
    with ThreadPoolExecutor(1) as threads:
        uploading = threads.submit(client.upload, b"x" * 3_000_000)
        try:
            assert begun.wait(60)
            assert live.ask("GET", "/health")[0] == 200
        finally:
            go.set()
        id_ = uploading.result()
    assert client.ask("GET", f"/v1/files/{id_}/content") == (200, b"x" * 3_000_000)


@pytest.mark.parametrize("call", ["_begin", "write_all", "_move"])
def test_an_upload_that_the_disk_refuses_leaves_nothing(
    live: Live, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, call: str
) -> None:
    client = Client(live.port)
    client.upload(b"x")
    before = {path for path in tmp_path.rglob("*") if path.is_file()}

    def full(*_: object) -> None:
        raise OSError(errno.ENOSPC, "No space left on device")

    with monkeypatch.context() as broken:
        broken.setattr(files, call, full)
        status, answer = client.send(form(b"x" * 3_000_000, purpose="batch"))
    assert (status, answer["error"]["type"]) == (500, "server_error") and "No space left" in answer["error"]["message"]
    assert {path for path in tmp_path.rglob("*") if path.is_file()} == before
    assert len(client.ask("GET", "/v1/files")[1]["data"]) == 1
    client.upload(b"x")


def test_a_file_that_a_batch_reads_is_not_deleted(start: Start) -> None:
    live = start(step_s=0.02)
    client = Client(live.port)
    batch = client.begin([row("a", messages=[{"role": "user", "content": "x"}], max_tokens=500)])
    file = client.batch(batch)["input_file_id"]
    assert client.ask("DELETE", f"/v1/files/{file}")[0] == 409
    client.ask("POST", f"/v1/batches/{batch}/cancel")
    client.ended(batch)
    assert client.ask("DELETE", f"/v1/files/{file}")[0] == 200
