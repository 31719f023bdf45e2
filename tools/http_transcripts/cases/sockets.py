"""WebSockets."""

from __future__ import annotations

from tools.http_transcripts.case import HELLO, Socket, Turn, named
from tools.http_transcripts.servers import KEY

CONFIG = {"max_tokens": 4, "temperature": 0}
ENDS = ("complete", "error", "GenerationComplete", "Error")
ENDLESS = {"max_tokens": 4000, "logit_bias": {"270": -100, "272": -100}, "model": "talker"}
RPC = ("rpc",)  # an answer of JSON-RPC has no type


def rpc(method: str, **params: object) -> Turn:
    return Turn({"jsonrpc": "2.0", "id": 2, "method": method, "params": params}, RPC)


CASES = named(
    "sockets",
    (
        Socket(
            name=f"a prompt at {path}",
            path=path,
            turns=(Turn({"type": "generate", "id": "a", "prompt": "Hi", "config": CONFIG}, ENDS),),
        )
        for path in ("/ws", "/api/v1/ws", "/api/v1/mcp/ws", "/v1/stream")
    ),
    Socket(
        name="a chat",
        path="/ws",
        turns=(Turn({"type": "chat", "id": 1, "messages": HELLO, "config": CONFIG}, ENDS),),
    ),
    Socket(
        name="the capital forms",
        path="/ws",
        turns=(
            Turn({"type": "Generate", "prompt": "Hi", "options": CONFIG}, ENDS),
            Turn({"type": "Generate", "prompt": ""}, ENDS),
            Turn({"type": "Ping"}, ("Pong",)),
            Turn({"type": "GetStats"}, ("Stats",)),
            Turn({"type": "StopGeneration"}),
            Turn({"type": "Ping"}, ("Pong",)),
        ),
    ),
    Socket(name="a bare prompt", path="/ws", turns=(Turn({"prompt": "Hi", "stream": True, **CONFIG}, ENDS),)),
    Socket(
        name="cancelled",
        path="/ws",
        turns=(
            Turn({"type": "generate", "id": "long", "prompt": "Hi", "config": ENDLESS}, ("token",)),
            Turn({"type": "cancel", "id": "long"}, ENDS),
            Turn({"type": "cancel", "id": "long"}, ENDS),
        ),
    ),
    Socket(
        name="refused, an id that is in use",
        path="/ws",
        turns=(
            Turn({"type": "generate", "id": 1, "prompt": "Hi", "config": ENDLESS}, ("token",)),
            Turn({"type": "generate", "id": 1, "prompt": "Hi", "config": CONFIG}, ("error",)),
        ),
    ),
    Socket(
        name="refused, messages that are none",
        path="/ws",
        turns=(
            *(Turn(text, ENDS) for text in ("no JSON", "[1]", "5")),
            Turn({"type": "sing"}, ENDS),
            Turn({"hello": 1}, ENDS),
            Turn({"type": "generate", "id": 1}, ENDS),
            Turn({"type": "chat", "id": 1, "messages": []}, ENDS),
            Turn({"type": "generate", "prompt": "x", "config": {"top_k": -1}}, ENDS),
            Turn({"type": "generate", "prompt": "x", "config": {"model": "nobody"}}, ENDS),
            Turn({"type": "cancel", "id": "nobody"}, ENDS),
            Turn(b"\x00\x01", RPC),
            Turn({"type": "Ping"}, ("Pong",)),
        ),
    ),
    Socket(
        name="the protocol",
        path="/api/v1/mcp/ws",
        turns=(
            rpc("initialize", protocolVersion="2025-06-18", capabilities={}, clientInfo={"name": "x", "version": "1"}),
            rpc("tools/list"),
            rpc("tools/call", name="generate", arguments={"prompt": "Hi", **CONFIG}),
            rpc("no/such"),
            rpc("tools/list", _meta={"io.modelcontextprotocol/protocolVersion": "2026-07-28"}),
            Turn({"type": "request", "id": 7, "method": "ping"}, ("response",)),
            Turn({"type": "request", "id": 8, "method": "no/such"}, ("response", "error")),
            Turn({"type": "notification", "method": "notifications/initialized"}),
            Turn({"type": "Ping"}, ("Pong",)),
        ),
    ),
    Socket(name="a frame that is too large", path="/ws", turns=(Turn("x" * 4000, ENDS),), server="small"),
    Socket(name="a key as a header", path="/ws", headers={"Authorization": f"Bearer {KEY}"}, server="keyed"),
    Socket(name="a key as a protocol", path="/ws", headers={"Sec-WebSocket-Protocol": f"bearer.{KEY}"}, server="keyed"),
    Socket(name="refused, no key", path="/ws", server="keyed"),
    Socket(name="refused, another page", path="/ws", headers={"Origin": "http://evil.example"}),
    Socket(name="refused, another path", path="/nowhere"),
)
