"""The loop of a chat: reads each message and carries it out, until the user leaves.

Ctrl-C pressed again with nothing typed leaves. An error is shown in a line, and the chat goes on as if the message had
not been sent.
"""

from __future__ import annotations

from woolly.cli.chat.attach import attach
from woolly.cli.chat.commands import run_command
from woolly.cli.chat.reader import Reader
from woolly.cli.chat.session import INTERRUPTED, Session
from woolly.cli.chat.typed import message_text, slash_command
from woolly.cli.input_text import check_utf8
from woolly.errors import WoollyError


def run_chat(session: Session, read: Reader) -> int:
    """Read and answer until the user leaves; returns the exit code."""
    warned = False  # whether the next Ctrl-C leaves
    while not session.over:
        try:
            typed = read()
        except EOFError:
            break
        except KeyboardInterrupt:
            if warned:
                return INTERRUPTED
            session.screen.note("Ctrl-C again, or Ctrl-D, leaves")
            warned = True
            continue
        try:
            warned = handle(session, typed)
        except KeyboardInterrupt:
            warned = True
        except WoollyError as error:
            warned = False
            session.screen.say(f"error: {error}")
    return session.code


def handle(session: Session, typed: str) -> bool:
    """Carry out a command, or answer a message. Returns whether the answer was stopped."""
    text = check_utf8(message_text(typed), "the message")
    if not text:
        return False
    if slash := slash_command(typed):
        run_command(session, *slash)
        return False
    attached = attach(text)
    for word in attached.words:
        session.screen.note(f"there is no file '{word}': '@{word}' stays a word")
    if attached.files:
        session.screen.note(f"with {', '.join(attached.files)}")
    return session.answer(session.conversation, attached.text)
