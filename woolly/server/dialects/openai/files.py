"""OpenAI's files: what callers upload for a batch, and what batches answer (server/batch/files.py)."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncGenerator, AsyncIterator
from contextlib import aclosing
from typing import Annotated, Any, Literal

from msgspec import Meta, Struct

from woolly.errors import RequestError, printable
from woolly.server.batch.files import Files, StoredFile, new_id
from woolly.server.batch.jobs import Batches
from woolly.server.dialects.base.paging import page
from woolly.server.dialects.base.shapes import Count, Shape
from woolly.server.http.forms import FormPart, boundary_of, form_parts
from woolly.server.routes import Call, Download, Query

FIELD = 1024  # characters of a field of a form that is no file
MOST = 10_000  # most files of one page


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


def _record(file: StoredFile) -> FileRecord:
    return FileRecord(
        id=file.id, bytes=file.nbytes, created_at=file.created, filename=file.filename, purpose=file.purpose
    )


class _Form:
    """The fields of a form as they come; the content of its file is streamed."""

    def __init__(self, pieces: AsyncGenerator[tuple[FormPart, bytes], None]) -> None:
        self._pieces = pieces
        self._file_start: tuple[FormPart, bytes] | None = None
        self.fields: dict[str, str] = {}
        self.filename: str | None = None

    async def until_file(self) -> bool:
        """Read fields up to the file; returns whether there is one."""
        async for part, piece in self._pieces:
            if part.name == "file" and part.filename is not None:
                if self.filename is not None:
                    raise RequestError("the form has more than one file", param="file")
                self._file_start, self.filename = (part, piece), part.filename
                return True
            text = self.fields.get(part.name, "") + piece.decode("utf-8", "replace")
            if len(text) > FIELD:
                raise RequestError(f"{printable(part.name, 40)} has more than {FIELD:,} characters", param=part.name)
            self.fields[part.name] = text
        return False

    async def content(self) -> AsyncIterator[bytes]:
        """The pieces of the file; fields after it are read, too."""
        assert self._file_start is not None
        file, piece = self._file_start
        yield piece
        async for part, piece in self._pieces:
            if part is file:
                yield piece
            elif part.filename is not None:
                raise RequestError("the form has more than one file", param="file")
            else:
                self.fields[part.name] = (self.fields.get(part.name, "") + piece.decode("utf-8", "replace"))[:FIELD]


async def upload(files: Files, call: Call) -> FileRecord:
    """Upload a file for a batch."""
    assert call.pieces is not None
    boundary, owner = boundary_of(call.headers.get("content-type", "")), call.caller.name
    async with files.room(owner, call.announced):
        async with aclosing(form_parts(call.pieces, boundary)) as pieces:
            form = _Form(pieces)
            if not await form.until_file():
                raise RequestError("the form has no file", param="file")
            path = await files.save(form.content())
        try:
            if form.fields.get("purpose") != "batch":
                raise RequestError("purpose is batch: files are kept for nothing else", param="purpose")
            return _record(await files.add(owner, new_id(), form.filename or "file", "batch", path))
        finally:
            await asyncio.to_thread(path.unlink, missing_ok=True)


async def listed(files: Files, call: Call) -> FileRecords:
    """The files of whoever asks, the newest first."""
    rows = [_record(file) for file in await files.of(call.caller.name)]
    purpose = call.query.get("purpose")
    if purpose:
        rows = [row for row in rows if row.purpose == purpose]
    if call.query.get("order") == "asc":
        rows.reverse()
    return FileRecords(**page(rows, call.query, MOST))


async def one(files: Files, call: Call) -> FileRecord:
    """One file."""
    return _record(await files.get(call.caller.name, call.path["id"]))


async def content(files: Files, call: Call) -> Download:
    """The content of a file."""
    file = await files.get(call.caller.name, call.path["id"])
    return Download(files.path(file.id), file.filename)


async def delete(files: Files, batches: Batches, call: Call) -> FileDeleted:
    """Delete a file."""
    file = await files.get(call.caller.name, call.path["id"])
    if await batches.uses(file.id):
        raise RequestError(
            "a batch reads this file", suggestion="cancel the batch, or wait for its end", code="conflict"
        )
    await files.delete(file)
    return FileDeleted(id=file.id)


FILES, FILE = "/v1/files", "/v1/files/{id}"
PAGED: Any = ("after", "limit", "order", "purpose")
ROUTES = (
    Query("GET", FILES, listed, "OpenAI", query=PAGED),
    Query("POST", FILES, upload, "OpenAI", form=UploadForm),
    Query("GET", FILE, one, "OpenAI", errors=(404,)),
    Query("DELETE", FILE, delete, "OpenAI", errors=(404, 409)),
    Query("GET", f"{FILE}/content", content, "OpenAI", texts=("application/octet-stream",), errors=(404,)),
)
