"""`woolly serve`, or `gate`, as a user starts it: a process of its own, at a free port."""

from __future__ import annotations

import os
import re
import signal
import subprocess
import time
from pathlib import Path
from typing import Any, Self

from tests.server.forked import start
from tests.server.raw import ask

LINES = 4  # how many lines it prints once it listens


def environ(home: Path, models: Path) -> dict[str, str]:
    """An environment without settings of Woolly, with an empty home and no network."""
    inherited = {name: value for name, value in os.environ.items() if not name.startswith("WOOLLY_")}
    return inherited | {"HOME": str(home), "WOOLLY_MODELS_DIR": str(models), "WOOLLY_OFFLINE": "1"}


class Process:
    """A process that ends with its `with` block, whatever happens there.

    fresh: a Python of its own, as a shell starts it; otherwise one that has imported Woolly before (see forked.py).
    checkout: another folder of Woolly, with a .venv in it.
    """

    def __init__(
        self,
        environ: dict[str, str],
        *words: str,
        port: int = 0,
        command: str = "serve",
        checkout: Path | None = None,
        fresh: bool = False,
    ) -> None:
        self.begun = time.monotonic()
        words = (command, "--port", str(port), *words)
        pipes: Any = {"stdin": subprocess.DEVNULL, "stdout": subprocess.PIPE, "stderr": subprocess.PIPE}
        if checkout:
            python = str(checkout / ".venv/bin/python")
            self.process = subprocess.Popen([python, "-m", "woolly", *words], cwd=checkout, env=environ, **pipes)
        else:
            self.process = start(words, environ, fresh=fresh, **pipes)
        assert self.process.stdout is not None
        self.lines = [self.process.stdout.readline().decode() for _ in range(LINES)]
        match = re.search(r"https?://[^ ]*?:(\d+)", self.lines[0])
        if not match:
            _, errors = self.process.communicate()
            raise AssertionError(f"it does not listen: {self.lines} {errors.decode()}")
        self.port = int(match[1])

    @property
    def pid(self) -> int:
        return self.process.pid

    def ask(
        self, method: str, path: str, body: Any = None, headers: dict[str, str] | None = None
    ) -> tuple[int, dict[str, str], Any]:
        return ask(self.port, method, path, body, headers)

    def end(self) -> tuple[int, str]:
        """Ask the process to end; returns its exit code and its standard error."""
        self.process.send_signal(signal.SIGTERM)
        _, errors = self.process.communicate(timeout=30)
        return self.process.returncode, errors.decode()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        if self.process.poll() is None:
            self.process.kill()
            self.process.communicate()
