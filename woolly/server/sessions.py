"""Sessions: conversations that the server keeps for whoever began them, each in a private file of its own.

What holds:
- Nobody but the caller that made a session can read it, use it or end it.
- The turns of a session come one after another. One that was refused changes nothing. One is kept when its answer has
  ended, and is on the disk before anybody is told so; of an answer whose reader went away, what was sent is kept.
- A caller has at most so many sessions: one more takes the place of the one that was idle longest.
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
from woolly.limits import LIMITS
from woolly.request import End, Event, Request, Text, complete
from woolly.server.door import Job
from woolly.server.sealed import seal, stored, unseal
from woolly.store.files import write_private

MAGIC = b"woolly session 1 "
IN_ALL = 1024  # sessions of all callers together: addresses are many
IDLE_S = 1800.0  # after so long without a turn a session counts as idle


class Kept(msgspec.Struct, forbid_unknown_fields=True):
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
    kept: Kept
    turn: asyncio.Lock = field(default_factory=asyncio.Lock)

    @property
    def idle(self) -> bool:
        return time.time() - self.kept.used > IDLE_S

    def asks(self, job: Job) -> Job:
        """The job after all turns before: a chat goes on with their messages, a completion with their text."""
        if len(job.requests) != 1:
            raise RequestError("a session answers one request at a time; n must be 1", param="n")
        request, before = job.requests[0], self.kept.messages
        if request.messages is not None:
            told = ({name: value for name, value in row.items() if name != "timestamp"} for row in before)
            request = replace(request, messages=(*told, *request.messages))
        elif request.prompt is not None:
            request = replace(request, prompt="".join([*(row["content"] for row in before), request.prompt]))
        return replace(job, requests=(request,), model=job.model or self.kept.model)


class Sessions:
    """All sessions of a server. Owned by the event loop; files are read and written in threads."""

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
        """Those of a caller, the one that was used last first."""
        await self._load()
        mine = (session for session in self._sessions.values() if session.kept.owner == owner)
        return sorted(mine, key=lambda session: -session.kept.used)

    async def get(self, owner: str, id_: str) -> Session:
        await self._load()
        session = self._sessions.get(id_)
        if session is None or session.kept.owner != owner:
            raise NotFoundError("there is no such session", suggestion="make one first", code="session_not_found")
        return session

    async def make(self, owner: str, model: str, most_tokens: int, sampling: Mapping[str, float]) -> Session:
        mine = await self.of(owner)
        everybody = sorted(self._sessions.values(), key=lambda session: -session.kept.used)
        for old in (*mine[self._most - 1 :], *everybody[IN_ALL - 1 :]):
            await self.delete(old)
        now = time.time()
        session = Session(
            Kept(f"sess_{secrets.token_hex(12)}", owner, model, most_tokens, now, now, dict(sampling), {})
        )
        self._sessions[session.kept.id] = session
        return session

    async def delete(self, session: Session) -> None:
        if self._sessions.pop(session.kept.id, None) is not None:
            await asyncio.to_thread(self._path(session).unlink, missing_ok=True)

    async def save(self, session: Session) -> None:
        """See that a session is on the disk as it is now."""
        data = encode(session.kept)
        if session.kept.id in self._sessions:
            await asyncio.to_thread(write_private, self._path(session), data, suggestion="make room on the disk")

    @asynccontextmanager
    async def turn(self, owner: str, id_: str) -> AsyncIterator[Session]:
        """The session for one turn, once those that came before have ended."""
        session = await self.get(owner, id_)
        async with session.turn:
            session = await self.get(owner, id_)  # it may have been deleted meanwhile
            session.kept.used = time.time()
            yield session

    async def follow(
        self, session: Session, request: Request, events: AsyncGenerator[tuple[int, Event], None]
    ) -> AsyncGenerator[tuple[int, Event], None]:
        """Give the events of a turn on, and keep what was asked and said."""
        heard: list[Event] = []
        asked = request.messages or [{"role": "user", "content": request.prompt}]
        try:
            async with aclosing(events):
                async for index, event in events:
                    heard.append(event)
                    if isinstance(event, End):
                        before = session.kept.messages, session.kept.tokens
                        self._add(session, asked, _answered(heard), event.usage.total_tokens)
                        try:
                            await self.save(session)
                        except WoollyError:  # what cannot be kept is not told as kept
                            session.kept.messages, session.kept.tokens = before
                            raise
                    yield index, event
        finally:
            said = "".join(event.text for event in heard if isinstance(event, Text))
            if said and not isinstance(heard[-1], End):  # its reader has gone
                self._add(session, asked, {"content": said}, session.kept.tokens)
                saving = asyncio.create_task(self._save_later(session))
                self._writing.add(saving)
                saving.add_done_callback(self._writing.discard)

    def _add(self, session: Session, asked: Iterable[Mapping[str, Any]], answer: dict[str, Any], tokens: int) -> None:
        now = time.time()
        rows = [*map(dict, asked), {"role": "assistant", **answer}]
        session.kept.messages = [*session.kept.messages, *(row | {"timestamp": now} for row in rows)]
        session.kept.tokens, session.kept.used = tokens, now

    async def _save_later(self, session: Session) -> None:
        with suppress(WoollyError):  # nobody is left to be told; the next turn tries again
            await self.save(session)

    async def _load(self) -> None:
        async with self._ready:
            if not self._read:
                for kept in await asyncio.to_thread(stored, self._folder, "sess_", MAGIC, Kept, LIMITS.conversation):
                    self._sessions[kept.id] = Session(kept)
                self._read = True

    def _path(self, session: Session) -> Path:
        return self._folder / f"{session.kept.id}.json"


def _answered(heard: list[Event]) -> dict[str, Any]:
    made = complete(heard)
    calls = [
        {"id": call.id, "type": "function", "function": {"name": call.name, "arguments": call.arguments}}
        for call in made.calls
    ]
    return {"content": made.text, **({"tool_calls": calls} if calls else {})}


def encode(kept: Kept) -> bytes:
    """The bytes of a file."""
    data = seal(MAGIC, kept)
    if len(data) > LIMITS.conversation:
        raise RequestError(
            f"the session would have more than {LIMITS.conversation:,} bytes",
            suggestion="clear it, or begin another one",
            code="payload_too_large",
        )
    return data


def decode(data: bytes) -> Kept:
    """What a file holds; raises ValueError where it is not what `encode` wrote."""
    return unseal(MAGIC, data, Kept)
