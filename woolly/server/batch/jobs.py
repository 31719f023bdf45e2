"""Batches that the server answers for its callers, over the same code as `woolly batch`. They outlive the process.

What holds:
- Only the caller that began a batch can see or stop it. Its rows are answered as that caller's, after all other
  requests (`AdmissionQueue`), and share cached pages only with that caller's; and only while that caller would be
  admitted: the batch of a key that the server does not have any more waits for it.
- A batch is a record and two files of answers in a private folder. However the server ends, the next
  one continues where the files end. When all rows are answered, or the batch was cancelled, the files become files of
  the caller.
- A disk that fails makes a batch wait, and costs it no row. Answers count as files of the caller while they are
  written: a batch for which its caller has no more room ends with what it has.
- One batch of a caller is answered at a time, the oldest first, and those of a few callers side by side.
"""

from __future__ import annotations

import asyncio
import itertools
import secrets
import time
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path
from typing import Any, Literal

import msgspec

from woolly.config.serving import Serving
from woolly.errors import BusyError, NotFoundError, RequestError, WoollyError
from woolly.io.disk import disk_fault, make_private_folder
from woolly.server.accounts import Accounts, Grant, Resource
from woolly.server.batch import Input, Journal, RowAnswerer, Tally, Terms, answer_rows
from woolly.server.batch.files import Files, new_id, to_its_end
from woolly.server.http.caller import Caller, has_key
from woolly.server.http.errors import too_many
from woolly.server.http.guard import Guard
from woolly.server.http.log import Log
from woolly.server.records import RecordKind, RecordStore

CALLERS = 4  # callers whose batches are answered side by side
WITHOUT_KEY = 1024  # batches of all callers without a key together: addresses are many
AT_ONCE = 256  # rows of a batch that have a permit or wait for one; the queue decides how many have one
AGAIN_S = 30.0  # seconds until a batch that could not go on is tried again
WINDOW_S = 86400  # the only window that OpenAI's clients can name; a batch goes on however long it takes
Status = Literal["validating", "failed", "in_progress", "finalizing", "completed", "cancelling", "cancelled"]
ENDED = ("failed", "completed", "cancelled")


class Fault(msgspec.Struct, forbid_unknown_fields=True):
    code: str
    message: str
    line: int | None = None
    param: str | None = None


class StoredBatch(msgspec.Struct, forbid_unknown_fields=True):
    """The record of a batch. output, errors: the ids of its files when it has ended. times: when it got each status."""

    id: str
    owner: str
    salt: str
    trusted: bool
    endpoint: str
    input: str
    metadata: dict[str, str] | None
    created: int
    output: str
    errors: str
    status: Status = "validating"
    times: dict[str, int] = {}
    total: int = 0
    done: int = 0
    failed: int = 0
    fault: Fault | None = None


KIND = RecordKind(
    "batch_",
    b"woolly batch 1 ",
    StoredBatch,
    256 << 10,  # of which metadata takes up to 96 KiB, where each of its characters is escaped
    noun="batch",
    too_large="give it less metadata",
)


