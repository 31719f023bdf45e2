"""What a chat template can do: found out by rendering small conversations in the sealed process."""

from __future__ import annotations

from dataclasses import dataclass

from woolly.errors import RequestError, printable
from woolly.text import ChatTemplate

_USER = {"role": "user", "content": "a word of the user"}
_ANSWER = {"role": "assistant", "content": "a word of the model"}


@dataclass(frozen=True, slots=True)
class Abilities:
    """What a template takes; `problem` says why it cannot be used at all, "" if it can."""

    problem: str = ""
    system: bool = False
    turns: bool = False
    tools: bool = False
    thinking: bool = False  # whether it has a switch for thinking


def abilities(template: ChatTemplate) -> Abilities:
    """Render one message, then several turns; they count if their texts are in the prompt. What it does with system
    messages and tools is known from `ChatTemplate.capabilities`, by which conversations are changed for it."""
    try:
        plain = template.render([_USER]).plain
    except RequestError as error:
        return Abilities(problem=printable(error.message, 200))
    if _USER["content"] not in plain:
        return Abilities(problem="it does not write the messages")
    return Abilities(
        system=template.capabilities.system,
        turns=_shows_turns(template),
        tools=template.capabilities.tools,
        thinking=_switches(template),
    )


def _shows_turns(template: ChatTemplate) -> bool:
    try:
        return _ANSWER["content"] in template.render([_USER, _ANSWER, _USER]).plain
    except RequestError:
        return False


def _switches(template: ChatTemplate) -> bool:
    try:
        return bool(template.thinking(True))
    except RequestError:
        return False
