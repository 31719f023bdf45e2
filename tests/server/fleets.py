"""A gateway in a thread of this process with replicas that are processes of their own, and streams of every kind."""

from __future__ import annotations

import dataclasses
import http.client
import json
import signal
from collections.abc import Callable, Iterator, Mapping
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import Any

from tests.server.background import Background
from tests.server.process import Process, environ
from tests.server.raw import ask
from tests.server.stand_in import until
from tests.tiny import tiny
from woolly.config import Settings, read_config
from woolly.fleet.gateway import build_gateway
from woolly.fleet.members import Fleet

KEY = "a secret of the fleet, long enough"
WORDS = [{"role": "system", "content": "Speak of the sea."}, {"role": "user", "content": "the an and the in"}]
SCHEMA = {
    "type": "object",
    "properties": {
        "name": {"type": "string", "maxLength": 24},
        "tags": {"type": "array", "items": {"type": "string", "maxLength": 8}, "minItems": 4, "maxItems": 6},
        "old": {"type": "boolean"},
    },
    "required": ["name", "tags", "old"],
}
FORMAT = {"type": "json_schema", "json_schema": {"name": "s", "schema": SCHEMA}}
TOOL = {
    "type": "function",
    "function": {
        "name": "look_up",
        "description": "Looks up.",
        "parameters": {
            "type": "object",
            "properties": {"what": {"type": "string", "maxLength": 99}, "where": {"type": "string", "maxLength": 99}},
            "required": ["what", "where"],
        },
    },
}
USAGE = {"include_usage": True}
ENDLESS = {"270": -100, "272": -100}  # forbids the end tokens
CHAT = "/v1/chat/completions"
TOKENS = 150
KINDS: dict[str, tuple[str, dict[str, Any]]] = {
    "greedy": (CHAT, {"temperature": 0, "seed": 1}),
    "sampled": (
        CHAT,
        {"temperature": 0.9, "seed": 2, "stream_options": {"include_usage": True}, "logit_bias": ENDLESS},
    ),
    "schema": (
        CHAT,
        {"seed": 3, "response_format": {"type": "json_schema", "json_schema": {"name": "s", "schema": SCHEMA}}},
    ),
    "tools": (CHAT, {"seed": 4, "tools": [TOOL], "tool_choice": "required"}),
    "two choices": (CHAT, {"seed": 5, "n": 2, "temperature": 1.0}),
    "likelihoods": (CHAT, {"seed": 6, "logprobs": True, "top_logprobs": 3}),
    "penalties": (CHAT, {"seed": 7, "frequency_penalty": 0.7, "stop": ["w39 w", "zz"]}),
    "prompt": ("/v1/completions", {"prompt": "the an and", "seed": 8, "temperature": 1.0, "logprobs": 1}),
    "ollama": ("/api/chat", {"model": "talker", "options": {"seed": 9, "num_predict": TOKENS}}),
    "session": ("/api/v1/inference/chat", {"seed": 10, "temperature": 1.0}),
    "anthropic": ("/v1/messages", {"model": "talker", "temperature": 0.0}),
}
CLOCKS = frozenset(  # fields that depend on time, chance or the cache
    (
        "id",
        "created",
        "created_at",
        "timings",
        "cached_tokens",
        "cache_read_input_tokens",
        "cache_creation_input_tokens",
    )
)


def body_of(kind: str, tokens: int = TOKENS) -> tuple[str, dict[str, Any]]:
    path, fields = KINDS[kind]
    body = {"stream": True, "max_tokens": tokens, **fields}
    return path, body if "prompt" in body else {"messages": WORDS, **body}


def timeless(value: Any) -> Any:
    """A frame without the fields that depend on time, chance or the cache."""
    if isinstance(value, dict):
        return {
            name: timeless(each)
            for name, each in value.items()
            if name not in CLOCKS and not name.endswith("_duration")
        }
    return [timeless(each) for each in value] if isinstance(value, list) else value


def talker(folder: Path, name: str = "talker.gguf", **more: Any) -> Path:
    """A model that takes some milliseconds for a token, so that a test can act in the middle of an answer."""
    sizes: dict[str, Any] = {"vocab": 2048, "width": 256, "layers": 24, "context": 4096, "seed": 5}
    return tiny(folder / name, **sizes | more)


