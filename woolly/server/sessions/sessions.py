"""Sessions: conversations that the server keeps for the callers that began them, each a record.

What holds:
- Only the caller that made a session can read it, use it or end it.
- The turns of a session come one after another. One that was refused changes nothing. A turn is stored when its answer
  has ended, and is on the disk before the end is sent; of an answer whose reader went away, what was sent is stored.
- A caller has a limited number of sessions: one more takes the place of its own that was idle longest. Callers without
  a key have a limited number together: one more is refused, because nobody's session may end for another's.
"""

from __future__ import annotations

import asyncio
import secrets
import time
from collections.abc import AsyncGenerator, AsyncIterator, Iterable, Mapping
from contextlib import aclosing, asynccontextmanager, suppress
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any
from weakref import WeakValueDictionary

import msgspec

from woolly.errors import BusyError, NotFoundError, RequestError, WoollyError
from woolly.limits import LIMITS
from woolly.request import End, Event, Request, Text, complete
from woolly.server.http.caller import has_key
from woolly.server.records import RecordKind, RecordStore
from woolly.server.routes import Job

WITHOUT_KEY = 1024  # sessions of all callers without a key together: addresses are many
IDLE_S = 1800.0  # after so long without a turn a session counts as idle


class StoredSession(msgspec.Struct, forbid_unknown_fields=True):
    """What a file holds. Messages are as a Request takes them, each with a `timestamp`; times are seconds of 1970."""

    id: str
    owner: str
    model: str
    most_tokens: int  # of the model's context
    created: float
    used: float
    sampling: dict[str, float]
    metadata: dict[str, Any]
    messages: list[dict[str, Any]] = []
    tokens: int = 0  # of the last turn: its prompt, with all before it, and its answer


KIND = RecordKind(
    "sess_",
    b"woolly session 1 ",
    StoredSession,
    LIMITS.conversation,
    noun="session",
    too_large="clear it, or begin another one",
)


@dataclass(frozen=True, slots=True)
class Session:
    record: StoredSession
    records: RecordStore[StoredSession]

    @property
    def sampling(self) -> Mapping[str, float]:
        return self.record.sampling

    @property
    def idle(self) -> bool:
        return time.time() - self.record.used > IDLE_S

    def with_history(self, job: Job) -> Job:
        """The job with all turns before it: their messages before those of a chat, their text before a prompt."""
        if len(job.requests) != 1:
            raise RequestError("a session answers one request at a time; n must be 1", param="n")
        request, before = job.requests[0], self.record.messages
        if request.messages is not None:
            earlier = ({name: value for name, value in row.items() if name != "timestamp"} for row in before)
            request = replace(request, messages=(*earlier, *request.messages))
        elif request.prompt is not None:
            request = replace(request, prompt="".join([*(row["content"] for row in before), request.prompt]))
        return replace(job, requests=(request,), model=job.model or self.record.model)

    async def follow(
        self, request: Request, events: AsyncGenerator[tuple[int, Event], None]
    ) -> AsyncGenerator[tuple[int, Event], None]:
        """Pass the events of a turn on, and store its question and its answer."""
        so_far: list[Event] = []
        asked = request.messages or [{"role": "user", "content": request.prompt}]
        try:
            async with aclosing(events):
                async for index, event in events:
                    so_far.append(event)
                    if isinstance(event, End):  # a turn that could not be stored is not sent as done
                        await self._add(asked, _answered(so_far), event.usage.total_tokens)
                    yield index, event
        finally:
            text = "".join(event.text for event in so_far if isinstance(event, Text))
            if text and not isinstance(so_far[-1], End):  # the reader went away, and nobody is told of a failure
                with suppress(WoollyError):
                    await self._add(asked, {"content": text}, self.record.tokens)

    async def _add(self, asked: Iterable[Mapping[str, Any]], answer: dict[str, Any], tokens: int) -> None:
        now = time.time()
        rows = [row | {"timestamp": now} for row in (*map(dict, asked), {"role": "assistant", **answer})]
        await self.change(messages=[*self.record.messages, *rows], tokens=tokens, used=now)

    async def change(self, **fields: Any) -> None:
        """Give fields of the record other values, on the disk, too."""
        await self.records.change(self.record, **fields)


class Sessions:
    """All sessions of a server. Owned by the event loop."""

    idle_s = IDLE_S

    def __init__(self, folder: Path, most: int) -> None:
        self._records = RecordStore(folder, KIND)
        self._most = most  # of one caller
        self._making = asyncio.Lock()  # of callers without a key
        self._turns: WeakValueDictionary[str, asyncio.Lock] = WeakValueDictionary()  # by id: one turn at a time

    @property
    def active(self) -> int:
        return sum(not Session(record, self._records).idle for record in self._records.known)

    async def of(self, owner: str) -> list[Session]:
        """The sessions of a caller, the one that was used last first."""
        mine = await self._records.of(owner)
        return [Session(record, self._records) for record in sorted(mine, key=_last_used)]

    async def get(self, owner: str, id_: str) -> Session:
        record = await self._records.get(owner, id_)
        if record is None:
            raise NotFoundError("there is no such session", suggestion="make one first", code="session_not_found")
        return Session(record, self._records)

    async def make(
        self, owner: str, model: str, most_tokens: int, sampling: Mapping[str, float], metadata: dict[str, Any]
    ) -> Session:
        now = time.time()
        id_ = f"sess_{secrets.token_hex(12)}"
        record = StoredSession(id_, owner, model, most_tokens, now, now, dict(sampling), metadata)
        if has_key(owner):
            await self._records.put(record)
        else:
            async with self._making:
                await self._check_room(owner)
                await self._records.put(record)
        for old in sorted(await self._records.of(owner), key=_last_used)[self._most :]:
            with suppress(WoollyError):  # the next session takes its place
                await self._records.remove(old)
        return Session(record, self._records)

    async def _check_room(self, owner: str) -> None:
        """Refuse one more session of callers without a key where they have too many, unless it replaces one."""
        replaces = len(await self._records.of(owner)) >= self._most
        strangers = sum(not has_key(record.owner) for record in self._records.known)
        if strangers - replaces >= WITHOUT_KEY:
            raise BusyError(
                f"callers without a key have {WITHOUT_KEY:,} sessions already",
                suggestion="end one of yours, or use a key",
                code="overloaded",
            )

    async def delete(self, session: Session) -> None:
        await self._records.remove(session.record)

    @asynccontextmanager
    async def turn(self, owner: str, id_: str) -> AsyncIterator[Session]:
        """Hold a session for one turn, once the turns before it have ended."""
        session = await self.get(owner, id_)
        async with self._turns.setdefault(id_, asyncio.Lock()):
            session = await self.get(owner, id_)  # it may have been deleted meanwhile
            session.record.used = time.time()
            yield session


def _last_used(record: StoredSession) -> float:
    """For sorting: the record that was used last is the first."""
    return -record.used


def _answered(events: list[Event]) -> dict[str, Any]:
    completion = complete(events)
    calls = [
        {"id": call.id, "type": "function", "function": {"name": call.name, "arguments": call.arguments}}
        for call in completion.calls
    ]
    return {"content": completion.text, **({"tool_calls": calls} if calls else {})}
