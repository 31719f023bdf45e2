"""A conversation as a value: every change gives a new one."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Any, Literal

from woolly.request import Call
from woolly.request.messages import Message


@dataclass(frozen=True, slots=True)
class Turn:
    """A message of one side. Thoughts are kept for the record and never given back to the model.

    calls: the tools that the model asked for. call: the id of the one whose result this is.
    """

    role: Literal["user", "assistant", "tool"]
    content: str
    thoughts: str = ""
    calls: tuple[Call, ...] = ()
    call: str = ""


@dataclass(frozen=True, slots=True)
class Conversation:
    system: str = ""
    turns: tuple[Turn, ...] = ()


def messages(conversation: Conversation) -> list[Message]:
    """The messages of the conversation as the model gets them."""
    turns = [_message(turn) for turn in conversation.turns]
    return [{"role": "system", "content": conversation.system}, *turns] if conversation.system else turns


def _message(turn: Turn) -> Message:
    more: dict[str, Any] = {}
    if turn.calls:
        more["tool_calls"] = [
            {"id": call.id, "type": "function", "function": {"name": call.name, "arguments": call.arguments}}
            for call in turn.calls
        ]
    if turn.call:
        more["tool_call_id"] = turn.call
    return {"role": turn.role, "content": turn.content, **more}


def with_question(conversation: Conversation, question: str) -> Conversation:
    return replace(conversation, turns=(*conversation.turns, Turn("user", question)))


def with_answer(
    conversation: Conversation, words: str, thoughts: str = "", calls: tuple[Call, ...] = ()
) -> Conversation:
    return replace(conversation, turns=(*conversation.turns, Turn("assistant", words, thoughts, calls)))


def last_question(conversation: Conversation) -> str | None:
    return next((turn.content for turn in reversed(conversation.turns) if turn.role == "user"), None)


def without_last_question(conversation: Conversation) -> Conversation:
    """The conversation before its last question."""
    last = max((i for i, turn in enumerate(conversation.turns) if turn.role == "user"), default=0)
    return replace(conversation, turns=conversation.turns[:last])


def without_turns(conversation: Conversation) -> Conversation:
    """The conversation with its system message and no turns."""
    return replace(conversation, turns=())


def count(conversation: Conversation) -> str:
    """How many messages there are, in words."""
    turns = len(conversation.turns)
    return f"{turns} message{'' if turns == 1 else 's'}"
