"""Tools in a chat: each call is shown, allowed by the settings or by the user, made, and its result shown.

The text of a result is content: it goes to the model as the result of its call, and nowhere else.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator

from woolly.cli.chat.conversation import Turn
from woolly.cli.chat.screen import Screen
from woolly.errors import printable
from woolly.mcp import CallToolResult, OfferedTool, Toolbox
from woolly.request import Call

LINES, WIDTH = 6, 200  # how much of a result is shown
QUESTION = "  may it be called? (y)es, (n)o, (a)lways in this chat: "
REFUSED = CallToolResult("the user did not allow this call", wrong=True)


class Tools:
    """The tools of a chat. confirm: asks the user, and gives back what was typed."""

    def __init__(self, box: Toolbox, confirm: Callable[[str], str] = input) -> None:
        self.box = box
        self._confirm = confirm
        self._always: set[str] = set()

    def use(self, calls: Iterable[Call], screen: Screen) -> Iterator[Turn]:
        """The result of each call, as a turn of the conversation."""
        for call in calls:
            screen.say(f"  calls {call.name} {printable(call.arguments, 2 * WIDTH)}")
            offered = self.box.offered.get(call.name)
            result = self.box.call(call) if offered is None or self._may(call.name, offered) else REFUSED
            _show(result, screen)
            yield Turn("tool", result.text, call=call.id)

    def lines(self) -> str:
        """Every tool, with its server and whether the user is asked before a call."""
        rows = [
            f"  {name:<28}{one.client.name:<16}{'' if self._is_allowed(name, one) else 'asks first; '}"
            f"{printable(one.tool.description, 80)}"
            for name, one in self.box.offered.items()
        ]
        return "\n".join([*rows, *(f"  {fault}" for fault in self.box.faults.values())]) or "  (there are no tools)"

    def _is_allowed(self, name: str, offered: OfferedTool) -> bool:
        return offered.allowed or name in self._always

    def _may(self, name: str, offered: OfferedTool) -> bool:
        if self._is_allowed(name, offered):
            return True
        try:
            word = self._confirm(QUESTION).strip().lower()[:1]
        except (EOFError, KeyboardInterrupt):
            return False
        if word == "a":
            self._always.add(name)
        return word in ("y", "a")


def _show(result: CallToolResult, screen: Screen) -> None:
    if result.wrong:
        screen.say(f"  error: {printable(result.text, WIDTH)}")
        return
    lines = result.text.split("\n")
    for line in lines[:LINES]:
        screen.note(f"  {printable(line, WIDTH)}")
    if len(lines) > LINES:
        screen.note(f"  … and {len(lines) - LINES:,} lines more")
