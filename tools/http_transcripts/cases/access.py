"""Keys, tokens, pages of other origins, rates, methods and paths."""

from __future__ import annotations

from tools.http_transcripts.case import Case, get, named, post
from tools.http_transcripts.cases.openai_chat import CHAT, PATH
from tools.http_transcripts.servers import KEY

BEARER = {"Authorization": f"Bearer {KEY}"}
WRONG = {"Authorization": "Bearer wrong"}
EVIL = {"Origin": "https://evil.example"}
OURS = {"Origin": "http://localhost:5173"}


def other(method: str, path: str, headers: dict[str, str] | None = None) -> Case:
    name = f"{method} {path}{' of a page' if headers else ''}"
    return Case(name=name, method=method, path=path, headers=headers or {})


CASES = named(
    "access",
    get("a key as a bearer", "/v1/models", server="keyed", headers=BEARER),
    get("a key in a header of its own", "/v1/models", server="keyed", headers={"X-API-Key": KEY}),
    get("refused, no key", "/v1/models", server="keyed"),
    get("refused, a wrong key", "/v1/models", server="keyed", headers=WRONG),
    post("an answer with a key", PATH, CHAT, server="keyed", headers=BEARER),
    post("refused, an answer without a key", PATH, CHAT, server="keyed"),
    post("refused, an answer without a key, anthropic", "/v1/messages", CHAT, server="keyed"),
    post("refused, an answer without a key, ollama", "/api/chat", CHAT, server="keyed"),
    post("an answer for anybody", PATH, CHAT, server="mixed"),
    post("refused, for who has a key alone", "/api/v1/models/talker/unload", {}, server="mixed"),
    get("open to all", "/health", server="keyed"),
    get("open to all under v1", "/v1/health", server="keyed"),
    post("a token", "/api/v1/auth/token", {"user_id": "ole", "api_key": KEY}, server="keyed", keep={"token": "token"}),
    post("a token is valid", "/api/v1/auth/validate", {"token": "<token>"}, server="keyed"),
    get("a token in place of a key", "/v1/models", server="keyed", headers={"Authorization": "Bearer <token>"}),
    post("a token that is not valid", "/api/v1/auth/validate", {"token": "a.b.c"}, server="keyed"),
    get("refused, a token that is not valid", "/v1/models", server="keyed", headers={"Authorization": "Bearer a.b.c"}),
    post("refused, a token for a wrong key", "/api/v1/auth/token", {"user_id": "o", "api_key": "x"}, server="keyed"),
    post("refused, a token without a key", "/api/v1/auth/token", {"user_id": "o"}, server="keyed"),
    post("a token where there are no keys", "/api/v1/auth/token", {"user_id": "ole"}),
    post("refused, a token of nobody", "/api/v1/auth/token", {}),
    get("a page of this machine", "/v1/models", headers=OURS),
    get("refused, another page", "/v1/models", headers=EVIL),
    get("refused, another name", "/v1/models", headers={"Host": "evil.example"}),
    post("refused, a page that sends no JSON", PATH, b"{}", headers=OURS | {"Content-Type": "text/plain"}),
    post("a program may send any type", PATH, CHAT, headers={"Content-Type": "text/plain"}),
    Case(
        name="a preflight",
        method="OPTIONS",
        path=PATH,
        headers=OURS | {"Access-Control-Request-Method": "POST", "Access-Control-Request-Headers": "x-ole-client"},
    ),
    post("refused, compressed", PATH, CHAT, headers={"Content-Encoding": "gzip"}),
    post("refused, another charset", PATH, CHAT, headers={"Content-Type": "application/json; charset=utf-16"}),
    post("refused, nested too deep", PATH, b"[" * 100_000),
    post("refused, no UTF-8", PATH, b'{"model": "\xff"}'),
    post("refused, a number that is none", PATH, b'{"seed": NaN}'),
    post("refused, a name twice", PATH, b'{"model": "a", "model": "b"}'),
    post("refused, nothing", PATH, b""),
    get("the first of a minute", "/v1/models", server="hurried"),
    get("refused, the second of a minute", "/v1/models", server="hurried"),
    post("refused, an answer too soon, anthropic", "/v1/messages", CHAT, server="hurried"),
    get("refused, an unknown path", "/nowhere"),
    get("refused, an unknown path of openai", "/v1/nowhere"),
    get("refused, an unknown path of ollama", "/api/nowhere"),
    get("refused, an unknown path of woolly", "/api/v1/nowhere"),
    get("refused, a path that leads up", "/v1/../health"),
    get("refused, an encoded path", "/v1/%2e%2e/health"),
    other("HEAD", "/health"),
    other("HEAD", "/v1/models"),
    other("HEAD", PATH),
    other("OPTIONS", "/health"),
    other("OPTIONS", "/v1/models", OURS),
    other("OPTIONS", "/nowhere"),
    other("TRACE", "/health"),
)
