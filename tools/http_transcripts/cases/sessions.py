"""Conversations that the server keeps."""

from __future__ import annotations

from tools.http_transcripts.case import HELLO, Case, both, delete, get, named, post

PATH = "/api/v1/sessions"
PROMPT = {"model": "talker", "prompt": "Hi", "max_tokens": 3, "temperature": 0, "session_id": "<session>"}
CHAT = {"model": "talker", "messages": HELLO, "max_tokens": 5, "temperature": 0}


def patch(name: str, path: str, body: object) -> Case:
    return Case(name=name, method="PATCH", path=path, body=body)


CASES = named(
    "sessions",
    get("none", PATH),
    post("begun", PATH, {"config": {"temperature": 0}, "metadata": {"who": "ada"}}, keep={"session": "session_id"}),
    post("begun with a model", PATH, {"model": "talker"}, keep={"other_session": "session_id"}),
    get("listed", PATH),
    both("a chat", "/api/v1/inference/chat", CHAT | {"session_id": "<session>"}),
    post("a prompt", "/api/v1/inference/complete", PROMPT),
    get("one", f"{PATH}/<session>"),
    get("its history", f"{PATH}/<session>/history"),
    patch("changed", f"{PATH}/<session>", {"config": {"temperature": 0.5}, "metadata": {"who": "eve"}}),
    post("cleared", f"{PATH}/<session>/clear", {}),
    get("its history when it is cleared", f"{PATH}/<session>/history"),
    delete("deleted", f"{PATH}/<session>"),
    delete("another deleted", f"{PATH}/<other_session>"),
    get("refused, one that is deleted", f"{PATH}/<session>"),
    get("refused, the history of one that is deleted", f"{PATH}/<session>/history"),
    post("refused, one that is deleted is cleared", f"{PATH}/<session>/clear", {}),
    patch("refused, one that is deleted is changed", f"{PATH}/<session>", {"metadata": {}}),
    delete("refused, deleted twice", f"{PATH}/<session>"),
    post("refused, a chat in one that is deleted", "/api/v1/inference/chat", CHAT | {"session_id": "<session>"}),
    post("refused, with a model that is not there", PATH, {"model": "nobody"}),
    post("refused, with too much metadata", PATH, {"metadata": {"x": "y" * 20_000}}),
    post("refused, with a config of another type", PATH, {"config": {"temperature": "hot"}}),
    post("over MCP", "/api/v1/mcp/sessions", {}, keep={"mcp_session": "session_id"}),
    post("a chat over MCP", "/api/v1/mcp/chat", CHAT | {"session_id": "<mcp_session>"}),
    delete("deleted over MCP", "/api/v1/mcp/sessions/<mcp_session>"),
    delete("refused, deleted twice over MCP", "/api/v1/mcp/sessions/<mcp_session>"),
    post("as many as there may be", PATH, {}, server="small"),
    post("more than there may be", PATH, {}, server="small"),
    get("those that are left", PATH, server="small"),
)
