"""Text to token ids and back, by the rules that a GGUF file states.

What holds:
- Ordinary text never becomes a control token. Their texts are read only where `special` asks for it.
- At most one beginning token stands at the front, however many rules ask for one.
- `decode` takes away the space that `encode` put before a text: a text whose bytes all have tokens comes back as it
  was. (A tokenizer that writes spaces as U+2581 cannot tell that character from a space.)
- An end token is added where the file wants one (`tokenizer.ggml.add_eos_token`), and only to a text that is complete,
  for an embedding: the model continues all other texts.
"""

from __future__ import annotations

import operator
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any, TypeAlias

from woolly.errors import RequestError, UnsupportedError, printable
from woolly.text.output.style import BRACKETS, THINK
from woolly.text.tokenizer import bpe, spm, unigram, wordpiece
from woolly.text.tokenizer.lower_bound import bound_of
from woolly.text.tokenizer.pairs import pair_template
from woolly.text.tokenizer.special import Splitter
from woolly.text.tokenizer.vocab import (
    BYTE,
    CONTROL,
    NORMAL,
    UNKNOWN,
    USER_DEFINED,
    Vocab,
    byte_of,
    read_vocab,
    text_value,
)

Encode: TypeAlias = Callable[[Sequence[str]], list[list[int]]]

MODELS = {"gpt2": bpe.build, "gemma4": bpe.build, "llama": spm.build, "bert": wordpiece.build, "t5": unigram.build}

# Names that llama-server gives to a repository and to the file with a gap, and its mark between files without names.
REPOSITORY, GAP_FILE, SNIPPET = "myproject", "filename", "\n\n--- snippet ---\n\n"
# A control token with a shorter text cannot be told from ordinary text, and no real file has one with a longer.
_SHORTEST, _LONGEST = 2, 256
# Files disagree on whether these are control tokens, which have no text; without them nobody could tell thoughts from
# words in the text of ids.
_DELIMITERS = frozenset(mark for part in (THINK, BRACKETS) for mark in (part.opening, part.closing))


