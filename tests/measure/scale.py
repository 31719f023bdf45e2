"""Replicas on a Ray cluster, scaled by the queue of a gateway while streams run, and killed in every way.

    python -m tests.measure.scale                a cluster of two nodes on this machine, and a small model

`woolly scale --replicas 1..3` with replicas of two places: six streams at a time bring three of them. Then an actor is
ended by Ray, an actor's process killed, a replica's process killed, and the command itself killed and started again;
last, one stream at a time lets two replicas go. Each stream is compared with the one that nobody disturbed.
"""

from __future__ import annotations

import contextlib
import os
import signal
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from tests.server.fleets import KEY, Fleets, frames, talker
from tests.server.process import environ
from tests.server.stand_in import until
from woolly.server.batch.ray_cluster import NAMESPACE

KINDS = ("greedy", "sampled", "schema", "tools", "likelihoods", "penalties", "prompt", "ollama")
AT_ONCE = 6
TOKENS = 600  # of a stream; the kinds that end by themselves have fewer
WAIT_S = 120


@dataclass
class Seen:
    """What happened: a line each with its second, and the streams that ran meanwhile."""

    begun_s: float = field(default_factory=time.monotonic)
    lines: list[str] = field(default_factory=list)
    streams: int = 0
    differed: list[str] = field(default_factory=list)
    longest_s: float = 0.0  # that a reader waited for a frame, the first one and its place in line included

    def tell(self, what: str) -> None:
        self.lines.append(f"{time.monotonic() - self.begun_s:6.1f} s  {what}")
        print(self.lines[-1], flush=True)


@contextlib.contextmanager
def cluster(env: dict[str, str]) -> Iterator[Any]:
    """Two nodes of Ray on this machine, and this process connected to them."""
    import ray
    from ray.cluster_utils import Cluster

    before = dict(os.environ)
    os.environ.clear()
    os.environ.update(env)
    nodes = Cluster(initialize_head=True, head_node_args={"num_cpus": 2, "include_dashboard": False})
    try:
        nodes.add_node(num_cpus=2)
        ray.init(address=nodes.address, namespace=NAMESPACE, log_to_driver=False, logging_level="ERROR")
        yield nodes.address
    finally:
        ray.shutdown()
        nodes.shutdown()
        os.environ.clear()
        os.environ.update(before)


class Scaler:
    """`woolly scale` as a process, whose lines are told."""

    def __init__(self, address: str, fleet: Fleets, seen: Seen, env: dict[str, str]) -> None:
        words = [str(fleet.model), "--join", f"http://127.0.0.1:{fleet.port}", "--ray", address, "--replicas", "1..3"]
        words += ["--threads", "1", "--sequences", "2", "--disk-bytes", "0", "--up-after", "2", "--down-after", "6"]
        self.process = subprocess.Popen(
            [sys.executable, "-m", "woolly", "scale", *words], env=env, stdout=subprocess.PIPE, stderr=subprocess.STDOUT
        )
        self._thread = threading.Thread(target=self._read, args=(seen,), daemon=True)
        self._thread.start()

    def _read(self, seen: Seen) -> None:
        assert self.process.stdout is not None
        for line in self.process.stdout:
            if line.startswith(b"woolly: "):
                seen.tell(line.decode().strip())

    def end(self, sign: int) -> int:
        self.process.send_signal(sign)
        code = self.process.wait(90)
        self._thread.join()
        return code


class Streams:
    """So many streams at a time, one after another, until told to end."""

    def __init__(self, port: int, undisturbed: dict[str, list[Any]], seen: Seen, count: int) -> None:
        self._port, self._undisturbed, self._seen = port, undisturbed, seen
        self._ending = threading.Event()
        self._threads = [threading.Thread(target=self._run, args=(number,)) for number in range(count)]
        for thread in self._threads:
            thread.start()

    def _run(self, number: int) -> None:
        while not self._ending.is_set():
            kind = KINDS[number % len(KINDS)]
            number += 1
            last = time.monotonic()

            def came(_count: int) -> None:
                nonlocal last
                now = time.monotonic()
                self._seen.longest_s = max(self._seen.longest_s, now - last)
                last = now

            try:
                if frames(self._port, kind, came, TOKENS) != self._undisturbed[kind]:
                    self._seen.differed.append(f"{kind}: another text")
            except Exception as error:
                self._seen.differed.append(f"{kind}: {error!r}")
            self._seen.streams += 1

    def end(self) -> None:
        self._ending.set()
        for thread in self._threads:
            thread.join()