def frames(
    port: int,
    kind: str,
    seen: Callable[[int], None] = lambda _: None,
    tokens: int = TOKENS,
    headers: Mapping[str, str] | None = None,
    comments: list[bytes] | None = None,
) -> list[Any]:
    """The data frames of a streamed answer; `seen` is called with their number at each one; comments are appended."""
    path, body = body_of(kind, tokens)
    if kind == "session":
        body |= {"messages": WORDS[1:], "session_id": ask(port, "POST", "/api/v1/sessions", {})[2]["session_id"]}
    connection = http.client.HTTPConnection("127.0.0.1", port, timeout=120)
    connection.request("POST", path, json.dumps(body), {"content-type": "application/json", **(headers or {})})
    answer = connection.getresponse()
    if answer.status != 200:
        raise AssertionError(f"{answer.status}: {answer.read()!r}")
    events = []
    for line in answer:
        data = line.removeprefix(b"data: ").strip()
        if data.startswith(b":") and comments is not None:
            comments.append(data)
        if data.startswith(b"{"):
            events.append(timeless(json.loads(data)))
            seen(len(events))
    connection.close()
    if kind == "session":
        ask(port, "DELETE", f"/api/v1/sessions/{body['session_id']}")
    if events and "error" in events[-1]:
        raise AssertionError(events[-1])
    return sorted(events, key=_choice)  # the order in which frames of two choices alternate depends on timing


def _choice(frame: dict[str, Any]) -> int:
    choices = frame.get("choices")
    return choices[0]["index"] if choices else 99 if choices == [] else 0


class Fleets:
    """One gateway and its replicas."""

    def __init__(self, home: Path, model: Path, *, port: int = 0, key: str = KEY) -> None:
        self.model = model
        self.home = home
        self.key = key
        self.replicas: list[Process] = []
        self.begin(port)

    def begin(self, port: int = 0) -> None:
        config = dataclasses.replace(read_config({"HOME": str(self.home)}), hub=self.home / "hub")
        settings = Settings(ports=(port,), log_level="error", fleet_key=self.key)
        self.fleet = Fleet(self.key)
        self.app = build_gateway(settings, config, self.fleet)
        self.background = Background(self.app)
        self.background.__enter__()
        self.port = self.background.port

    def join(self, count: int = 1, *, port: int = 0, **more: str) -> list[Process]:
        """Start so many replicas more, with this in their environment, too."""
        env = (
            environ(self.home, self.model.parent) | {"WOOLLY_FLEET_KEY": self.key, "WOOLLY_LOG_LEVEL": "warning"} | more
        )
        rest = ("--threads", "1", "--disk-bytes", "0", "--join", f"http://127.0.0.1:{self.port}")
        joined = [Process(env, str(self.model), *rest, port=port) for _ in range(count)]
        self.replicas += joined
        return joined

    @property
    def here(self) -> int:
        """How many replicas accept requests, as the gateway sees it."""
        replicas = self.fleet.replicas.values()
        ports = {replica.port for replica in self.replicas}
        return sum(one.here and "talker" in one.models and one.address.port in ports for one in replicas)

    def ready(self, count: int) -> None:
        assert until(lambda: self.here == count and self.app.models.loaded), self.state()

    def state(self) -> Any:
        return ask(self.port, "GET", "/woolly/v1/fleet")[2]

    def busy(self) -> list[Process]:
        """The replicas that are computing an answer for the gateway."""
        urls = {one["url"] for one in self.state()["replicas"] if one["answers"]}
        return [one for one in self.replicas if f"http://127.0.0.1:{one.port}" in urls]

    def kill(self, replica: Process, sign: int = signal.SIGKILL) -> None:
        replica.process.send_signal(sign)
        if sign == signal.SIGKILL:
            replica.process.communicate()
            self.replicas.remove(replica)

    def close(self) -> None:
        for replica in self.replicas:
            replica.__exit__()
        self.background.__exit__()


@contextmanager
def fleet(home: Path, model: Path, count: int = 2, **more: Any) -> Iterator[Fleets]:
    with ExitStack() as stack:
        deployment = Fleets(home, model, **more)
        stack.callback(deployment.close)
        if count:
            deployment.join(count)
            deployment.ready(count)
        yield deployment
