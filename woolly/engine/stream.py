"""Stream: the events of one answer, handed from the engine thread to one reader.

The engine thread puts, one reader takes, with `for` or with `async for`. Where `read` is given, the reader takes the
events that `read` makes of each event: it runs in the reader's thread, so the engine never waits for it. A reader that
leaves the loop early (a break, an exception, Ctrl-C, a cancelled task) cancels the answer, which is gone before the
engine's next step.
"""

from __future__ import annotations

from collections import deque
from collections.abc import AsyncIterator, Callable, Iterable, Iterator
from threading import Condition, get_ident
from typing import TypeAlias

from woolly.request import End, Event, Failed

Read: TypeAlias = Callable[[Event], Iterable[Event]]


def _nothing() -> None:
    pass


def _as_it_is(event: Event) -> Iterable[Event]:
    return (event,)


class Stream:
    """An answer while it is being made.

    for event in stream: ...            # the last event is End or Failed
    stream.cancel()                     # from any thread; the stream then ends with End("cancelled")
    """

    __slots__ = (
        "_arrived",
        "_cancel",
        "_events",
        "_over",
        "_read",
        "_ready",
        "_resume",
        "_stalled",
        "_wake",
        "most",
        "notes",
        "owner",
    )

    def __init__(
        self,
        cancel: Callable[[], None],
        resume: Callable[[], None] | None = None,
        read: Read | None = None,
    ) -> None:
        self._events: deque[Event] = deque()
        self._read = read or _as_it_is
        self._ready: deque[Event] = deque()  # events that `read` has made, not yet taken
        self._arrived = Condition()
        self._cancel = cancel  # tells the engine; harmless when the answer is over
        self._wake: Callable[[], object] | None = None  # wakes the event loop of an async reader
        self._over = False  # the last event was put
        self._resume = resume  # tells the engine that a full stream has room again
        self._stalled = False  # the engine found no room
        self.most: int | None = None  # events that may wait for the reader; None: any number
        self.owner: object = None  # kept alive as long as the stream is
        self.notes: tuple[str, ...] = ()  # what was asked for and has no effect

    def put(self, event: Event) -> None:
        """One event more. For the engine thread; never waits for the reader."""
        with self._arrived:
            self._events.append(event)
            if type(event) is End or type(event) is Failed:
                self._over = True
                # References to the engine are dropped now: in a cycle they would wait for the garbage collector, and
                # with them everything that a model is made of.
                self._cancel, self._resume = _nothing, None
            self._arrived.notify()
            wake = self._wake
        if wake is not None:
            try:
                wake()
            except RuntimeError:  # the reader's event loop was closed: the stream has no reader any more
                self._wake = None
                self.cancel()

    def room(self) -> bool:
        """Whether the reader keeps up. For the engine thread, once a step; after False the reader wakes the engine."""
        if self.most is None or len(self._events) < self.most:
            return True
        with self._arrived:  # the reader checks the flag after taking: it sees the flag, or we see the room
            self._stalled = len(self._events) >= self.most
            return not self._stalled

    def cancel(self) -> None:
        """End the answer within a step; does nothing if it is over."""
        if not self._over:
            self._cancel()

    close = cancel  # as iterators call it

    def __next__(self) -> Event:
        event = self._take()
        if event is None:
            raise StopIteration
        return event

    def __iter__(self) -> Iterator[Event]:
        try:
            while (event := self._take()) is not None:
                yield event
        finally:
            self.cancel()

    async def __aiter__(self) -> AsyncIterator[Event]:
        import asyncio  # only readers with an event loop pay for it

        loop, arrived, here = asyncio.get_running_loop(), asyncio.Event(), get_ident()

        def wake() -> None:
            if get_ident() == here:  # the event is put by the thread of the loop itself
                arrived.set()
            else:
                loop.call_soon_threadsafe(arrived.set)

        with self._arrived:
            self._wake = wake
        try:
            while True:
                arrived.clear()  # before looking, so that what comes after the look wakes us
                over = self._over  # before looking, so that nothing can come after it
                if self._events or self._ready:
                    self._fetch()
                    while self._ready:
                        yield self._ready.popleft()
                elif over:
                    return
                else:
                    await arrived.wait()
        finally:
            self._wake = None
            self.cancel()

    def _take(self) -> Event | None:
        """The next event, waited for; None when all have been taken."""
        while not self._ready:
            with self._arrived:
                while not self._events and not self._over:
                    self._arrived.wait()
                if not self._events:
                    return None
            self._fetch()
        return self._ready.popleft()

    def _fetch(self) -> None:
        """Read the oldest event; a reader that has taken half of what may wait lets the engine go on."""
        with self._arrived:
            if not self._events:
                return
            event = self._events.popleft()
            resumed = self._stalled and self.most is not None and len(self._events) <= self.most // 2
            if resumed:
                self._stalled = False
        if resumed and self._resume is not None:
            self._resume()
        self._ready.extend(self._read(event))