def run(home: Path) -> Seen:
    seen = Seen()
    model = talker(home)
    env = environ(home, home) | {
        "WOOLLY_FLEET_KEY": KEY,
        "PYTHONPATH": os.pathsep.join(sys.path),
        "RAY_USAGE_STATS_ENABLED": "0",
    }
    with contextlib.ExitStack() as stack:
        address = stack.enter_context(cluster(env))
        seen.tell("two nodes of Ray")
        fleet = Fleets(home, model)
        stack.callback(fleet.close)
        scaler = Scaler(address, fleet, seen, env)
        stack.callback(lambda: scaler.process.kill())

        def here(count: int, what: str) -> None:
            assert until(lambda: len(at_work(fleet)) == count, WAIT_S), f"{what}: {fleet.state()}"
            seen.tell(f"{what}: {count} at work")

        here(1, "begun")
        assert until(lambda: fleet.state()["models"], 20)
        undisturbed = {kind: frames(fleet.port, kind, tokens=TOKENS) for kind in KINDS}
        seen.tell(f"{len(KINDS)} kinds of streams, undisturbed")
        streams = Streams(fleet.port, undisturbed, seen, AT_ONCE)
        stack.callback(streams.end)
        here(3, f"{AT_ONCE} streams at a time")
        for what, kill in KILLS.items():
            before = at_work(fleet)
            kill()
            seen.tell(what)
            assert until(lambda before=before: before - at_work(fleet), WAIT_S)  # type: ignore[misc]
            here(3, "after it")
        before = at_work(fleet)
        assert scaler.end(signal.SIGKILL) == -signal.SIGKILL
        seen.tell("the command killed")
        time.sleep(5)
        assert at_work(fleet) == before
        scaler = Scaler(address, fleet, seen, env)
        assert until(lambda: any("3 wanted, 3 placed" in line for line in seen.lines[-3:]), WAIT_S)
        assert at_work(fleet) == before
        seen.tell("the same command goes on with the same three")
        streams.end()
        streams = Streams(fleet.port, undisturbed, seen, 1)
        stack.callback(streams.end)
        here(1, "one stream at a time")
        streams.end()
        assert scaler.end(signal.SIGTERM) == 0
        assert until(lambda: not at_work(fleet), 20)
        seen.tell(f"ended; answers that went on at another replica: {fleet.state()['replays']}")
    return seen


def at_work(fleet: Fleets) -> set[str]:
    return {one["id"] for one in fleet.state()["replicas"] if one["state"] == "here" and one["models"]}


def actors() -> list[Any]:
    import ray

    return [ray.get_actor(name) for name in sorted(ray.util.list_named_actors())]


def end_actor() -> None:
    import ray

    ray.kill(actors()[0])


def kill_actor() -> None:
    import ray

    os.kill(ray.get(actors()[0].pid.remote()), signal.SIGKILL)


def kill_replica() -> None:
    import ray

    from tests.cli.test_replicas import children

    os.kill(children(ray.get(actors()[1].pid.remote()))[0], signal.SIGKILL)


KILLS: dict[str, Callable[[], None]] = {
    "an actor ended by Ray": end_actor,
    "an actor's process killed": kill_actor,
    "a replica's process killed": kill_replica,
}


def main() -> None:
    with tempfile.TemporaryDirectory(prefix="woolly-measure-") as home:
        seen = run(Path(home))
    print(f"{seen.streams} streams, {len(seen.differed)} of them lost or different {seen.differed[:3]}")
    print(f"the longest wait for a frame, the queue of the gateway included, {seen.longest_s:.1f} s")


if __name__ == "__main__":
    main()