class Batches:
    """All batches of a server. Owned by the event loop; the disk is touched in threads.

    row_answerer: makes the function that answers the rows of a caller.
    """

    def __init__(
        self,
        folder: Path,
        files: Files,
        limits: Serving,
        accounts: Accounts,
        log: Log,
        guard: Guard,
        row_answerer: Callable[[Caller], RowAnswerer],
    ) -> None:
        self._records = RecordStore(folder, KIND)
        self._folder, self._files, self._limits, self._log = folder, files, limits, log
        self._accounts, self._guard, self._row_answerer = accounts, guard, row_answerer
        self._stopped = False
        self._tasks: dict[str, asyncio.Task[None]] = {}  # by id of the batch; at most one of an owner

    # For callers

    async def make(self, caller: Caller, endpoint: str, input_: str, metadata: dict[str, str] | None) -> StoredBatch:
        mine, most = await self.of(caller.name), self._limits.batches_per_key
        ended = [old for old in reversed(mine) if old.status in ENDED]
        unfinished = len(mine) - len(ended) + self._accounts.out(Resource.BATCHES, caller.name)
        if unfinished >= most:
            raise too_many(f"{unfinished} of your batches are not finished yet", 60)
        if not has_key(caller.name):
            self._check_strangers(replaces=bool(ended) and len(mine) >= most)
        batch = StoredBatch(
            id=f"batch_{secrets.token_hex(12)}",
            owner=caller.name,
            salt=caller.salt.hex(),
            trusted=caller.trusted,
            endpoint=endpoint,
            input=input_,
            metadata=metadata,
            created=int(time.time()),
            output=new_id(),
            errors=new_id(),
        )
        grant = self._accounts.take(caller.name, Resource.BATCHES)
        replaced = ended[: max(0, len(mine) + 1 - most)]
        await asyncio.shield(asyncio.create_task(self._keep(batch, grant, replaced)))  # whoever goes stops nothing
        return batch

    async def _keep(self, batch: StoredBatch, grant: Grant, replaced: list[StoredBatch]) -> None:
        """Write a batch, which counts by its grant until its record does, and begin it."""
        with grant:
            await self._records.put(batch)
        self._begin_next()
        for old in replaced:
            with suppress(WoollyError):  # the next batch takes its place
                await self._records.remove(old)

    def _check_strangers(self, *, replaces: bool) -> None:
        """Refuse one more batch of callers without a key where they have too many, unless it replaces one."""
        strangers = sum(not has_key(batch.owner) for batch in self._records.known)
        strangers += self._accounts.out(Resource.BATCHES)
        if strangers - replaces >= WITHOUT_KEY:
            raise too_many(f"callers without a key have {WITHOUT_KEY:,} batches already", 60)

    async def of(self, owner: str) -> list[StoredBatch]:
        """The batches of a caller, the newest first."""
        return sorted(await self._records.of(owner), key=lambda batch: (-batch.created, batch.id))

    async def get(self, owner: str, id_: str) -> StoredBatch:
        batch = await self._records.get(owner, id_)
        if batch is None:
            raise NotFoundError("there is no such batch", suggestion="make one first", param="batch_id")
        return batch

    async def cancel(self, batch: StoredBatch) -> None:
        """Stop a batch; its files have the rows that are answered by then."""
        if batch.status in ENDED:
            raise RequestError(f"the batch is {batch.status} already", code="conflict")
        await self._move(batch, "cancelling")
        task = self._tasks.get(batch.id)
        if task is not None:
            task.cancel()
        else:
            self._begin_next()

    async def uses(self, file: str) -> bool:
        """Whether a batch that has not ended reads a file."""
        await self._records.load()
        return any(batch.input == file and batch.status not in ENDED for batch in self._records.known)

    # For the server

    async def resume(self) -> None:
        """Continue the batches that an earlier server did not finish, those that cannot be read now as soon as they
        can."""
        while not self._stopped:
            try:
                await self._records.load()
            except WoollyError as error:
                self._log.line("warning", "batches wait", why=str(error))
            for batch in self._records.known:
                if batch.status not in ENDED and batch.id not in self._tasks:
                    self._count(batch)
            self._begin_next()
            if not self._records.unread:
                self._log_waiting()
                return
            await asyncio.sleep(AGAIN_S)

    def renew(self) -> None:
        """The keys are others: stop the batches of callers that are not admitted any more, and go on with those that
        are again."""
        for batch in self._records.known:
            if batch.id in self._tasks and not self._guard.admits(batch.owner):
                self._tasks[batch.id].cancel()
        self._log_waiting()
        self._begin_next()

    def _log_waiting(self) -> None:
        for batch in self._records.known:
            if batch.status not in ENDED and not self._guard.admits(batch.owner):
                self._log.line("warning", "batch waits", batch=batch.id, why="its caller is not admitted any more")

    def stop(self) -> None:
        """Stop answering; the next server continues."""
        self._stopped = True
        for task in self._tasks.values():
            task.cancel()

    async def close(self) -> None:
        self.stop()
        await asyncio.gather(*self._tasks.values(), return_exceptions=True)

    def _begin_next(self) -> None:
        """Begin the oldest batch of each caller, for a few callers."""
        busy = {batch.owner for batch in self._records.known if batch.id in self._tasks}
        for batch in sorted(self._records.known, key=lambda batch: (batch.created, batch.id)):
            if self._stopped or len(self._tasks) >= CALLERS:
                return
            waits = batch.status not in ENDED and batch.id not in self._tasks and batch.owner not in busy
            if waits and self._guard.admits(batch.owner):
                busy.add(batch.owner)
                task = self._tasks[batch.id] = asyncio.create_task(self._run(batch))
                task.add_done_callback(lambda _, id_=batch.id: self._ended(id_))  # type: ignore[misc]

    def _ended(self, id_: str) -> None:
        del self._tasks[id_]
        self._begin_next()

    async def _run(self, batch: StoredBatch) -> None:
        """Answer a batch to its end. Cancelled by its caller, it ends as it is; by the server, it stays open."""
        wait_s = 0.0
        while batch.status not in ENDED:
            try:
                await asyncio.sleep(wait_s)
                wait_s = 0.0
                await self._answer_or_fail(batch)
            except WoollyError as error:
                self._log.line("warning", "batch waits", batch=batch.id, why=str(error))
                wait_s = AGAIN_S
            except asyncio.CancelledError:
                if batch.status != "cancelling" or self._stopped:
                    raise

    async def _answer_or_fail(self, batch: StoredBatch) -> None:
        """Answer a batch, or end it with an error. Raises errors that pass by themselves: no memory for the model, no
        room on the disk, another server that answers this batch."""
        try:
            await self._answer(batch)
        except WoollyError as error:
            if isinstance(error, BusyError) or error.code in ("disk_full", "disk_error"):
                raise
            await self._fail(batch, error)
        except OSError as error:  # of the files of the batch: rows have errors of their own
            raise disk_fault("the files of the batch cannot be used", error) from None
        except Exception as error:
            fault = self._log.fault(batch.id, error)
            if isinstance(fault, BusyError):
                raise fault from None
            await self._fail(batch, fault)

    async def _ends_elsewhere(self, batch: StoredBatch) -> bool:
        """Whether another server of the same user has ended a batch; its record replaces the one here. Called with the
        lock of the files, which that server held until its record was written."""
        fresh = await self._records.on_disk(batch.id)
        if fresh is None or fresh.status in ("validating", "in_progress"):
            return False
        for name in fresh.__struct_fields__:
            setattr(batch, name, getattr(fresh, name))
        return True

    async def _answer(self, batch: StoredBatch) -> None:
        if batch.status == "cancelling":
            return await self._finish(batch, "cancelled")
        if batch.status != "finalizing":
            limits, path = self._limits, self._files.path(batch.input)
            terms = Terms(seed=batch.created, url=batch.endpoint, created=batch.created)
            most = {"most_bytes": limits.file_bytes, "most_rows": limits.rows}
            source = await asyncio.to_thread(lambda: Input(path, terms, limits, **most))
            try:
                return await self._answer_rows(batch, source)
            finally:
                source.close()
        return await self._finish(batch, "completed")

    async def _answer_rows(self, batch: StoredBatch, source: Input) -> None:
        batch.total = await to_its_end(source.check)
        await asyncio.to_thread(make_private_folder, self._folder)
        journal = Journal(self._answers(batch, "output"), self._answers(batch, "errors"), mode=0o600)
        try:
            if await self._ends_elsewhere(batch):
                return
            batch.done, batch.failed = await to_its_end(lambda: journal.resume(source.rows()))
            if batch.status == "validating":
                await self._move(batch, "in_progress")
            tally = Tally(batch.total, batch.done, batch.failed)

            def tell(tally: Tally) -> None:
                batch.done, batch.failed = tally.done, tally.failed
                self._count(batch)
                if tally.done < tally.rows:
                    self._files.check_growth(batch.owner)

            trusted = batch.trusted and self._guard.trusts(batch.owner)
            caller = Caller(f"batches of {batch.owner}", bytes.fromhex(batch.salt), 0.0, 0.0, trusted=trusted, row=True)
            await answer_rows(
                itertools.islice(source.rows(), tally.done, None),
                self._row_answerer(caller),
                journal,
                tally,
                at_once=AT_ONCE,
                created=batch.created,
                tell=tell,
            )
            await self._finish(batch, "completed")
        finally:
            journal.close()

    def _count(self, batch: StoredBatch) -> None:
        """Count the answers so far as files of the caller."""
        for name, id_ in (("output", batch.output), ("errors", batch.errors)):
            with suppress(OSError):  # there is none yet, or it is a file of the caller already
                if nbytes := self._answers(batch, name).stat().st_size:
                    self._files.grow(batch.owner, id_, nbytes)

    async def _finish(self, batch: StoredBatch, status: Status, **fields: Any) -> None:
        """Make the answers files of the caller, and end the batch."""
        if status == "completed":
            await self._move(batch, "finalizing")
        for name, id_ in await asyncio.to_thread(self._answered, batch):
            filename = f"{batch.id}_{name}.jsonl"
            await self._files.add(batch.owner, id_, filename, "batch_output", self._answers(batch, name))
        await self._move(batch, status, **fields)

    def _answered(self, batch: StoredBatch) -> list[tuple[str, str]]:
        """The files of answers that have any, by name and id; the others are removed."""
        files = []
        for name, id_ in (("output", batch.output), ("errors", batch.errors)):
            try:
                if self._answers(batch, name).stat().st_size:
                    files.append((name, id_))
                else:
                    self._answers(batch, name).unlink()
            except FileNotFoundError:  # it is a file of the caller already, or there was none
                if self._files.path(id_).exists():
                    files.append((name, id_))
        return files

    async def _fail(self, batch: StoredBatch, error: WoollyError) -> None:
        facts = error.facts
        line, param = facts.get("line"), facts.get("param")
        fault = Fault(
            error.code,
            str(facts.get("reason") or error.message),
            line if isinstance(line, int) else None,
            str(param) if param else None,
        )
        await self._finish(batch, "failed", fault=fault)

    async def _move(self, batch: StoredBatch, status: Status, **fields: Any) -> None:
        """Give a batch another status, and perhaps other fields."""
        times = batch.times | {status: int(time.time())}
        await self._records.change(batch, status=status, times=times, **fields)
        self._log.line("info", "batch", batch=batch.id, status=status, rows=batch.total, failed=batch.failed)

    def _answers(self, batch: StoredBatch, name: str) -> Path:
        return self._folder / f"{batch.id}.{name}"
