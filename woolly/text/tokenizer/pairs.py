"""How a file writes a query and a document for a model that ranks them: a text with a placeholder for each."""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping
from typing import Any

from woolly.errors import FileError
from woolly.limits import LIMITS
from woolly.text.template.escape import Escaper
from woolly.text.tokenizer.vocab import text_value

KEY = "tokenizer.chat_template.rerank"
_PLACE = re.compile(r"\{(query|document)\}")


class PairTemplate:
    """Writes pairs; what users wrote is escaped, so that it never becomes a control token."""

    def __init__(self, source: str, control: Iterable[str]) -> None:
        self._source = source
        self._escaper = Escaper(control)

    def render(self, query: str, document: str) -> tuple[str, str]:
        """The text, and the escape character in it."""
        escaped, escape = self._escaper.escape({"query": query, "document": document}, self._source)
        return _PLACE.sub(lambda place: str(escaped[place[1]]), self._source), escape


def pair_template(meta: Mapping[str, Any], control: Iterable[str]) -> PairTemplate | None:
    """The template of a file for pairs, None if it has none."""
    source = text_value(meta, KEY)
    if not source:
        return None
    if len(source.encode("utf-8", "surrogatepass")) > LIMITS.template:
        raise FileError(f"{KEY} is longer than {LIMITS.template:,} bytes", key=KEY)
    if {place[1] for place in _PLACE.finditer(source)} != {"query", "document"}:
        raise FileError(f"{KEY} has no places for {{query}} and {{document}}", key=KEY)
    return PairTemplate(source, control)
