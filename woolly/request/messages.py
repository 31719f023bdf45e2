"""What a chat is made of: messages, and the tools that the model may ask for. Read once, as every template takes them.

A tool is given as OpenAI writes it, with or without the `function` around it:

    {"type": "function", "function": {"name": "weather", "description": "...", "parameters": {...a JSON schema}}}

A model that wants one writes a call. The answer is given back as the assistant's message with `tool_calls`, followed by
a message of the role `tool` for each of them.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from typing import Any, TypeAlias

from woolly.errors import RequestError, printable
from woolly.limits import LIMITS

Message: TypeAlias = Mapping[str, Any]
ROLES = ("system", "developer", "user", "assistant", "tool")  # of a message; templates know a developer as the system
CHOICES = ("auto", "none", "required")  # beside the name of a tool
_NAME = re.compile(r"[A-Za-z0-9_.-]{1,128}")
_THOUGHTS = ("reasoning_content", "reasoning", "thinking")  # a message's thought, by the names that templates know


@dataclass(frozen=True, slots=True)
class Tool:
    """A function that the caller can run. parameters: the JSON schema of its arguments, an object.

    strict: a call that the schema would not allow is never made, also where the model is free to call or not.
    """

    name: str
    description: str = ""
    parameters: Mapping[str, Any] = field(default_factory=lambda: {"type": "object", "properties": {}})
    strict: bool = False

    @property
    def record(self) -> dict[str, Any]:
        """As chat templates know a tool: some of them fail where one has no description or no properties."""
        parameters = {"type": "object", "properties": {}, **self.parameters}
        function = {"name": self.name, "description": self.description, "parameters": parameters}
        return {"type": "function", "function": function}


def read_tools(tools: object) -> tuple[Tool, ...]:
    """Tools, each under a name of its own."""
    if isinstance(tools, str | bytes | Mapping) or not isinstance(tools, Iterable):
        raise RequestError("tools is a list of tools with a name and parameters", param="tools")
    listed = tuple(_tool(tool, f"tools[{index}]") for index, tool in enumerate(tools))
    if len(listed) > LIMITS.tools:
        raise RequestError(f"tools has {len(listed):,} entries, but may have {LIMITS.tools}", param="tools")
    names = set[str]()
    for index, tool in enumerate(listed):
        if tool.name in names:
            raise RequestError(
                f"tools[{index}] has the name '{tool.name}', as another has", param=f"tools[{index}].name"
            )
        names.add(tool.name)
    return listed


def _tool(tool: object, place: str) -> Tool:
    if isinstance(tool, Tool):
        return tool
    if not isinstance(tool, Mapping) or tool.get("type", "function") != "function":
        raise RequestError(f"{place} is no tool of the type 'function'", param=place)
    if "function" in tool:
        tool, place = tool["function"], f"{place}.function"
        if not isinstance(tool, Mapping):
            raise RequestError(f"{place} must be an object with a name", param=place)
    name, description, parameters = tool.get("name"), tool.get("description"), tool.get("parameters")
    if not isinstance(name, str) or not _NAME.fullmatch(name) or name in CHOICES:
        raise RequestError(
            f"{place}.name is '{printable(name)}'; expected 1 to 128 letters, digits, '_', '-' or '.', and none of"
            f" the words {', '.join(CHOICES)}",
            param=f"{place}.name",
        )
    if description is not None and not isinstance(description, str):
        raise RequestError(f"{place}.description must be text", param=f"{place}.description")
    if parameters is not None and (not isinstance(parameters, Mapping) or parameters.get("type", "object") != "object"):
        raise RequestError(f"{place}.parameters must be the JSON schema of an object", param=f"{place}.parameters")
    options = {} if not parameters else {"parameters": {"type": "object", **parameters}}
    return Tool(name, description or "", strict=tool.get("strict") is True, **options)


def read_choice(choice: object, tools: tuple[Tool, ...]) -> str:
    """Whether the model calls tools: a word of CHOICES, or the name of the tool that it must call."""
    if not isinstance(choice, str) or choice not in (*CHOICES, *(tool.name for tool in tools)):
        known = ", ".join((*CHOICES, *(tool.name for tool in tools)))
        raise RequestError(f"tool_choice is '{printable(choice)}'; expected one of {known}", param="tool_choice")
    if choice != "auto" and choice != "none" and not tools:
        raise RequestError("tool_choice asks for a call, but there are no tools", param="tool_choice")
    return choice


def read_messages(messages: object) -> tuple[Message, ...]:
    """Messages as templates know them: a role and a text. Parts of text are joined; other fields are kept.

    A result of a tool follows the call that it answers, and gets its name and id.
    """
    if isinstance(messages, str | bytes | Mapping) or not isinstance(messages, Iterable):
        raise RequestError("messages is a list of messages with a role and a content", param="messages")
    calls = _CallsSoFar()
    listed = tuple(_message(message, f"messages[{index}]", calls) for index, message in enumerate(messages))
    if not listed:
        raise RequestError(
            "messages is empty, but a chat needs at least one", param="messages", error_code="EMPTY_MESSAGES"
        )
    return listed


class _CallsSoFar:
    """The calls of the messages so far, and which of them wait for their result, each found at once."""

    def __init__(self) -> None:
        self.names: dict[str, str] = {}  # by their ids
        self._waiting: dict[str, None] = {}  # ids, in the order of the calls
        self._by_name: dict[str, dict[str, None]] = {}

    def add(self, id: str, name: str) -> None:
        self.names[id] = name
        self._waiting[id] = None
        self._by_name.setdefault(name, {})[id] = None

    def next_waiting(self, name: object) -> str:
        """The call of this name that has waited longest, else of any name; the last call where none waits."""
        waiting = (self._by_name.get(name) if isinstance(name, str) else None) or self._waiting
        return next(iter(waiting) if waiting else reversed(self.names))

    def answer(self, id: str) -> None:
        self._waiting.pop(id, None)
        self._by_name[self.names[id]].pop(id, None)


def _message(message: object, place: str, before: _CallsSoFar) -> Message:
    if not isinstance(message, Mapping):
        raise RequestError(f"{place} must be an object with a role and a content", param=place)
    role, content = message.get("role"), message.get("content")
    if role not in ROLES:
        raise RequestError(
            f"{place}.role is '{printable(role)}'; expected one of {', '.join(ROLES)}", param=f"{place}.role"
        )
    more: dict[str, Any] = {}
    if role == "assistant" and message.get("tool_calls"):
        more["tool_calls"] = calls = _calls(message["tool_calls"], f"{place}.tool_calls", len(before.names))
        for call in calls:
            before.add(call["id"], call["function"]["name"])
        content = "" if content is None else content  # some templates join it to a text
    if role == "tool":
        more["tool_call_id"], more["name"] = _answered(message, place, before)
    if thought := next((message[name] for name in _THOUGHTS if isinstance(message.get(name), str)), ""):
        more.update(dict.fromkeys(_THOUGHTS, thought))
    role = "system" if role == "developer" else role
    return {**message, "role": role, "content": _content(content, f"{place}.content"), **more}


def _answered(message: Message, place: str, before: _CallsSoFar) -> tuple[str, str]:
    """The id and the name of the call whose result a message is. Without an id: the first that waits for one."""
    name, id = message.get("name"), message.get("tool_call_id")
    if not before.names or not (id is None or (isinstance(id, str) and id in before.names)):
        raise RequestError(
            f"{place} has the role 'tool', but no message before it has the call '{printable(id)}'",
            suggestion="give the assistant's message with its tool_calls first",
            param=f"{place}.role",
        )
    if id is None:
        id = before.next_waiting(name)
    before.answer(id)
    return id, name if isinstance(name, str) else before.names[id]


def _calls(calls: object, place: str, before: int) -> list[dict[str, Any]]:
    """Calls that the model made before: each with an id, a name, and arguments as an object. before: calls so far."""
    if not isinstance(calls, list | tuple):
        raise RequestError(f"{place} must be a list of calls", param=place)
    result = []
    for index, call in enumerate(calls):
        function = call.get("function") if isinstance(call, Mapping) else None
        name = function.get("name") if isinstance(function, Mapping) else None
        if not isinstance(function, Mapping) or not isinstance(name, str) or not name:
            where = f"{place}[{index}]"
            raise RequestError(f"{where} must be a call with a function that has a name", param=where)
        arguments = _arguments(function.get("arguments"), f"{place}[{index}].function.arguments")
        function = {**function, "name": name, "arguments": arguments}
        id = str(call.get("id") or f"call{before + index:05}")  # of nine letters, which every template takes
        result.append({**call, "id": id, "type": "function", "function": function})
    return result


def _arguments(arguments: object, place: str) -> dict[str, Any]:
    if isinstance(arguments, str):
        try:
            arguments = json.loads(arguments) if arguments.strip() else {}
        except (ValueError, RecursionError):
            arguments = {"arguments": arguments}  # of a call that was cut short: the text is kept
    if not isinstance(arguments, Mapping | None):
        raise RequestError(f"{place} must be an object, or the JSON text of one", param=place)
    return dict(arguments or {})


def _content(content: object, place: str) -> str:
    if isinstance(content, str):
        return content
    if not isinstance(content, list | tuple) or not content:
        raise RequestError(f"{place} must be text or a list of text parts", param=place)
    for index, part in enumerate(content):
        if not isinstance(part, Mapping) or part.get("type") != "text" or not isinstance(part.get("text"), str):
            raise RequestError(f"{place}[{index}] is no text, and this model takes text", param=f"{place}[{index}]")
    return "".join(part["text"] for part in content)
