"""`woolly serve --replicas`: processes beside each other, started, watched and ended by one command."""

from __future__ import annotations

import os
import signal
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.cli.conftest import Woolly
from tests.server.fleets import CHAT, WORDS, frames, talker
from tests.server.process import Process, environ
from tests.server.raw import ask
from tests.server.stand_in import until
from tests.tiny import damaged
from woolly import system
from woolly.cli.replicas import flags_of


def children(pid: int, model: str = "") -> list[int]:
    """The replicas of a gateway, or those of one model: a process of pytest's has servers of other tests too."""
    pids = []
    for folder in Path("/proc").glob("[0-9]*"):
        try:
            parent = int((folder / "stat").read_text().rpartition(")")[2].split()[1])
            words = (folder / "cmdline").read_bytes()
        except OSError:
            continue
        if parent == pid and b"\0serve\0" in words and model.encode() in words:
            pids.append(int(folder.name))
    return sorted(pids)


def alive(pid: int) -> bool:
    try:
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] != "Z"
    except OSError:
        return False


@pytest.fixture(scope="module")
def served(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Process]:
    """Until the last test that uses it, which kills it."""
    home = tmp_path_factory.mktemp("home")
    words = (str(talker(home)), "--replicas", "2", "--threads", "1", "--disk-bytes", "0", "--log-level", "warning")
    words += ("--alias", "Our/Model,other")
    with Process(environ(home, home), *words) as process:
        assert until(lambda: len(replicas(process)) == 2, 30)
        yield process


def test_f29_a_model_that_no_replica_can_load_ends_the_command_with_their_exit_code(
    started: Woolly, tmp_path: Path
) -> None:
    bad = damaged(tmp_path / "bad.gguf")
    done = started("serve", str(bad), "--replicas", "2", "--port", "0")
    assert done.returncode == 4
    assert "bad.gguf: tensor 'blk.0.attn_k.weight' holds a value that is not finite" in done.stderr


def test_the_names_of_alias_mean_the_model_at_the_gateway_too(served: Process) -> None:
    for name in ("Our/Model", "OTHER", "talker", "default"):
        status, headers, answer = served.ask("POST", CHAT, {"messages": WORDS, "max_tokens": 1, "model": name})
        assert status == 200 and "x-woolly-notes" not in headers, (name, answer)


def replicas(process: Process) -> list[str]:
    state = ask(process.port, "GET", "/woolly/v1/fleet")[2]
    return [one["id"] for one in state["replicas"] if one["models"] and one["state"] == "here"]


@pytest.mark.skipif(sys.platform != "linux", reason="reads /proc")
def test_replicas_have_cores_of_their_own_and_one_that_dies_is_started_again(served: Process) -> None:
    before = children(served.pid)
    cores = [os.sched_getaffinity(pid) for pid in before]
    assert len(before) == 2
    if len(os.sched_getaffinity(0)) > 1:
        assert not cores[0] & cores[1]
    undisturbed = frames(served.port, "sampled")

    def seen(count: int) -> None:
        if count == 12:
            os.kill(before[0], signal.SIGKILL)

    assert frames(served.port, "sampled", seen) == undisturbed
    assert until(lambda: len(set(children(served.pid)) - {before[0]}) == 2 and len(replicas(served)) == 2, 30)


@pytest.mark.skipif(sys.platform != "linux", reason="reads /proc")
def test_replicas_end_when_their_gateway_is_killed(served: Process) -> None:
    assert ask(served.port, "POST", CHAT, {"messages": WORDS, "max_tokens": 3})[0] == 200
    pids = children(served.pid)
    served.process.kill()
    assert until(lambda: not any(alive(pid) for pid in pids))


@pytest.mark.skipif(sys.platform != "linux", reason="reads /proc")
def test_auto_is_a_replica_for_each_memory_node_which_ends_with_its_gateway(tmp_path: Path) -> None:
    words = (str(talker(tmp_path, layers=1)), "--replicas", "auto", "--threads", "1", "--disk-bytes", "0")
    with Process(environ(tmp_path, tmp_path), *words) as process:
        assert until(lambda: len(replicas(process)) == system.nodes(), 30)
        pids = children(process.pid)
        assert process.end()[0] == 0
    assert len(pids) == system.nodes() and not any(alive(pid) for pid in pids)


@pytest.mark.parametrize("count", ["many", "257", "-2", "1.5"])
def test_a_count_of_replicas_that_is_none_is_told(woolly: Woolly, count: str) -> None:
    done = woolly("serve", "model", f"--replicas={count}", "--port", "0")
    assert done.returncode == 2
    assert done.stderr == f"woolly: error: --replicas is '{count}'; expected a count, or auto\n"


def test_without_a_model_there_is_nothing_to_replicate(woolly: Woolly) -> None:
    done = woolly("serve", "--replicas", "2", "--port", "0")
    assert (done.returncode, done.stderr) == (2, "woolly: error: --replicas needs a MODEL; name one before it\n")


@pytest.mark.parametrize(
    ("words", "why"),
    [
        (["--join", "http://127.0.0.1:1"], "--join needs a MODEL"),
        (["MODEL", "--join", "gate"], "expected a URL as http://HOST:PORT"),
        (["MODEL", "--join", "http://10.0.0.1:8080"], "there is no secret to know each other by"),
        (["MODEL", "--join", "http://127.0.0.1:1", "--advertise", "here"], "--advertise is 'here'"),
    ],
)
def test_a_replica_that_no_gateway_could_use_does_not_start(
    woolly: Woolly, model: Path, words: list[str], why: str
) -> None:
    done = woolly("serve", "--port", "0", *(str(model) if word == "MODEL" else word for word in words))
    assert done.returncode == 2
    assert why in done.stderr and done.stderr.count("\n") == 1


def test_what_is_said_of_models_is_said_to_each_replica() -> None:
    flags = {"context": "512", "exact": True, "lora": ["a.gguf", "b.gguf=0.5"], "ports": ["1"], "fleet_key": "secret"}
    assert flags_of(flags) == ["--context", "512", "--exact", "--lora", "a.gguf", "--lora", "b.gguf=0.5"]
