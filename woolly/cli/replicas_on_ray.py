"""Replicas on a Ray cluster, for `woolly scale`: an actor each, which keeps one `woolly serve --join` alive.

Ray finds a machine with free cores, and starts an actor again that dies or whose machine dies; the actor does so for
its process. Answers go between the gateway and that process alone. A process whose actor is killed ends with it or,
where Ray leaves it alive, sees its standard input end and finishes; either way the gateway loses no answer.

The actors outlive the command that began them, so that no replica ends because the command was killed: the same command
finds them by their names and takes them over. Actors of other options have other names, and are ended.
"""

from __future__ import annotations

import hashlib
import os
import secrets
import time
from dataclasses import dataclass
from typing import Any

from woolly.cli.replicas import Replicas
from woolly.fleet.http import read_address
from woolly.server.batch.ray_cluster import last_line
from woolly.server.settings import is_loopback

END_S = 60.0  # how long a replica may take to finish its answers
PAUSE_S = 10.0  # before the next actor is started after one could not start


class ReplicaActor:
    """An actor of Ray's. words: arguments after `woolly serve`. gateway: the URL of the one that its process joins."""

    def __init__(self, words: list[str], gateway: str) -> None:
        host = "127.0.0.1" if is_loopback(read_address(gateway, "--join").host) else _address()
        words = [*words, "--join", gateway, "--host", host, "--port", "0", "--ollama-port", "0", "--replicas", "0"]
        # Secrets come from the environment of `ray start` on this machine: Ray does not pass them on.
        self._replicas = Replicas(1, words, os.environ)
        self._replicas.start()

    def pid(self) -> int:
        return os.getpid()

    def end(self) -> None:
        """End the process and wait for it; its answers are finished, or another replica goes on with them."""
        self._replicas.close()


def _address() -> str:
    """The address by which other machines of the cluster reach this one."""
    import ray

    return str(ray.util.get_node_ip_address())


@dataclass(slots=True)
class PlacedActor:
    """An actor, as the command knows it. pending: a call that it has not answered yet. begun: it runs on a machine."""

    actor: Any
    pending: Any
    begun: bool = False


class ActorPool:
    """The replicas of one model and gateway. ray: the module, connected. cpus: what Ray reserves for each."""

    def __init__(self, ray: Any, model: str, words: list[str], gateway: str, cpus: int) -> None:
        self._ray = ray
        self._words, self._gateway = words, gateway
        self._kind = ray.remote(num_cpus=cpus, max_restarts=-1)(ReplicaActor)
        self._family = f"{model} at {gateway} "
        options = hashlib.sha256("\0".join([*words, str(cpus)]).encode()).hexdigest()
        self._name = f"{self._family}{options[:8]} "
        self._active: list[PlacedActor] = []  # the oldest first
        self._ending: list[PlacedActor] = []
        self._next_s = 0.0  # when the next actor may be started
        self.fault = ""  # why an actor could not start
        self._adopt()

    @property
    def count(self) -> int:
        return len(self._active)

    @property
    def begun(self) -> int:
        """How many actors run on a machine; the others wait for cores."""
        return sum(one.begun for one in self._active)

    def keep(self, wanted: int) -> None:
        """Start or end actors until so many are wanted. The youngest end first, after finishing what they answer."""
        self._poll()
        while len(self._active) < wanted and time.monotonic() >= self._next_s:
            options = {"name": self._name + secrets.token_hex(4), "lifetime": "detached"}
            self._active.append(self._placed(self._kind.options(**options).remote(self._words, self._gateway)))
        while len(self._active) > wanted:
            self._end(self._active.pop())

    def close(self) -> None:
        """End all actors, each after its running answers, and kill those that take longer than END_S."""
        self.keep(0)
        deadline_s = time.monotonic() + END_S
        while self._ending and time.monotonic() < deadline_s:
            self._ray.wait([one.pending for one in self._ending], timeout=1.0)
            self._poll()
        for one in self._ending:
            self._ray.kill(one.actor)

    def _adopt(self) -> None:
        """Take over the actors that an earlier command has left running."""
        for name in sorted(self._ray.util.list_named_actors()):
            if name.startswith(self._family):
                one = self._placed(self._ray.get_actor(name))
                if name.startswith(self._name):
                    self._active.append(one)
                else:
                    self._ending.append(PlacedActor(one.actor, one.actor.end.remote()))

    def _placed(self, actor: Any) -> PlacedActor:
        return PlacedActor(actor, actor.pid.remote())

    def _end(self, one: PlacedActor) -> None:
        if one.begun:
            one.pending = one.actor.end.remote()
            self._ending.append(one)
        else:
            self._ray.kill(one.actor)

    def _poll(self) -> None:
        """Read the answers that have come, and drop the actors that have ended."""
        for one in list(self._active):
            match self._answered(one):
                case True:
                    one.begun, one.pending = True, one.actor.pid.remote()
                case False:
                    self._active.remove(one)
                    self._ray.kill(one.actor)
                    self._next_s = time.monotonic() + PAUSE_S * (not one.begun)
        for one in list(self._ending):
            if self._answered(one) is not None:
                self._ending.remove(one)
                self._ray.kill(one.actor)

    def _answered(self, one: PlacedActor) -> bool | None:
        """Whether an actor's pending call has succeeded (True) or failed for good (False); None while it is pending."""
        if not self._ray.wait([one.pending], timeout=0)[0]:
            return None
        errors = self._ray.exceptions
        try:
            self._ray.get(one.pending)
        except errors.ActorUnavailableError:  # Ray starts it again
            return True
        except errors.RayActorError as error:
            self.fault = "" if one.begun else last_line(error)
            return False
        self.fault = ""
        return True
