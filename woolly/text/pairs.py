"""How a file writes a query and a document for a model that ranks them: a text in which both have their places."""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping
from typing import Any

from woolly.errors import FileError
from woolly.limits import LIMITS
from woolly.text.marks import Marker
from woolly.text.vocab import text_value

KEY = "tokenizer.chat_template.rerank"
_PLACE = re.compile(r"\{(query|document)\}")


class PairTemplate:
    """Writes pairs; what users wrote is marked, so that it never becomes a control token."""

    def __init__(self, source: str, control: Iterable[str]) -> None:
        self._source = source
        self._marker = Marker(control)

    def render(self, query: str, document: str) -> tuple[str, str]:
        """The text, and the mark in it."""
        marked, mark = self._marker.mark({"query": query, "document": document}, self._source)
        return _PLACE.sub(lambda place: str(marked[place[1]]), self._source), mark


def pair_template(meta: Mapping[str, Any], control: Iterable[str]) -> PairTemplate | None:
    """The one that a file brings, None if it has none."""
    source = text_value(meta, KEY)
    if not source:
        return None
    if len(source.encode("utf-8", "surrogatepass")) > LIMITS.template:
        raise FileError(f"{KEY} is longer than {LIMITS.template:,} bytes", key=KEY)
    if {place[1] for place in _PLACE.finditer(source)} != {"query", "document"}:
        raise FileError(f"{KEY} has no places for {{query}} and {{document}}", key=KEY)
    return PairTemplate(source, control)
