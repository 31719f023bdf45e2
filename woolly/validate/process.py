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
NO_DISK_CACHE = ("--disk-bytes", "0")  # the prompts of a test are never sent again


@dataclass(frozen=True, slots=True)
class ProcessUsage:
    """Memory, processor time, threads and files of a process and its children at one moment."""

    at_s: float
    rss: int  # bytes
    cpu_s: float
    threads: int
    files: int


def usage_of(pid: int, *, root: Path = PROC) -> ProcessUsage | None:
    """The usage of a process; None once it is gone."""
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
    return ProcessUsage(time.monotonic(), rss, ticks / TICK, threads, files)


def listening_pid(port: int, *, root: Path = PROC) -> int | None:
    """The id of the process that listens at this port of this machine; None where that is not visible."""
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
def repeated(interval_s: float, look: Callable[[], bool]) -> Iterator[None]:
    """Call `look` at every interval while the block lasts, in a thread; stop once it returns False."""
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
def sampled(pid: int | None, interval_s: float) -> Iterator[list[ProcessUsage]]:
    """The usage of a process and its children, measured at every interval while the block lasts."""
    usages: list[ProcessUsage] = []

    def look() -> bool:
        usage = None if pid is None else usage_of(pid)
        if usage is not None:
            usages.append(usage)
        return usage is not None

    with repeated(interval_s, look):
        yield usages


class ServerProcess:
    """A server process that was started here, with its log."""

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
        """Lines of the log with a warning or an error."""
        return [
            printable(line.decode("utf-8", "replace"), 300) for line in self.log().splitlines() if BAD_LINE.search(line)
        ]

    def wait_for(self, pattern: bytes, seconds: float) -> re.Match[bytes]:
        """Wait until the log has this pattern; returns the match."""
        end = time.monotonic() + seconds
        while time.monotonic() < end:
            match = re.search(pattern, self.log())
            if match:
                return match
            if self._process.poll() is not None:
                break
            time.sleep(0.01)
        last = (self.log().decode("utf-8", "replace").strip().splitlines() or ["it said nothing"])[-1]
        raise BusyError(f"the server did not start: {printable(last, 300)}")

    def close(self) -> None:
        """End it by SIGTERM, and kill it where that takes too long."""
        if self._process.poll() is None:
            self._process.send_signal(signal.SIGTERM)
            try:
                self._process.wait(END_S)
            except subprocess.TimeoutExpired:
                self._process.kill()
                self._process.wait()
        self._log.close()


@contextmanager
def woolly_server(model: Path, *words: str, seconds: float = 600.0) -> Iterator[tuple[str, ServerProcess]]:
    """`woolly serve` with this model at a free port, in a process of its own: its URL, and the process."""
    started = ServerProcess(
        [sys.executable, "-m", "woolly", "serve", str(model), "--port", "0", *NO_DISK_CACHE, *words]
    )
    try:
        match = started.wait_for(rb"listening at (http\S+)", seconds)
        yield match[1].decode(), started
    finally:
        started.close()


def _children(pid: int, root: Path) -> list[int]:
    """The ids of all descendants of a process."""
    parents = {}
    for folder in root.iterdir():
        if folder.name.isdigit() and (fields := _stat(folder)):
            parents[int(folder.name)] = int(fields[1])
    below, descendants = {pid}, []
    while new := [one for one, parent in parents.items() if parent in below and one not in below]:
        below.update(new)
        descendants += new
    return descendants


def _stat(folder: Path) -> list[str]:
    """The fields of a process after its name, which may hold anything: state, parent, ..."""
    return read_text(folder / "stat").rpartition(")")[2].split()
