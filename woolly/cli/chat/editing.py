"""Reading a message with line editing: history kept in a file, Tab for slash words and for the paths of `@file`.

Enter sends; Alt-Enter, Ctrl-J, a backslash before Enter, and triple quotes give a line more. Importing this takes a
tenth of a second: only a chat at a terminal that can move its cursor pays it.
"""

from __future__ import annotations

import os
import re
import sys
from collections.abc import Callable, Iterable
from pathlib import Path

from prompt_toolkit import PromptSession
from prompt_toolkit.completion import CompleteEvent, Completer, Completion, PathCompleter
from prompt_toolkit.data_structures import Size
from prompt_toolkit.document import Document
from prompt_toolkit.history import History
from prompt_toolkit.key_binding import KeyBindings, KeyPressEvent
from prompt_toolkit.output import ColorDepth
from prompt_toolkit.output.vt100 import Vt100_Output
from prompt_toolkit.shortcuts import CompleteStyle

from woolly.cli.chat.history import add_history, read_history
from woolly.cli.chat.reader import MORE, PROMPT, Reader
from woolly.cli.chat.screen import size_of
from woolly.cli.chat.typed import is_unfinished
from woolly.errors import WoollyError

KEYS = KeyBindings()


def editing_reader(history: Path, words: Iterable[str], note: Callable[[str], None]) -> Reader:
    """words: what may follow a slash. note: tells the user, once, that the history cannot be kept."""
    # enable_cpr asks the terminal where its cursor is; answers that come late would be typed into the shell.
    session: PromptSession[str] = PromptSession(
        PROMPT,
        multiline=True,
        prompt_continuation=MORE,
        key_bindings=KEYS,
        history=_FileHistory(history, note),
        completer=_CommandCompleter(words),
        complete_style=CompleteStyle.READLINE_LIKE,
        complete_while_typing=False,
        enable_history_search=False,
        reserve_space_for_menu=0,
        color_depth=ColorDepth.DEPTH_1_BIT,
        output=Vt100_Output(sys.stdout, _size, term=os.environ.get("TERM"), enable_cpr=False),
    )
    return lambda: session.prompt()


class _FileHistory(History):
    """A history in a file. A line that begins with a space is not added."""

    def __init__(self, path: Path, note: Callable[[str], None]) -> None:
        super().__init__()
        self._path, self._note = path, note
        self._warned = False  # whether the note has been given

    def load_history_strings(self) -> Iterable[str]:
        return reversed(read_history(self._path))

    def store_string(self, string: str) -> None:
        if string.startswith(" "):
            return
        try:
            add_history(self._path, string)
        except (OSError, WoollyError) as error:
            if not self._warned:
                self._warned = True
                self._note(f"what you type cannot be kept in {self._path}: {getattr(error, 'strerror', None) or error}")


class _CommandCompleter(Completer):
    def __init__(self, words: Iterable[str]) -> None:
        self._words = tuple(words)

    def get_completions(self, document: Document, complete_event: CompleteEvent) -> Iterable[Completion]:
        before = document.text_before_cursor
        if before.startswith("/") and " " not in before:
            yield from (Completion(f"/{word} ", -len(before)) for word in self._words if f"/{word}".startswith(before))
        elif path := re.search(r"(?<!\S)@(\S*)$", before):
            yield from PathCompleter(expanduser=True).get_completions(Document(path[1]), complete_event)


@KEYS.add("enter")
def _send(event: KeyPressEvent) -> None:
    buffer = event.current_buffer
    if is_unfinished(buffer.text):
        buffer.insert_text("\n")
    else:
        buffer.validate_and_handle()


@KEYS.add("escape", "enter")
@KEYS.add("c-j")
def _new_line(event: KeyPressEvent) -> None:
    event.current_buffer.insert_text("\n")


@KEYS.add("c-c")
def _drop(event: KeyPressEvent) -> None:
    if event.current_buffer.text:
        event.current_buffer.reset()
    else:
        event.app.exit(exception=KeyboardInterrupt, style="class:aborting")


def _size() -> Size:
    columns, rows = size_of(sys.stdout)
    return Size(rows=rows, columns=columns)
