"""Rate limits: a token bucket for each client, filled steadily; a request takes one token. Off by default."""

from __future__ import annotations

import math
import time
from collections import OrderedDict
from collections.abc import Callable

CLIENTS = 4096  # remembered at once; one that is forgotten begins with a full bucket


class Rate:
    """`per_minute` requests in the long run, `burst` at once; 0 a minute is no limit. Owned by the event loop."""

    def __init__(self, per_minute: int, burst: int, clock: Callable[[], float] = time.monotonic) -> None:
        self.per_minute = per_minute
        self.burst = max(burst, 1)
        self._clock = clock
        self._buckets: OrderedDict[str, tuple[float, float]] = OrderedDict()  # its tokens, and when they were counted

    def take(self, client: str) -> int:
        """0 if the client may ask now, else the seconds after which it may."""
        wait = self.wait_s(client)
        if self.per_minute:
            now = self._clock()
            left = self._left(client, now)
            self._buckets.pop(client, None)
            self._buckets[client] = (left if wait else left - 1, now)
            if len(self._buckets) > CLIENTS:
                self._buckets.popitem(last=False)
        return wait

    def wait_s(self, client: str) -> int:
        """The same, and nothing is taken."""
        left = self._left(client, self._clock()) if self.per_minute else 1.0
        return 0 if left >= 1 else max(math.ceil((1 - left) * 60 / self.per_minute), 1)

    def _left(self, client: str, now: float) -> float:
        left, then = self._buckets.get(client, (float(self.burst), now))
        return min(left + (now - then) * self.per_minute / 60, float(self.burst))
