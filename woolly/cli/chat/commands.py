"""The slash commands of a chat: one row each, and the functions behind them."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace
from difflib import get_close_matches

from woolly.cli.chat import conversation as conversations
from woolly.cli.chat import saved, settings
from woolly.cli.chat.figures import describe, stats
from woolly.cli.chat.session import Session
from woolly.errors import RequestError, printable


@dataclass(frozen=True, slots=True)
class Command:
    call: Callable[[Session, str], None]
    what: str
    usage: str = ""


def run_command(session: Session, word: str, rest: str) -> None:
    """Do what a slash word says; an unknown one is refused with the nearest."""
    name = ALIASES.get(word.lower(), word.lower())
    if name not in COMMANDS:
        near = get_close_matches(name, [*COMMANDS, *ALIASES], n=1)
        hint = f"did you mean /{near[0]}?" if near else "/help lists them"
        raise RequestError(f"there is no /{printable(word)}", suggestion=hint)
    COMMANDS[name].call(session, rest)


def _help(session: Session, rest: str) -> None:
    rows = [f"  {f'/{name} {c.usage}'.strip():<22}{c.what}" for name, c in COMMANDS.items()]
    session.screen.say(
        "\n".join(rows) + '\n\n  @FILE in a message attaches a text file, @"a path" one with spaces.\n'
        '  Alt-Enter, Ctrl-J, or a \\ before Enter gives a line more; """ begins and ends a text of several.\n'
        "  Ctrl-C stops an answer; again, or Ctrl-D, leaves."
    )


def _model(session: Session, rest: str) -> None:
    if rest:
        session.change_model(rest)
    card, i = session.llm.card, session.llm.info
    mode = ", exact" if i.exact else ""
    threads = f", {i.threads} threads{mode}" if i.threads else ""
    session.screen.say(f"  {describe(session.llm)} ({card.architecture}){threads}\n  {card.path}")


def _system(session: Session, rest: str) -> None:
    if rest:
        text = "" if rest in ('""', "''") else rest
        session.conversation = replace(session.conversation, system=text)
        session.screen.note("the system message counts from the next answer on" if text else "no system message")
    else:
        session.screen.say(f"  {session.conversation.system or '(no system message)'}")


def _set(session: Session, rest: str) -> None:
    name, _, value = rest.removeprefix("parameter ").strip().partition(" ")
    if not name:
        session.screen.say(settings.lines(session.options, session.llm.card.sampling))
        return
    if not value.strip():
        raise RequestError(f"/set {printable(name)} needs a value", suggestion="`default` takes a setting back")
    options = settings.changed(session.options, name, value.strip())
    session.check_think(options)
    session.options = options


def _save(session: Session, rest: str) -> None:
    if not rest:
        raise RequestError("/save needs a name or a path", suggestion="such as /save plans")
    path = saved.path_of(rest, session.folder)
    saved.save(path, saved.SavedChat(session.conversation, session.model, session.options))
    session.screen.note(f"saved {conversations.count(session.conversation)} in {path}")


def _load(session: Session, rest: str) -> None:
    if not rest:
        names = saved.chat_names(session.folder)
        session.screen.say("\n".join(f"  {name}" for name in names) if names else "  (no chat has been saved)")
        return
    session.resume(saved.path_of(rest, session.folder))


def _clear(session: Session, rest: str) -> None:
    session.conversation = conversations.without_turns(session.conversation)
    session.screen.note("forgotten; the system message and the settings stay")


def _undo(session: Session, rest: str) -> None:
    question = conversations.last_question(session.conversation)
    if question is None:
        raise RequestError("nothing has been said yet")
    session.conversation = conversations.without_last_question(session.conversation)
    session.screen.note(f"taken back: {printable(question, 60)}")


def _retry(session: Session, rest: str) -> None:
    question = conversations.last_question(session.conversation)
    if question is None:
        raise RequestError("nothing has been asked yet")
    if "seed" in session.options:
        session.screen.note("the seed is set, so the answer will be the same; /set seed default draws another")
    session.answer(conversations.without_last_question(session.conversation), question)


def _stats(session: Session, rest: str) -> None:
    session.screen.say(stats(session.tally, session.llm.info))


def _tools(session: Session, rest: str) -> None:
    session.screen.say(session.tools)


def _quit(session: Session, rest: str) -> None:
    session.over = True


COMMANDS = {
    "help": Command(_help, "this list"),
    "model": Command(_model, "which model answers; with a name, another one does", "[NAME]"),
    "system": Command(_system, 'how the model is to behave; "" takes it away', "[TEXT]"),
    "set": Command(_set, "the sampling; `default` as value takes a setting back", "[NAME VALUE]"),
    "save": Command(_save, "keep this chat under a name, or in a file", "NAME"),
    "load": Command(_load, "go on with a saved chat; without a name, list them", "[NAME]"),
    "clear": Command(_clear, "begin anew"),
    "undo": Command(_undo, "take the last question and its answer back"),
    "retry": Command(_retry, "answer the last question again"),
    "tools": Command(_tools, "what the model may call, and which calls are asked about"),
    "stats": Command(_stats, "tokens, reuse, speed, room in the context, memory"),
    "quit": Command(_quit, "leave (as Ctrl-D does)"),
}
ALIASES = {"?": "help", "bye": "quit", "exit": "quit", "q": "quit", "regen": "retry", "reset": "clear", "config": "set"}
