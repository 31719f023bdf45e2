"""What a chat template does with a conversation, found by trying it; and a conversation changed to what it can show.

Templates differ in what they take: no system message, no tools at all, calls of earlier answers dropped silently, one
call in a message, arguments as text, ids of nine letters. A conversation has the one form of messages.py, and is
converted to what the template takes.
"""

from __future__ import annotations

import json
from collections import deque
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from hashlib import blake2b
from typing import Any, TypeAlias

from woolly.errors import RequestError
from woolly.io.cancellation import check
from woolly.request.messages import Message, Tool

Render: TypeAlias = Callable[[Sequence[Message], Sequence[Any] | None], str]
WriteCalls: TypeAlias = Callable[[Sequence[tuple[str, str]]], str]

_TOOL = Tool("tried_tool", "A tool.", {"type": "object", "properties": {"word": {"type": "string"}}})
_RULE = {"role": "system", "content": "a rule"}
_QUESTION = {"role": "user", "content": "a question"}
_RESULT = {"role": "tool", "tool_call_id": "tried0001", "name": "tried_call", "content": "a result"}
_OFFER = """You can use tools. To use one, answer with nothing but a call of it, in this form:
{example}
The result comes back between <tool_response> and </tool_response>. These are the tools, one on each line, with the JSON
schema of their arguments:
{tools}"""


@dataclass(frozen=True, slots=True)
class TemplateCapabilities:
    """What a template takes and shows.

    tools: it tells the model of tools. calls, results: it shows those of earlier messages. several: more than one call
    in a message. text: it takes arguments as JSON text. short: it takes only ids of nine letters and digits.
    system: it takes a system message. after: it takes a message of the user after a result.
    """

    tools: bool
    calls: bool
    several: bool
    results: bool
    text: bool
    short: bool
    system: bool
    after: bool


def find_capabilities(render: Render) -> TemplateCapabilities:
    """Try a template. render: raises RequestError where it refuses."""

    def shown(messages: Sequence[Message], tools: Sequence[Any] | None = (_TOOL.record,)) -> str:
        try:
            return render(messages, tools)
        except RequestError:
            return ""

    def called(*names: str, id: str = "tried0001", text: bool = False, then: Sequence[Message] = ()) -> str:
        arguments: Any = {"word": "said"}
        calls = [
            {
                "id": f"{id[:-1]}{index}",
                "type": "function",
                "function": {"name": name, "arguments": json.dumps(arguments) if text else arguments},
            }
            for index, name in enumerate(names, 1)
        ]
        results = [{**_RESULT, "tool_call_id": call["id"]} for call in calls]
        return shown([_QUESTION, {"role": "assistant", "content": "", "tool_calls": calls}, *results, *then])

    one = called("tried_call")
    text = (not one or "{'word'" in one) and '"word"' in called("tried_call", text=True)
    one = called("tried_call", text=True) if text else one
    two = called("tried_call", "tried_more", text=text)
    return TemplateCapabilities(
        tools="tried_tool" in shown([_QUESTION]),
        calls="tried_call" in one and "said" in one,
        several="tried_call" in two and "tried_more" in two,
        results="a result" in one,
        text=text,
        short=bool(one) and not called("tried_call", id="call_0123456789", text=text),
        system="a rule" in shown([_RULE, _QUESTION], None) + shown([_RULE, _QUESTION]),
        after="a further one" in called("tried_call", text=text, then=[{"role": "user", "content": "a further one"}]),
    )


