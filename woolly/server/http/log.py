"""The log: one line for each request, with its id. Never a prompt, an answer, a key, a query or a header.

Lines are written by a thread of their own. The process that started the server may not read its output, and a full pipe
must stop the log and not the answers: lines that find no room are dropped, and the next line says how many.
"""

from __future__ import annotations

import contextlib
import json
import logging
import os
import re
import sys
import threading
import traceback
from contextvars import ContextVar
from datetime import UTC, datetime
from queue import Full, Queue
from typing import TYPE_CHECKING

from woolly.config import LOG_LEVELS, Settings
from woolly.errors import NativeError, WoollyError, printable, shortage
from woolly.system import check_thread

if TYPE_CHECKING:
    from woolly.server.http.request import Http

REQUEST_ID: ContextVar[str] = ContextVar("REQUEST_ID", default="")  # of the request that is being answered
WAITING = 4096  # lines that wait to be written
LAST_S = 1.0  # for them when the server ends

_PLAIN = re.compile(r"[!#-<>-\[\]-~]+")  # visible ASCII, without the signs that mean something in a line: " = \


class OwnWarnings(logging.Handler):
    """Writes what the parts of Woolly warn of, which know nothing of servers, as lines of the server's log."""

    def __init__(self, log: Log) -> None:
        super().__init__(logging.WARNING)
        self._log = log

    def emit(self, record: logging.LogRecord) -> None:
        self._log.line("warning", "warning", what=record.getMessage().removeprefix("woolly: "))


class Log:
    """Writes to a file, or to standard output and errors to standard error, which some programs show as a fault."""

    def __init__(self, settings: Settings) -> None:
        self._least = LOG_LEVELS.index(settings.log_level)
        self._json = settings.log_format == "json"
        self._path = settings.log_file
        self._file: int | None = None
        self._queue: Queue[tuple[str, bool] | None] = Queue(WAITING)
        self._thread: threading.Thread | None = None
        self._dropped = 0
        self._reopen = False

    def request(self, http: Http, seconds: float, error: BaseException | None, level: str = "info") -> None:
        self.line(
            level,
            "request",
            id=http.id,
            method=printable(http.method, 16),
            path=printable(http.path, 100),
            status=http.status or 499,
            ms=round(seconds * 1e3, 1),
            **({"ended": "client gone"} if error is not None else {}),
        )

    def fault(self, id_: str, error: Exception) -> WoollyError:
        """What to answer where nobody expected this exception: something ran out, or else it is a bug, and logged."""
        if short := shortage(error, "this request"):
            return short
        self.internal_error(id_, error)
        return NativeError("something went wrong in the server", suggestion="its log tells where")

    def internal_error(self, id_: str, error: Exception) -> None:
        """Log a bug in Woolly: its kind and place, not its text, which could quote a prompt."""
        frame = traceback.extract_tb(error.__traceback__)[-1]
        place = f"{frame.name}:{frame.lineno}"
        self.line("error", "internal error", id=id_, kind=type(error).__name__, place=place)

    def line(self, level: str, message: str, **facts: object) -> None:
        """Log a line. For any thread; never waits."""
        if LOG_LEVELS.index(level) < self._least:
            return
        if self._dropped:
            facts |= {"lines_dropped": self._dropped}
        now = datetime.now(UTC).isoformat(timespec="milliseconds")
        if self._json:
            text = json.dumps({"time": now, "level": level, "message": message} | facts)
        else:
            text = f"{now} {level} {message}" + "".join(f" {name}={_quoted(value)}" for name, value in facts.items())
        try:
            self._queue.put_nowait((text, level == "error"))
            self._dropped = 0
        except Full:
            self._dropped += 1
            return
        self.begin()

    def begin(self) -> None:
        """Begin the thread that writes, which else begins with the first line."""
        if self._thread is None:
            thread = threading.Thread(target=self._write, name="woolly-log", daemon=True)
            with contextlib.suppress(RuntimeError, MemoryError):  # without it the line waits, and the next one tries
                check_thread()
                thread.start()
                self._thread = thread

    def reopen(self) -> None:
        """Write the next line to a new file of the same name, because the old one was moved."""
        self._reopen = True

    def close(self) -> None:
        """Write the lines that wait, for at most LAST_S seconds."""
        if self._thread is not None:
            with contextlib.suppress(Full):
                self._queue.put_nowait(None)
            self._thread.join(LAST_S)
            self._thread = None

    def _write(self) -> None:
        torn = b""  # ends a line that was written in part
        while (came := self._queue.get()) is not None:
            text, bad = came
            data = torn + (text + "\n").encode("utf-8", "replace")
            with contextlib.suppress(OSError, ValueError):  # the reader has gone, or the disk is full: serving goes on
                target = self._target(bad)
                while data:  # not through Python's own buffer, whose lock the end of the process would wait for
                    data = data[os.write(target, data) :]
                    torn = b"\n" if data else b""
        if self._file is not None:
            os.close(self._file)

    def _target(self, bad: bool) -> int:
        if self._path is None:
            return (sys.stderr if bad else sys.stdout).fileno()
        if self._file is None or self._reopen:
            self._reopen = False
            if self._file is not None:
                os.close(self._file)
                self._file = None
            self._file = os.open(self._path, os.O_WRONLY | os.O_CREAT | os.O_APPEND | os.O_CLOEXEC, 0o600)
        return self._file


def _quoted(value: object) -> str:
    """A value as one word of a line; one that could be taken for several, or for another field, is a JSON string."""
    text = str(value)
    return text if _PLAIN.fullmatch(text) else json.dumps(text)
