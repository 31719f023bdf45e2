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
        if not self.per_minute:
            return 0
        now, each = self._clock(), self.per_minute / 60
        left, then = self._buckets.pop(client, (float(self.burst), now))
        left = min(left + (now - then) * each, float(self.burst))
        allowed = left >= 1
        self._buckets[client] = (left - 1 if allowed else left, now)
        if len(self._buckets) > CLIENTS:
            self._buckets.popitem(last=False)
        return 0 if allowed else max(math.ceil((1 - left) / each), 1)
