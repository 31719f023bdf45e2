"""One answer of a fleet: a replica is found for it, its events go into a stream, and another goes on if need be.

The ids of all that came are kept. When the replica dies, falls silent or leaves, another one of the same sort is given
the same order with these ids, and its events go on where the others ended: the arithmetic is the same everywhere.
"""

from __future__ import annotations

import asyncio
import time
from array import array
from contextlib import suppress
from dataclasses import replace
from typing import TYPE_CHECKING

import msgspec

from woolly.engine import Stream
from woolly.errors import BusyError, DownloadError, NativeError, RequestError, WoollyError
from woolly.limits import LIMITS
from woolly.request import End, Event, Failed, Prompt, Start, Text, Timings, Usage
from woolly.server.fleet import SECRET, Member, Offered
from woolly.server.log import REQUEST_ID
from woolly.server.outgoing import Exchange, begin
from woolly.server.routing import Prompt as Routed
from woolly.server.routing import Standing
from woolly.server.wire import SUBMIT, Order, event_of, packed, refusal_of

if TYPE_CHECKING:
    from woolly.server.fleet_model import FleetModel

REPLAYS = 3  # the most of one answer
SILENT_S = 2.0  # without a line, of a replica that does not report any more

_encode = msgspec.json.Encoder().encode


