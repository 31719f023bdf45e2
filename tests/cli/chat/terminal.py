"""A person at a terminal: a real pseudo-terminal, keys typed into it, and what is seen waited for."""

from __future__ import annotations

import fcntl
import os
import pty
import re
import select
import signal
import struct
import subprocess
import termios
import time
from pathlib import Path
from types import TracebackType
from typing import Self

from tests.cli.conftest import command

READY = b"\x1b[?2004h"  # the editor asks for marked pastes when it begins to read a message, and only then
READ = b"\x1b[?2004l"  # the message is taken, and Ctrl-C is a signal again
REDRAWN = b"\x1b[J"  # the open block of an answer is taken away and drawn again
PATIENCE_S = 60.0
_SEQUENCE = re.compile(r"\x1b\[[0-9;?]*[A-Za-z]")


class Terminal:
    """`woolly` at a terminal of its own.

    with Terminal("run", "tiny-talker", environ=environ) as person:
        person.prompt()
        person.type("hello\\r")
    """

    def __init__(
        self,
        *words: str,
        environ: dict[str, str],
        term: str = "xterm-256color",
        size: tuple[int, int] = (24, 80),
        folder: Path | None = None,
    ) -> None:
        self._leader, follower = pty.openpty()
        self.resize(*size)
        self.before = termios.tcgetattr(follower)
        self._follower = follower  # kept open: its settings are looked at when the program has ended
        self.process = subprocess.Popen(
            command(*words),
            cwd=folder,
            env=environ | {"TERM": term},
            stdin=follower,
            stdout=follower,
            stderr=follower,
            start_new_session=True,
            preexec_fn=lambda: fcntl.ioctl(0, termios.TIOCSCTTY, 0),  # Ctrl-C comes from the terminal, as a signal
        )
        self.seen = b""
        self._read = 0  # how much of it has been waited for

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        if self.process.poll() is None:
            self.process.kill()
            self.process.wait()
        os.close(self._leader)
        os.close(self._follower)

    def until(self, mark: bytes | str) -> str:
        """Wait until the mark is seen after all that was waited for; what came up to it, without sequences."""
        wanted = mark.encode() if isinstance(mark, str) else mark
        end = time.monotonic() + PATIENCE_S
        while (at := self.seen.find(wanted, self._read)) < 0:
            assert self._take(end - time.monotonic()), f"{wanted!r} was never seen after {self.seen[self._read :]!r}"
        before, self._read = self.seen[self._read : at], at + len(wanted)
        return visible(before)

    def prompt(self) -> str:
        """Wait until a message can be typed; what was shown before."""
        return self.until(READY)

    def type(self, keys: str | bytes) -> None:
        data = keys.encode() if isinstance(keys, str) else keys
        os.write(self._leader, data)

    def say(self, message: str) -> str:
        """Send a message and wait for the next prompt; what was shown between."""
        self.type(message + "\r")
        return self.prompt()

    def ask(self, message: str) -> None:
        """Send a message and wait until it is being answered."""
        self.type(message + "\r")
        self.until(READ)
        self.until(REDRAWN)

    def resize(self, rows: int, columns: int) -> None:
        """As when a window is dragged: the terminal sends SIGWINCH by itself."""
        fcntl.ioctl(self._leader, termios.TIOCSWINSZ, struct.pack("HHHH", rows, columns, 0, 0))

    def signal(self, number: signal.Signals) -> None:
        self.process.send_signal(number)

    def leave(self) -> int:
        """Wait for the end; the exit code. What was written last is in `seen`."""
        end = time.monotonic() + PATIENCE_S
        while self.process.poll() is None:
            assert time.monotonic() < end, f"the program does not end; last seen {self.seen[-500:]!r}"
            self._take(0.05)
        while self._take(0.05):
            pass
        return self.process.returncode

    def echoes(self) -> bool:
        """Whether the terminal is set as it was found."""
        return termios.tcgetattr(self._follower) == self.before

    def _take(self, seconds: float) -> bool:
        ready, _, _ = select.select([self._leader], [], [], max(0.0, seconds))
        if ready:
            self.seen += os.read(self._leader, 65536)
        return bool(ready)


def visible(data: bytes) -> str:
    """The text without escape sequences and returns."""
    return _SEQUENCE.sub("", data.decode("utf-8", "replace")).replace("\r", "")
