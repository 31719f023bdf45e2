"""Embeddings and scores of a fleet: texts that an `Encoder` would give an engine go to replicas.

Nothing is streamed and nothing depends on chance: a text whose replica is lost is given to another one.
"""

from __future__ import annotations

import asyncio
from contextlib import suppress
from hashlib import blake2b

import msgspec
import numpy as np

from woolly.engine import Sequence, Stream
from woolly.errors import BusyError, DownloadError, NativeError, WoollyError
from woolly.fleet.choosing import ModelReplicas
from woolly.fleet.http import ask
from woolly.fleet.members import FleetReplica
from woolly.fleet.routing import Prompt
from woolly.fleet.wire import POOL, EmbedReply, EmbedRequest, pack_ids, refusal_of
from woolly.request import End, Failed, Reason, Timings, Usage
from woolly.server.http.guard import FLEET_SECRET
from woolly.server.http.log import REQUEST_ID

TRIES = 4
TIMEOUT_S = 600.0  # for a replica to answer one text

_encode = msgspec.json.Encoder().encode


class RemotePool:
    """An engine for an `Encoder`: `add` begins a text, from any thread."""

    def __init__(self, replicas: ModelReplicas) -> None:
        self._replicas = replicas

    def add(self, sequence: Sequence) -> Stream:
        reading = RemoteReading(self._replicas, sequence)
        sequence.answer.stream = Stream(reading.cancel)
        self._replicas.fleet.loop.call_soon_threadsafe(reading.start)
        return sequence.answer.stream


class RemoteReading:
    """One text that replicas compute. Lives on the event loop."""

    def __init__(self, replicas: ModelReplicas, sequence: Sequence) -> None:
        assert sequence.scores is not None
        self._replicas, self._sequence, self._rows = replicas, sequence, sequence.scores.rows
        self.request_id = REQUEST_ID.get()
        self._task: asyncio.Task[None] | None = None
        self._exchange: asyncio.Task[None] | None = None
        self._request = EmbedRequest(
            model=replicas.info.name,
            digest=replicas.info.digest,
            numerics_id=replicas.info.numerics_id,
            ids=pack_ids(sequence.tokens),
            lora=[] if sequence.lora is None else sequence.lora.tolist(),
            salt=sequence.options.salt,
            key=sequence.options.key,
        )

    def cancel(self) -> None:
        """May be called from any thread."""
        with suppress(RuntimeError):  # the loop has ended, and everything with it
            self._replicas.fleet.loop.call_soon_threadsafe(self._cancel)

    def start(self) -> None:
        self._task = asyncio.ensure_future(self._run())

    def _cancel(self) -> None:
        if self._task is not None:
            self._task.cancel()

    def suspect(self, _replica: FleetReplica) -> None:
        """The replica does not report any more."""
        if self._exchange is not None:
            self._exchange.cancel()

    def hand_over(self) -> None:
        """Ask another replica, because this one leaves; without another, this one may finish."""
        if self._exchange is not None and self._replicas.available(len(self._sequence.tokens)):
            self._exchange.cancel()

    async def _run(self) -> None:
        stream, tokens = self._sequence.answer.stream, len(self._sequence.tokens)
        reason: Reason = "stop"
        try:
            await self._computed(tokens)
        except asyncio.CancelledError:
            reason = "cancelled"
        except WoollyError as error:
            stream.put(Failed(error))
            return
        except Exception as error:
            stream.put(Failed(NativeError(f"a text of the fleet failed: {type(error).__name__}")))
            raise
        stream.put(End(reason, Usage(tokens, 0, 0), Timings(0.0, 0.0, 0.0, 0.0, 0.0), 0))

    async def _computed(self, tokens: int) -> None:
        """Have replicas compute the rows, until one has."""
        key = blake2b(self._request.ids, digest_size=16).digest()
        prompt = Prompt(key, key, tokens, self._replicas.info.page, ())
        busy: set[str] = set()
        for _ in range(TRIES):
            replica, _ = await self._replicas.choose(prompt, tokens, busy)
            self._exchange = asyncio.ensure_future(self._ask(replica))
            replica.answers.add(self)
            try:
                await self._exchange
                return
            except BusyError:
                busy.add(replica.id)
                if not self._replicas.available(tokens, busy):
                    raise
            except DownloadError:
                replica.absent = True  # until the replica reports again
            except asyncio.CancelledError:
                if asyncio.current_task().cancelling():  # type: ignore[union-attr]  # this runs in a task
                    raise
            finally:
                replica.answers.discard(self)
                self._exchange.cancel()
        raise NativeError(f"the text was lost with its replica {TRIES} times", suggestion="ask again")

    async def _ask(self, replica: FleetReplica) -> None:
        headers = {FLEET_SECRET: self._replicas.fleet.key}
        if self.request_id:
            headers["x-request-id"] = self.request_id
        most = 2 * self._rows.nbytes + 65_536
        body = _encode(self._request)
        status, data = await ask(replica.address, "POST", POOL, body, headers, most=most, timeout_s=TIMEOUT_S)
        if status != 200:
            raise refusal_of(data, status)
        try:
            rows = msgspec.json.decode(data, type=EmbedReply).rows
            self._rows[:] = np.frombuffer(rows, np.float32).reshape(self._rows.shape)
        except (msgspec.MsgspecError, ValueError):
            raise DownloadError(f"{replica.address} wrote what are no rows") from None
