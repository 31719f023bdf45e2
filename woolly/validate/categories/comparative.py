"""comparative: the server beside a peer with the same file, in alternating slices, prompt and decode apart."""

from __future__ import annotations

import shutil
import socket
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import replace
from typing import Any
from urllib.parse import urlsplit

from woolly.bench.figures import figures
from woolly.bench.ratios import Ratio, compare, noise, noisy, ratio_of
from woolly.bench.state import Watch
from woolly.errors import NotFoundError, printable
from woolly.validate.categories.result import CategoryResult
from woolly.validate.categories.speed import timed_answer
from woolly.validate.client import Client, check_url
from woolly.validate.gates import Finding, Measurement
from woolly.validate.honesty import tokens_of
from woolly.validate.process import ServerProcess, listening_pid
from woolly.validate.subject import Subject, check_health, model_name

PROMPT = 256  # tokens
START_S = 600.0


def measure(subject: Subject) -> CategoryResult:
    settings = subject.settings.tests.comparative
    with _peer(subject, settings.compare_with) as peer:
        watch = Watch([pid for pid in (subject.pid, peer.pid) if pid is not None])
        rows: dict[str, Any] = {"peer": printable(settings.compare_with, 300)}
        ratios: dict[str, Ratio] = {}
        for name, seconds in (("decode", decode_s), ("prompt", prompt_s)):
            for one in (subject, peer):
                seconds(one)  # the first run is warm-up and is not counted
            subject.say(f"{name}: ours against ours")
            quiet = noise(lambda: seconds(subject), seconds=settings.seconds / 2, watch=watch)  # noqa: B023
            subject.say(f"{name}: against the peer")
            slices = compare(lambda: seconds(subject), lambda: seconds(peer), seconds=settings.seconds, watch=watch)  # noqa: B023
            ratios[name] = ratio_of(slices)
            rows[name] = {
                "performance_ratio": figures(ratios[name]),
                "noise": figures(quiet),
                "noisy": noisy(quiet, ratios[name]),
                "ours_s": [s for row in slices for s in row.ours_s],
                "theirs_s": [s for row in slices for s in row.theirs_s],
            }
    least = min(ratios.values(), key=lambda ratio: ratio.median)
    note = "; ".join(f"{name} {ratio.median:.2f}" for name, ratio in ratios.items())
    finding: Finding = Measurement((least.quartiles[0], least.median, least.quartiles[1]), least.median, note=note)
    return CategoryResult(rows, {"speed_beside_peer": finding})


def decode_s(subject: Subject) -> float:
    """Seconds of a slice's tokens after the first."""
    tokens = subject.settings.tests.inference_speed.slice_tokens
    answer, _ = timed_answer(subject, 16, tokens)
    return tokens / answer.rate(tokens_of(subject.file, answer))


def prompt_s(subject: Subject) -> float:
    """Seconds to the first token of a new prompt."""
    return timed_answer(subject, PROMPT, 2)[0].first_s


@contextmanager
def _peer(subject: Subject, word: str) -> Iterator[Subject]:
    """The other server: one that runs at a URL, or a llama-server that is started with as many threads."""
    if word.startswith(("http://", "https://")):
        client = Client(check_url(word), timeout_s=subject.client.timeout_s)
        check_health(client)
        client = replace(client, model=model_name(client, subject.file.path))
        yield replace(subject, client=client, pid=listening_pid(_port(word)), started=None)
        return
    program = shutil.which(word)
    if program is None:
        raise NotFoundError(
            f"there is no program '{printable(word)}'", suggestion="name a URL, or the path of a llama-server program"
        )
    port = _free_port()
    words = [
        program,
        "-m",
        str(subject.file.path),
        "--port",
        str(port),
        "-t",
        str(subject.yardstick.threads),
        "-c",
        "4096",
    ]
    started = ServerProcess(words)
    try:
        started.wait_for(rb"(?i)listening", START_S)
        client = Client(f"http://127.0.0.1:{port}", timeout_s=subject.client.timeout_s)
        client = replace(client, model=model_name(client, subject.file.path))
        yield replace(subject, client=client, pid=started.pid, started=started)
    finally:
        started.close()


def _port(url: str) -> int:
    where = urlsplit(url)
    return where.port or (443 if where.scheme == "https" else 80)


def _free_port() -> int:
    with socket.socket() as sock:
        sock.bind(("127.0.0.1", 0))
        return int(sock.getsockname()[1])
