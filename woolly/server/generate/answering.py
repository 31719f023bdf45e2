"""The services that generation and embedding share."""

from __future__ import annotations

from collections.abc import AsyncGenerator, Callable, Mapping
from contextlib import AbstractAsyncContextManager
from dataclasses import dataclass
from typing import Protocol

from woolly.config import Settings
from woolly.request import Event, Request
from woolly.server.dialects.base.response_store import ResponseStore
from woolly.server.generate.mcp_tools import Remotes
from woolly.server.models.counts import Counts
from woolly.server.models.lifecycle import Models
from woolly.server.routes import Job
from woolly.server.workers import Workers


class Conversation(Protocol):
    """A session during one turn."""

    @property
    def sampling(self) -> Mapping[str, float]:
        """The sampling parameters of turns that name none."""

    def with_history(self, job: Job) -> Job:
        """The job with all turns before it."""

    def follow(
        self, request: Request, events: AsyncGenerator[tuple[int, Event], None]
    ) -> AsyncGenerator[tuple[int, Event], None]:
        """The events of the turn, which is stored when it ends."""


class Conversations(Protocol):
    """The sessions by which jobs continue a conversation."""

    idle_s: float  # after so long without a turn a session counts as idle

    def turn(self, owner: str, id_: str) -> AbstractAsyncContextManager[Conversation]: ...


@dataclass(frozen=True, slots=True)
class Answering:
    """is_moving: at a gateway, whether the answer of a request has lost its replica and waits for another."""

    settings: Settings
    models: Models
    sessions: Conversations
    remotes: Remotes
    responses: ResponseStore
    counts: Counts
    workers: Workers
    is_moving: Callable[[str], bool] | None = None
