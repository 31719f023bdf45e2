"""What a chat template can do: found out by rendering small conversations in the sealed process."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from woolly.errors import RequestError, printable
from woolly.text import ChatTemplate

_USER = {"role": "user", "content": "a word of the user"}
_SYSTEM = {"role": "system", "content": "a word of the system"}
_ANSWER = {"role": "assistant", "content": "a word of the model"}
_TOOL = {
    "type": "function",
    "function": {"name": "look_up", "description": "Looks up.", "parameters": {"type": "object", "properties": {}}},
}


@dataclass(frozen=True, slots=True)
class Abilities:
    """What a template takes; `problem` says why it cannot be used at all, "" if it can."""

    problem: str = ""
    system: bool = False
    turns: bool = False
    tools: bool = False
    thinking: bool = False  # whether it has a switch for thinking


def abilities(template: ChatTemplate) -> Abilities:
    """Render one message, then a system message, several turns and a tool; each counts if its text is in the prompt.

    The switch for thinking counts if it changes the prompt.
    """
    try:
        plain = template.render([_USER]).plain
    except RequestError as error:
        return Abilities(problem=printable(error.message, 200))
    if _USER["content"] not in plain:
        return Abilities(problem="it does not write the messages")
    return Abilities(
        system=_takes(template, _SYSTEM["content"], [_SYSTEM, _USER]),
        turns=_takes(template, _ANSWER["content"], [_USER, _ANSWER, _USER]),
        tools=_takes(template, "look_up", [_USER], tools=[_TOOL]),
        thinking=_switches(template),
    )


def _takes(template: ChatTemplate, word: str, messages: list[dict[str, str]], **more: Any) -> bool:
    try:
        return word in template.render(messages, **more).plain
    except RequestError:
        return False


def _switches(template: ChatTemplate) -> bool:
    try:
        return bool(template.thinking(True))
    except RequestError:
        return False
