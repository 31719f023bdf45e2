"""Lists of OpenAI's that come in pages: the rows after an id, a limited number at a time."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from operator import attrgetter
from typing import Any, TypeVar

from woolly.errors import RequestError

T = TypeVar("T")


def page(
    rows: Sequence[T],
    query: Mapping[str, str],
    most: int,
    usual: int | None = None,
    id_of: Callable[[T], str] = attrgetter("id"),
) -> dict[str, Any]:
    """The fields of a page. most: of its rows; usual: how many it has where the query has no limit."""
    text = query.get("limit") or str(usual or most)
    if not text.isascii() or not text.isdigit() or not 1 <= int(text[:9]) <= most:
        raise RequestError(f"limit is a number from 1 to {most:,}", param="limit")
    after = query.get("after")
    if after:
        at = next((index for index, row in enumerate(rows) if id_of(row) == after), None)
        if at is None:
            raise RequestError("there is nothing with the id in `after`", param="after")
        rows = rows[at + 1 :]
    shown = rows[: int(text[:9])]
    return {
        "data": list(shown),
        "first_id": id_of(shown[0]) if shown else None,
        "last_id": id_of(shown[-1]) if shown else None,
        "has_more": len(shown) < len(rows),
    }
