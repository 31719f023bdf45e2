"""Typed lines: whether a message is finished, and its text."""

from __future__ import annotations

BLOCK = '"""'


def is_unfinished(typed: str) -> bool:
    """Whether the next line belongs to the same message: inside triple quotes, or after a backslash."""
    if typed.lstrip().startswith(BLOCK):
        start = typed.lstrip()[len(BLOCK) :]
        return BLOCK not in start
    return (len(typed) - len(typed.rstrip("\\"))) % 2 == 1


def message_text(typed: str) -> str:
    """The message without the marks that let it have several lines."""
    text = typed.strip()
    if text.startswith(BLOCK):
        inner, _, after = text[len(BLOCK) :].partition(BLOCK)
        return (inner.strip("\n") + after).strip()
    return text.replace("\\\n", "\n")


def slash_command(typed: str) -> tuple[str, str] | None:
    """The slash word and what follows it; None for a message. A path such as /usr/bin is no command."""
    text = typed.strip()
    if not text.startswith("/") or text == "/":
        return None
    word, _, rest = text.partition(" ")
    return None if "/" in word[1:] or "\n" in word else (word[1:], rest.strip())
