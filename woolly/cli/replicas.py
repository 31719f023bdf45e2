"""Replicas of this machine, for `serve --replicas N`: processes beside each other, each with cores of its own.

They are ordinary `woolly serve --join`, started by the gate and ended with it; one that dies is started again. Each
reads from a pipe that the gate holds, so that it ends also where the gate is killed.
"""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Mapping
from contextlib import suppress
from typing import Any

from woolly import system
from woolly.config import Config
from woolly.settings import rows

PAUSE_S, LONGEST_S = 0.5, 30.0  # before one that died is started again; twice as long each time, if it dies at once
WELL_S = 10.0  # one that has lived for so long did not die at once
UNTIL_EOF = "--until-eof"  # the option of a replica that ends with its gate


class Replicas:
    """Some processes that are kept alive. words: what follows `woolly serve`. environ: theirs."""

    def __init__(self, count: int, words: list[str], environ: Mapping[str, str]) -> None:
        self._parts = system.shares(count)
        self._words = words
        self._environ = environ
        self._ending = threading.Event()
        self._threads = [threading.Thread(target=self._keep, args=(part,), daemon=True) for part in self._parts]

    def start(self) -> None:
        for thread in self._threads:
            thread.start()

    def close(self) -> None:
        """End them in good order."""
        self._ending.set()
        for thread in self._threads:
            thread.join()

    def _keep(self, cpus: set[int]) -> None:
        pause = PAUSE_S
        while not self._ending.is_set():
            begun = time.monotonic()
            process = self._begin(cpus)
            while process.poll() is None and not self._ending.wait(0.1):
                pass
            if process.poll() is None:
                process.send_signal(signal.SIGTERM)
                process.wait()
            assert process.stdin is not None
            process.stdin.close()
            pause = PAUSE_S if time.monotonic() - begun > WELL_S else min(2 * pause, LONGEST_S)
            if not self._ending.wait(pause):
                print(
                    f"woolly: warning: a replica ended with code {process.returncode}; it is started again", flush=True
                )

    def _begin(self, cpus: set[int]) -> subprocess.Popen[bytes]:
        """Start one. A child has the cores of the thread that starts it."""
        if hasattr(os, "sched_setaffinity"):
            with suppress(OSError):
                os.sched_setaffinity(0, cpus)
        command = [sys.executable, "-m", "woolly", "serve", *self._words, UNTIL_EOF]
        return subprocess.Popen(command, env=dict(self._environ), stdin=subprocess.PIPE, stdout=subprocess.DEVNULL)


def words_of(flags: Mapping[str, Any]) -> list[str]:
    """The options by which a replica has what was given of the settings of models."""
    words: list[str] = []
    for one in rows(Config):
        given = flags.get(one.name)
        if given is None or not one.flags:
            continue
        if one.kind == "bool":
            words.append(one.flags[0] if given else "--no-" + one.flags[0].removeprefix("--"))
        else:
            for value in given if isinstance(given, list | tuple) else (given,):
                words += [one.flags[0], str(value)]
    return words


def end_with_input() -> None:
    """End this process in good order when whoever holds the other end of its standard input is gone."""

    def wait() -> None:
        with suppress(OSError):
            while os.read(0, 4096):
                pass
        os.kill(os.getpid(), signal.SIGTERM)

    threading.Thread(target=wait, name="woolly-until-eof", daemon=True).start()