class Tokenizer:
    """The tokenizer of one file; made from the file's metadata, safe to use from several threads.

    vocab: number of tokens. bos, eos: ids, None where the file has none. ends: ids that end an answer. gap: ids of the
    three tokens by which a model is asked to fill a gap, () where it has none.
    control: texts of the tokens that ordinary text must never become.
    add_bos: whether the file wants a beginning token. add_space_prefix: whether a space goes before the first text.
    """

    def __init__(self, meta: Mapping[str, Any]) -> None:
        """meta: the metadata of a GGUF file. UnsupportedError names a tokenizer that Woolly does not know."""
        model = text_value(meta, "tokenizer.ggml.model")
        if model not in MODELS:
            raise UnsupportedError(
                f"tokenizer '{printable(model)}' is not supported; known are {', '.join(MODELS)}"
                if model
                else "the file names no tokenizer (tokenizer.ggml.model)",
                suggestion="in Python, LLM(..., tokenizer=False) runs the model on token ids alone",
                model=model,
            )
        vocab = read_vocab(meta)
        self._codec = MODELS[model](vocab, meta)
        self._tokens = vocab.tokens
        self._kinds = vocab.kinds
        self._bytes: list[bytes | None] = [None] * len(vocab.tokens)
        self._separator = vocab.separator if model == "bert" else None
        self._end = self._separator if self._separator is not None else vocab.eos if vocab.add_eos else None
        apart = vocab.separator if vocab.add_separator and model != "bert" else None
        self._between = [] if apart is None else [apart]
        self.model = model
        self.vocab = len(vocab.tokens)
        self.bos = vocab.bos
        self.eos = vocab.eos
        self.ends = vocab.ends
        self.gap = vocab.gap
        self._files = vocab.files
        self.add_bos = self._codec.bos if vocab.add_bos is None else vocab.add_bos
        self.add_space_prefix = self._codec.prefix
        self._specials = {vocab.tokens[i]: i for i in vocab.of_kind(CONTROL, UNKNOWN, USER_DEFINED)}
        user_defined = _pairs(vocab, USER_DEFINED)
        hidden = [(t, i) for t, i in _pairs(vocab, CONTROL, UNKNOWN) if _SHORTEST <= len(t) <= _LONGEST]
        self.control = tuple(t for t, _ in hidden)
        self._pair = pair_template(meta, self.control)
        self._bound = bound_of(vocab)
        self._plain = Splitter(user_defined)
        self._parsed = Splitter(user_defined + hidden, vocab.greedy)

    def encode(self, text: str, *, special: bool = False, bos: bool | None = False) -> list[int]:
        """The ids of a text.

        special: texts of control tokens become those tokens.
        bos: True puts the beginning token in front unless the text already begins with it, None follows the file.
        """
        check_text(text)
        return self._ids((self._parsed if special else self._plain).split(text), bos)

    def encode_gap(self, before: str, after: str, begun: str = "", files: Iterable[tuple[str, str]] = ()) -> list[int]:
        """The ids that ask a model with tokens for it to fill a gap; begun: the beginning of the missing text. files:
        names and texts of other files, which stand before it."""
        texts = (self.encode(text) for text in (before, after, begun))
        pieces = [piece for mark, ids in zip(self.gap, texts, strict=True) for piece in (mark, *ids)]
        pieces = [*self._encode_files(list(files)), *pieces]
        return [self.bos, *pieces] if self.add_bos and self.bos is not None else pieces

    def encode_mixed(self, parts: Sequence[int | str], *, special: bool = False) -> list[int]:
        """The ids of texts and of ids in their order. A text that stands first begins as the file wants."""
        ids: list[int] = []
        for index, part in enumerate(parts):
            bos = False if index else None
            ids += [part] if isinstance(part, int) else self.encode(part, special=special, bos=bos)
        return ids

    def _encode_files(self, files: list[tuple[str, str]]) -> list[int]:
        """Files as models for code were trained on a repository: its name, then each file behind its own, and last the
        name of the file with the gap. Nobody tells the names of these two."""
        repository, file = self._files
        ids = [] if repository is None or not files else [repository, *self.encode(f"{REPOSITORY}\n")]
        for name, text in files:
            ids += self.encode(SNIPPET) if file is None else [file, *self.encode(f"{name}\n")]
            ids += self.encode(text)
        return ids if file is None or not files else [*ids, file, *self.encode(f"{GAP_FILE}\n")]

    def encode_complete(self, text: str) -> list[int]:
        """The ids of a text that is complete, with the beginning and the end that the file wants."""
        check_text(text)
        return self._ended(self._ids(self._plain.split(text), None))

    def pairing(self, first: str, most: int | None = None) -> Callable[[str], list[int]]:
        """A function that gives the ids of this text and another one, for a model that compares them: as the file's
        template says, else one complete text after the other. What pairs have in common is encoded once.

        most: of more ids of the first text, only so many of its first count.
        """
        check_text(first)
        if self._pair is None:
            begin = [*self.encode_complete(first), *self._between][:most]

            def joined(second: str) -> list[int]:
                check_text(second)
                return self._ended([*begin, *self._ids(self._plain.split(second), False)])

            return joined
        render, encode = self._pair.render, _remembering(self._codec.encode)
        if most is not None and len(ids := self._ids(self._plain.split(first), False)) > most:
            first = self.decode(ids[:most])
        return lambda second: self._chat_ids(*render(first, second), encode)

    def truncate(self, ids: list[int], most: int) -> list[int]:
        """The first ids of a complete text; its end stays."""
        if len(ids) <= most:
            return ids
        return [*ids[: most - 1], ids[-1]] if ids[-1] == self._end else ids[:most]

    def encode_chat(self, text: str, escape: str) -> list[int]:
        """The ids of a rendered chat: control tokens are read, except where `escape` breaks their text."""
        return self._chat_ids(text, escape, self._codec.encode)

    def split(self, text: str) -> list[str | int]:
        """The text as pieces: the ids of special tokens, and the ordinary text between them."""
        return self._parsed.split(text)

    def encode_within(self, text: str) -> list[int]:
        """The ids of a text that goes on after another: nothing is put before it."""
        check_text(text)
        ids: list[int] = []
        for piece in self._plain.split(text):
            ids += [piece] if isinstance(piece, int) else self._codec.encode([piece])[0] if piece else []
        return ids

    def decode(self, ids: Iterable[int]) -> str:
        """The text of the ids; bytes that are no UTF-8 become U+FFFD, control tokens add what `bytes_of` says."""
        checked = self.check_ids(ids)
        if not self.add_space_prefix:
            return b"".join(map(self.bytes_of, checked)).decode("utf-8", "replace")
        parts = []
        begins = True
        for i in checked:
            part, begins = self.piece(i, begins)
            parts.append(part)
        return b"".join(parts).decode("utf-8", "replace")

    def piece(self, token: int, begins: bool) -> tuple[bytes, bool]:
        """The bytes of a token in its place, and whether a text begins after it. Once a token.

        begins: whether a text begins with this token, so that the space `encode` put there is to be taken away.
        """
        part = self.bytes_of(token)
        if self.is_special(token):
            return part, True
        if begins and self.add_space_prefix and part[:1] == b" ":
            return part[1:], False
        return part, begins and not part

    def bytes_of(self, token: int) -> bytes:
        """The bytes a token adds to the text: none for a control token, but its text for a user-defined one and for the
        marks of thoughts."""
        known = self._bytes[token]
        if known is None:
            known = self._bytes[token] = self._spell(token)
        return known

    def text_of(self, token: int) -> str:
        """The token as the file writes it."""
        return self._tokens[token]

    def id_of(self, text: str) -> int | None:
        """The special token (control, unknown or user-defined) with exactly this text."""
        return self._specials.get(text)

    def is_special(self, token: int) -> bool:
        """Whether the token is control, unknown or user-defined: text after it begins anew."""
        return self._kinds[token] in (CONTROL, UNKNOWN, USER_DEFINED)

    def fewest(self, text: str) -> int:
        """A lower bound of the tokens of a text, from its size; 0 where there is none."""
        return self._bound.fewest(text)

    def beginning(self, text: str, most: int) -> str:
        """The beginning of a text, with so many tokens and as many again: the first ones are those of the whole text,
        unless a single word is longer than half of it."""
        size = 2 * most * self._bound.longest
        while 0 < size < len(text) and self.fewest(text[:size]) < 2 * most:
            size *= 2
        return text[:size] if size else text

    def check_ids(self, ids: Iterable[int]) -> list[int]:
        """The ids as plain numbers; RequestError names the place of one that is no token."""
        listed = list(ids)
        if not listed or (set(map(type, listed)) == {int} and min(listed) >= 0 and max(listed) < self.vocab):
            return listed
        checked: list[int] = []
        for at, i in enumerate(listed):
            try:
                number = -1 if isinstance(i, bool) else operator.index(i)
            except TypeError:
                number = -1
            if not 0 <= number < self.vocab:
                raise RequestError(
                    f"token {at} is {printable(i)}, expected a whole number from 0 to {self.vocab - 1}", index=at
                )
            checked.append(number)
        return checked

    def _chat_ids(self, text: str, escape: str, encode: Encode) -> list[int]:
        check_text(text)
        pieces = self._parsed.split(text)
        return self._ids([p.replace(escape, "") if isinstance(p, str) and escape else p for p in pieces], None, encode)

    def _ids(self, pieces: list[str | int], bos: bool | None, encode: Encode | None = None) -> list[int]:
        texts = self._prefixed(pieces)
        encoded = iter((encode or self._codec.encode)(texts) if texts else [])
        ids: list[int] = []
        for piece in pieces:
            if isinstance(piece, int):
                ids.append(piece)
            elif piece:
                ids += next(encoded)
        wanted = self.add_bos if bos is None else bos
        if not wanted:
            return ids
        if self.bos is None:
            if bos:
                raise RequestError("bos=True, but the model has no beginning token", suggestion="use bos=None")
            return ids
        if ids[:1] != [self.bos]:
            ids.insert(0, self.bos)
        if self._separator is not None and ids[-1] != self._separator:
            ids.append(self._separator)
        return ids

    def _ended(self, ids: list[int]) -> list[int]:
        return ids if self._end is None or ids[-1:] == [self._end] else [*ids, self._end]

    def _prefixed(self, pieces: list[str | int]) -> list[str]:
        """The texts among the pieces, with the space that the file wants before some of them."""
        texts = []
        begins = self.add_space_prefix
        for piece in pieces:
            if isinstance(piece, int):
                begins = self.add_space_prefix
            elif piece:
                texts.append(" " + piece if begins else piece)
                begins = False
        return texts

    def _spell(self, token: int) -> bytes:
        kind = self._kinds[token]
        if kind == NORMAL:
            return self._codec.spell(self._tokens[token])
        if kind == USER_DEFINED or (kind == CONTROL and self._tokens[token] in _DELIMITERS):
            return self._tokens[token].encode()
        if kind == BYTE:
            return bytes([byte_of(self._tokens[token])])
        return b""


def _pairs(vocab: Vocab, *kinds: int) -> list[tuple[str, int]]:
    return [(vocab.tokens[i], i) for i in vocab.of_kind(*kinds)]


def _remembering(encode: Encode) -> Encode:
    """Encodes texts, except those that the call before had too."""
    before: dict[str, list[int]] = {}

    def encode_others(texts: Sequence[str]) -> list[list[int]]:
        nonlocal before
        others = [text for text in dict.fromkeys(texts) if text not in before]
        known = before | dict(zip(others, encode(others) if others else (), strict=True))
        before = {text: known[text] for text in texts}
        return [before[text] for text in texts]

    return encode_others


def check_text(text: object) -> None:
    """RequestError unless this is a str that can be written as UTF-8."""
    if not isinstance(text, str):
        raise RequestError(f"text must be a str, not {type(text).__name__}")
    if not text.isascii():
        try:
            text.encode()
        except UnicodeEncodeError as error:
            raise RequestError(
                f"text holds a lone surrogate (U+{ord(text[error.start]):04X}) at character {error.start:,}",
                suggestion="decode the bytes it came from with errors='replace'",
                offset=error.start,
            ) from None
