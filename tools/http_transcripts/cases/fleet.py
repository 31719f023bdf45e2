"""A gateway with one replica: answers through it, what it tells of itself, and the wire between them."""

from __future__ import annotations

import dataclasses
from typing import Any

from tools.http_transcripts.case import Case, both, get, named, post
from tools.http_transcripts.cases.anthropic import ASK as MESSAGE
from tools.http_transcripts.cases.ollama import CHAT as OLLAMA
from tools.http_transcripts.cases.openai_chat import CHAT, LONG, PATH, TOOL
from tools.http_transcripts.servers import FLEET_KEY

SECRET = {"X-Woolly-Fleet": FLEET_KEY}
JOIN, SUBMIT, POOL, HEADER = (f"/woolly/v1/{name}" for name in ("join", "submit", "pool", "header"))
REPORT: dict[str, Any] = {"id": "0123456789abcdef", "url": "http://127.0.0.1:9", "version": "0.1.0", "number": 1}
VERSION = {"model": "talker", "digest": "<digest>", "kind": "<kind>"}
POOLED: dict[str, Any] = VERSION | {"ids": "RgAAAEcAAAA="}
REQUEST: dict[str, Any] = POOLED | {"max_tokens": 4, "sampling": {"seed": 1, "temperature": 0.0}}


def at_gateway(*cases: Case) -> tuple[Case, ...]:
    return tuple(dataclasses.replace(case, server="gateway") for case in cases)


CASES = named(
    "fleet",
    at_gateway(
        *both("a chat", PATH, CHAT),
        *both("likelihoods", PATH, CHAT | {"logprobs": True}),
        *both("a tool has to be called", PATH, CHAT | {"tools": [TOOL], "tool_choice": "required", "max_tokens": 60}),
        *both("a prompt", "/v1/completions", {"model": "talker", "prompt": "Once", "max_tokens": 4, "temperature": 0}),
        *both("a message", "/v1/messages", MESSAGE),
        *both("a chat of ollama", "/api/chat", OLLAMA),
        post("an embedding", "/v1/embeddings", {"model": "talker", "input": "hello"}),
        post("refused, unknown model", PATH, CHAT | {"model": "nobody"}),
        post("refused, too long", PATH, CHAT | {"messages": LONG}),
        post("refused, a load", "/api/v1/models/nobody/load", {}),
        get("models", "/v1/models"),
        get("models of woolly", "/api/v1/models"),
        get("health", "/health"),
        get("ready", "/health/ready"),
        get("metrics", "/metrics"),
        get("figures", "/api/v1/performance/stats"),
        get(
            "the fleet",
            "/woolly/v1/fleet",
            keep={"digest": "replicas.0.models.0.digest", "kind": "replicas.0.models.0.kind"},
        ),
        post("a replica joins", JOIN, REPORT, headers=SECRET),
        post("refused, a replica without the secret", JOIN, REPORT),
        post("refused, a report that is none", JOIN, {"id": "x"}, headers=SECRET),
        post("a replica leaves", JOIN, REPORT | {"number": 2, "leaving": True}, headers=SECRET),
    ),
    (
        post(name, path, body, headers=headers, server="replica")
        for name, path, body, headers in (
            ("a request", SUBMIT, REQUEST, SECRET),
            ("a request with likelihoods", SUBMIT, REQUEST | {"logprobs": 1, "prompt_logprobs": True}, SECRET),
            ("a request that goes on", SUBMIT, REQUEST | {"given": "SAAAAA==", "pieces": 1}, SECRET),
            ("refused, a request without the secret", SUBMIT, REQUEST, {}),
            ("refused, a request of another version", SUBMIT, REQUEST | {"kind": "other"}, SECRET),
            ("refused, a request for nobody", SUBMIT, REQUEST | {"model": "nobody"}, SECRET),
            ("refused, a request without a seed", SUBMIT, REQUEST | {"sampling": {}}, SECRET),
            ("refused, a request with an unknown field", SUBMIT, REQUEST | {"more": 1}, SECRET),
            ("refused, a request of too many tokens", SUBMIT, REQUEST | {"max_tokens": 10**6}, SECRET),
            ("a text", POOL, POOLED, SECRET),
            ("refused, a text without the secret", POOL, POOLED, {}),
            ("refused, a text of nothing", POOL, POOLED | {"ids": ""}, SECRET),
        )
    ),
    get("a header", f"{HEADER}?model=talker", server="replica", headers=SECRET),
    get("refused, a header without the secret", f"{HEADER}?model=talker", server="replica"),
    get("refused, a header of nobody", f"{HEADER}?model=nobody", server="replica", headers=SECRET),
    get("refused, a part that is not there", f"{HEADER}?model=talker&part=7", server="replica", headers=SECRET),
    get("metrics of a replica", "/metrics", server="replica"),
    *both("a chat at the replica itself", PATH, CHAT, server="replica"),
)
