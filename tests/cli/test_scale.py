"""`woolly scale`: replicas on a Ray cluster, as many as a gateway's queue asks for. Most of it needs no Ray."""

from __future__ import annotations

import os
import signal
import sys
import threading
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from tests.cli.conftest import Woolly
from tests.cli.test_replicas import alive, children
from tests.server.fleets import KEY, fleet, frames, talker
from tests.server.process import environ
from tests.server.raw import ask
from tests.server.stand_in import until
from woolly.cli.replicas_on_ray import ActorPool, ReplicaActor
from woolly.cli.scale import _read_load, read_bounds
from woolly.errors import RequestError
from woolly.fleet.http import Address
from woolly.fleet.scaling import Bounds, FleetLoad

GATEWAY = "http://127.0.0.1:1"


@pytest.mark.parametrize(
    ("words", "why"),
    [
        (["--replicas", "4..2"], "--replicas is '4..2'; expected MIN..MAX"),
        (["--replicas", "0..2"], "expected MIN..MAX"),
        (["--replicas", "some"], "expected MIN..MAX"),
        (["--up-after", "-1"], "--up-after is a number of seconds"),
        (["--down-after", "nan"], "--down-after is a number of seconds"),
        (["--join", "gate"], "expected a URL as http://HOST:PORT"),
    ],
)
def test_what_is_wrong_is_told_in_a_line(woolly: Woolly, words: list[str], why: str) -> None:
    done = woolly("scale", "model", "--join", GATEWAY, *words)
    assert (done.returncode, done.stderr.count("\n")) == (2, 1)
    assert why in done.stderr


@pytest.mark.skipif("ray" in sys.modules, reason="Ray is here")
def test_without_ray_the_command_says_how_to_get_it(started: Woolly, tmp_path: Path) -> None:
    (tmp_path / "ray.py").write_text("raise ImportError")
    done = started("scale", "model", "--join", GATEWAY, PYTHONPATH=str(tmp_path))
    assert (done.returncode, done.stderr) == (
        4,
        "woolly: error: Ray is not installed; pip install 'woolly[ray]'\n",
    )


def test_one_number_is_both_bounds() -> None:
    assert read_bounds("3", 1, 2) == Bounds(3, 3, 1, 2)
    assert read_bounds("1..1024", 10, 300) == Bounds(1, 1024)


def test_a_look_at_a_gateway_tells_the_load_of_the_model_by_any_of_its_names(tmp_path: Path) -> None:
    model = talker(tmp_path)
    with fleet(tmp_path, model, 1) as running:
        gateway = Address("127.0.0.1", running.port)
        for name in ("talker", "Talker", "talker.gguf", str(model)):
            assert _read_load(gateway, "", name) == (FleetLoad(1, 0.0, 0, 0, 16), "")
        assert _read_load(gateway, "", "another") == (None, "")
        seen: list[FleetLoad | None] = []
        frames(
            running.port,
            "two choices",
            lambda count: seen.append(_read_load(gateway, "", "talker")[0]) if count == 9 else None,
        )
        assert seen[0] is not None and (seen[0].running, seen[0].slots) == (2, 16)
        load, why = _read_load(Address("127.0.0.1", running.replicas[0].port), "", "talker")
        assert load is None and "see that it is a `woolly gate`" in why
    load, why = _read_load(gateway, "", "talker")
    assert load is None and "does not answer" in why


