"""A batch on a Ray cluster: the bytes of a job on one machine, also when a worker or the whole job is killed."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest

from tests.server.batch.lines import every_kind, write
from tests.server.process import environ
from tests.tiny import tiny

pytest.importorskip("ray", reason="Ray is not installed: pip install 'woolly[ray]'")

ROWS = 400


@pytest.fixture(scope="module")
def env(tmp_path_factory: pytest.TempPathFactory) -> dict[str, str]:
    models = tmp_path_factory.mktemp("models")
    tiny(models / "talker.gguf", context=2048)
    return environ(tmp_path_factory.mktemp("home"), models) | {"PYTHONPATH": os.pathsep.join(sys.path)}


@pytest.fixture(scope="module")
def source(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return write(tmp_path_factory.mktemp("rows") / "in.jsonl", every_kind(ROWS))


@pytest.fixture(scope="module")
def alone(env: dict[str, str], source: Path) -> bytes:
    output = source.with_name("alone.jsonl")
    subprocess.run(words(source, output), env=env, capture_output=True, check=False)
    return output.read_bytes()


def words(source: Path, output: Path, *more: str) -> list[str]:
    return [sys.executable, "-m", "woolly", "batch", str(source), str(output), "--model", "talker", *more]


def on_ray(source: Path, output: Path) -> list[str]:
    return words(source, output, "--ray", "local", "--workers", "2", "--threads", "1")


def workers(pid: int) -> list[int]:
    """The processes below this one that answer rows."""
    processes = subprocess.run(["ps", "-eo", "pid,ppid,args"], capture_output=True, text=True, check=True).stdout
    rows = [line.split(None, 2) for line in processes.splitlines()[1:]]
    below, more = {pid}, True
    while more:
        more = False
        for one, parent, _ in rows:
            if int(parent) in below and int(one) not in below:
                below.add(int(one))
                more = True
    return [int(one) for one, _, args in rows if int(one) in below and "MapWorker" in args]


def lines(path: Path) -> int:
    return path.read_bytes().count(b"\n") if path.exists() else 0


def test_a_cluster_gives_the_bytes_of_one_machine(
    env: dict[str, str], source: Path, alone: bytes, tmp_path: Path
) -> None:
    output = tmp_path / "out.jsonl"
    done = subprocess.run(on_ray(source, output), env=env, capture_output=True, text=True, timeout=200, check=False)
    assert done.returncode == 1, done.stderr
    assert done.stdout.startswith(f"{ROWS} rows, 66 of them failed")
    assert output.read_bytes() == alone


@pytest.mark.soak
def test_a_worker_that_is_killed_and_a_job_that_is_killed_change_no_byte(
    env: dict[str, str], source: Path, alone: bytes, tmp_path: Path
) -> None:
    output = tmp_path / "out.jsonl"
    job = subprocess.Popen(on_ray(source, output), env=env, stdout=subprocess.PIPE, stderr=subprocess.PIPE)
    try:
        while not (running := workers(job.pid)):
            assert job.poll() is None, job.communicate()
            time.sleep(0.02)
        os.kill(running[0], signal.SIGKILL)
        while not lines(output):
            assert job.poll() is None, job.communicate()
            time.sleep(0.01)
    finally:
        job.kill()
        job.communicate()
    before = lines(output)
    done = subprocess.run(on_ray(source, output), env=env, capture_output=True, text=True, timeout=200, check=False)
    assert done.returncode == 1, done.stderr
    assert before == 0 or f"{before} of {ROWS} rows are there already" in done.stderr
    assert output.read_bytes() == alone
