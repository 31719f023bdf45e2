"""One answer of a fleet: a replica computes it, its events go into a stream, and another replica continues if need be.

The ids of all tokens that came are kept. When the replica dies, falls silent or leaves, another one with the same
version of the model gets the same request with these ids, and its events continue where the earlier ones
ended: the arithmetic is the same everywhere.
"""

from __future__ import annotations

import asyncio
import time
from array import array
from contextlib import suppress
from dataclasses import replace

import msgspec

from woolly.engine import Stream
from woolly.errors import BusyError, DownloadError, NativeError, RequestError, WoollyError
from woolly.fleet.choosing import ModelReplicas
from woolly.fleet.http import Exchange, begin
from woolly.fleet.members import FleetReplica, OfferedModel
from woolly.fleet.routing import Prompt as Routed
from woolly.fleet.routing import ReplicaLoad
from woolly.fleet.wire import SUBMIT, RemoteRequest, event_of, pack_ids, refusal_of
from woolly.limits import LIMITS
from woolly.request import End, Event, Failed, Prompt, Start, Text, Timings, Usage
from woolly.server.http.guard import FLEET_SECRET
from woolly.server.http.log import REQUEST_ID

REPLAYS = 3  # replicas in a row that one answer may lose without getting further
SILENT_S = 2.0  # without data, after which a replica that does not report is given up

_encode = msgspec.json.Encoder().encode