@pytest.mark.skipif(sys.platform != "linux", reason="reads /proc")
def test_an_actor_keeps_its_process_alive_and_lets_it_finish(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    model = talker(tmp_path)
    with fleet(tmp_path, model, 0) as gateway:
        for name, value in (environ(tmp_path, tmp_path) | {"WOOLLY_FLEET_KEY": KEY}).items():
            monkeypatch.setenv(name, value)

        def here() -> list[str]:
            state = ask(gateway.port, "GET", "/woolly/v1/fleet")[2]
            return [one["url"] for one in state["replicas"] if one["state"] == "here" and one["models"]]

        def serving() -> list[int]:
            return children(os.getpid(), str(model))

        words = [str(model), "--threads", "1", "--disk-bytes", "0", "--log-level", "warning"]
        actor = ReplicaActor(words, f"http://127.0.0.1:{gateway.port}")
        try:
            assert actor.pid() == os.getpid()
            assert until(lambda: here() and gateway.state()["models"])
            undisturbed, before = frames(gateway.port, "sampled"), here()
            (first,) = serving()
            os.kill(first, signal.SIGKILL)
            # The gateway sees it, too.
            assert until(lambda: serving() not in ([], [first]) and here() not in ([], before))
            (second,) = serving()
            actor_ended: list[bool] = []

            def seen(count: int) -> None:
                if count == 12:
                    threading.Thread(target=lambda: (actor.end(), actor_ended.append(not alive(second)))).start()

            assert frames(gateway.port, "sampled", seen) == undisturbed
            assert until(lambda: actor_ended == [True])
        finally:
            actor.end()


class FakeRay:
    """What a pool uses of Ray: actors by name, each alive, waiting for cores, being restarted, or dead."""

    class exceptions:
        class RayActorError(Exception):
            pass

        class ActorUnavailableError(RayActorError):
            pass

    def __init__(self) -> None:
        self.actors: dict[str, Any] = {}
        self.util = SimpleNamespace(list_named_actors=lambda: list(self.actors))

    def remote(self, **options: Any) -> Any:
        assert options == {"num_cpus": 2, "max_restarts": -1}

        def begin(name: str, words: list[str], gateway: str) -> Any:
            actor = SimpleNamespace(name=name, words=words, gateway=gateway, state="lives", ended=False)
            actor.pid = SimpleNamespace(remote=lambda: (actor, "pid"))
            actor.end = SimpleNamespace(remote=lambda: (setattr(actor, "ended", True), (actor, "end"))[1])
            self.actors[name] = actor
            return actor

        def with_options(*, name: str, lifetime: str) -> Any:
            assert lifetime == "detached"
            return SimpleNamespace(remote=lambda words, gateway: begin(name, words, gateway))

        return lambda kind: SimpleNamespace(options=with_options)

    def get_actor(self, name: str) -> Any:
        return self.actors[name]

    def wait(self, refs: list[Any], timeout: float) -> tuple[list[Any], list[Any]]:
        done = [ref for ref in refs if ref[0].state != "waits"]
        return done, [ref for ref in refs if ref not in done]

    def get(self, ref: Any) -> None:
        if ref[0].state == "dead":
            raise self.exceptions.RayActorError("The actor died because of an error:\nno module named woolly")
        if ref[0].state == "restarts":
            raise self.exceptions.ActorUnavailableError

    def kill(self, actor: Any) -> None:
        self.actors.pop(actor.name, None)


def pool(ray: FakeRay, *words: str) -> ActorPool:
    return ActorPool(ray, "talker", ["talker", *words], GATEWAY, 2)


def test_a_pool_has_as_many_as_are_wanted_and_lets_the_youngest_go() -> None:
    ray = FakeRay()
    replicas = pool(ray)
    replicas.keep(3)
    names = list(ray.actors)
    replicas.keep(3)
    assert (replicas.count, replicas.begun, list(ray.actors)) == (3, 3, names)
    youngest = ray.actors[names[2]]
    replicas.keep(2)
    assert youngest.ended and replicas.count == 2  # it finishes what it answers before it is killed
    replicas.keep(2)
    assert list(ray.actors) == names[:2]
    replicas.close()
    assert ray.actors == {}


def test_one_that_waits_for_cores_is_let_go_without_a_word() -> None:
    ray = FakeRay()
    replicas = pool(ray)
    replicas.keep(1)
    (actor,) = ray.actors.values()
    actor.state = "waits"
    replicas.keep(1)
    assert (replicas.count, replicas.begun) == (1, 0)
    replicas.keep(0)
    assert ray.actors == {} and not actor.ended


def test_one_that_is_dead_for_good_is_replaced_and_one_that_ray_restarts_is_not() -> None:
    ray = FakeRay()
    replicas = pool(ray)
    replicas.keep(2)
    replicas.keep(2)
    first, second = ray.actors.values()
    first.state, second.state = "dead", "restarts"
    replicas.keep(2)
    assert replicas.count == 2
    assert first.name not in ray.actors and second.name in ray.actors


def test_where_one_cannot_even_begin_the_next_waits_and_the_reason_is_told() -> None:
    ray = FakeRay()
    replicas = pool(ray)
    replicas.keep(1)
    next(iter(ray.actors.values())).state = "dead"
    replicas.keep(1)
    replicas.keep(1)
    assert (replicas.count, ray.actors, replicas.fault) == (0, {}, "no module named woolly")


def test_a_command_that_was_killed_is_gone_on_with_and_other_options_begin_anew() -> None:
    ray = FakeRay()
    pool(ray).keep(2)
    before = list(ray.actors)
    again = pool(ray)
    assert again.count == 2
    again.keep(2)
    assert list(ray.actors) == before
    other = ActorPool(ray, "another", ["another"], GATEWAY, 2)
    assert other.count == 0
    changed = pool(ray, "--context", "512")
    assert changed.count == 0 and all(ray.actors[name].ended for name in before)
    changed.keep(2)
    assert len(ray.actors) == 2 and not set(before) & set(ray.actors)


@pytest.mark.soak
@pytest.mark.timeout(600)
def test_replicas_come_and_go_and_are_killed_and_no_stream_changes(tmp_path: Path) -> None:
    pytest.importorskip("ray", reason="Ray is not installed: pip install 'woolly[ray]'")
    from tests.measure.scale import run

    seen = run(tmp_path)
    assert seen.streams > 10
    assert seen.differed == []


def test_bounds_that_are_no_bounds_are_refused() -> None:
    for wrong in ("", "1..", "..2", "-1", "1..2..3", "9999999", "٣"):
        with pytest.raises(RequestError, match="--replicas"):
            read_bounds(wrong, 10, 300)
