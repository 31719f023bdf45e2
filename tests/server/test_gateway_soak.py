"""Many kills in the middle of many answers: no frame differs, none is lost, none comes twice."""

from __future__ import annotations

import os
import random
import threading
import time
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import pytest

from tests.server.fleets import KINDS, Fleets, fleet, frames, talker

STREAMS = int(os.environ.get("SOAK_STREAMS", "200"))
KILLS = int(os.environ.get("SOAK_KILLS", "100"))
AT_ONCE = 4


class Killer:
    """Kills replicas that are answering, one after another, and starts others in their place."""

    def __init__(self, deployment: Fleets, count: int, seed: int) -> None:
        self.made, self.count, self.chance = deployment, count, random.Random(seed)
        self.kills = 0
        self.over = threading.Event()
        self.failed: BaseException | None = None
        self.thread = threading.Thread(target=self._run)

    def _run(self) -> None:
        try:
            while self.kills < KILLS and not self.over.wait(self.chance.uniform(0.05, 0.4)):
                busy = self.made.busy()
                if busy:
                    self.made.kill(self.chance.choice(busy))
                    self.kills += 1
                    self.made.join()
                    self.made.ready(self.count)
        except BaseException as error:
            self.failed = error


@pytest.mark.soak
@pytest.mark.parametrize("count", [2, 4])
def test_a_hundred_kills_during_two_hundred_streams_change_no_frame(tmp_path: Path, count: int) -> None:
    pauses: list[float] = []
    with fleet(tmp_path, talker(tmp_path), count) as deployment:
        undisturbed = {kind: frames(deployment.port, kind) for kind in KINDS}
        killer = Killer(deployment, count, seed=count)
        killer.thread.start()
        done = 0

        def one(number: int) -> tuple[str, list[Any]]:
            kind = list(KINDS)[number % len(KINDS)]
            last, longest = time.monotonic(), 0.0

            def seen(_: int) -> None:
                nonlocal last, longest
                now = time.monotonic()
                last, longest = now, max(longest, now - last)

            answer = frames(deployment.port, kind, seen)
            pauses.append(longest)
            return kind, answer

        begun = time.monotonic()
        with ThreadPoolExecutor(AT_ONCE) as threads:
            while done < STREAMS or (killer.kills < KILLS and killer.failed is None):
                for kind, answer in threads.map(one, range(done, done + 20)):
                    assert answer == undisturbed[kind], kind
                done += 20
        killer.over.set()
        killer.thread.join()
        assert killer.failed is None, killer.failed
        assert killer.kills == KILLS
        known = deployment.fleet
        print(
            f"\n{count} replicas: {done} streams, {killer.kills} kills, {known.replays} answers went on elsewhere, "
            f"{known.failed} lost; longest pause {max(pauses):.2f} s; {time.monotonic() - begun:.0f} s"
        )
        assert deployment.fleet.replays >= KILLS
        assert deployment.fleet.failed == 0