def fit_to_template(
    messages: Sequence[Message], tools: Sequence[Tool], capabilities: TemplateCapabilities, write: WriteCalls
) -> tuple[list[Message], list[Any] | None]:
    """A conversation and its tools as a template takes them. write: calls as the model writes them, of names and JSON.

    Where it takes no tools, they are described in the system message, and calls and results are text. Where it takes no
    system message, the user's first message begins with its text.
    """
    adjusted = list(messages) if capabilities.system else _without_system(messages)
    if not (capabilities.calls and capabilities.results) or (tools and not capabilities.tools):
        adjusted = list(_as_text(adjusted, write, results=capabilities.results and capabilities.tools))
    else:
        adjusted = adjusted if capabilities.after else _joined(adjusted)
        adjusted = adjusted if capabilities.several else list(_apart(adjusted))
    if capabilities.short:
        adjusted = [_short(message) for message in adjusted]
    if not tools or capabilities.tools:
        return adjusted, [tool.record for tool in tools] or None
    offer = _OFFER.format(
        example=write([("the name of the tool", '{"the name of a parameter": "its value"}')]),
        tools="\n".join(json.dumps(tool.record["function"], ensure_ascii=False) for tool in tools),
    )
    return _offered(adjusted, offer, "system" if capabilities.system else "user"), None


def _offered(messages: list[Message], offer: str, role: str) -> list[Message]:
    """The messages with an offer in the first of a role."""
    first = messages[0] if messages else {}
    if first.get("role") == role:
        return [{**first, "content": f"{first['content']}\n\n{offer}"}, *messages[1:]]
    return [{"role": role, "content": offer}, *messages]


def _without_system(messages: Sequence[Message]) -> list[Message]:
    first, *rest = messages
    if first["role"] != "system":
        return list(messages)
    if not rest or rest[0]["role"] != "user":
        return [{**first, "role": "user"}, *rest]
    return [{**rest[0], "content": f"{first['content']}\n\n{rest[0]['content']}"}, *rest[1:]]


def _as_text(messages: Sequence[Message], write: WriteCalls, *, results: bool) -> Iterator[Message]:
    """Calls become text of the assistant, and results, where the template does not show them, text of the user."""
    pending: list[str] = []  # results as the user's words, which the user's next message continues
    for message in messages:
        check()
        if message.get("tool_calls"):
            functions = [call["function"] for call in message["tool_calls"]]
            calls = write([(f["name"], json.dumps(f["arguments"], ensure_ascii=False)) for f in functions])
            content = "\n".join(filter(None, (message["content"], calls)))
            message = {**{k: v for k, v in message.items() if k != "tool_calls"}, "content": content}
        elif message["role"] == "tool" and not results:
            pending.append(f"<tool_response>\n{message['content']}\n</tool_response>")
            continue
        if pending and message["role"] == "user":
            message = {**message, "content": "\n".join(pending) + f"\n\n{message['content']}"}
        elif pending:
            yield {"role": "user", "content": "\n".join(pending)}
        pending = []
        yield message
    if pending:
        yield {"role": "user", "content": "\n".join(pending)}


def _joined(messages: Sequence[Message]) -> list[Message]:
    """A message of the user after a result becomes part of that result."""
    joined: list[tuple[Message, list[str]]] = []  # each with the texts that become its content
    for message in messages:
        if joined and joined[-1][0]["role"] == "tool" and message["role"] == "user":
            joined[-1][1].append(message["content"])
        else:
            joined.append((message, [message["content"]]))
    return [one if len(texts) == 1 else {**one, "content": "\n\n".join(texts)} for one, texts in joined]


def _apart(messages: Sequence[Message]) -> Iterator[Message]:
    """Each call in a message of its own, followed by its result."""
    calls: deque[Mapping[str, Any]] = deque()
    for message in messages:
        check()
        if len(message.get("tool_calls") or ()) > 1:
            first, *others = message["tool_calls"]
            calls = deque(others)
            yield {**message, "tool_calls": [first]}
            continue
        if message["role"] != "tool":
            calls.clear()
        yield message
        if calls:
            yield {"role": "assistant", "content": "", "tool_calls": [calls.popleft()]}


def _short(message: Message) -> Message:
    """The message with ids of nine letters; equal ids become equal ones."""

    def nine(id: Any) -> str:
        text = str(id)
        return text if len(text) == 9 and text.isalnum() else blake2b(text.encode(), digest_size=8).hexdigest()[:9]

    result = dict(message)
    if message.get("tool_calls"):
        result["tool_calls"] = [{**call, "id": nine(call["id"])} for call in message["tool_calls"]]
    if message.get("tool_call_id") is not None:
        result["tool_call_id"] = nine(message["tool_call_id"])
    return result
