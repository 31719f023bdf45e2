"""Sessions: conversations that the server keeps for the callers that began them, each in a private file of its own.

What holds:
- Only the caller that made a session can read it, use it or end it.
- The turns of a session come one after another. One that was refused changes nothing. A turn is stored when its answer
  has ended, and is on the disk before the end is sent; of an answer whose reader went away, what was sent is stored.
- A caller has a limited number of sessions: one more takes the place of the one that was idle longest.
- A file that is not exactly what was written is removed, and never read further.
"""

from __future__ import annotations

import asyncio
import secrets
import time
from collections.abc import AsyncGenerator, AsyncIterator, Iterable, Mapping
from contextlib import aclosing, asynccontextmanager, suppress
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

import msgspec

from woolly.errors import NotFoundError, RequestError, WoollyError
from woolly.io.files import write_private
from woolly.limits import LIMITS
from woolly.request import End, Event, Request, Text, complete
from woolly.server.routes import Job
from woolly.server.sealed_records import seal, stored, unseal

MAGIC = b"woolly session 1 "
IN_ALL = 1024  # sessions of all callers together: addresses are many
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


@dataclass(slots=True)
class Session:
    record: StoredSession
    sessions: Sessions
    turn: asyncio.Lock = field(default_factory=asyncio.Lock)

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
                    if isinstance(event, End):
                        before = self.record.messages, self.record.tokens
                        self._add(asked, _answered(so_far), event.usage.total_tokens)
                        try:
                            await self.sessions.save(self)
                        except WoollyError:  # a turn that could not be stored is not sent as done
                            self.record.messages, self.record.tokens = before
                            raise
                    yield index, event
        finally:
            text = "".join(event.text for event in so_far if isinstance(event, Text))
            if text and not isinstance(so_far[-1], End):  # the reader went away
                self._add(asked, {"content": text}, self.record.tokens)
                self.sessions.save_soon(self)

    def _add(self, asked: Iterable[Mapping[str, Any]], answer: dict[str, Any], tokens: int) -> None:
        now = time.time()
        rows = [*map(dict, asked), {"role": "assistant", **answer}]
        self.record.messages = [*self.record.messages, *(row | {"timestamp": now} for row in rows)]
        self.record.tokens, self.record.used = tokens, now


class Sessions:
    """All sessions of a server. Owned by the event loop; files are read and written in threads."""

    idle_s = IDLE_S

    def __init__(self, folder: Path, most: int) -> None:
        self._folder = folder
        self._most = most  # of one caller
        self._sessions: dict[str, Session] = {}
        self._ready = asyncio.Lock()
        self._read = False
        self._writing: set[asyncio.Task[None]] = set()

    @property
    def active(self) -> int:
        return sum(not session.idle for session in self._sessions.values())

    async def of(self, owner: str) -> list[Session]:
        """The sessions of a caller, the one that was used last first."""
        await self._load()
        mine = (session for session in self._sessions.values() if session.record.owner == owner)
        return sorted(mine, key=lambda session: -session.record.used)

    async def get(self, owner: str, id_: str) -> Session:
        await self._load()
        session = self._sessions.get(id_)
        if session is None or session.record.owner != owner:
            raise NotFoundError("there is no such session", suggestion="make one first", code="session_not_found")
        return session

    async def make(self, owner: str, model: str, most_tokens: int, sampling: Mapping[str, float]) -> Session:
        mine = await self.of(owner)
        everybody = sorted(self._sessions.values(), key=lambda session: -session.record.used)
        for old in (*mine[self._most - 1 :], *everybody[IN_ALL - 1 :]):
            await self.delete(old)
        now = time.time()
        session = Session(
            StoredSession(f"sess_{secrets.token_hex(12)}", owner, model, most_tokens, now, now, dict(sampling), {}),
            self,
        )
        self._sessions[session.record.id] = session
        return session

    async def delete(self, session: Session) -> None:
        if self._sessions.pop(session.record.id, None) is not None:
            await asyncio.to_thread(self._path(session).unlink, missing_ok=True)

    async def save(self, session: Session) -> None:
        """Write a session to the disk."""
        data = encode(session.record)
        if session.record.id in self._sessions:
            await asyncio.to_thread(write_private, self._path(session), data, suggestion="make room on the disk")

    @asynccontextmanager
    async def turn(self, owner: str, id_: str) -> AsyncIterator[Session]:
        """Hold a session for one turn, once the turns before it have ended."""
        session = await self.get(owner, id_)
        async with session.turn:
            session = await self.get(owner, id_)  # it may have been deleted meanwhile
            session.record.used = time.time()
            yield session

    def save_soon(self, session: Session) -> None:
        """Begin to write a session to the disk."""
        saving = asyncio.create_task(self._save_later(session))
        self._writing.add(saving)
        saving.add_done_callback(self._writing.discard)

    async def _save_later(self, session: Session) -> None:
        with suppress(WoollyError):  # the client has gone; the next turn tries again
            await self.save(session)

    async def _load(self) -> None:
        async with self._ready:
            if not self._read:
                for record in await asyncio.to_thread(self._stored):
                    self._sessions[record.id] = Session(record, self)
                self._read = True

    def _stored(self) -> list[StoredSession]:
        return stored(self._folder, "sess_", MAGIC, StoredSession, LIMITS.conversation)

    def _path(self, session: Session) -> Path:
        return self._folder / f"{session.record.id}.json"


def _answered(events: list[Event]) -> dict[str, Any]:
    completion = complete(events)
    calls = [
        {"id": call.id, "type": "function", "function": {"name": call.name, "arguments": call.arguments}}
        for call in completion.calls
    ]
    return {"content": completion.text, **({"tool_calls": calls} if calls else {})}


def encode(record: StoredSession) -> bytes:
    """The bytes of a file."""
    data = seal(MAGIC, record)
    if len(data) > LIMITS.conversation:
        raise RequestError(
            f"the session would have more than {LIMITS.conversation:,} bytes",
            suggestion="clear it, or begin another one",
            code="payload_too_large",
        )
    return data


def decode(data: bytes) -> StoredSession:
    """What a file holds; raises ValueError where it is not what `encode` wrote."""
    return unseal(MAGIC, data, StoredSession)