class Answer:
    """One answer of a fleet. Lives on the event loop; `cancel` and `resume` may be called from any thread."""

    stream: Stream

    def __init__(self, owner: FleetModel, order: Order, routed: Routed, prompt: int) -> None:
        self.owner = owner
        self.fleet = owner.fleet
        self.order = order
        self.routed = routed
        self.prompt = prompt
        self.need = prompt + order.max_tokens  # tokens of context
        self.request_id = REQUEST_ID.get()
        self._task: asyncio.Task[None] | None = None
        self._given = array("i")
        self._pieces = 0
        self._start: Start | None = None
        self._told = False  # the likelihoods of the prompt
        self._over = False
        self._rest: list[bytes] = []  # of a line that has not ended
        self._rest_size = 0
        self._exchange: Exchange | None = None
        self._heard_s = 0.0
        self._queued: tuple[Standing, int] | None = None  # the tokens that it has queued at a replica
        self._handed = False  # the replica leaves: what it does here is not counted against it
        self._begun_s = time.perf_counter()

    # From any thread

    def cancel(self) -> None:
        with suppress(RuntimeError):  # the loop has ended, and everything with it
            self.fleet.loop.call_soon_threadsafe(self._cancel)

    def resume(self) -> None:
        with suppress(RuntimeError):
            self.fleet.loop.call_soon_threadsafe(self._go_on)

    # The event loop

    def start(self) -> asyncio.Task[None]:
        self._task = asyncio.ensure_future(self.run())
        return self._task

    def _cancel(self) -> None:
        if self._task is not None:
            self._task.cancel()

    def _go_on(self) -> None:
        if self._exchange is not None and self._exchange.transport is not None:
            self._exchange.transport.resume_reading()

    def suspect(self, member: Member) -> None:
        """A replica does not report any more: if it is silent here for a while, too, it is dead to us."""
        self.fleet.loop.call_later(SILENT_S, self._if_silent, member, self._heard_s)

    def _if_silent(self, member: Member, heard_s: float) -> None:
        exchange = self._exchange
        if self not in member.answers or exchange is None or exchange.transport is None:
            return
        if self._heard_s == heard_s and exchange.transport.is_reading():
            exchange.abort()
        else:
            self.suspect(member)

    def hand_over(self) -> None:
        """Go on elsewhere, because the replica leaves; where there is nobody else, it may finish."""
        if self._exchange is not None and self.owner.others(self.need):
            self._handed = True
            self._exchange.abort()

    async def run(self) -> None:
        try:
            await self._run()
        except asyncio.CancelledError:
            self._put(self._cut())
        except WoollyError as error:
            self._put(Failed(error))
        except Exception as error:
            self._put(Failed(NativeError(f"an answer of the fleet failed: {type(error).__name__}")))
            raise
        finally:
            self.fleet.moving.discard(self)
            if self._exchange is not None:
                self._exchange.abort()

    async def _run(self) -> None:
        busy: set[str] = set()  # replicas that did not take it
        lost = 0
        while True:
            member, offered = await self.owner.choose(self.routed, self.need, busy)
            try:
                await self._follow(member, offered)
                return
            except BusyError:
                busy.add(member.id)
                if not self.owner.others(self.need, busy):
                    raise
            except DownloadError:
                lost += not self._handed
                self._handed = False
                if lost > REPLAYS:
                    self.fleet.failed += 1
                    raise NativeError(
                        f"the answer was lost with its replica {lost} times",
                        suggestion="ask again",
                        code="generation_error",
                    ) from None
                self.fleet.replays += 1
                self.fleet.moving.add(self)

    async def _follow(self, member: Member, offered: Offered) -> None:
        """Let a replica answer, to the end. BusyError: it does not take the order now. DownloadError: it is lost."""
        refused: list[bytes] = []
        exchange: Exchange | None = None

        def take(data: bytes) -> None:
            self._heard_s = time.monotonic()
            if exchange is not None and exchange.status.done() and exchange.status.result() == 200:
                self._take(data)
            elif sum(map(len, refused)) < 65_536:
                refused.append(data)

        self._rest, self._rest_size = [], 0
        self._heard_s = time.monotonic()
        self._note(offered)
        member.answers.add(self)
        try:
            body, headers = _encode(self._rest_of_order()), {SECRET: self.fleet.key}
            if self.request_id:
                headers["x-request-id"] = self.request_id
            self._exchange = exchange = await begin(member.address, "POST", SUBMIT, body, headers, take)
            whole = await exchange.whole
            if self._over:
                return
            status = exchange.status.result()
            if whole and status != 200:
                error = refusal_of(b"".join(refused), status)
                raise error if not isinstance(error, DownloadError) else BusyError(error.message)
            raise DownloadError(f"{member.address} broke off")
        except DownloadError:
            member.absent = True  # until it reports again
            raise
        finally:
            member.answers.discard(self)
            now = member.models.get(self.owner.name, offered).standing  # it may have reported since
            now.running = max(now.running - 1, 0)
            if exchange is not None:
                exchange.abort()
            self._exchange = None

    def _note(self, offered: Offered) -> None:
        """What the replica will be doing, before it reports so itself."""
        standing = offered.standing
        known = standing.known(self.routed.names) * self.routed.page
        self._queued = standing, max(self.routed.tokens + len(self._given) - known, 1)
        standing.running += 1
        standing.queued += self._queued[1]
        standing.sent.update(self.routed.names)

    def _computed(self, standing: Standing, tokens: int) -> None:
        """Its prompt has been computed."""
        standing.queued = max(standing.queued - tokens, 0)
        self._queued = None

    def _rest_of_order(self) -> Order:
        told = self.order.prompt_logprobs and not self._told
        return msgspec.structs.replace(self.order, given=packed(self._given), pieces=self._pieces, prompt_logprobs=told)

    def _take(self, data: bytes) -> None:
        """Lines, as they come; what a replica has not finished to say does not count. Once a token."""
        first, *others = data.split(b"\n")
        self._rest.append(first)
        self._rest_size += len(first)
        if self._rest_size > LIMITS.wire_line:
            assert self._exchange is not None
            self._exchange.abort()
            return
        for piece in others:
            self._event(b"".join(self._rest))
            self._rest, self._rest_size = [piece], len(piece)

    def _event(self, line: bytes) -> None:
        if self._over:
            return
        event = self._read(line)
        match event:
            case None:
                pass
            case Text(tokens=tokens):
                self.fleet.moving.discard(self)
                self._given.extend(tokens)
                self._pieces += 1
                if self._queued is not None:
                    self._computed(*self._queued)
                self._put(event)
                if not self.stream.room() and self._exchange is not None and self._exchange.transport is not None:
                    self._exchange.transport.pause_reading()
            case Start():
                if self._start is None:
                    self._start = event
                    self._put(event)
            case Prompt():
                if not self._told:
                    self._told = True
                    self._put(event)
            case End(usage=usage) if self._start is not None:
                cached, disk = self._start.cached_tokens, self._start.disk_tokens  # of the replica that began
                self._put(replace(event, usage=replace(usage, cached_tokens=cached, disk_tokens=disk)))
            case _:
                self._put(event)

    def _read(self, line: bytes) -> Event | None:
        """The event of a line. A replica that writes what is none, or says that it goes, is left for another one."""
        vocab = self.owner.card.vocab
        try:
            event = event_of(line)
            right = not isinstance(event, Text) or all(0 <= token < vocab for token in event.tokens)
        except RequestError:
            right = False
        if right and not _goes(event):
            return event
        if self._exchange is not None:
            self._exchange.abort()
        return None

    def _put(self, event: Event) -> None:
        if not self._over:
            self._over = isinstance(event, End | Failed)
            self.stream.put(event)

    def _cut(self) -> End:
        """The end of an answer that nobody waits for any more."""
        cached = self._start.cached_tokens if self._start is not None else 0
        usage = Usage(self.prompt, cached, len(self._given))
        timings = Timings(0.0, 0.0, time.perf_counter() - self._begun_s, 0.0, 0.0)
        return End("cancelled", usage, timings, int(self.order.sampling["seed"]))


def _goes(event: Event) -> bool:
    """Whether a replica gives an answer up, because its model is unloaded, or it ends."""
    match event:
        case End(reason="cancelled") | Failed(error=BusyError()):
            return True
    return False
