"""The servers that are asked: small models in one folder, and a row for each way to start a server over it."""

from __future__ import annotations

import contextlib
import json
import sys
import time
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path

from tests.end.test_embed import bert_model
from tests.lora import adapter
from tests.server.process import Process, environ
from tests.server.raw import ask
from tests.tiny import CHATML, scripted, tiny

ROOT = Path(__file__).resolve().parents[2]
KEY = "the-key-of-these-transcripts-32x"
FLEET_KEY = "a secret of the fleet, long enough"
WEATHER = ("<tool_call>", '\n{"name": "wea', 'ther", "argu', 'ments": {"city": "Kö', 'ln"}}\n', "</tool_call>")
ADD = ("<tool_call>", '\n{"name": "a', 'dd", "argu', 'ments": {"a": 1, "b"', ": 2}}\n", "</tool_call>")
SWITCHED = CHATML.replace("assistant\n' }}", "assistant\n' + ('' if enable_thinking == false else '\n') }}")
READY_S = 60


@dataclass(frozen=True, slots=True)
class Server:
    """How one is started. words: behind the command; DIR is the folder of the models."""

    words: tuple[str, ...]
    environ: Mapping[str, str] = field(default_factory=dict)
    command: str = "serve"


SERVERS: dict[str, Server] = {
    "open": Server(
        ("DIR/models/talker.gguf", "--lora", "DIR/pirate.gguf", "--config", "DIR/open.toml", "--manage-models")
    ),
    "keyed": Server(
        ("DIR/models/talker.gguf",),
        {"WOOLLY_AUTH__API_KEYS": KEY, "WOOLLY_AUTH__ALLOW_ANONYMOUS": "false"},
    ),
    "mixed": Server(
        ("DIR/models/talker.gguf",),
        {"WOOLLY_AUTH__API_KEYS": KEY, "WOOLLY_AUTH__ALLOW_ANONYMOUS": "true"},
    ),
    "empty": Server(("--models-dir", "DIR/none")),
    "small": Server(
        ("DIR/models/talker.gguf", "--context", "128"),
        {
            "WOOLLY_LIMITS__MAX_BODY_SIZE": "2000",
            "WOOLLY_LIMITS__FILE_BYTES": "3000",
            "WOOLLY_LIMITS__MESSAGES": "2",
            "WOOLLY_LIMITS__ROWS": "2",
            "WOOLLY_MODELS__MAX_SESSIONS": "1",
        },
    ),
    "hurried": Server(("DIR/models/talker.gguf", "--rate-limit", "1"), {"WOOLLY_RATE_LIMIT__BURST_CAPACITY": "1"}),
    "gateway": Server((), {"WOOLLY_FLEET_KEY": FLEET_KEY}, command="gate"),
    "replica": Server(("DIR/models/talker.gguf", "--join", "GATEWAY"), {"WOOLLY_FLEET_KEY": FLEET_KEY}),
}
SETTINGS = f"""
[aliases]
gpt-4o = "talker"

[models]
default_model = "talker"

[mcp.servers.box]
command = ["{sys.executable}", "{ROOT}/tests/mcp/server.py"]
serve = true
allow = ["add"]
"""


def write_models(folder: Path) -> None:
    """A model for each kind of answer, an adapter, and the settings of the open server."""
    models = folder / "models"
    models.mkdir()
    (folder / "none").mkdir()
    gap = {f"tokenizer.ggml.fim_{name}_token_id": 200 + i for i, name in enumerate(("pre", "suf", "mid"))}
    talker = tiny(models / "talker.gguf", vocab=4096, seed=5, context=8192, meta=gap)
    adapter(folder / "pirate.gguf", talker)
    tiny(models / "spare.gguf", seed=2)
    scripted(models / "caller.gguf", "I look. ", *WEATHER)
    scripted(models / "adder.gguf", *ADD)
    scripted(models / "thinker.gguf", "<think>", "I add.", "</think>", "It is ", "four.", template=SWITCHED)
    bert_model("bert", models / "encoder.gguf")
    bert_model("bert_rank", models / "ranker.gguf")
    (models / "broken.gguf").write_bytes(b"GGUF and nothing else")
    (folder / "open.toml").write_text(SETTINGS)


@contextlib.contextmanager
def running(checkout: Path, folder: Path) -> Iterator[dict[str, int]]:
    """All servers of a checkout: name -> port. They end with the block."""
    ports: dict[str, int] = {}
    with contextlib.ExitStack() as stack:
        for name, server in SERVERS.items():
            gateway = f"http://127.0.0.1:{ports.get('gateway', 0)}"
            words = [word.replace("DIR", str(folder)).replace("GATEWAY", gateway) for word in server.words]
            rest = ["--log-level", "error"]
            if server.command == "serve":
                rest += ["--threads", "1", "--disk-bytes", "0"]
            home = folder / f"home-{name}"
            home.mkdir()
            variables = environ(home, folder / "models") | {**server.environ}
            process = Process(variables, *words, *rest, command=server.command, checkout=checkout)
            ports[name] = stack.enter_context(process).port
            if server.command == "serve" and name != "empty":
                _wait(process, "/health", b'"model": "talker"')
        _wait(process, "/v1/models", b"talker", port=ports["gateway"])  # the gateway has heard of its replica
        yield ports


def _wait(process: Process, path: str, words: bytes, port: int | None = None) -> None:
    """Until the server answers with status 200 and these words."""
    end = time.monotonic() + READY_S
    while time.monotonic() < end:
        status, _, body = ask(port or process.port, "GET", path)
        if status == 200 and words in json.dumps(body).encode():
            return
        time.sleep(0.02)
    raise SystemExit(f"{path} is not there after {READY_S} s")
