"""Texts that the models of a fleet read whole: what `Encoder` asks an engine for, asked of replicas.

Nothing is streamed and nothing depends on chance: a text whose replica is lost is given to another one.
"""

from __future__ import annotations

import asyncio
from contextlib import suppress
from hashlib import blake2b
from typing import TYPE_CHECKING

import msgspec
import numpy as np

from woolly.engine import Sequence, Stream
from woolly.errors import BusyError, DownloadError, NativeError, WoollyError
from woolly.request import End, Failed, Reason, Timings, Usage
from woolly.server.fleet import SECRET, Member
from woolly.server.log import REQUEST_ID
from woolly.server.outgoing import ask
from woolly.server.routing import Prompt
from woolly.server.wire import POOL, PoolOrder, PoolRows, packed, refusal_of

if TYPE_CHECKING:
    from woolly.server.fleet_model import FleetModel

TRIES = 4
WHOLE_S = 600.0  # for one text

_encode = msgspec.json.Encoder().encode


class FleetPool:
    """An engine for an `Encoder`: `add` begins a text. From any thread."""

    def __init__(self, owner: FleetModel) -> None:
        self._owner = owner

    def add(self, sequence: Sequence) -> Stream:
        reading = Reading(self._owner, sequence)
        sequence.stream = Stream(reading.cancel)
        self._owner.fleet.loop.call_soon_threadsafe(reading.start)
        return sequence.stream


class Reading:
    """One text. Lives on the event loop."""

    def __init__(self, owner: FleetModel, sequence: Sequence) -> None:
        assert sequence.scores is not None
        self._owner, self._sequence, self._rows = owner, sequence, sequence.scores
        self._request_id = REQUEST_ID.get()
        self._task: asyncio.Task[None] | None = None
        self._asking: asyncio.Task[None] | None = None
        self._order = PoolOrder(
            model=owner.facts.name,
            digest=owner.facts.digest,
            kind=owner.facts.kind,
            ids=packed(sequence.tokens),
            lora=[] if sequence.lora is None else sequence.lora.tolist(),
            salt=sequence.salt,
            key=sequence.key,
        )

    def cancel(self) -> None:
        """From any thread."""
        with suppress(RuntimeError):  # the loop has ended, and everything with it
            self._owner.fleet.loop.call_soon_threadsafe(self._cancel)

    def start(self) -> None:
        self._task = asyncio.ensure_future(self._run())

    def _cancel(self) -> None:
        if self._task is not None:
            self._task.cancel()

    def suspect(self, _member: Member) -> None:
        """Its replica does not report any more."""
        if self._asking is not None:
            self._asking.cancel()

    def hand_over(self) -> None:
        """Its replica leaves; where there is nobody else, it may finish."""
        if self._asking is not None and self._owner.others(len(self._sequence.tokens)):
            self._asking.cancel()

    async def _run(self) -> None:
        stream, tokens = self._sequence.stream, len(self._sequence.tokens)
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
        """Fill the rows."""
        key = blake2b(self._order.ids, digest_size=16).digest()
        prompt = Prompt(key, key, tokens, self._owner.facts.page, ())
        busy: set[str] = set()
        for _ in range(TRIES):
            member, _ = await self._owner.choose(prompt, tokens, busy)
            self._asking = asyncio.ensure_future(self._ask(member))
            member.answers.add(self)
            try:
                await self._asking
                return
            except BusyError:
                busy.add(member.id)
                if not self._owner.others(tokens, busy):
                    raise
            except DownloadError:
                member.absent = True  # until it reports again
            except asyncio.CancelledError:
                if asyncio.current_task().cancelling():  # type: ignore[union-attr]  # we run in one
                    raise
            finally:
                member.answers.discard(self)
                self._asking.cancel()
        raise NativeError(f"the text was lost with its replica {TRIES} times", suggestion="ask again")

    async def _ask(self, member: Member) -> None:
        headers = {SECRET: self._owner.fleet.key} | ({"x-request-id": self._request_id} if self._request_id else {})
        most = 2 * self._rows.nbytes + 65_536
        body = _encode(self._order)
        status, data = await ask(member.address, "POST", POOL, body, headers, most=most, timeout_s=WHOLE_S)
        if status != 200:
            raise refusal_of(data, status)
        try:
            rows = msgspec.json.decode(data, type=PoolRows).rows
            self._rows[:] = np.frombuffer(rows, np.float32).reshape(self._rows.shape)
        except (msgspec.MsgspecError, ValueError):
            raise DownloadError(f"{member.address} wrote what are no rows") from None
