"""One answer, shown as it comes."""

from __future__ import annotations

from collections.abc import Iterable, Iterator

from woolly.cli.chat.screen import Screen
from woolly.request import Completion, Event, Start, Text, Thought, complete

LONG = 512  # tokens: the reading of a longer prompt is announced


def show_answer(events: Iterable[Event], screen: Screen, *, hide: bool = False, notes: bool = False) -> Completion:
    """Write the answer as it comes. hide: do not show thoughts. notes: announce long prompts and thoughts."""
    try:
        return complete(_shown(events, screen, hide, notes))
    finally:
        screen.end()


def _shown(events: Iterable[Event], screen: Screen, hide: bool, notes: bool) -> Iterator[Event]:
    """Write each event to the screen, then pass it on."""
    noted = not notes
    for event in events:
        match event:
            case Start(prompt_tokens=prompt, cached_tokens=cached) if notes and prompt - cached > LONG:
                screen.note(f"reading {prompt - cached:,} tokens …")
            case Text(text=text) if text:
                screen.words(text)
            case Thought(text=text) if text and not hide:
                screen.thoughts(text)
            case Thought() if not noted:
                screen.note("thinking …")
                noted = True
        yield event
