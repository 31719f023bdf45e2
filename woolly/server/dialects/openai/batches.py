"""OpenAI's batches: a file of requests, answered after all other requests (server/batch/jobs.py)."""

from __future__ import annotations

from typing import Annotated, Literal

from msgspec import Meta, Struct

from woolly.errors import RequestError
from woolly.server.batch import ENDPOINTS
from woolly.server.batch.files import Files
from woolly.server.batch.jobs import WINDOW_S, Batches, Status, StoredBatch
from woolly.server.dialects.base.paging import page
from woolly.server.dialects.base.shapes import Count, Shape
from woolly.server.routes import Call, Query

PAGE, MOST = 20, 100  # batches of one page: as a rule, and at the most
Text = Annotated[str, Meta(max_length=512)]


class OpenAIBatchBody(Struct):
    """The window is the only one that OpenAI's clients name, and has no effect: a batch goes on until it is done."""

    input_file_id: str
    endpoint: Annotated[str, Meta(extra_json_schema={"enum": list(ENDPOINTS)})]
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


async def _record(files: Files, batch: StoredBatch) -> BatchRecord:
    known = {file.id for file in await files.of(batch.owner)}
    fault = batch.fault
    faults = None
    if fault is not None:
        faults = BatchFaults(
            data=[BatchFault(code=fault.code, line=fault.line, message=fault.message, param=fault.param)]
        )
    return BatchRecord(
        id=batch.id,
        endpoint=batch.endpoint,
        errors=faults,
        input_file_id=batch.input,
        status=batch.status,
        output_file_id=batch.output if batch.output in known else None,
        error_file_id=batch.errors if batch.errors in known else None,
        created_at=batch.created,
        expires_at=batch.created + WINDOW_S,
        request_counts=BatchCounts(total=batch.total, completed=batch.done - batch.failed, failed=batch.failed),
        metadata=batch.metadata,
        in_progress_at=batch.times.get("in_progress"),
        finalizing_at=batch.times.get("finalizing"),
        completed_at=batch.times.get("completed"),
        failed_at=batch.times.get("failed"),
        cancelling_at=batch.times.get("cancelling"),
        cancelled_at=batch.times.get("cancelled"),
    )


async def make(files: Files, batches: Batches, call: Call) -> BatchRecord:
    """Begin to answer a file of requests."""
    body: OpenAIBatchBody = call.body
    if body.endpoint not in ENDPOINTS:
        raise RequestError(f"endpoint is one of {', '.join(ENDPOINTS)}", param="endpoint")
    file = await files.get(call.caller.name, body.input_file_id)
    if file.purpose != "batch":
        raise RequestError("the file was not uploaded with the purpose batch", param="input_file_id")
    await files.check_room(call.caller.name)
    return await _record(files, await batches.make(call.caller, body.endpoint, file.id, body.metadata))


async def listed(files: Files, batches: Batches, call: Call) -> BatchRecords:
    """The batches of whoever asks, the newest first."""
    rows = [await _record(files, batch) for batch in await batches.of(call.caller.name)]
    return BatchRecords(**page(rows, call.query, MOST, PAGE))


async def one(files: Files, batches: Batches, call: Call) -> BatchRecord:
    """One batch: how far it is, and at its end where its answers are."""
    return await _record(files, await batches.get(call.caller.name, call.path["id"]))


async def cancel(files: Files, batches: Batches, call: Call) -> BatchRecord:
    """Stop a batch; what was answered by then is kept."""
    batch = await batches.get(call.caller.name, call.path["id"])
    await batches.cancel(batch)
    return await _record(files, batch)


BATCHES, BATCH = "/v1/batches", "/v1/batches/{id}"
ROUTES = (
    Query("GET", BATCHES, listed, "OpenAI", query=("after", "limit")),
    Query("POST", BATCHES, make, "OpenAI", OpenAIBatchBody, errors=(404,)),
    Query("GET", BATCH, one, "OpenAI", errors=(404,)),
    Query("POST", f"{BATCH}/cancel", cancel, "OpenAI", errors=(404, 409)),
)