class RemoteAnswer:
    """One answer of a fleet. Lives on the event loop; `cancel` and `resume` may be called from any thread."""

    stream: Stream

    def __init__(self, replicas: ModelReplicas, request: RemoteRequest, routed: Routed, prompt: int) -> None:
        self.replicas = replicas
        self.fleet = replicas.fleet
        self.request = request
        self.routed = routed
        self.prompt = prompt
        self.context_tokens = prompt + request.max_tokens  # tokens that the replica's context must hold
        self.request_id = REQUEST_ID.get()
        self._task: asyncio.Task[None] | None = None
        self._tokens = array("i")
        self._pieces = 0
        self._start: Start | None = None
        self._prompt_sent = False  # the likelihoods of the prompt were put into the stream
        self._over = False
        self._rest: list[bytes] = []  # pieces of a line that has not ended
        self._rest_size = 0
        self._exchange: Exchange | None = None
        self._last_data_s = 0.0
        self._queued: tuple[ReplicaLoad, int] | None = None  # a replica's load, and the tokens queued there
        self._handed_over = False  # the answer was taken from a replica that leaves, which is no loss
        self._begun_s = time.perf_counter()

    # From any thread

    def cancel(self) -> None:
        with suppress(RuntimeError):  # the loop has ended, and everything with it
            self.fleet.loop.call_soon_threadsafe(self._cancel)

    def resume(self) -> None:
        with suppress(RuntimeError):
            self.fleet.loop.call_soon_threadsafe(self._resume_reading)

    # The event loop

    def start(self) -> asyncio.Task[None]:
        self._task = asyncio.ensure_future(self.run())
        return self._task

    def _cancel(self) -> None:
        if self._task is not None:
            self._task.cancel()

    def _resume_reading(self) -> None:
        if self._exchange is not None and self._exchange.transport is not None:
            self._exchange.transport.resume_reading()

    def suspect(self, replica: FleetReplica) -> None:
        """A replica does not report any more: give it up if it sends nothing of this answer for a while, either."""
        self.fleet.loop.call_later(SILENT_S, self._if_silent, replica, self._last_data_s)

    def _if_silent(self, replica: FleetReplica, last_data_s: float) -> None:
        exchange = self._exchange
        if self not in replica.answers or exchange is None or exchange.transport is None:
            return
        if self._last_data_s == last_data_s and exchange.transport.is_reading():
            exchange.abort()
        else:
            self.suspect(replica)

    def hand_over(self) -> None:
        """Continue at another replica, because this one leaves; without another, this one may finish."""
        if self._exchange is not None and self.replicas.available(self.context_tokens):
            self._handed_over = True
            self._exchange.abort()

    async def run(self) -> None:
        try:
            await self._run()
        except asyncio.CancelledError:
            self._put(self._cancelled_end())
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
        busy: set[str] = set()  # replicas that did not take the request
        lost = 0  # replicas, since the last token came
        while True:
            replica, offered = await self.replicas.choose(self.routed, self.context_tokens, busy)
            before = len(self._tokens)
            try:
                await self._follow(replica, offered)
                return
            except BusyError:
                busy.add(replica.id)
                if not self.replicas.available(self.context_tokens, busy):
                    raise
            except DownloadError:
                if len(self._tokens) > before:
                    lost = 0
                elif not self._handed_over:
                    lost += 1
                self._handed_over = False
                if lost > REPLAYS:
                    self.fleet.failed += 1
                    raise NativeError(
                        f"the answer was lost with its replica {lost} times without getting further",
                        suggestion="ask again",
                        code="generation_error",
                    ) from None
                self.fleet.replays += 1
                self.fleet.moving.add(self)

    async def _follow(self, replica: FleetReplica, offered: OfferedModel) -> None:
        """Let a replica answer to the end. BusyError: it does not take the request now. DownloadError: it is lost."""
        refused: list[bytes] = []
        exchange: Exchange | None = None

        def take(data: bytes) -> None:
            self._last_data_s = time.monotonic()
            if exchange is not None and exchange.status.done() and exchange.status.result() == 200:
                self._receive(data)
            elif sum(map(len, refused)) < 65_536:
                refused.append(data)

        self._rest, self._rest_size = [], 0
        self._last_data_s = time.monotonic()
        self._expect(offered)
        replica.answers.add(self)
        try:
            body, headers = _encode(self._continuation()), {FLEET_SECRET: self.fleet.key}
            if self.request_id:
                headers["x-request-id"] = self.request_id
            self._exchange = exchange = await begin(replica.address, "POST", SUBMIT, body, headers, take)
            complete = await exchange.complete
            if self._over:
                return
            status = exchange.status.result()
            if complete and status != 200:
                error = refusal_of(b"".join(refused), status)
                raise error if not isinstance(error, DownloadError) else BusyError(error.message)
            raise DownloadError(f"{replica.address} broke off")
        except DownloadError:
            replica.absent = True  # until the replica reports again
            raise
        finally:
            replica.answers.discard(self)
            load = replica.models.get(self.replicas.name, offered).load  # that of the latest report
            load.running = max(load.running - 1, 0)
            if exchange is not None:
                exchange.abort()
            self._exchange = None

    def _expect(self, offered: OfferedModel) -> None:
        """Count this answer among the work of a replica, before the replica reports so itself."""
        load = offered.load
        known = load.known(self.routed.names) * self.routed.page
        self._queued = load, max(self.routed.tokens + len(self._tokens) - known, 1)
        load.running += 1
        load.queued += self._queued[1]
        load.sent.update(self.routed.names)

    def _computed(self, load: ReplicaLoad, tokens: int) -> None:
        """The replica has computed the prompt: those tokens are not queued there any more."""
        load.queued = max(load.queued - tokens, 0)
        self._queued = None

    def _continuation(self) -> RemoteRequest:
        """The request, with what has come of its answer so far."""
        prompt_logprobs = self.request.prompt_logprobs and not self._prompt_sent
        return msgspec.structs.replace(
            self.request, resumed=pack_ids(self._tokens), pieces=self._pieces, prompt_logprobs=prompt_logprobs
        )

    def _receive(self, data: bytes) -> None:
        """Take a piece of the body: whole lines are events, the beginning of one waits for its rest."""
        first, *others = data.split(b"\n")
        self._rest.append(first)
        self._rest_size += len(first)
        if self._rest_size > LIMITS.wire_line:
            assert self._exchange is not None
            self._exchange.abort()
            return
        for piece in others:
            self._handle_line(b"".join(self._rest))
            self._rest, self._rest_size = [piece], len(piece)

    def _handle_line(self, line: bytes) -> None:
        if self._over:
            return
        event = self._parse(line)
        match event:
            case None:
                pass
            case Text(tokens=tokens):
                self.fleet.moving.discard(self)
                self._tokens.extend(tokens)
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
                if not self._prompt_sent:
                    self._prompt_sent = True
                    self._put(event)
            case End(usage=usage) if self._start is not None:
                cached, disk = self._start.cached_tokens, self._start.disk_tokens  # the counts of the first replica
                self._put(replace(event, usage=replace(usage, cached_tokens=cached, disk_tokens=disk)))
            case _:
                self._put(event)

    def _parse(self, line: bytes) -> Event | None:
        """The event of a line. None: the replica is left for another one, because it gives up, or wrote no event."""
        vocab = self.replicas.vocab
        try:
            event = event_of(line)
            right = not isinstance(event, Text) or all(0 <= token < vocab for token in event.tokens)
        except RequestError:
            right = False
        if right and not _gives_up(event):
            return event
        if self._exchange is not None:
            self._exchange.abort()
        return None

    def _put(self, event: Event) -> None:
        if not self._over:
            self._over = isinstance(event, End | Failed)
            self.stream.put(event)

    def _cancelled_end(self) -> End:
        """The end of an answer that was cancelled."""
        cached = self._start.cached_tokens if self._start is not None else 0
        usage = Usage(self.prompt, cached, len(self._tokens))
        timings = Timings(0.0, 0.0, time.perf_counter() - self._begun_s, 0.0, 0.0)
        return End("cancelled", usage, timings, int(self.request.sampling["seed"]))


def _gives_up(event: Event) -> bool:
    """Whether a replica gives an answer up, because its model is unloaded or its process ends."""
    match event:
        case End(reason="cancelled") | Failed(error=BusyError()):
            return True
    return False
