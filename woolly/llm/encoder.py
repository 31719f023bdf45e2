"""Encoder: the side of a model that reads whole texts and gives an embedding, or a score, for each.

Callers' threads tokenise and check; the engine thread computes, many short texts in one step. What a text gives does
not depend on the others.
"""

from __future__ import annotations

import math
from collections import deque
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from typing import Any, Protocol

import numpy as np
from numpy.typing import NDArray

from woolly.engine import Adapters, Scores, Sequence, Stream
from woolly.errors import BusyError, ContextError, RequestError, UnsupportedError
from woolly.examine import OutputKind
from woolly.io.cancellation import check
from woolly.request import End, Event, Failed, Request, SubmitOptions
from woolly.text import Tokenizer, check_text

F32 = NDArray[np.float32]
Ids = tuple[int, ...]

# By the output of a model: what the model does, and the functions that it can be asked for.
PURPOSES: Mapping[OutputKind, tuple[str, tuple[str, ...]]] = {
    "logits": ("continues texts", ("generate", "chat")),
    "embedding": ("makes embeddings of texts", ("embed",)),
    "rank": ("scores documents", ("rerank",)),
}


def text_output(gives: OutputKind) -> OutputKind:
    """The output for a text that is only read. A model that continues texts gives an embedding then: the row from which
    it would choose the next token."""
    return "embedding" if gives == "logits" else gives


@dataclass(frozen=True, slots=True)
class Pooled:
    """The result for a text, while it is computed: `rows` are complete when `stream` has ended."""

    rows: F32
    stream: Stream

    @staticmethod
    def check(event: Event) -> None:
        """Raise the error of an event that reports a failure."""
        if isinstance(event, Failed):
            raise event.error
        if isinstance(event, End) and event.reason == "cancelled":
            raise BusyError("the model was closed while it computed", suggestion="load it again")

    def wait(self) -> F32:
        """The rows, when they are there."""
        for event in self.stream:
            self.check(event)
        return self.rows


class TextEngine(Protocol):
    """What computes texts: an engine."""

    def add(self, sequence: Sequence) -> Stream: ...


