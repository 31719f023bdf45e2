"""Batches that the server answers for its callers, over the same code as `woolly batch`. They outlive the process.

What holds:
- Nobody but the caller that began a batch can see or stop it. Its rows are asked as that caller's, after everybody
  else's requests (`Line`), and share pages only with that caller's.
- A batch is a record and two files of answers in a private folder. Whatever ends the server, the next one goes on where
  the files end. When all rows are answered, or the batch was cancelled, the files become files of the caller.
- Of one caller a batch at a time is answered, the oldest first, and those of a few callers side by side.
"""

from __future__ import annotations

import asyncio
import itertools
import secrets
import time
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING, Literal, TypeVar

import msgspec

from woolly.errors import BusyError, NativeError, NotFoundError, RequestError, WoollyError
from woolly.server.batch import Ask, Input, Journal, Tally, Terms, answer_rows
from woolly.server.door import Caller
from woolly.server.errors import too_many
from woolly.server.files import new_id
from woolly.server.sealed import seal, stored
from woolly.store.disk import make_private
from woolly.store.files import write_private

if TYPE_CHECKING:
    from woolly.server.app import App

T = TypeVar("T")
MAGIC = b"woolly batch 1 "
RECORD = 64 << 10  # bytes of one, at the most
CALLERS = 4  # whose batches are answered side by side
IN_LINE = 256  # rows of a batch that have a place or wait for one; how many have one, the line says
AGAIN_S = 30.0  # before a batch that could not go on is tried again
WINDOW_S = 86400  # the only one that OpenAI's clients can name; a batch goes on however long it takes
Status = Literal["validating", "failed", "in_progress", "finalizing", "completed", "cancelling", "cancelled"]
ENDED = ("failed", "completed", "cancelled")


class Fault(msgspec.Struct, forbid_unknown_fields=True):
    code: str
    message: str
    line: int | None = None
    param: str | None = None


class Kept(msgspec.Struct, forbid_unknown_fields=True):
    """The record of a batch. output, errors: the ids that its files will have. times: when it came to each status."""

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


