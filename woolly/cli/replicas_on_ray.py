"""Replicas on a Ray cluster, for `woolly scale`: an actor each, which keeps one `woolly serve --join` alive.

Ray finds a machine with cores to spare, and starts an actor again that dies, or whose machine does; the actor does so
for its process. Answers go between the gate and that process alone. A process whose actor is killed ends with it or,
where Ray leaves it, sees its standard input end and finishes; either way the gate loses no answer.

The actors outlive the command that began them, so that no replica ends because that was killed: the same command finds
them by their names and goes on. Those of other options have other names, and are let go.
"""

from __future__ import annotations

import hashlib
import os
import secrets
import time
from dataclasses import dataclass
from typing import Any

from woolly.cli.replicas import Replicas
from woolly.server.cluster import last_line
from woolly.server.outgoing import read_address
from woolly.server.settings import is_loopback

END_S = 60.0  # for a replica to finish what it answers
PAUSE_S = 10.0  # before others are begun where one could not begin


class Replica:
    """An actor of Ray's. words: what follows `woolly serve`. gate: the URL that its process joins."""

    def __init__(self, words: list[str], gate: str) -> None:
        host = "127.0.0.1" if is_loopback(read_address(gate, "--join").host) else _address()
        words = [*words, "--join", gate, "--host", host, "--port", "0", "--ollama-port", "0", "--replicas", "0"]
        # Secrets are those of the environment in which this machine's `ray start` was given: Ray does not carry them.
        self._kept = Replicas(1, words, os.environ)
        self._kept.start()

    def pid(self) -> int:
        return os.getpid()

    def end(self) -> None:
        """Returns when the process has ended: its answers are given, or go on elsewhere."""
        self._kept.close()


def _address() -> str:
    """Where other machines of the cluster reach this one."""
    import ray

    return str(ray.util.get_node_ip_address())


@dataclass(slots=True)
class Placed:
    """An actor, as the command knows it. asked: what it has yet to answer. begun: it has its place on a machine."""

    actor: Any
    asked: Any
    begun: bool = False


class Pool:
    """The replicas of one model and gate. ray: the module, connected. cpus: what Ray sets aside for each."""

    def __init__(self, ray: Any, model: str, words: list[str], gate: str, cpus: int) -> None:
        self._ray = ray
        self._words, self._gate = words, gate
        self._kind = ray.remote(num_cpus=cpus, max_restarts=-1)(Replica)
        self._family = f"{model} at {gate} "
        options = hashlib.sha256("\0".join([*words, str(cpus)]).encode()).hexdigest()
        self._name = f"{self._family}{options[:8]} "
        self._here: list[Placed] = []  # the oldest first
        self._ending: list[Placed] = []
        self._next_s = 0.0  # when others may be begun
        self.fault = ""  # why one could not begin
        self._find()

    @property
    def count(self) -> int:
        return len(self._here)

    @property
    def begun(self) -> int:
        """Those that have a place on a machine; the others wait for cores."""
        return sum(one.begun for one in self._here)

    def keep(self, wanted: int) -> None:
        """Have so many. Those that are too many finish what they answer, the youngest first."""
        self._look()
        while len(self._here) < wanted and time.monotonic() >= self._next_s:
            options = {"name": self._name + secrets.token_hex(4), "lifetime": "detached"}
            self._here.append(self._placed(self._kind.options(**options).remote(self._words, self._gate)))
        while len(self._here) > wanted:
            self._end(self._here.pop())

    def close(self) -> None:
        """End all of them in good order."""
        self.keep(0)
        deadline_s = time.monotonic() + END_S
        while self._ending and time.monotonic() < deadline_s:
            self._ray.wait([one.asked for one in self._ending], timeout=1.0)
            self._look()
        for one in self._ending:
            self._ray.kill(one.actor)

    def _find(self) -> None:
        """Take over those that a command before this one has left."""
        for name in sorted(self._ray.util.list_named_actors()):
            if name.startswith(self._family):
                one = self._placed(self._ray.get_actor(name))
                if name.startswith(self._name):
                    self._here.append(one)
                else:
                    self._ending.append(Placed(one.actor, one.actor.end.remote()))

    def _placed(self, actor: Any) -> Placed:
        return Placed(actor, actor.pid.remote())

    def _end(self, one: Placed) -> None:
        if one.begun:
            one.asked = one.actor.end.remote()
            self._ending.append(one)
        else:
            self._ray.kill(one.actor)

    def _look(self) -> None:
        """See which ones live, and let go of those that have ended."""
        for one in list(self._here):
            match self._lives(one):
                case True:
                    one.begun, one.asked = True, one.actor.pid.remote()
                case False:
                    self._here.remove(one)
                    self._ray.kill(one.actor)
                    self._next_s = time.monotonic() + PAUSE_S * (not one.begun)
        for one in list(self._ending):
            if self._lives(one) is not None:
                self._ending.remove(one)
                self._ray.kill(one.actor)

    def _lives(self, one: Placed) -> bool | None:
        """Whether an actor has answered, or never will; None: neither yet."""
        if not self._ray.wait([one.asked], timeout=0)[0]:
            return None
        errors = self._ray.exceptions
        try:
            self._ray.get(one.asked)
        except errors.ActorUnavailableError:  # Ray starts it again
            return True
        except errors.RayActorError as error:
            self.fault = "" if one.begun else last_line(error)
            return False
        self.fault = ""
        return True
