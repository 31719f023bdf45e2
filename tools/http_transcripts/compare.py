"""What differs between two recordings, by the names of their transcripts."""

from __future__ import annotations

import difflib
import json
from collections.abc import Iterator
from typing import Any

MOST = 40  # lines of one difference


def differences(before: dict[str, Any], after: dict[str, Any]) -> Iterator[str]:
    """A block of lines for each transcript that differs, is gone or is new."""
    for name in sorted({*before, *after}):
        if name not in after:
            yield f"{name}\n  only before"
        elif name not in before:
            yield f"{name}\n  only after"
        elif before[name] != after[name]:
            yield "\n  ".join([name, *_diff(before[name], after[name])])


def _diff(before: Any, after: Any) -> list[str]:
    """The lines that changed, each with the line before it."""
    old, new = (json.dumps(value, indent=1, sort_keys=True).splitlines() for value in (before, after))
    rows = [row for row in difflib.unified_diff(old, new, n=1, lineterm="") if row[:3] not in ("---", "+++")]
    return rows if len(rows) <= MOST else [*rows[:MOST], f"... and {len(rows) - MOST} lines more"]