class Batches:
    """All batches of a server. Owned by the event loop; the disk is touched in threads.

    asking: gives what answers the rows of a caller.
    """

    def __init__(self, app: App, folder: Path, asking: Callable[[Caller], Ask]) -> None:
        self._app, self._folder, self._files, self._asking = app, folder, app.files, asking
        self._batches: dict[str, Kept] = {}
        self._ready = asyncio.Lock()
        self._read = self._stopped = False
        self._tasks: dict[str, asyncio.Task[None]] = {}  # by id; of an owner there is one

    # What callers do

    async def make(self, caller: Caller, endpoint: str, input_: str, metadata: dict[str, str] | None) -> Kept:
        mine = await self.of(caller.name)
        for old in reversed(mine):
            if len(mine) < self._app.settings.limits.batches_per_key:
                break
            if old.status in ENDED:
                mine.remove(old)
                await self._forget(old)
        if len(mine) >= self._app.settings.limits.batches_per_key:
            raise too_many(f"{len(mine)} of your batches are not finished yet", 60)
        kept = Kept(
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
        await self._save(kept)
        self._batches[kept.id] = kept
        self._begin_next()
        return kept

    async def of(self, owner: str) -> list[Kept]:
        """Those of a caller, the newest first."""
        await self._load()
        mine = [kept for kept in self._batches.values() if kept.owner == owner]
        return sorted(mine, key=lambda kept: (-kept.created, kept.id))

    async def get(self, owner: str, id_: str) -> Kept:
        await self._load()
        kept = self._batches.get(id_)
        if kept is None or kept.owner != owner:
            raise NotFoundError("there is no such batch", suggestion="make one first", param="batch_id")
        return kept

    async def cancel(self, kept: Kept) -> None:
        """Stop a batch; what it has answered by then becomes its files."""
        if kept.status in ENDED:
            raise RequestError(f"the batch is {kept.status} already", code="conflict")
        await self._move(kept, "cancelling")
        task = self._tasks.get(kept.id)
        if task is not None:
            task.cancel()
        else:
            self._begin_next()

    async def uses(self, file: str) -> bool:
        """Whether a batch that has not ended reads a file."""
        await self._load()
        return any(kept.input == file and kept.status not in ENDED for kept in self._batches.values())

    # What the server does

    async def resume(self) -> None:
        """Go on with what the server before this one did not finish."""
        await self._load()
        self._begin_next()

    def stop(self) -> None:
        """Answer nothing more; the next server goes on."""
        self._stopped = True
        for task in self._tasks.values():
            task.cancel()

    async def close(self) -> None:
        self.stop()
        await asyncio.gather(*self._tasks.values(), return_exceptions=True)

    def _begin_next(self) -> None:
        """Begin what may be begun: the oldest batch of each caller, of a few callers."""
        busy = {self._batches[id_].owner for id_ in self._tasks}
        for kept in sorted(self._batches.values(), key=lambda kept: (kept.created, kept.id)):
            if self._stopped or len(self._tasks) >= CALLERS:
                return
            if kept.status not in ENDED and kept.id not in self._tasks and kept.owner not in busy:
                busy.add(kept.owner)
                task = self._tasks[kept.id] = asyncio.create_task(self._run(kept))
                task.add_done_callback(lambda _, id_=kept.id: self._ended(id_))  # type: ignore[misc]

    def _ended(self, id_: str) -> None:
        del self._tasks[id_]
        self._begin_next()

    async def _run(self, kept: Kept) -> None:
        """Answer a batch to its end. Cancelled by its caller it ends with what it has, by the server it stays open."""
        try:
            while self._batches[kept.id] is kept and kept.status not in ENDED:
                try:
                    await self._answer_or_fail(kept)
                except WoollyError as error:
                    self._app.log.line("warning", "batch waits", batch=kept.id, why=str(error))
                    await asyncio.sleep(AGAIN_S)
        except asyncio.CancelledError:
            if kept.status != "cancelling" or self._stopped:
                raise
            await self._finish(kept, "cancelled")

    async def _answer_or_fail(self, kept: Kept) -> None:
        """Raises what passes: no memory for the model, no room on the disk, another server that answers this batch."""
        try:
            await self._answer(kept)
        except WoollyError as error:
            if isinstance(error, BusyError) or error.code in ("disk_full", "disk_error"):
                raise
            await self._fail(kept, error)
        except Exception as error:
            self._app.log.internal_error(kept.id, error)
            await self._fail(kept, NativeError("something went wrong in the server"))

    async def _ends_elsewhere(self, kept: Kept) -> bool:
        """Whether another server of the same user has brought a batch to its end; its record takes the place of ours.
        Asked with the lock of the files, which that server held until its record was written."""
        found = await asyncio.to_thread(self._stored)
        fresh = next((other for other in found if other.id == kept.id), kept)
        if fresh.status in ("validating", "in_progress"):
            return False
        self._batches[kept.id] = fresh
        return True

    async def _answer(self, kept: Kept) -> None:
        if kept.status == "cancelling":
            return await self._finish(kept, "cancelled")
        if kept.status != "finalizing":
            limits, path = self._app.settings.limits, self._files.path(kept.input)
            terms = Terms(seed=kept.created, url=kept.endpoint, created=kept.created)
            most = {"most_bytes": limits.file_bytes, "most_rows": limits.rows}
            source = await asyncio.to_thread(lambda: Input(path, terms, limits, **most))
            try:
                return await self._answer_rows(kept, source)
            finally:
                source.close()
        return await self._finish(kept, "completed")

    async def _answer_rows(self, kept: Kept, source: Input) -> None:
        kept.total = await _to_its_end(source.check)
        await asyncio.to_thread(make_private, self._folder)
        journal = Journal(self._answers(kept, "output"), self._answers(kept, "errors"), mode=0o600)
        try:
            if await self._ends_elsewhere(kept):
                return
            kept.done, kept.failed = await _to_its_end(lambda: journal.resume(source.rows()))
            if kept.status == "validating":
                await self._move(kept, "in_progress")
            tally = Tally(kept.total, kept.done, kept.failed)

            def tell(tally: Tally) -> None:
                kept.done, kept.failed = tally.done, tally.failed

            caller = Caller(
                f"batches of {kept.owner}", bytes.fromhex(kept.salt), 0.0, 0.0, trusted=kept.trusted, row=True
            )
            await answer_rows(
                itertools.islice(source.rows(), tally.done, None),
                self._asking(caller),
                journal,
                tally,
                at_once=IN_LINE,
                created=kept.created,
                tell=tell,
            )
            await self._finish(kept, "completed")
        finally:
            journal.close()

    async def _finish(self, kept: Kept, status: Status) -> None:
        """Make files of what was answered, and end."""
        if status == "completed":
            await self._move(kept, "finalizing")
        if self._folder.exists():
            for name, id_ in (("output", kept.output), ("errors", kept.errors)):
                path = self._answers(kept, name)
                if path.exists() and path.stat().st_size == 0:
                    path.unlink()
                elif path.exists() or self._files.path(id_).exists():
                    await self._files.add(kept.owner, id_, f"{kept.id}_{name}.jsonl", "batch_output", path)
        await self._move(kept, status)

    async def _fail(self, kept: Kept, error: WoollyError) -> None:
        facts = error.facts
        line, param = facts.get("line"), facts.get("param")
        kept.fault = Fault(
            error.code,
            str(facts.get("reason") or error.message),
            line if isinstance(line, int) else None,
            str(param) if param else None,
        )
        await self._finish(kept, "failed")

    async def _move(self, kept: Kept, status: Status) -> None:
        kept.status = status
        kept.times[status] = int(time.time())
        await self._save(kept)
        self._app.log.line("info", "batch", batch=kept.id, status=status, rows=kept.total, failed=kept.failed)

    def _answers(self, kept: Kept, name: str) -> Path:
        return self._folder / f"{kept.id}.{name}"

    async def _save(self, kept: Kept) -> None:
        data = seal(MAGIC, kept)
        await asyncio.to_thread(write_private, self._path(kept), data, suggestion="make room on the disk of the server")

    async def _forget(self, kept: Kept) -> None:
        del self._batches[kept.id]
        await asyncio.to_thread(self._path(kept).unlink, missing_ok=True)

    def _path(self, kept: Kept) -> Path:
        return self._folder / f"{kept.id}.json"

    async def _load(self) -> None:
        async with self._ready:
            if not self._read:
                for kept in await asyncio.to_thread(self._stored):
                    self._batches.setdefault(kept.id, kept)
                self._read = True

    def _stored(self) -> list[Kept]:
        return stored(self._folder, "batch_", MAGIC, Kept, RECORD)


async def _to_its_end(work: Callable[[], T]) -> T:
    """Do what uses an open file in a thread. Whoever is cancelled meanwhile must not close the file before its end."""
    done = asyncio.ensure_future(asyncio.to_thread(work))
    try:
        return await asyncio.shield(done)
    except asyncio.CancelledError:
        await asyncio.wait([done])
        raise
