"""The subject of a validation: a server, the model it is said to answer with, and the machine it runs on."""

from __future__ import annotations

import time
from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass, field
from pathlib import Path
from random import Random
from typing import Any

from woolly import gguf, model, plan, store, system
from woolly.bench.state import Watch, load_average, processor
from woolly.device import cpu
from woolly.errors import BusyError, NotFoundError, printable
from woolly.examine.card import Card, read_card
from woolly.gguf import GgufFile
from woolly.text import Tokenizer
from woolly.validate.client import Client, Unreachable
from woolly.validate.process import ProcessUsage, ServerProcess, usage_of
from woolly.validate.prompts import fresh_text
from woolly.validate.settings import Settings
from woolly.validate.yardstick import Yardstick

HEALTH_S = 5.0


@dataclass(frozen=True, slots=True)
class ModelFile:
    """A model's file, and the least that a token costs."""

    path: Path
    card: Card
    tokenizer: Tokenizer
    digest: str
    token_bytes: int  # bytes of the weights that a token reads
    token_macs: int  # multiplications in the matrix products of a token

    @property
    def billions(self) -> float:
        return self.card.parameters / 1e9

    def prompt_tokens(self, text: str) -> int:
        return len(self.tokenizer.encode(text, special=True, bos=None))


def read_file(path: Path) -> ModelFile:
    """Read card, tokenizer, digest and costs of a file; the digest takes a second a gigabyte."""
    with gguf.open(path) as file:
        card, tokenizer = read_card(file, store.name_of(path)), Tokenizer(file.meta)
        nbytes, macs = _costs(file)
    digest = store.file_digest(store.parts_of(path), lambda: True)
    assert digest is not None
    return ModelFile(path, card, tokenizer, digest.hex(), nbytes, macs)


def _costs(file: GgufFile) -> tuple[int, int]:
    graph = model.build(file, 512)
    products = [node for node in graph.nodes if node.op == "linear"]
    macs = sum(node.width * graph.weights[node.inputs[1]].shape[1] for node in products)
    return plan.plan(graph, cpu.TARGET, plan.Bounds(1, 1, 1, 512)).token_bytes, macs


@dataclass(slots=True)
class Subject:
    """A server under test. pid: None where it runs elsewhere; started: None where it was running already."""

    client: Client
    file: ModelFile
    settings: Settings
    pid: int | None
    started: ServerProcess | None
    yardstick: Yardstick
    say: Callable[[str], None] = lambda what: None
    usages: list[ProcessUsage] = field(default_factory=list)  # memory and processors over the whole run
    rng: Random = field(default_factory=lambda: Random())

    def fresh_prompt(self, tokens: int) -> str:
        """A prompt of so many tokens that the server has not seen."""
        return fresh_text(self.file.tokenizer, tokens, self.rng)

    def no_end_bias(self) -> dict[str, float]:
        """A bias by which no answer ends before its last allowed token."""
        return {str(token): -100.0 for token in self.file.tokenizer.ends}

    def usage(self) -> ProcessUsage | None:
        return None if self.pid is None else usage_of(self.pid)

    def watch(self) -> Watch:
        """A watch on the share of the processors that processes other than this one and the server use."""
        return Watch(() if self.pid is None else (self.pid,))

    def stats(self) -> dict[str, Any]:
        """The figures that a Woolly server publishes about itself; empty for servers without that route."""
        try:
            status, body = self.client.ask("GET", "/api/v1/performance/stats")
        except Unreachable:
            return {}
        return body if status == 200 and isinstance(body, dict) else {}


def check_health(client: Client) -> None:
    """Raise NotFoundError if no server answers."""
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
    """Wait until a server that was started here has loaded its model: it listens before that."""
    end = time.monotonic() + seconds
    while time.monotonic() < end:
        with suppress(Unreachable):
            if client.ask("GET", "/api/v1/health/ready", timeout_s=HEALTH_S)[0] == 200:
                return
        time.sleep(0.02)
    raise BusyError(f"the server did not load its model within {seconds:g} s")


def model_name(client: Client, path: Path) -> str:
    """The name by which the server knows this model: that of the file, else of the one model that it has."""
    try:
        _, body = client.ask("GET", "/v1/models")
    except Unreachable as error:
        raise NotFoundError(f"{printable(client.url)} lists no models: {error}") from None
    rows = body.get("data") if isinstance(body, dict) else body
    names = [str(row.get("id", "")) for row in rows if isinstance(row, dict)] if isinstance(rows, list) else []
    wanted = {store.identity(path).lower(), store.name_of(path).lower()}
    same = [name for name in names if store.identity(Path(name)).lower() in wanted]
    if not same and len(names) != 1:
        listed = ", ".join(printable(name) for name in names[:10]) or "none"
        raise NotFoundError(
            f"{printable(client.url)} has no model '{printable(store.name_of(path) or path.name)}'",
            suggestion=f"name one of its: {listed}",
        )
    return (same or names)[0]


def machine(subject: Subject) -> dict[str, Any]:
    """The machine and its state now, as JSON."""
    state = subject.yardstick.state()
    return {
        "processor": processor(),
        "cores": system.cores(),
        "instruction_set": subject.stats().get("instruction_set") or cpu.ISA,
        "memory_bytes": system.memory(),
        "load_average": load_average(),
        "state": state.state,
        "barrier_ns": state.barrier_ns,
        "read_gb_s": state.read_gb_s,
    }
