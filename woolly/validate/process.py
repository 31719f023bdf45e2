"""The process of a server: started by us or found by its port; what it and its children use."""

from __future__ import annotations

import os
import re
import signal
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path

from woolly.errors import BusyError, printable
from woolly.system import read_text

PROC = Path("/proc")
TICK = os.sysconf("SC_CLK_TCK")
PAGE = os.sysconf("SC_PAGE_SIZE")
LISTENS = "0A"  # the state of a listening socket in /proc/net/tcp
BAD_LINE = re.compile(rb"(?:^|\s|\")(?:warning|error|WARNING|ERROR)\b")
END_S = 20.0
KEEPS_NOTHING = ("--disk-bytes", "0")  # prompts of a test are of no use to anybody later


@dataclass(frozen=True, slots=True)
class Use:
    """Of a process and its children at one moment."""

    at_s: float
    rss: int  # bytes
    cpu_s: float
    threads: int
    files: int


def use_of(pid: int, *, root: Path = PROC) -> Use | None:
    """What the process uses; None once it is gone."""
    rss = threads = files = 0
    ticks = 0
    for one in (pid, *_children(pid, root)):
        fields = _stat(root / str(one))
        if not fields:
            if one == pid:
                return None
            continue
        ticks += int(fields[11]) + int(fields[12])
        threads += int(fields[17])
        rss += int(fields[21]) * PAGE
        with suppress(OSError):
            files += len(os.listdir(root / str(one) / "fd"))
    return Use(time.monotonic(), rss, ticks / TICK, threads, files)


def listener(port: int, *, root: Path = PROC) -> int | None:
    """The process that listens at this port of this machine, where we may see it."""
    inodes = set()
    for table in ("net/tcp", "net/tcp6"):
        for line in read_text(root / table).splitlines()[1:]:
            fields = line.split()
            if len(fields) > 9 and fields[3] == LISTENS and int(fields[1].rpartition(":")[2], 16) == port:
                inodes.add(f"socket:[{fields[9]}]")
    for folder in root.iterdir() if inodes else ():
        if folder.name.isdigit():
            with suppress(OSError):
                if any(os.readlink(link) in inodes for link in (folder / "fd").iterdir()):
                    return int(folder.name)
    return None


@contextmanager
def every(interval_s: float, look: Callable[[], bool]) -> Iterator[None]:
    """Look at something every so often while the block lasts, in a thread; no more once there is nothing to see."""
    end = threading.Event()

    def run() -> None:
        while look() and not end.wait(interval_s):
            pass

    thread = threading.Thread(target=run, daemon=True)
    thread.start()
    try:
        yield
    finally:
        end.set()
        thread.join()


@contextmanager
def sampled(pid: int | None, interval_s: float) -> Iterator[list[Use]]:
    """What a process uses, from time to time while the block lasts."""
    uses: list[Use] = []

    def look() -> bool:
        use = None if pid is None else use_of(pid)
        if use is not None:
            uses.append(use)
        return use is not None

    with every(interval_s, look):
        yield uses


class Started:
    """A server that we started, with its log."""

    def __init__(self, words: Sequence[str], env: dict[str, str] | None = None) -> None:
        self._log = tempfile.NamedTemporaryFile(prefix="woolly-validate-", suffix=".log")  # noqa: SIM115  ends with us
        self.begun_s = time.monotonic()
        self._process = subprocess.Popen(
            words, stdin=subprocess.DEVNULL, stdout=self._log, stderr=self._log, env=env, start_new_session=True
        )

    @property
    def pid(self) -> int:
        return self._process.pid

    def log(self) -> bytes:
        return Path(self._log.name).read_bytes()

    def bad_lines(self) -> list[str]:
        """Lines of the log that warn or tell of an error."""
        return [
            printable(line.decode("utf-8", "replace"), 300) for line in self.log().splitlines() if BAD_LINE.search(line)
        ]

    def wait_for(self, pattern: bytes, seconds: float) -> re.Match[bytes]:
        """What the log says, as soon as it does."""
        end = time.monotonic() + seconds
        while time.monotonic() < end:
            found = re.search(pattern, self.log())
            if found:
                return found
            if self._process.poll() is not None:
                break
            time.sleep(0.01)
        last = (self.log().decode("utf-8", "replace").strip().splitlines() or ["it said nothing"])[-1]
        raise BusyError(f"the server did not start: {printable(last, 300)}")

    def close(self) -> None:
        """End it in good order, and otherwise anyway."""
        if self._process.poll() is None:
            self._process.send_signal(signal.SIGTERM)
            try:
                self._process.wait(END_S)
            except subprocess.TimeoutExpired:
                self._process.kill()
                self._process.wait()
        self._log.close()


@contextmanager
def woolly_server(model: Path, *words: str, seconds: float = 600.0) -> Iterator[tuple[str, Started]]:
    """`woolly serve` with this model at a free port, in a process of its own: its URL, and the process."""
    started = Started([sys.executable, "-m", "woolly", "serve", str(model), "--port", "0", *KEEPS_NOTHING, *words])
    try:
        found = started.wait_for(rb"listening at (http\S+)", seconds)
        yield found[1].decode(), started
    finally:
        started.close()


def _children(pid: int, root: Path) -> list[int]:
    """All processes below this one."""
    parents = {}
    for folder in root.iterdir():
        if folder.name.isdigit() and (fields := _stat(folder)):
            parents[int(folder.name)] = int(fields[1])
    below, found = {pid}, []
    while new := [one for one, parent in parents.items() if parent in below and one not in below]:
        below.update(new)
        found += new
    return found


def _stat(folder: Path) -> list[str]:
    """The fields of a process after its name, which may hold anything: state, parent, ..."""
    return read_text(folder / "stat").rpartition(")")[2].split()
