"""`woolly serve` as a user starts it: a process of its own, at a free port."""

from __future__ import annotations

import os
import re
import signal
import subprocess
import sys
import time
from pathlib import Path
from typing import Any, Self

from tests.server.raw import ask

LINES = 4  # that it prints when it listens


def environ(home: Path, models: Path) -> dict[str, str]:
    """An environment with nobody's settings, an empty home and no network."""
    kept = {name: value for name, value in os.environ.items() if not name.startswith("WOOLLY_")}
    return kept | {"HOME": str(home), "WOOLLY_MODELS_DIR": str(models), "WOOLLY_OFFLINE": "1"}


class Process:
    """Ends with its `with` block, whatever happens there."""

    def __init__(self, environ: dict[str, str], *words: str, port: int = 0) -> None:
        self.begun = time.monotonic()
        self.process = subprocess.Popen(
            [sys.executable, "-m", "woolly", "serve", "--port", str(port), *words],
            env=environ,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
        )
        assert self.process.stdout is not None
        self.lines = [self.process.stdout.readline().decode() for _ in range(LINES)]
        found = re.search(r"https?://[^ ]*?:(\d+)", self.lines[0])
        if not found:
            _, errors = self.process.communicate()
            raise AssertionError(f"it does not listen: {self.lines} {errors.decode()}")
        self.port = int(found[1])

    @property
    def pid(self) -> int:
        return self.process.pid

    def ask(
        self, method: str, path: str, body: Any = None, headers: dict[str, str] | None = None
    ) -> tuple[int, dict[str, str], Any]:
        return ask(self.port, method, path, body, headers)

    def end(self) -> tuple[int, str]:
        """Tell it to end; its exit code and what it wrote to standard error."""
        self.process.send_signal(signal.SIGTERM)
        _, errors = self.process.communicate(timeout=30)
        return self.process.returncode, errors.decode()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        if self.process.poll() is None:
            self.process.kill()
            self.process.communicate()
