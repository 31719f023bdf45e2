"""Records of a server: no failing call and no damage deletes one, and what could not be read is read later."""

from __future__ import annotations

import asyncio
import errno
import os
import threading
from collections.abc import Coroutine, Iterator
from pathlib import Path
from typing import Any

import msgspec
import pytest

from tests.server.batch.lines import HELLO, row
from tests.server.batch.uploads import Client, form
from tests.server.conftest import Start
from tests.server.test_sessions import SESSIONS, files, history, make_session, turn
from woolly.errors import BusyError, FileError, RequestError, WoollyError
from woolly.server.records import RecordKind, RecordStore, store
from woolly.server.records import folder as record_folder


class Note(msgspec.Struct, forbid_unknown_fields=True):
    id: str
    owner: str
    text: str = ""


KIND = RecordKind("note-", b"woolly note 1 ", Note, 4096, noun="note", too_large="shorten it")


def note(number: int, text: str = "") -> Note:
    return Note(f"note-{number:024x}", "me", text)


@pytest.fixture
def notes_folder(tmp_path: Path) -> Path:
    return tmp_path / "notes"


@pytest.fixture
def later(monkeypatch: pytest.MonkeyPatch) -> None:
    """Files that could not be read are tried again at once."""
    monkeypatch.setattr(store, "AGAIN_S", 0.0)


class Disk:
    """Refuses calls for files whose paths contain a text."""

    def __init__(self, patch: pytest.MonkeyPatch) -> None:
        self._patch = patch

    def refuse(self, call: str, number: int, part: str = ".json") -> None:
        real = getattr(os, call)

        def called(path: Any, *args: Any, **options: Any) -> Any:
            if part in str(path):
                raise OSError(number, os.strerror(number), str(path))
            return real(path, *args, **options)

        self._patch.setattr(os, call, called)

    def heal(self) -> None:
        self._patch.undo()


@pytest.fixture
def disk() -> Iterator[Disk]:
    with pytest.MonkeyPatch.context() as patch:
        yield Disk(patch)


async def texts(notes: RecordStore[Note]) -> list[str]:
    return sorted(each.text for each in await notes.of("me"))


async def write(notes_folder: Path, *records: Note) -> RecordStore[Note]:
    notes = RecordStore(notes_folder, KIND)
    for record in records:
        await notes.put(record)
    return notes


def names(notes_folder: Path) -> list[str]:
    return sorted(path.name for path in notes_folder.iterdir())


def run(story: Coroutine[Any, Any, None]) -> None:
    asyncio.run(story)


def test_a_record_is_on_the_disk_when_it_was_put_and_gone_when_it_was_removed(notes_folder: Path) -> None:
    async def story() -> None:
        first, second = note(1, "one"), note(2, "two")
        notes = await write(notes_folder, first, second)
        await notes.change(first, text="three")
        assert await texts(RecordStore(notes_folder, KIND)) == ["three", "two"]
        assert await notes.get("me", first.id) is first and await notes.get("you", first.id) is None
        await notes.remove(first)
        await notes.change(first, text="four")  # a removed one is not written again
        assert await texts(RecordStore(notes_folder, KIND)) == await texts(notes) == ["two"]

    run(story())


