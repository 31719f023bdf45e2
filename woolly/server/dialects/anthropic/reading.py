"""Anthropic's conversations, read: blocks of text, thoughts, calls and their results become messages."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from typing import Any

from woolly.config.serving import Serving
from woolly.errors import RequestError, UnsupportedError, printable
from woolly.request import Request
from woolly.server.dialects.anthropic.shapes import AnthropicBody, AnthropicPrompt, OutputConfig, ToolChoice
from woolly.server.dialects.base.bodies import sampling_of, schema_format, seed_of, thinking
from woolly.server.dialects.base.fields import REFUSED_EVERYWHERE, check_count, notes, one_system, read_struct, refuse
from woolly.server.routes import Body, Job

REFUSED: dict[str, Any] = {"mcp_servers": lambda v: v == []}
# The characters after `cch=` in the first line of Claude Code's prompt change with each request, and nothing after them
# would be found in the prefix cache.
BILLING = "x-anthropic-billing-header:"
_CHANGING = re.compile(r"(?<=\bcch=)[^;\s]+")
KNOWN = frozenset((*AnthropicBody.__struct_fields__, *REFUSED, *REFUSED_EVERYWHERE))


def read(body: Body, _path: Mapping[str, str], limits: Serving) -> Job:
    """Answer a conversation, as Anthropic does."""
    refuse(body, REFUSED)
    fields = read_struct(AnthropicBody, body)
    request = Request(
        **conversation_of(fields, limits),
        sampling=sampling_of(fields, seed=seed_of(fields.seed)),
        max_tokens=fields.max_tokens,
        stop=tuple(fields.stop_sequences or ()),
    )
    noted = (*notes(body, KNOWN), *_skipped(fields))
    return Job((request,), fields, fields.model or "", bool(fields.stream), noted)


def conversation_of(fields: AnthropicPrompt, limits: Serving) -> dict[str, Any]:
    """The fields of a Request that a conversation decides."""
    check_count(fields.messages, limits)
    if not fields.messages:
        raise RequestError("messages is empty, but a chat needs at least one", param="messages")
    system = _text(fields.system or "", "system", limits)
    if system.startswith(BILLING):
        first, line, rest = system.partition("\n")
        system = _CHANGING.sub("fffff", first) + line + rest
    messages: list[dict[str, Any]] = [{"role": "system", "content": system}] if system else []
    for index, message in enumerate(fields.messages):
        messages += _messages(message, f"messages[{index}]", limits)
    messages = one_system(messages)
    last = messages[-1]
    begun = ""
    if last["role"] == "assistant" and not last.get("tool_calls") and len(messages) > 1:
        begun = messages.pop()["content"]
    choice, config = fields.tool_choice or ToolChoice("auto"), fields.output_config or OutputConfig()
    wanted = config.format or fields.output_format
    switch = {"enabled": True, "disabled": False}.get(fields.thinking.type) if fields.thinking else None
    return {
        "messages": messages,
        "begun": begun,
        "tools": [_tool(tool) for tool in fields.tools or () if _ours(tool)],
        "tool_choice": {"any": "required", "tool": choice.name}.get(choice.type, choice.type),
        "parallel_tool_calls": not choice.disable_parallel_tool_use,
        "format": schema_format(wanted.schema) if wanted else None,
        "chat_template_kwargs": thinking(switch, config.effort),
    }


def _ours(tool: Mapping[str, Any]) -> bool:
    """Whether a tool is a function of the caller; others have a type that only their provider can run."""
    return tool.get("type") in (None, "custom")


def _skipped(fields: AnthropicPrompt) -> tuple[str, ...]:
    return tuple(f"tools.{printable(tool['type'], 40)}" for tool in fields.tools or () if not _ours(tool))


def _tool(tool: Mapping[str, Any]) -> dict[str, Any]:
    return {
        "name": tool.get("name"),
        "description": tool.get("description"),
        "parameters": tool.get("input_schema"),
        "strict": tool.get("strict"),
    }


def _messages(message: object, place: str, limits: Serving) -> Iterator[dict[str, Any]]:
    """A message as templates know it; results of tools, which come first, are messages of their own."""
    if not isinstance(message, Mapping) or message.get("role") not in ("user", "assistant", "system"):
        role = message.get("role") if isinstance(message, Mapping) else message
        raise RequestError(
            f"{place}.role is '{printable(role)}'; expected user, assistant or system", param=f"{place}.role"
        )
    role, content = str(message["role"]), message.get("content")
    place = f"{place}.content"
    if isinstance(content, str):
        yield {"role": role, "content": content}
        return
    texts, thoughts, calls, results = [], [], [], 0
    for index, block in enumerate(_blocks(content, place, limits)):
        match (role, block.get("type")):
            case _, "text":
                texts.append(_string(block, "text", f"{place}[{index}]"))
            case "assistant", "thinking":
                thoughts.append(_string(block, "thinking", f"{place}[{index}]"))
            case "assistant", "redacted_thinking":
                pass
            case "assistant", "tool_use":
                function = {"name": block.get("name"), "arguments": block.get("input")}
                calls.append({"id": block.get("id"), "type": "function", "function": function})
            case "user", "tool_result":
                results += 1
                result_text = _text(block.get("content") or "", f"{place}[{index}].content", limits)
                result_text = f"Error: {result_text}" if block.get("is_error") else result_text
                yield {"role": "tool", "tool_call_id": block.get("tool_use_id"), "content": result_text}
            case _, kind:
                raise _not_text(kind, f"{place}[{index}]")
    if texts or not results:
        converted: dict[str, Any] = {"role": role, "content": "\n".join(texts) if role == "user" else "".join(texts)}
        yield (
            converted
            | ({"reasoning_content": "\n".join(thoughts)} if thoughts else {})
            | ({"tool_calls": calls} if calls else {})
        )


def _text(content: object, place: str, limits: Serving) -> str:
    """A text, or blocks of text, each of which is one or more lines."""
    if isinstance(content, str):
        return content
    texts = []
    for index, block in enumerate(_blocks(content, place, limits)):
        if block.get("type") != "text":
            raise _not_text(block.get("type"), f"{place}[{index}]")
        texts.append(_string(block, "text", f"{place}[{index}]"))
    return "\n".join(texts)


def _blocks(content: object, place: str, limits: Serving) -> list[Mapping[str, Any]]:
    if not isinstance(content, list) or not all(isinstance(block, Mapping) for block in content):
        raise RequestError(f"{place} must be text or a list of blocks", param=place)
    if len(content) > limits.message_parts:
        raise RequestError(f"{place} has {len(content):,} blocks; at most {limits.message_parts} are read", param=place)
    return content


def _string(block: Mapping[str, Any], name: str, place: str) -> str:
    if not isinstance(value := block.get(name), str):
        raise RequestError(f"{place}.{name} must be text", param=f"{place}.{name}")
    return value


def _not_text(kind: object, place: str) -> UnsupportedError:
    return UnsupportedError(f"{place} is of the type '{printable(kind)}', which is not taken there", param=place)
