"""model_loading: a new process to its first answer, a model unloaded and loaded again; for servers started here."""

from __future__ import annotations

import os
import time
from dataclasses import replace
from typing import Any
from urllib.parse import quote

from woolly import store
from woolly.errors import BusyError
from woolly.validate.categories.result import CategoryResult
from woolly.validate.gates import Finding, Measurement, NotMeasured
from woolly.validate.process import woolly_server
from woolly.validate.subject import ModelFile, Subject

LARGE = 7.0  # billions of weights of a model that may take LARGE_S
LARGE_S, SMALL_S = 30.0, 2.0


def measure(subject: Subject) -> CategoryResult:
    if subject.started is None:
        why = "the server was running before; only one that is started here can be timed"
        return CategoryResult({"cold_start": why}, {"cold_start": NotMeasured(why, applies=False)})
    settings = subject.settings.tests.model_loading
    starts, dropped = [], False
    for number in range(settings.iterations):
        subject.say(f"cold start {number + 1} of {settings.iterations}")
        dropped = _drop_pages(subject.file)
        starts.append(_cold_start(subject))
    reloads = [_reload(subject) for _ in range(settings.iterations)]
    allowed = SMALL_S + (LARGE_S - SMALL_S) * min(1.0, subject.file.billions / LARGE)
    finding: Finding = Measurement(tuple(starts), threshold=allowed)
    details = {
        "cold_start_s": starts,
        "file_pages_dropped": dropped,
        "reload": reloads,
        "success_rate": sum(row["success"] for row in reloads) / len(reloads),
    }
    return CategoryResult(details, {"cold_start": finding})


def _cold_start(subject: Subject) -> float:
    """Seconds from a new process to its first token."""
    with woolly_server(subject.file.path) as (url, started):
        answer = replace(subject.client, url=url).complete("Hi", max_tokens=1, temperature=0)
        if not answer.ok:
            raise BusyError(f"a new server gave no answer: {answer.error or 'it is empty'}")
        return time.monotonic() - started.begun_s


def _reload(subject: Subject) -> dict[str, Any]:
    """Unload and load over HTTP, with the resident set around both."""
    route = f"/api/v1/models/{quote(subject.client.model, safe='')}"
    before = subject.usage()
    subject.client.ask("POST", f"{route}/unload")
    empty = subject.usage()
    begun = time.monotonic()
    status, body = subject.client.ask("POST", f"{route}/load")
    seconds = time.monotonic() - begun
    after = subject.usage()
    right = status == 200 and isinstance(body, dict) and body.get("success") is True
    usages = {"before": before, "unloaded": empty, "loaded": after}
    return {"success": right, "seconds": seconds} | {
        f"rss_{name}": usage.rss for name, usage in usages.items() if usage
    }


def _drop_pages(file: ModelFile) -> bool:
    """Ask the system to forget the file's pages, so that the disk is read again; the system may ignore this."""
    if not hasattr(os, "posix_fadvise"):
        return False
    for path in store.parts_of(file.path):
        with path.open("rb") as data:
            os.posix_fadvise(data.fileno(), 0, 0, os.POSIX_FADV_DONTNEED)
    return True
