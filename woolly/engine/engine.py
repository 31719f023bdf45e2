"""Engine: one thread that takes turns. Everything it does is `turn`; what follows a step is in advance.py.

Sequences, queues and pages belong to the engine thread alone. Others reach it through the inbox, and it reaches them
through their streams. A step is one call of the runner. What a stopped step did is forgotten. A step that fails takes
its own sequences with it and no others, and the engine goes on; when two fail in a row, or one never comes back
(watchdog.py), the engine is broken: all its sequences fail, and it takes no new ones.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Mapping
from concurrent.futures import Future
from contextlib import suppress
from functools import partial
from queue import Empty, SimpleQueue
from threading import RLock, Thread, current_thread
from time import perf_counter
from typing import TypeVar

from woolly.device import Runner
from woolly.engine.advance import advance
from woolly.engine.batch import Writer
from woolly.engine.cache.disk import ModelDiskStore
from woolly.engine.cache.disk_io import STALL_S, DiskCacheIO, Fetched, Written
from woolly.engine.cache.pages import Pages
from woolly.engine.commands import Add, Cancel, Close, EngineCommand, Resume, Work
from woolly.engine.failures import internal_error, step_error
from woolly.engine.grammar.masks import StepMasks
from woolly.engine.sampling.sampler import Sampler
from woolly.engine.sampling.stages import Logits
from woolly.engine.scheduler import Scheduler, Step
from woolly.engine.sequence import Sequence
from woolly.engine.speculation.draft import Drafts
from woolly.engine.speculation.draft_model import DraftModel
from woolly.engine.stream import Read, Stream
from woolly.engine.tally import Figures, Tally
from woolly.engine.watchdog import GivenUp, Watchdog
from woolly.errors import (
    BusyError,
    ContextError,
    NativeError,
    RequestError,
    WoollyError,
)
from woolly.plan import Bounds
from woolly.request import Reason
from woolly.system import check_thread

T = TypeVar("T")

FAILURES = 2  # steps in a row after which an engine is broken


class Engine:
    """Owns a runner and makes it answer.

    engine = Engine(runner)
    engine.start()
    for event in engine.add(sequence): ...
    engine.close()
    """

    def __init__(
        self,
        runner: Runner,
        *,
        disk_store: ModelDiskStore | None = None,
        drafts: bool = True,
        draft_runner: Runner | None = None,
    ) -> None:
        self.runner = runner
        # Every running sequence must be able to have the logits of its last token.
        self.bounds = Bounds(runner.rows, runner.wants, min(runner.sequences, runner.wants), runner.context)
        self.pages = Pages(
            runner.pages,
            runner.page,
            windows=runner.windows,
            slots=runner.slots,
            snapshots=runner.snapshots,
            reuse=not runner.single_step,
            save=disk_store is not None,
        )
        self.writer = Writer(runner.batch)
        self.sampler = Sampler(self.bounds.wants, runner)
        self.masks = StepMasks(self.bounds.wants)
        self.scheduler = Scheduler(self.pages, self.bounds, single_step=runner.single_step)
        self.waiting, self.running = self.scheduler.waiting, self.scheduler.running
        self.drafts: Drafts | None = None
        if (
            drafts and not runner.single_step and not runner.slots
        ):  # a state that is carried cannot go back behind a wrong guess
            model = DraftModel(draft_runner) if draft_runner is not None else None
            self.drafts = Drafts(self.bounds, self.pages, model)
        self.tally = Tally()
        self.inbox: SimpleQueue[EngineCommand] = SimpleQueue()
        self.disk_io: DiskCacheIO | None = None
        if disk_store is not None and self.pages.save:
            self.disk_io = DiskCacheIO(disk_store, runner, self.scheduler, self.inbox.put)
        # Nothing is added after Close, nothing is stopped after the runner is freed. Garbage collection may close an
        # engine in the middle of anything, so the same thread may take the lock twice.
        self._lock = RLock()
        self._closed = False
        self._freed = False
        self.broken: NativeError | None = None  # why it takes no new sequences
        self.watchdog = Watchdog(self._give_up)
        self._failures = 0  # steps in a row
        self._end_turn: Callable[[], None] = lambda: None  # ends this engine's turn on the device, if it has one
        self._alone: Sequence | None = None  # the one sequence of the step that is being computed
        self._thread: Thread | None = None
        self._process = os.getpid()

    # From any thread

    def add(self, sequence: Sequence, read: Read | None = None) -> Stream:
        """Begin an answer. The sequence must fit the context, and the pool of pages when it is alone in it.

        read: gives the events that the reader of the stream takes instead of an event.
        """
        room = min(self.runner.context, self.pages.room())
        if self.runner.single_step:
            room = min(room, self.runner.rows)
        if sequence.limit > room:
            raise ContextError(sequence.prompt, room, sequence.limit - sequence.prompt)
        if not sequence.tokens:
            raise RequestError("there is no token to begin with; give at least one", param="tokens")
        stream = Stream(partial(self.cancel, sequence), partial(self.inbox.put, Resume()), read)
        stream.most = sequence.options.unread
        sequence.answer.stream = stream
        self._post(Add(sequence))
        return stream

    def cancel(self, sequence: Sequence) -> None:
        """Drop a sequence before the next step; a step that computes nothing else is stopped at once."""
        self.inbox.put(Cancel(sequence))
        if self._alone is sequence:
            self.stop_step()

    def figures(self) -> Figures:
        """Counts so far, and the present state. From any thread: the counts of one step do not change all at once.

        Nothing is read here that the engine's thread changes in place but single numbers. Those that wait for the disk
        are read first: they go from there to the scheduler, which has them before the disk has let them go.
        """
        fetching = () if self.disk_io is None else self.disk_io.sequences
        running, waiting = self.scheduler.present
        spare = self.pages.spare
        return Figures(
            tally=self.tally.snapshot(),
            running=len(running),
            waiting=len({*fetching, *waiting}.difference(running)),
            pages=self.pages.count,
            pool_bytes=self.runner.pool_bytes,
            free=spare.free,
            idle=spare.idle,
            evictions=self.pages.evictions,
            missing=sum(len(one.tokens) - one.computed for one in (*running, *waiting)),
            prompt_rate=self.scheduler.pace.rate,
            disk=None if self.disk_io is None else self.disk_io.disk_store.counts(),
        )

    def remembered(self) -> list[bytes]:
        """The digests of what a sequence could begin with: pages, or snapshots of what is carried. From any thread."""
        if self.pages.carries:
            return self.pages.snapshots.names()
        groups = sorted(self.pages.groups, key=lambda group: group.window)  # first those that see all positions
        return list(groups[0].pages) if groups else []  # one call of C, during which no other thread runs

    def between(self, function: Callable[[], T]) -> Future[T]:
        """Call something in the engine thread between two steps: the runner and the pages are not in use meanwhile.

        It must be short: every answer waits for it.
        """
        work = Work(function, Future())
        self._post(work)
        return work.done

    def start(self) -> None:
        """Begin taking turns, in a thread of its own."""
        check_thread()
        self._thread = Thread(target=self._live, name="woolly-engine", daemon=True)
        self._thread.start()
        self.watchdog.start()

    def close(self) -> None:
        """Stop the step, cancel what is left, free the runner. Safe to call twice, and from any thread.

        A step that was given up keeps the runner until it comes back.
        """
        if self._forked:  # the engine's thread is not in this process, and the lock may be held for ever
            return
        with self._lock:
            if not self._closed:
                self._closed = True
                self.inbox.put(Close())
        self.stop_step()
        if self._thread is None and not self._freed:
            self._live()
        elif self._thread is not None and self._thread is not current_thread() and not self.watchdog.given_up:
            self._thread.join()

    @property
    def _forked(self) -> bool:
        """Whether this is a child of the process that has the engine's thread."""
        return os.getpid() != self._process

    def _post(self, command: EngineCommand) -> None:
        if self._forked:
            raise NativeError(
                "the process was forked after the model was loaded, and the model's threads stayed behind",
                suggestion="load the model in the process that uses it",
            )
        with self._lock:
            if self.broken is not None:
                raise self.broken.with_traceback(None)
            if self._closed:
                raise BusyError("the model is closed", suggestion="load it again")
            self.inbox.put(command)

    # The engine thread

    def turn(self) -> None:
        """Look into the inbox, compute one step, hand out its tokens; or sleep until there is something to do."""
        self.take_inbox()
        if self.disk_io is not None:
            self.disk_io.watch()
            self.disk_io.save()
        step = self.scheduler.schedule()
        if not step:
            return self.sleep()
        drafts = self.drafts if self.scheduler.answering == len(step) else None
        try:
            begun, outputs = self.compute(step, drafts)
            self.pages.snapshots.done()
            if outputs is not None:
                advance(self, step, outputs, begun)
                if drafts is not None:
                    drafts.price.measure(sum(span.count for span in step), perf_counter() - begun)
            else:  # it was stopped: nothing advances
                self.put_back(step)
        except Exception as error:
            self.pages.snapshots.lost()
            reason = step_error(error)
            if isinstance(reason, BusyError):  # memory ran out, which is no fault of the model
                self._failures = 0
            for span in step:
                self.fail(span.sequence, reason)
            if self._failures >= FAILURES:
                self._break(reason)
        finally:
            self._alone = None
        return None

    def compute(self, step: Step, drafts: Drafts | None) -> tuple[float, Mapping[str, Logits] | None]:
        """When the step began, and its outputs; None where it was stopped."""
        with self.runner.queue.turn() as self._end_turn:
            self.watchdog.begin()
            try:
                if drafts is not None:
                    drafts.extend(step)
                begun = self.begin(step)
                with self.masks.compute_during(step):
                    size = self.writer.write(step, self.pages.snapshots.copies)
                    self._failures += 1
                    outputs = self.runner.run(size)
                    self._failures = 0
            finally:
                self.watchdog.end()
        return begun, outputs

    def put_back(self, step: Step) -> None:
        """After a stopped step the state that a sequence carries is undefined: it begins again, with the last snapshot
        that there is."""
        for span in reversed(step):
            if span.sequence.slot >= 0:
                self.scheduler.put_back(span.sequence)

    def take_inbox(self) -> None:
        while not self.inbox.empty():
            self.handle(self.inbox.get())

    def sleep(self) -> None:
        """Wait for a command, at most STALL_S where a sequence waits for the disk."""
        if not self._closed:
            fetches = self.disk_io is not None and self.disk_io.sequences
            with suppress(Empty):
                self.handle(self.inbox.get(timeout=STALL_S if fetches else None))

    def handle(self, command: EngineCommand) -> None:
        match command:
            case Add(sequence) if sequence.answer.over is not None:  # resumed with an answer that has ended
                self.scheduler.enter(sequence)
                self.end(sequence, sequence.answer.over)
            case Add(sequence):
                if self.disk_io is None:
                    self.scheduler.enter(sequence)
                else:
                    self.disk_io.add(sequence)
            case Cancel(sequence):
                self.end(sequence, "cancelled")
            case Fetched(fetch):
                assert self.disk_io is not None
                self.disk_io.finish(fetch)
            case Resume() | Written():
                pass  # it only wakes the engine: the next turn looks at everything anyway
            case Work():
                command.do()
            case Close():
                for sequence in self.sequences():
                    self.end(sequence, "cancelled")

    def begin(self, step: Step) -> float:
        now = perf_counter()
        self._alone = step[0].sequence if len(step) == 1 else None
        for span in step:
            if span.sequence.answer.started_s == 0.0:
                span.sequence.start(now)
        return now

    def end(self, sequence: Sequence, reason: Reason) -> None:
        if self.drop(sequence):
            try:
                sequence.end(reason, perf_counter())
            except Exception as error:  # an error of the last piece of text: its reader must get it
                sequence.fail(internal_error(error))

    def fail(self, sequence: Sequence, error: WoollyError) -> None:
        if self.drop(sequence):
            sequence.fail(error)

    def drop(self, sequence: Sequence) -> bool:
        """Let a sequence go, with its pages; False if it is gone already."""
        if self.scheduler.drop(sequence):
            if self.drafts is not None:
                self.drafts.forget(sequence)
            return True
        return self.disk_io is not None and self.disk_io.drop(sequence)

    def sequences(self) -> tuple[Sequence, ...]:
        """All sequences that have not ended."""
        return (*self.running, *self.waiting, *(() if self.disk_io is None else self.disk_io.sequences))

    def _live(self) -> None:
        try:
            while not self._closed:
                self.turn()
            self.take_inbox()
        except GivenUp:
            pass  # the watchdog has failed all sequences already
        except BaseException as error:  # a bug in Woolly; answers that will not come must fail, not wait
            self._break(internal_error(error))
        finally:
            self.watchdog.close()
            if self.disk_io is not None:
                self.disk_io.close()
            with self._lock:
                self._freed = True
                self.runner.close()
                self.masks.close()
                if self.drafts is not None:
                    self.drafts.close()
                del self.writer  # its views keep the runner's memory alive

    def _break(self, error: WoollyError) -> None:
        """Fail all sequences, and refuse new ones."""
        with self._lock:
            self._closed = True
            self.broken = error if isinstance(error, NativeError) else internal_error(error)
        while not self.inbox.empty():
            command = self.inbox.get()
            if isinstance(command, Add):
                self.scheduler.enter(command.sequence)
            elif isinstance(command, Work):
                command.done.set_exception(self.broken)
        for sequence in self.sequences():
            self.fail(sequence, self.broken)

    def _give_up(self, seconds: float) -> None:
        """The step does not come back. In the watchdog's thread, which owns the engine's sequences from here on."""
        self._break(
            NativeError(
                f"a step has not come back for {seconds:.0f} s, so the model was given up",
                suggestion="this is a bug in Woolly; start again, and please report it with the model's name",
                hangs=True,
            )
        )
        self._end_turn()  # other models may go on

    def stop_step(self) -> None:
        """End the step that is running; what it did is computed again, if it is still wanted."""
        with self._lock:
            if not self._freed:
                self.runner.stop()
