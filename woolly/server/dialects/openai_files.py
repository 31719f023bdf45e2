"""OpenAI's files: what callers upload for a batch, and what batches answer (server/files.py)."""

from __future__ import annotations

from collections.abc import AsyncGenerator, AsyncIterator
from contextlib import aclosing
from typing import TYPE_CHECKING, Annotated, Any, Literal

from msgspec import Meta, Struct

from woolly.errors import RequestError, printable
from woolly.server.dialects.paging import page
from woolly.server.dialects.shapes import Count, Shape
from woolly.server.door import Call, Download, Query
from woolly.server.files import Kept, new_id
from woolly.server.forms import Part, boundary_of, parts

if TYPE_CHECKING:
    from woolly.server.app import App

FIELD = 1024  # bytes of a field of a form that is no file
MOST = 10_000  # files of one page


class UploadForm(Struct):
    """The file, and what it is for. Other fields have no effect."""

    file: Annotated[str, Meta(extra_json_schema={"format": "binary"})]
    purpose: Literal["batch"]


class FileRecord(Shape, kw_only=True):
    id: str
    object: Literal["file"] = "file"
    bytes: Count
    created_at: int
    filename: str
    purpose: str
    status: Literal["processed"] = "processed"


class FileRecords(Shape, kw_only=True):
    object: Literal["list"] = "list"
    data: list[FileRecord]
    first_id: str | None
    last_id: str | None
    has_more: bool


class FileDeleted(Shape, kw_only=True):
    id: str
    object: Literal["file"] = "file"
    deleted: Literal[True] = True


def _record(kept: Kept) -> FileRecord:
    return FileRecord(
        id=kept.id, bytes=kept.nbytes, created_at=kept.created, filename=kept.filename, purpose=kept.purpose
    )


class _Form:
    """The fields of a form as they come; the content of its file is handed on."""

    def __init__(self, pieces: AsyncGenerator[tuple[Part, bytes], None]) -> None:
        self._pieces = pieces
        self._held: tuple[Part, bytes] | None = None
        self.fields: dict[str, str] = {}
        self.filename: str | None = None

    async def until_file(self) -> bool:
        """Read fields; whether a file comes next."""
        async for part, piece in self._pieces:
            if part.name == "file" and part.filename is not None:
                if self.filename is not None:
                    raise RequestError("the form has more than one file", param="file")
                self._held, self.filename = (part, piece), part.filename
                return True
            text = self.fields.get(part.name, "") + piece.decode("utf-8", "replace")
            if len(text) > FIELD:
                raise RequestError(f"{printable(part.name, 40)} has more than {FIELD:,} characters", param=part.name)
            self.fields[part.name] = text
        return False

    async def content(self) -> AsyncIterator[bytes]:
        """The pieces of the file; fields behind it are read, too."""
        assert self._held is not None
        file, piece = self._held
        yield piece
        async for part, piece in self._pieces:
            if part is file:
                yield piece
            elif part.filename is not None:
                raise RequestError("the form has more than one file", param="file")
            else:
                self.fields[part.name] = (self.fields.get(part.name, "") + piece.decode("utf-8", "replace"))[:FIELD]


async def upload(app: App, call: Call) -> FileRecord:
    """Upload a file for a batch."""
    assert call.pieces is not None
    boundary, owner = boundary_of(call.headers.get("content-type", "")), call.caller.name
    await app.files.check_room(owner)
    async with aclosing(parts(call.pieces, boundary)) as pieces:
        form = _Form(pieces)
        if not await form.until_file():
            raise RequestError("the form has no file", param="file")
        path = await app.files.save(form.content())
    try:
        if form.fields.get("purpose") != "batch":
            raise RequestError("purpose is batch: files are kept for nothing else", param="purpose")
        return _record(await app.files.add(owner, new_id(), form.filename or "file", "batch", path))
    finally:
        path.unlink(missing_ok=True)


async def listed(app: App, call: Call) -> FileRecords:
    """The files of whoever asks, the newest first."""
    rows = [_record(kept) for kept in await app.files.of(call.caller.name)]
    purpose = call.query.get("purpose")
    if purpose:
        rows = [row for row in rows if row.purpose == purpose]
    if call.query.get("order") == "asc":
        rows.reverse()
    return FileRecords(**page(rows, call.query, MOST))


async def one(app: App, call: Call) -> FileRecord:
    """One file."""
    return _record(await app.files.get(call.caller.name, call.path["id"]))


async def content(app: App, call: Call) -> Download:
    """The content of a file."""
    kept = await app.files.get(call.caller.name, call.path["id"])
    return Download(app.files.path(kept.id), kept.filename)


async def delete(app: App, call: Call) -> FileDeleted:
    """Delete a file."""
    kept = await app.files.get(call.caller.name, call.path["id"])
    if await app.batches.uses(kept.id):
        raise RequestError(
            "a batch reads this file", suggestion="cancel the batch, or wait for its end", code="conflict"
        )
    await app.files.delete(kept)
    return FileDeleted(id=kept.id)


FILES, FILE = "/v1/files", "/v1/files/{id}"
PAGED: Any = ("after", "limit", "order", "purpose")
DOORS = (
    Query("GET", FILES, listed, "OpenAI", query=PAGED),
    Query("POST", FILES, upload, "OpenAI", form=UploadForm),
    Query("GET", FILE, one, "OpenAI", errors=(404,)),
    Query("DELETE", FILE, delete, "OpenAI", errors=(404, 409)),
    Query("GET", f"{FILE}/content", content, "OpenAI", texts=("application/octet-stream",), errors=(404,)),
)
