"""The items of OpenAI's Responses: what a conversation is made of, and the messages for the model that they become.

Items of several kinds become one message: what an assistant thought, said and called in one turn. A conversation is
kept as items, and every answer adds its own.
"""

from __future__ import annotations

import secrets
from collections.abc import Iterable, Mapping
from typing import Any

from woolly.config.serving import Serving
from woolly.errors import RequestError, UnsupportedError, printable
from woolly.server.dialects.openai.responses_mcp import called, refused_calls

ROLES = ("user", "assistant", "system", "developer")
TEXTS = ("input_text", "output_text", "text", "summary_text", "reasoning_text")  # types of parts
CALLS = {"function_call": "arguments", "custom_tool_call": "input"}
RESULTS = ("function_call_output", "custom_tool_call_output")
MCP = ("mcp_list_tools", "mcp_approval_request", "mcp_approval_response")  # responses_mcp reads what they mean
PREFIXES = {
    "message": "msg_",
    "function_call": "fc_",
    "reasoning": "rs_",
    "mcp_list_tools": "mcpl_",
    "mcp_call": "mcp_",
    "mcp_approval_request": "mcpr_",
}


def as_items(value: object) -> list[Any]:
    """The items of `input`: a text is a message of the user."""
    if isinstance(value, str):
        return [{"type": "message", "role": "user", "content": value}]
    return value if isinstance(value, list) else [value]


def stored_items(items: Iterable[Mapping[str, Any]]) -> list[dict[str, Any]]:
    """Items as they are shown later: each with a type and an id, content always in parts."""
    shown = []
    for item in items:
        kind = str(item.get("type") or "message")
        one = {"id": PREFIXES.get(kind, "item_") + secrets.token_hex(12), **item, "type": kind}
        if isinstance(one.get("content"), str) and kind == "message":
            part = "output_text" if one.get("role") == "assistant" else "input_text"
            one["content"] = [{"type": part, "text": one["content"]}]
        shown.append(one)
    return shown


def read_items(items: list[Any], instructions: str | None, limits: Serving) -> list[dict[str, Any]]:
    """The messages of a conversation."""
    if not items:
        raise RequestError("input is empty, but an answer needs something to answer", param="input")
    if len(items) > limits.messages:
        raise RequestError(f"input has {len(items):,} items; at most {limits.messages:,} are read", param="input")
    messages: list[dict[str, Any]] = [{"role": "system", "content": instructions}] if instructions else []
    thought = ""
    for index, item in enumerate(items):
        place = f"input[{index}]"
        if not isinstance(item, Mapping):
            raise RequestError(f"{place} must be an object", param=place)
        kind = item.get("type") or "message"
        kind = kind if isinstance(kind, str) else printable(kind)  # which is no type
        if kind == "reasoning":
            thought = _text(item.get("content") or [], f"{place}.content", limits)
        elif kind in RESULTS:
            output = _text(item.get("output") or "", f"{place}.output", limits)
            messages.append({"role": "tool", "tool_call_id": item.get("call_id"), "content": output})
        elif kind in MCP:
            messages += refused_calls(item, items)
        elif kind == "mcp_call":
            messages += called(item, str(item.get("id")), item.get("output") or item.get("error") or "")
        elif kind == "message" or kind in CALLS:
            message = _call(item, CALLS[kind]) if kind in CALLS else _message(item, place, limits)
            if thought and message["role"] == "assistant":
                message, thought = message | {"reasoning_content": thought}, ""
            if kind in CALLS and messages and messages[-1]["role"] == "assistant":  # calls of the same turn
                before = messages.pop()
                calls = [*before.get("tool_calls", ()), *message["tool_calls"]]
                message = message | before | {"tool_calls": calls}
            messages.append(message)
        else:
            raise UnsupportedError(f"{place} is of the type '{printable(kind)}', which is not taken", param=place)
    return messages


def _message(item: Mapping[str, Any], place: str, limits: Serving) -> dict[str, Any]:
    role = item.get("role")
    if role not in ROLES:
        raise RequestError(
            f"{place}.role is '{printable(role)}'; expected one of {', '.join(ROLES)}", param=f"{place}.role"
        )
    return {"role": role, "content": _text(item.get("content"), f"{place}.content", limits)}


def _call(item: Mapping[str, Any], arguments: str) -> dict[str, Any]:
    value = item.get(arguments)
    function = {"name": item.get("name"), "arguments": value if arguments == "arguments" else {"input": value}}
    call = {"id": item.get("call_id"), "type": "function", "function": function}
    return {"role": "assistant", "content": "", "tool_calls": [call]}


def _text(content: object, place: str, limits: Serving) -> str:
    """A text, or parts of text."""
    if isinstance(content, str):
        return content
    if not isinstance(content, list):
        raise RequestError(f"{place} must be text or a list of parts", param=place)
    if len(content) > limits.message_parts:
        raise RequestError(f"{place} has {len(content):,} parts; at most {limits.message_parts} are read", param=place)
    texts = []
    for index, part in enumerate(content):
        where = f"{place}[{index}]"
        if not isinstance(part, Mapping):
            raise RequestError(f"{where} must be an object", param=where)
        if part.get("type") not in TEXTS:
            kind = printable(part.get("type"))
            raise UnsupportedError(f"{where} is of the type '{kind}', and this model takes text", param=where)
        if not isinstance(part.get("text"), str):
            raise RequestError(f"{where}.text must be text", param=f"{where}.text")
        texts.append(part["text"])
    return "".join(texts)
