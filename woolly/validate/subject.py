"""What is validated: a server, the model that it is said to answer with, and the machine that it runs on."""

from __future__ import annotations

import time
from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass, field
from pathlib import Path
from random import Random
from typing import Any

from woolly import gguf, model, native, plan, store, system
from woolly.bench.state import Watch, load_average, processor
from woolly.errors import BusyError, NotFoundError, printable
from woolly.examine.card import Card, read_card
from woolly.gguf import GgufFile
from woolly.text import Tokenizer
from woolly.validate.client import Client, Unreachable
from woolly.validate.process import Started, Use, use_of
from woolly.validate.prompts import fresh_text
from woolly.validate.settings import Settings
from woolly.validate.yardstick import Yardstick

HEALTH_S = 5.0


@dataclass(frozen=True, slots=True)
class File:
    """A model's file, and what a token of it costs at the least."""

    path: Path
    card: Card
    tokenizer: Tokenizer
    digest: str
    token_bytes: int  # of the weights, those that a token reads
    token_macs: int  # multiplications of the products of a token

    @property
    def billions(self) -> float:
        return self.card.parameters / 1e9

    def prompt_tokens(self, text: str) -> int:
        return len(self.tokenizer.encode(text, special=True, bos=None))


def read_file(path: Path) -> File:
    """The facts of a file; its digest takes a second a gigabyte."""
    with gguf.open(path) as file:
        card, tokenizer = read_card(file), Tokenizer(file.meta)
        nbytes, macs = _costs(file)
    digest = store.file_digest(store.parts_of(path), lambda: True)
    assert digest is not None
    return File(path, card, tokenizer, digest.hex(), nbytes, macs)


def _costs(file: GgufFile) -> tuple[int, int]:
    graph = model.build(file, 512)
    products = [node for node in graph.nodes if node.op == "linear"]
    macs = sum(node.width * graph.weights[node.inputs[1]].shape[1] for node in products)
    return plan.plan(graph, plan.CPU, plan.Bounds(1, 1, 1, 512)).token_bytes, macs


@dataclass(slots=True)
class Subject:
    """A server under test. pid: of its process, where it runs on this machine; started: where we started it."""

    client: Client
    file: File
    settings: Settings
    pid: int | None
    started: Started | None
    yardstick: Yardstick
    say: Callable[[str], None] = lambda what: None
    uses: list[Use] = field(default_factory=list)  # of memory and processors, over the whole run
    dice: Random = field(default_factory=lambda: Random())

    def fresh(self, tokens: int) -> str:
        """A prompt of so many tokens that the server has not seen."""
        return fresh_text(self.file.tokenizer, tokens, self.dice)

    def no_end(self) -> dict[str, float]:
        """A bias that lets no answer end before its time."""
        return {str(token): -100.0 for token in self.file.tokenizer.ends}

    def use(self) -> Use | None:
        return None if self.pid is None else use_of(self.pid)

    def watch(self) -> Watch:
        """How much of the processors others use: neither we nor the server."""
        return Watch(() if self.pid is None else (self.pid,))

    def stats(self) -> dict[str, Any]:
        """What a server of Woolly tells about itself; nothing where there is no such route."""
        try:
            status, body = self.client.ask("GET", "/api/v1/performance/stats")
        except Unreachable:
            return {}
        return body if status == 200 and isinstance(body, dict) else {}


def healthy(client: Client) -> None:
    """See that somebody answers."""
    try:
        for path in ("/api/v1/health", "/health", "/v1/models"):
            if client.ask("GET", path, timeout_s=HEALTH_S)[0] == 200:
                return
        why = "it knows none of /api/v1/health, /health and /v1/models"
    except Unreachable as error:
        why = str(error)
    raise NotFoundError(
        f"no server at {printable(client.url)}: {why}", suggestion="start it, or leave --url out to have one started"
    )


def wait_ready(client: Client, seconds: float) -> None:
    """Wait until a server of our own has loaded its model: it listens before that."""
    end = time.monotonic() + seconds
    while time.monotonic() < end:
        with suppress(Unreachable):
            if client.ask("GET", "/api/v1/health/ready", timeout_s=HEALTH_S)[0] == 200:
                return
        time.sleep(0.02)
    raise BusyError(f"the server did not load its model within {seconds:g} s")


def model_name(client: Client, path: Path) -> str:
    """What the server calls this model: the name of the file, else the one model that it has."""
    try:
        _, body = client.ask("GET", "/v1/models")
    except Unreachable as error:
        raise NotFoundError(f"{printable(client.url)} lists no models: {error}") from None
    rows = body.get("data") if isinstance(body, dict) else body
    names = [str(row.get("id", "")) for row in rows if isinstance(row, dict)] if isinstance(rows, list) else []
    wanted = store.identity(path).lower()
    same = [name for name in names if store.identity(Path(name)).lower() == wanted]
    if not same and len(names) != 1:
        listed = ", ".join(printable(name) for name in names[:10]) or "none"
        raise NotFoundError(
            f"{printable(client.url)} has no model '{printable(wanted)}'", suggestion=f"name one of its: {listed}"
        )
    return (same or names)[0]


def machine(subject: Subject) -> dict[str, Any]:
    """The machine as it is now."""
    state = subject.yardstick.state()
    return {
        "processor": processor(),
        "cores": system.cores(),
        "instruction_set": subject.stats().get("instruction_set") or native.ISA,
        "memory_bytes": system.memory(),
        "load_average": load_average(),
        "state": state.state,
        "barrier_ns": state.barrier_ns,
        "read_gb_s": state.read_gb_s,
    }
