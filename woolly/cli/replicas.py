"""Replicas of this machine, for `serve --replicas N`: several processes, each with cores of its own.

They are ordinary `woolly serve --join`, started by the gateway and ended with it; one that dies is started again, but
where the first one refuses its model, the gateway ends as well. Each
reads from a pipe whose other end the gateway holds, so that it ends also where the gateway is killed.
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
from woolly.config.rows import rows

PAUSE_S = 0.5  # pause before a process that died is started again; doubled each time that it dies at once
LONGEST_PAUSE_S = 30.0
WELL_S = 10.0  # a process that has lived for so long did not die at once
REFUSED = (2, 3, 4)  # exit codes for wrong words, and for models that are not there or cannot be loaded
UNTIL_EOF = "--until-eof"  # the option of a replica that ends with its gateway


class Replicas:
    """Processes that are kept alive. words: their arguments after `woolly serve`. environ: their environment."""

    def __init__(self, count: int, words: list[str], environ: Mapping[str, str]) -> None:
        self._parts = system.shares(count)
        self._words = words
        self._environ = environ
        self._ending = threading.Event()
        self.refused = 0  # the exit code of one that cannot do what it was started for
        self._threads = [threading.Thread(target=self._keep_alive, args=(part,), daemon=True) for part in self._parts]

    def start(self) -> None:
        for thread in self._threads:
            thread.start()

    def close(self) -> None:
        """End each by SIGTERM and wait for it."""
        self._ending.set()
        for thread in self._threads:
            thread.join()

    def _keep_alive(self, cpus: set[int]) -> None:
        pause, first = PAUSE_S, True
        while not self._ending.is_set():
            begun = time.monotonic()
            process = self._start(cpus)
            while process.poll() is None and not self._ending.wait(0.1):
                pass
            if process.poll() is None:
                process.send_signal(signal.SIGTERM)
                process.wait()
            assert process.stdin is not None
            process.stdin.close()
            if first and process.returncode in REFUSED:
                self._end_with(process.returncode)
                return
            first = False
            pause = PAUSE_S if time.monotonic() - begun > WELL_S else min(2 * pause, LONGEST_PAUSE_S)
            if not self._ending.wait(pause):
                print(
                    f"woolly: warning: a replica ended with code {process.returncode}; it is started again", flush=True
                )

    def _end_with(self, code: int) -> None:
        """End the gateway: none of its replicas can do what they are started for."""
        if not self.refused:
            self.refused = code
            os.kill(os.getpid(), signal.SIGTERM)

    def _start(self, cpus: set[int]) -> subprocess.Popen[bytes]:
        """Start a process on these cores: a child inherits the affinity of the thread that starts it."""
        if hasattr(os, "sched_setaffinity"):
            with suppress(OSError):
                os.sched_setaffinity(0, cpus)
        command = [sys.executable, "-m", "woolly", "serve", *self._words, UNTIL_EOF]
        return subprocess.Popen(command, env=dict(self._environ), stdin=subprocess.PIPE, stdout=subprocess.DEVNULL)


def flags_of(flags: Mapping[str, Any]) -> list[str]:
    """The command line options that give a replica these settings of models."""
    words: list[str] = []
    for one in rows(Config):
        option = flags.get(one.name)
        if option is None or not one.flags:
            continue
        if one.kind == "bool":
            words.append(one.flags[0] if option else "--no-" + one.flags[0].removeprefix("--"))
        else:
            for value in option if isinstance(option, list | tuple) else (option,):
                words += [one.flags[0], str(value)]
    return words


def end_with_input() -> None:
    """Send SIGTERM to this process when its standard input ends: then the gateway that started it is gone."""

    def wait() -> None:
        with suppress(OSError):
            while os.read(0, 4096):
                pass
        os.kill(os.getpid(), signal.SIGTERM)

    threading.Thread(target=wait, name="woolly-until-eof", daemon=True).start()
