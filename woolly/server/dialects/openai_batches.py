"""OpenAI's batches: a file of requests, answered when nobody else wants anything (server/batches.py)."""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated, Literal

from msgspec import Meta, Struct

from woolly.errors import RequestError
from woolly.server.batch import ROUTES
from woolly.server.batches import WINDOW_S, Kept, Status
from woolly.server.dialects.paging import page
from woolly.server.dialects.shapes import Count, Shape
from woolly.server.door import Call, Query

if TYPE_CHECKING:
    from woolly.server.app import App

PAGE, MOST = 20, 100  # batches of one page
Text = Annotated[str, Meta(max_length=512)]


class OpenAIBatchBody(Struct):
    """The window is the only one that OpenAI's clients name, and has no effect: a batch goes on until it is done."""

    input_file_id: str
    endpoint: Annotated[str, Meta(extra_json_schema={"enum": list(ROUTES)})]
    completion_window: Literal["24h"]
    metadata: Annotated[dict[Text, Text], Meta(max_length=16)] | None = None


class BatchFault(Shape, kw_only=True):
    code: str
    line: Count | None
    message: str
    param: str | None


class BatchFaults(Shape, kw_only=True):
    object: Literal["list"] = "list"
    data: list[BatchFault]


class BatchCounts(Shape, kw_only=True):
    total: Count
    completed: Count
    failed: Count


class BatchRecord(Shape, kw_only=True):
    """completed counts rows that were answered, failed those that were not; both files are there at the end."""

    id: str
    object: Literal["batch"] = "batch"
    endpoint: str
    errors: BatchFaults | None
    input_file_id: str
    completion_window: Literal["24h"] = "24h"
    status: Status
    output_file_id: str | None
    error_file_id: str | None
    created_at: int
    in_progress_at: int | None
    expires_at: int
    finalizing_at: int | None
    completed_at: int | None
    failed_at: int | None
    expired_at: None = None
    cancelling_at: int | None
    cancelled_at: int | None
    request_counts: BatchCounts
    metadata: dict[str, str] | None


class BatchRecords(Shape, kw_only=True):
    object: Literal["list"] = "list"
    data: list[BatchRecord]
    first_id: str | None
    last_id: str | None
    has_more: bool


async def _record(app: App, kept: Kept) -> BatchRecord:
    files = {file.id for file in await app.files.of(kept.owner)}
    fault = kept.fault
    faults = None
    if fault is not None:
        faults = BatchFaults(
            data=[BatchFault(code=fault.code, line=fault.line, message=fault.message, param=fault.param)]
        )
    return BatchRecord(
        id=kept.id,
        endpoint=kept.endpoint,
        errors=faults,
        input_file_id=kept.input,
        status=kept.status,
        output_file_id=kept.output if kept.output in files else None,
        error_file_id=kept.errors if kept.errors in files else None,
        created_at=kept.created,
        expires_at=kept.created + WINDOW_S,
        request_counts=BatchCounts(total=kept.total, completed=kept.done - kept.failed, failed=kept.failed),
        metadata=kept.metadata,
        in_progress_at=kept.times.get("in_progress"),
        finalizing_at=kept.times.get("finalizing"),
        completed_at=kept.times.get("completed"),
        failed_at=kept.times.get("failed"),
        cancelling_at=kept.times.get("cancelling"),
        cancelled_at=kept.times.get("cancelled"),
    )


async def make(app: App, call: Call) -> BatchRecord:
    """Begin to answer a file of requests."""
    body: OpenAIBatchBody = call.body
    if body.endpoint not in ROUTES:
        raise RequestError(f"endpoint is one of {', '.join(ROUTES)}", param="endpoint")
    file = await app.files.get(call.caller.name, body.input_file_id)
    if file.purpose != "batch":
        raise RequestError("the file was not uploaded with the purpose batch", param="input_file_id")
    await app.files.check_room(call.caller.name)
    return await _record(app, await app.batches.make(call.caller, body.endpoint, file.id, body.metadata))


async def listed(app: App, call: Call) -> BatchRecords:
    """The batches of whoever asks, the newest first."""
    rows = [await _record(app, kept) for kept in await app.batches.of(call.caller.name)]
    return BatchRecords(**page(rows, call.query, MOST, PAGE))


async def one(app: App, call: Call) -> BatchRecord:
    """One batch: how far it is, and at its end where its answers are."""
    return await _record(app, await app.batches.get(call.caller.name, call.path["id"]))


async def cancel(app: App, call: Call) -> BatchRecord:
    """Stop a batch; what was answered by then is kept."""
    kept = await app.batches.get(call.caller.name, call.path["id"])
    await app.batches.cancel(kept)
    return await _record(app, kept)


BATCHES, BATCH = "/v1/batches", "/v1/batches/{id}"
DOORS = (
    Query("GET", BATCHES, listed, "OpenAI", query=("after", "limit")),
    Query("POST", BATCHES, make, "OpenAI", OpenAIBatchBody, errors=(404,)),
    Query("GET", BATCH, one, "OpenAI", errors=(404,)),
    Query("POST", f"{BATCH}/cancel", cancel, "OpenAI", errors=(404, 409)),
)
