"""Watchdog: a step that never comes back must not keep anybody waiting.

A thread looks now and then at the step that is being computed. One that takes far longer than steps do is given up: its
engine is told so in the watchdog's thread, and the engine's own thread, should the step come back after all, learns it
from `end` and touches nothing any more. So a step has one owner at any time.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable
from statistics import median
from threading import Event, Lock, Thread
from time import perf_counter

LEAST_S = 30.0
TIMES = 100  # a step may take so many times the median of the last steps
FIRST_STEPS, FIRST_S = 8, 600.0  # before so many steps their times tell too little; each may take so long
REMEMBERED = 64  # steps
LOOK_S = 1.0


class GivenUp(BaseException):
    """The step came back after the watchdog had given it up. For the engine thread alone."""


class Watchdog:
    """give_up: called once, in the watchdog's thread, with the seconds that the step has taken."""

    def __init__(
        self,
        give_up: Callable[[float], None],
        *,
        least_s: float = LEAST_S,
        first_s: float = FIRST_S,
        look_s: float = LOOK_S,
    ) -> None:
        self._give_up, self._least_s, self._first_s, self._look_s = give_up, least_s, first_s, look_s
        self._steps: deque[float] = deque(maxlen=REMEMBERED)  # seconds of the last
        self._begun: float | None = None  # of the step that is being computed
        self._lock = Lock()  # a step either ends or is given up
        self.given_up = False
        self._over = Event()

    def start(self) -> None:
        Thread(target=self._look, name="woolly-watchdog", daemon=True).start()

    def close(self) -> None:
        self._over.set()

    def begin(self) -> None:
        self._begun = perf_counter()

    def end(self) -> None:
        """The step came back."""
        with self._lock:
            if self.given_up:
                raise GivenUp
            assert self._begun is not None
            self._steps.append(perf_counter() - self._begun)
            self._begun = None

    def limit_s(self) -> float:
        """How long a step may take."""
        with self._lock:
            if len(self._steps) < FIRST_STEPS:
                return self._first_s
            return max(self._least_s, TIMES * median(self._steps))

    def _look(self) -> None:
        looked, step, seconds = perf_counter(), None, 0.0
        while not self._over.wait(self._look_s):
            now = perf_counter()
            if self._begun is None or self._begun != step:
                step, seconds = self._begun, 0.0
            else:  # a process that was stopped for a while has not computed meanwhile
                seconds += min(now - looked, 2 * self._look_s)
            looked = now
            if step is not None and seconds > self.limit_s() and self._claim(step):
                return self._give_up(seconds)
        return None

    def _claim(self, step: float) -> bool:
        """Whether this step has not come back until now; then the watchdog owns it."""
        with self._lock:
            self.given_up = self._begun == step
            return self.given_up
