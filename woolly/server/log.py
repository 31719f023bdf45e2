"""The log: one line for each request, with its id. Never a prompt, an answer, a key, a query or a header."""

from __future__ import annotations

import json
import sys
import threading
import traceback
from datetime import UTC, datetime
from typing import TYPE_CHECKING

from woolly.config import LOG_LEVELS
from woolly.errors import printable
from woolly.server.settings import Settings

if TYPE_CHECKING:
    from woolly.server.http import Http


class Log:
    """Writes to standard output; errors go to standard error, which some programs show as a fault."""

    def __init__(self, settings: Settings) -> None:
        self._least = LOG_LEVELS.index(settings.log_level)
        self._json = settings.log_json
        self._lock = threading.Lock()

    def request(self, http: Http, seconds: float, error: BaseException | None) -> None:
        self.line(
            "info",
            "request",
            id=http.id,
            method=printable(http.method, 16),
            path=printable(http.path, 100),
            status=http.status or 499,
            ms=round(seconds * 1e3, 1),
            **({"ended": "client gone"} if error is not None else {}),
        )

    def mistake(self, http: Http, error: Exception) -> None:
        """A mistake of ours: its kind and place, not its text, which could quote what somebody wrote."""
        frame = traceback.extract_tb(error.__traceback__)[-1]
        self.line("error", "mistake", id=http.id, kind=type(error).__name__, place=f"{frame.name}:{frame.lineno}")

    def line(self, level: str, message: str, **facts: object) -> None:
        if LOG_LEVELS.index(level) < self._least:
            return
        now = datetime.now(UTC).isoformat(timespec="milliseconds")
        if self._json:
            text = json.dumps({"time": now, "level": level, "message": message} | facts)
        else:
            text = f"{now} {level} {message}" + "".join(f" {name}={value}" for name, value in facts.items())
        with self._lock:
            print(text, file=sys.stderr if level == "error" else sys.stdout, flush=True)