@dataclass(frozen=True, slots=True)
class Encoder:
    """gives: the model's main output. width: of a row that it gives for a text. per_token: each token has a row; else
    the whole text has one. labels: of a ranker's scores. most: texts that may be in the engine at a time."""

    engine: TextEngine
    tokenizer: Tokenizer | None
    adapters: Adapters
    name: str
    gives: OutputKind
    width: int
    per_token: bool
    labels: tuple[str, ...]
    context: int
    vocab: int
    most: int

    def need(self, wanted: OutputKind) -> None:
        """Refuse what the model does not give."""
        if wanted not in (self.gives, text_output(self.gives)):
            (purpose, calls), (_, refused) = PURPOSES[self.gives], PURPOSES[wanted]
            raise UnsupportedError(
                f"{self.name} {purpose}; it cannot {' or '.join(refused)}",
                suggestion=f"use {' or '.join(calls)}",
                param="model",
                calls=calls,
            )

    def texts(self, inputs: str | Iterable[str | Iterable[int | str]], *, truncate: bool) -> list[Ids]:
        """The ids of texts that are to be embedded; inputs that are ids already, but for texts among them, are taken as
        they are."""
        self.need("embedding")
        several = [inputs] if isinstance(inputs, str) else _list(inputs, "input")
        return [self._text(each, f"input[{index}]", truncate) for index, each in _checked(several)]

    def pairs(self, query: str, documents: Iterable[str], *, truncate: bool) -> list[Ids]:
        """The ids of a query with each document."""
        self.need("rank")
        if self.width > 1 and "yes" not in self.labels:
            raise UnsupportedError(
                f"{self.name} tells {self.width} labels apart, and none of them says how relevant a document is",
                param="model",
            )
        tokenizer, several = self._known_tokenizer(), _list(documents, "documents")
        pair = tokenizer.pairing(self._short(tokenizer, query, truncate), self.context if truncate else None)
        others = max(tokenizer.fewest(query) - 1, 0)  # a token may join the end of the query and a document
        return [
            self._fitting(pair(self._short(tokenizer, each, truncate, others)), f"documents[{index}]", truncate)
            for index, each in _checked(several)
        ]

    def submit(self, ids: Ids, *, salt: bytes = b"", key: str = "") -> Pooled:
        """Begin to compute what the model gives for a text. salt, key: as of `SubmitOptions`."""
        lora = self.adapters.chosen(None)
        return self.begin(ids, lora=lora, salt=self.adapters.salt(salt, lora), key=key)

    def begin(self, ids: Ids, *, lora: F32 | None, salt: bytes, key: str) -> Pooled:
        """As `submit`, with these scales of adapters; the salt must include them."""
        rows = np.empty((len(ids) if self.per_token else 1, self.width), np.float32)
        options, scores = SubmitOptions(salt=salt, key=key), Scores(rows, text_output(self.gives))
        return Pooled(rows, self.engine.add(Sequence(ids, limit=len(ids), options=options, lora=lora, scores=scores)))

    def all(self, texts: Iterable[Ids]) -> Iterator[F32]:
        """The rows of each text, in their order. Only some are in the engine at a time: others have their turn too."""
        begun = deque[Pooled]()
        try:
            for ids in texts:
                begun.append(self.submit(ids))
                if len(begun) >= self.most:
                    yield begun.popleft().wait()
            while begun:
                yield begun.popleft().wait()
        finally:
            for pooled in begun:
                pooled.stream.cancel()

    def check_dimensions(self, dimensions: int | None) -> None:
        """Refuse a number of dimensions that an embedding does not have."""
        if dimensions is not None and not 1 <= dimensions <= self.width:
            raise RequestError(
                f"dimensions is {dimensions:,}, but an embedding of {self.name} has {self.width:,} numbers",
                param="dimensions",
            )

    def shaped(self, rows: F32, *, normalize: bool, dimensions: int | None) -> F32:
        """An embedding as it is asked for: its first numbers, with length 1."""
        rows = rows[:, :dimensions]
        if not normalize:
            return rows
        length = np.sqrt(np.square(rows, dtype=np.float64).sum(-1, keepdims=True))
        return (rows / np.where(length == 0.0, 1.0, length)).astype(np.float32)

    def relevance(self, rows: F32) -> float:
        """Of a ranker's row, from 0 to 1: the share of the label "yes", or the sigmoid of a single score."""
        if self.width > 1:
            return float(rows[0, self.labels.index("yes")])
        return 1.0 / (1.0 + math.exp(-max(float(rows[0, 0]), -700.0)))

    def _text(self, value: str | Iterable[int | str], place: str, truncate: bool) -> Ids:
        if isinstance(value, str):
            tokenizer = self._known_tokenizer()
            return self._fitting(tokenizer.encode_complete(self._short(tokenizer, value, truncate)), place, truncate)
        parts = tuple(_list(value, place))
        if any(isinstance(part, str) for part in parts):
            ids = self._mixed(Request(mixed=parts).mixed or (), truncate)
        else:
            ids = list(Request(tokens=parts).tokens or ())
        for index, token in enumerate(ids):
            if token >= self.vocab:
                raise RequestError(
                    f"{place}[{index}] is token {token}, but the vocabulary has {self.vocab:,}",
                    param=place,
                    index=index,
                )
        return self._fitting(ids, place, truncate)

    def _mixed(self, parts: tuple[int | str, ...], truncate: bool) -> list[int]:
        """The ids of texts and ids in their order."""
        tokenizer = self._known_tokenizer()
        others = sum(isinstance(part, int) for part in parts)
        texts = (part if isinstance(part, int) else self._short(tokenizer, part, truncate, others) for part in parts)
        return tokenizer.encode_mixed(tuple(texts))

    def _short(self, tokenizer: Tokenizer, text: str, truncate: bool, others: int = 0) -> str:
        """A text that may fit, or the beginning of one that is to be cut: by its size, before the time is spent to cut
        it into tokens. others: tokens that come with it, at the least."""
        check_text(text)
        if truncate:
            return tokenizer.beginning(text, self.context)
        if (fewest := tokenizer.fewest(text) + others) > self.context:  # whatever its tokens are
            raise ContextError(fewest, self.context, least=True)
        return text

    def _fitting(self, ids: list[int], place: str, truncate: bool) -> Ids:
        if not ids:
            raise RequestError(f"{place} has no tokens; give at least one", param=place)
        if len(ids) > self.context and not truncate:
            raise ContextError(len(ids), self.context)
        cut = self.tokenizer.truncate if self.tokenizer is not None else lambda ids, most: ids[:most]
        return tuple(cut(ids, self.context))

    def _known_tokenizer(self) -> Tokenizer:
        if self.tokenizer is None:
            raise RequestError("the model was loaded without its tokenizer", suggestion="give token ids", param="input")
        return self.tokenizer


def shortest(row: F32) -> list[Any]:
    """Numbers in the fewest digits that give the float32 again, for JSON."""
    return [float(number) for number in row.astype("U32")] if row.ndim == 1 else list(map(shortest, row))


def _checked(several: list[Any]) -> Iterator[tuple[int, Any]]:
    """Each with its number, as long as its caller waits."""
    for index, each in enumerate(several):
        check()
        yield index, each


def _list(value: Any, name: str) -> list[Any]:
    if isinstance(value, str | bytes | Mapping) or not isinstance(value, Iterable):
        raise RequestError(f"{name} is a list, not {type(value).__name__}", param=name)
    return list(value)
