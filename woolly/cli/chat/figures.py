"""The figures of a chat: tokens computed and reused, speeds, and the room left in the context."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from woolly import system
from woolly.errors import ContextError
from woolly.request import Completion

if TYPE_CHECKING:
    from woolly.cli.chat.remote import RemoteInfo, ServerModel
    from woolly.llm.llm import LLM
    from woolly.llm.loading import Info


@dataclass(frozen=True, slots=True)
class Tally:
    """Sums over the answers of a chat, and the last one."""

    answers: int = 0
    prompt: int = 0
    reused: int = 0
    answer: int = 0
    last: Completion | None = None


def add_answer(tally: Tally, answer: Completion) -> Tally:
    usage = answer.usage
    return Tally(
        tally.answers + 1,
        tally.prompt + usage.prompt_tokens,
        tally.reused + usage.cached_tokens,
        tally.answer + usage.completion_tokens,
        answer,
    )


def describe(llm: LLM | ServerModel) -> str:
    """A model in a few words; the context of a model at a server is not known."""
    context = f", context {llm.info.context:,} tokens" if llm.info.context else ""
    return f"{llm.card.name}{context}"


def answer_line(answer: Completion, info: Info | RemoteInfo) -> str:
    """The line of figures below an answer."""
    usage, timings = answer.usage, answer.timings
    return (
        f"{usage.completion_tokens:,} tokens at {timings.answer_rate:,.1f} tokens/s, "
        f"first after {timings.first_token_s:.2f} s; "
        f"reused {usage.cached_tokens:,} of {usage.prompt_tokens:,}; context {_context_used(answer, info)}"
    )


def stats(tally: Tally, info: Info | RemoteInfo) -> str:
    """The text of `/stats`."""
    peak = f"  peak memory         {system.usage().peak / 1e6:,.0f} MB"
    if tally.last is None:
        room = f"; the context has room for {info.context:,} tokens" if info.context else ""
        return f"  nothing has been answered yet{room}\n{peak}"
    usage, timings = tally.last.usage, tally.last.timings
    return "\n".join(
        (
            f"  answers             {tally.answers:,}, {tally.answer:,} tokens",
            f"  prompts             {tally.prompt:,} tokens, {tally.reused:,} of them reused",
            f"  last prompt         {usage.prompt_tokens:,} tokens, {usage.cached_tokens:,} reused, "
            f"{timings.prompt_rate:,.1f} tokens/s",
            f"  last answer         {usage.completion_tokens:,} tokens, {timings.answer_rate:,.1f} tokens/s, "
            f"first after {timings.first_token_s:.2f} s, seed {tally.last.seed}",
            f"  context             {_context_used(tally.last, info)}",
            peak,
        )
    )


def context_full(error: ContextError, llm: LLM | ServerModel) -> str:
    """The message for a question that does not fit the context: its tokens, and what the user can do."""
    asked = f", {error.answer:,} more are wanted for the answer," if error.answer else ""
    return (
        f"the conversation would have {error.prompt:,} tokens{asked} and the context holds {llm.info.context:,}; "
        f"the question was not kept\n{_help(llm)}"
    )


def cut_reason(answer: Completion, llm: LLM | ServerModel) -> str:
    """Why an answer was cut off, "" if it was not."""
    if answer.finish_reason != "length":
        return ""
    if not llm.info.context:
        return "the answer was cut at max_tokens, or at the context's end; /set max_tokens changes the first"
    if answer.usage.total_tokens >= llm.info.context:
        return f"the answer was cut: the context of {llm.info.context:,} tokens is full\n{_help(llm)}"
    return "the answer was cut at max_tokens; /set max_tokens changes it"


def _help(llm: LLM | ServerModel) -> str:
    own = llm.card.context
    more = f", and up to {own:,} are possible with --context" if llm.info.context < own else ""
    return f"/undo takes the last question back, /clear begins anew, /save NAME keeps this chat first{more}"


def _context_used(answer: Completion, info: Info | RemoteInfo) -> str:
    room = f" of {info.context:,}" if info.context else ""
    return f"{answer.usage.total_tokens:,}{room} tokens"
