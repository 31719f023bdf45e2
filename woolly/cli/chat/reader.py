"""Reading a message from a terminal: with line editing and history where it is a clever one, as it comes elsewhere."""

from __future__ import annotations

import io
import os
import re
import sys
from collections.abc import Callable, Iterable
from pathlib import Path
from typing import Protocol

from woolly.cli.chat.history import add_history, read_history
from woolly.cli.chat.screen import size_of
from woolly.cli.chat.typed import unfinished
from woolly.errors import WoollyError

PROMPT, MORE = ">>> ", "... "


class Reader(Protocol):
    def __call__(self) -> str:
        """One message as it was typed. EOFError: the input is over; KeyboardInterrupt: Ctrl-C and nothing typed."""


def simple_reader() -> Reader:
    """For a terminal that cannot move its cursor: the terminal's own editing, line by line."""

    if isinstance(sys.stdin, io.TextIOWrapper):
        sys.stdin.reconfigure(errors="surrogateescape")  # what is no UTF-8 is told as such later, and ends nothing

    def read() -> str:
        typed = input(PROMPT)
        while unfinished(typed):
            typed += "\n" + input(MORE)
        return typed

    return read


def editing_reader(history: Path, words: Iterable[str], note: Callable[[str], None]) -> Reader:
    """Line editing, history kept in a file, Tab for slash words and for the paths of `@file`.

    Enter sends; Alt-Enter, Ctrl-J, a backslash before Enter, and triple quotes give a line more. A line that begins
    with a space is not remembered.
    """
    from prompt_toolkit import PromptSession
    from prompt_toolkit.completion import CompleteEvent, Completer, Completion, PathCompleter
    from prompt_toolkit.data_structures import Size
    from prompt_toolkit.document import Document
    from prompt_toolkit.history import History
    from prompt_toolkit.key_binding import KeyBindings, KeyPressEvent
    from prompt_toolkit.output import ColorDepth
    from prompt_toolkit.output.vt100 import Vt100_Output
    from prompt_toolkit.shortcuts import CompleteStyle

    class Kept(History):
        told = False

        def load_history_strings(self) -> Iterable[str]:
            return reversed(read_history(history))

        def store_string(self, string: str) -> None:
            if string.startswith(" "):
                return
            try:
                add_history(history, string)
            except (OSError, WoollyError) as error:
                if not self.told:
                    self.told = True
                    note(f"what you type cannot be kept in {history}: {getattr(error, 'strerror', None) or error}")

    class Words(Completer):
        def get_completions(self, document: Document, complete_event: CompleteEvent) -> Iterable[Completion]:
            before = document.text_before_cursor
            if before.startswith("/") and " " not in before:
                yield from (Completion(f"/{word} ", -len(before)) for word in words if f"/{word}".startswith(before))
            elif path := re.search(r"(?<!\S)@(\S*)$", before):
                yield from PathCompleter(expanduser=True).get_completions(Document(path[1]), complete_event)

    keys = KeyBindings()

    @keys.add("enter")
    def send(event: KeyPressEvent) -> None:
        buffer = event.current_buffer
        if unfinished(buffer.text):
            buffer.insert_text("\n")
        else:
            buffer.validate_and_handle()

    @keys.add("escape", "enter")
    @keys.add("c-j")
    def line(event: KeyPressEvent) -> None:
        event.current_buffer.insert_text("\n")

    @keys.add("c-c")
    def drop(event: KeyPressEvent) -> None:
        if event.current_buffer.text:
            event.current_buffer.reset()
        else:
            event.app.exit(exception=KeyboardInterrupt, style="class:aborting")

    def size() -> Size:
        columns, rows = size_of(sys.stdout)
        return Size(rows=rows, columns=columns)

    # enable_cpr asks the terminal where its cursor is; answers that come late would be typed into the shell.
    session: PromptSession[str] = PromptSession(
        PROMPT,
        multiline=True,
        prompt_continuation=MORE,
        key_bindings=keys,
        history=Kept(),
        completer=Words(),
        complete_style=CompleteStyle.READLINE_LIKE,
        complete_while_typing=False,
        enable_history_search=False,
        reserve_space_for_menu=0,
        color_depth=ColorDepth.DEPTH_1_BIT,
        output=Vt100_Output(sys.stdout, size, term=os.environ.get("TERM"), enable_cpr=False),
    )
    return lambda: session.prompt()