def test_writes_of_one_record_follow_each_other_and_outlive_whoever_asked_for_them(
    notes_folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    first_write, go, real = threading.Event(), threading.Event(), record_folder.write_private

    def slow(path: Path, data: bytes, **options: Any) -> None:
        if not first_write.is_set():
            first_write.set()
            go.wait()
        real(path, data, **options)

    async def story() -> None:
        record = note(1, "zero")
        notes = await write(notes_folder, record)
        monkeypatch.setattr(record_folder, "write_private", slow)
        one = asyncio.create_task(notes.change(record, text="one"))
        await asyncio.to_thread(first_write.wait)
        two = asyncio.create_task(notes.change(record, text="two"))
        one.cancel()
        await asyncio.wait([one])
        go.set()
        await two
        assert await texts(RecordStore(notes_folder, KIND)) == ["two"]

    run(story())


@pytest.mark.parametrize("number", [errno.EMFILE, errno.EACCES, errno.EIO, errno.ENOMEM, errno.ENFILE])
@pytest.mark.parametrize("part", [".json", "notes"])
def test_f27_files_that_cannot_be_read_now_are_read_later(
    notes_folder: Path, disk: Disk, number: int, part: str
) -> None:
    async def story() -> None:
        await write(notes_folder, note(1, "one"), note(2, "two"))
        before = names(notes_folder)
        disk.refuse("open", number, part)
        disk.refuse("scandir", number, part)
        notes = RecordStore(notes_folder, KIND)
        try:
            assert await notes.of("me") == []
        except WoollyError as error:
            assert str(notes_folder.parent) not in str(error)
        with pytest.raises(WoollyError, match=r"the note cannot be|no note can be"):
            await notes.get("me", note(1).id)
        disk.heal()
        assert names(notes_folder) == before
        record = await notes.get("me", note(1).id)  # which is asked for by its name, and does not wait
        assert record is not None and record.text == "one"

    run(story())


def test_f27_where_no_file_can_be_opened_nobody_is_told_that_there_are_none(notes_folder: Path, disk: Disk) -> None:
    async def story() -> None:
        await write(notes_folder, note(1, "one"))
        disk.refuse("open", errno.EMFILE)
        notes = RecordStore(notes_folder, KIND)
        for _ in range(2):
            with pytest.raises(BusyError, match="Too many open files"):
                await notes.of("me")
        disk.heal()
        assert await texts(notes) == ["one"]

    run(story())


@pytest.mark.usefixtures("later")
def test_f27_one_file_that_cannot_be_read_hides_no_other(notes_folder: Path, disk: Disk) -> None:
    async def story() -> None:
        await write(notes_folder, note(1, "one"), note(2, "two"))
        disk.refuse("open", errno.EIO, note(1).id)
        notes = RecordStore(notes_folder, KIND)
        assert await texts(notes) == ["two"] and notes.unread
        with pytest.raises(FileError) as caught:
            await notes.get("me", note(1).id)
        assert caught.value.code == "disk_error"
        disk.heal()
        assert await texts(notes) == ["one", "two"] and not notes.unread

    run(story())


@pytest.mark.usefixtures("later")
def test_files_that_cannot_be_read_cost_one_line_however_many_they_are_and_how_often_they_are_tried(
    notes_folder: Path, disk: Disk, caplog: pytest.LogCaptureFixture
) -> None:
    async def story() -> None:
        await write(notes_folder, *(note(number) for number in range(9)))
        disk.refuse("open", errno.EACCES)
        notes = RecordStore(notes_folder, KIND)
        for _ in range(3):
            assert await notes.of("me") == []

    run(story())
    (line,) = caplog.messages
    assert (
        line == f"woolly: 9 files in '{notes_folder}' cannot be used now: the note cannot be opened: Permission denied"
    )


@pytest.mark.parametrize("damage", ["flipped", "cut", "empty", "longer"])
def test_f27_a_damaged_file_is_set_aside_as_it_is(notes_folder: Path, damage: str) -> None:
    async def story() -> None:
        await write(notes_folder, note(1, "one"), note(2, "two"))
        path = notes_folder / f"{note(1).id}.json"
        data = path.read_bytes()
        wrong = {"flipped": data.replace(b"one", b"eno"), "cut": data[:-1], "empty": b"", "longer": data + b" "}[damage]
        path.write_bytes(wrong)
        for _ in range(2):
            assert await texts(RecordStore(notes_folder, KIND)) == ["two"]
        aside, other = names(notes_folder)
        assert aside.startswith(f"{path.name}.damaged-") and other == f"{note(2).id}.json"
        assert (notes_folder / aside).read_bytes() == wrong

    run(story())


@pytest.mark.usefixtures("later")
def test_f27_a_damaged_file_that_cannot_be_set_aside_stays_and_is_not_used(notes_folder: Path, disk: Disk) -> None:
    async def story() -> None:
        await write(notes_folder, note(1, "one"))
        path = notes_folder / f"{note(1).id}.json"
        path.write_bytes(b"")
        disk.refuse("rename", errno.EACCES)
        notes = RecordStore(notes_folder, KIND)
        assert await texts(notes) == [] and names(notes_folder) == [path.name]
        disk.heal()
        assert await texts(notes) == [] and names(notes_folder)[0].startswith(f"{path.name}.damaged-")

    run(story())


def test_f27_what_another_version_wrote_and_what_is_no_record_is_left_alone(notes_folder: Path) -> None:
    class Later(Note):
        more: int = 1

    later_struct = RecordKind("note-", KIND.magic, Later, 4096, noun="note", too_large="")
    later_magic = RecordKind("note-", b"woolly note 2 ", Note, 4096, noun="note", too_large="")

    async def story() -> None:
        await write(notes_folder, note(1, "one"))
        strange = {
            f"{note(2).id}.json": later_struct.seal(Later(note(2).id, "me")),
            f"{note(3).id}.json": later_magic.seal(note(3)),
            f"{note(4).id}.json": KIND.seal(note(5)),
            f"{note(6).id}.json": bytes(5000),
            "note-link.json": b"",
            ".DS_Store": b"",
        }
        for name, data in strange.items():
            (notes_folder / name).write_bytes(data)
        (notes_folder / f"{note(7).id}.json").mkdir()
        assert await texts(RecordStore(notes_folder, KIND)) == ["one"]
        assert {name: (notes_folder / name).read_bytes() for name in strange} == strange
        assert len(names(notes_folder)) == len(strange) + 2

    run(story())


def test_f27_what_can_be_written_can_be_read(notes_folder: Path) -> None:
    async def story() -> None:
        notes = RecordStore(notes_folder, KIND)
        sizes = [len(KIND.seal(note(1, "x" * size))) for size in (0, 1)]
        room = KIND.most - sizes[0]
        assert sizes[1] == sizes[0] + 1
        await notes.put(note(1, "x" * room))
        with pytest.raises(RequestError, match="the note would have more than 4,096 bytes; shorten it"):
            await notes.put(note(2, "x" * (room + 1)))
        assert [len(text) for text in await texts(RecordStore(notes_folder, KIND))] == [room]
        assert [len(text) for text in await texts(notes)] == [room]

    run(story())


@pytest.mark.parametrize(
    ("call", "number", "part"),
    [("fsync", errno.EIO, ""), ("replace", errno.ENOSPC, ""), ("open", errno.EMFILE, "notes")],
)
def test_a_write_that_fails_leaves_the_record_as_it_was(
    notes_folder: Path, disk: Disk, call: str, number: int, part: str
) -> None:
    async def story() -> None:
        record = note(1, "one")
        notes = await write(notes_folder, record)
        disk.refuse(call, number, part)
        with pytest.raises(WoollyError, match="the note cannot be written"):
            await notes.change(record, text="two")
        with pytest.raises(WoollyError, match="the note cannot be written"):
            await notes.put(note(2, "new"))
        disk.heal()
        assert record.text == "one" and await texts(notes) == ["one"]
        assert await texts(RecordStore(notes_folder, KIND)) == ["one"] and len(names(notes_folder)) == 1

    run(story())


def test_a_record_that_cannot_be_removed_stays(notes_folder: Path, disk: Disk) -> None:
    async def story() -> None:
        record = note(1, "one")
        notes = await write(notes_folder, record)
        disk.refuse("unlink", errno.EACCES)
        with pytest.raises(FileError, match="the note cannot be removed: Permission denied"):
            await notes.remove(record)
        disk.heal()
        assert await texts(notes) == await texts(RecordStore(notes_folder, KIND)) == ["one"]

    run(story())


def test_f27_sessions_that_are_read_first_without_a_free_descriptor_are_all_there_later(
    start: Start, tmp_path: Path, disk: Disk
) -> None:
    live = start()
    ids = {make_session(live) for _ in range(8)}
    turn(live, sorted(ids)[0], "one")
    before = history(live, sorted(ids)[0])
    live.background.__exit__()
    again = start()
    disk.refuse("open", errno.EMFILE, "sess_")
    status, headers, answer = again.ask("GET", SESSIONS)
    assert (status, headers["retry-after"]) == (503, "1") and "Too many open files" in answer["error"]["message"]
    assert turn(again, sorted(ids)[0], "two")[0] == 503
    disk.heal()
    assert {each["id"] for each in again.ask("GET", SESSIONS)[2]} == ids and len(files(tmp_path)) == 8
    assert history(again, sorted(ids)[0]) == before


def test_f27_a_batch_whose_record_is_as_large_as_the_routes_allow_outlives_the_server(start: Start) -> None:
    live = start()
    metadata = {f"{number}" + "\N{GRINNING FACE}" * 500: "\x01" * 512 for number in range(16)}
    batch = Client(live.port).begin([row("a", messages=HELLO, max_tokens=2)], metadata=metadata)
    ended = Client(live.port).ended(batch)
    live.background.__exit__()
    assert Client(start().port).batch(batch) == ended | {"metadata": metadata}


def test_f27_a_batch_that_cannot_be_read_at_the_start_goes_on_later(
    start: Start, disk: Disk, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("woolly.server.batch.jobs.AGAIN_S", 0.02)
    live = start(step_s=0.02)
    batch = Client(live.port).begin([row("a", messages=HELLO, max_tokens=300)])
    live.background.__exit__()
    disk.refuse("open", errno.EMFILE, "batch_")
    again = start()
    assert Client(again.port).ask("GET", f"/v1/batches/{batch}")[0] == 503
    disk.heal()
    assert Client(again.port).ended(batch)["request_counts"] == {"total": 1, "completed": 1, "failed": 0}


def test_an_error_of_the_disk_tells_no_path(start: Start, disk: Disk) -> None:
    live = start()
    session = make_session(live)
    disk.refuse("replace", errno.EROFS, "")
    for status, answer in (
        live.ask("PATCH", f"{SESSIONS}/{session}", {"metadata": {}})[::2],
        Client(live.port).send(form(b"x", purpose="batch")),
    ):
        assert status == 500 and "Read-only file system" in answer["error"]["message"]
        assert "/" not in answer["error"]["message"]
