"""Faults around the command: folders that cannot be written, Ctrl-C at any moment, output that is not read."""

from __future__ import annotations

import os
import select
import signal
import subprocess
import termios
import time
from pathlib import Path

import pytest

import woolly
from tests.cli.conftest import Woolly, command

NOWHERE = "/dev/null/none"  # no folder can be made there, not even by root


def test_f06_a_model_runs_where_nothing_can_be_written(started: Woolly, model: Path) -> None:
    nowhere = dict.fromkeys(("HOME", "TMPDIR", "XDG_CACHE_HOME", "XDG_DATA_HOME", "WOOLLY_HOME"), NOWHERE)
    done = started("run", str(model), "hi", "--max-tokens", "3", "-q", **nowhere)
    assert (done.returncode, done.stderr) == (0, "")
    done = started("inspect", str(model), **nowhere)
    assert (done.returncode, done.stderr) == (0, "")


def test_f06_a_download_that_has_no_place_is_exit_8_and_one_line(started: Woolly) -> None:
    done = started("run", "smollm2", "hi", WOOLLY_MODELS_DIR=NOWHERE, WOOLLY_OFFLINE="0")
    assert done.returncode == 8
    assert done.stderr.count("\n") == 1 and NOWHERE in done.stderr


@pytest.mark.parametrize("after_s", [0.0, 0.15, 0.3, 0.45])
def test_f13_ctrl_c_at_any_moment_of_the_start_ends_it_at_once(environ: dict[str, str], after_s: float) -> None:
    """While Python itself starts nothing can be caught: the signal ends it as it would end any program of Python."""
    process = subprocess.Popen(
        command("run", "tiny-talker", "hi", "--temperature", "0", "--max-tokens", "60000"),
        env=environ,
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
    )
    time.sleep(after_s)  # any moment will do
    process.send_signal(signal.SIGINT)
    _, errors = process.communicate(timeout=60)
    before_ours = b"KeyboardInterrupt" in errors and os.fsencode(Path(woolly.__file__).parent) not in errors
    assert process.returncode in ((1,) if before_ours else (130, -signal.SIGINT))
    assert b"answer" not in errors  # the figures of one that came to its end


def test_f13_ctrl_c_leaves_the_terminal_as_it_was(environ: dict[str, str]) -> None:
    leader, follower = os.openpty()
    try:
        before = termios.tcgetattr(follower)
        process = subprocess.Popen(
            command("run", "tiny-talker", "hi", "--temperature", "0", "--max-tokens", "60000"),
            env=environ,
            stdin=follower,
            stdout=follower,
            stderr=follower,
            start_new_session=True,
        )
        assert os.read(leader, 100)
        process.send_signal(signal.SIGINT)
        deadline = time.monotonic() + 60
        while process.poll() is None and time.monotonic() < deadline:
            if select.select([leader], [], [], 0.05)[0]:
                os.read(leader, 65536)
        assert process.poll() == 130
        assert termios.tcgetattr(follower) == before
    finally:
        os.close(leader)
        os.close(follower)


@pytest.mark.parametrize(
    "words", [["--help"], ["--version"], ["inspect", "tiny-talker"], ["tokenize", "tiny-talker", "a"]]
)
def test_f14_output_that_nobody_reads_is_quiet_and_141(environ: dict[str, str], words: list[str]) -> None:
    reader, writer = os.pipe()
    os.close(reader)
    process = subprocess.Popen(
        command(*words), env=environ, stdin=subprocess.DEVNULL, stdout=writer, stderr=subprocess.PIPE
    )
    os.close(writer)
    assert process.stderr is not None
    assert process.stderr.read() == b""
    assert process.wait(60) == 141
    process.stderr.close()


@pytest.mark.skipif(not os.path.exists("/dev/full"), reason="this system has no /dev/full")
@pytest.mark.parametrize("unbuffered", ["", "1"])
@pytest.mark.parametrize("words", [["list"], ["run", "tiny-talker", "hi", "-q", "--max-tokens", "5"]])
def test_f05_a_full_disk_behind_standard_output_is_no_fault_of_woolly_and_exit_8(
    environ: dict[str, str], words: list[str], unbuffered: str
) -> None:
    env = environ | {"PYTHONUNBUFFERED": unbuffered}
    with open("/dev/full", "w") as full:
        done = subprocess.run(
            command(*words), env=env, stdin=subprocess.DEVNULL, stdout=full, stderr=subprocess.PIPE, check=False
        )
    assert done.returncode == 8
    assert done.stderr.startswith(b"woolly: error: the output cannot be written: No space left on device; make room")
    assert done.stderr.count(b"\n") == 1


@pytest.mark.skipif(not os.path.exists("/dev/full"), reason="this system has no /dev/full")
def test_an_error_that_cannot_be_told_has_its_exit_code_all_the_same(environ: dict[str, str]) -> None:
    with open("/dev/full", "w") as full:
        assert subprocess.run(command("nonsense"), env=environ, stderr=full, check=False).returncode == 2
