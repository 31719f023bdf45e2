"""Answers that follow a format: a grammar says of each next token whether it is allowed. Matching is llguidance's.

A `Format` becomes a `Grammar`, once for all answers that share it; each answer has a `Matcher`, a fold over its tokens:
the same tokens leave it in the same state, whatever happened between them. A mask has a bit for each token, and the
sampler draws among those it allows. An end token is allowed where the text may end; where nothing else is allowed, the
answer ends by itself.

Where the grammar leaves one text to write (the name of the next property), its bytes could still be cut into tokens in
many ways. There the mask allows one token, the one by which the tokenizer itself would begin this text; it stops before
the last bytes, which might be one token with what follows. So the token is known before any logits are: `forced` gives
it, and the engine takes it without a step. llguidance's own answer to the same question is a list of all such tokens
(`compute_ff_tokens`). We take its first and ask again: the list is made of one call of the tokenizer, the masks of one
call after each token, and only the masks say what sampling would have drawn.

llguidance is imported, and the vocabulary made, with the first format; nothing of it is loaded for other requests.
"""

from __future__ import annotations

import json
from collections import OrderedDict
from collections.abc import Sequence
from threading import Lock
from typing import TYPE_CHECKING, Any, NamedTuple, TypeAlias

import numpy as np

from woolly.engine.grammar.compiler import COMPILER, Budget, try_out
from woolly.engine.grammar.gbnf.lark import lark_of
from woolly.engine.grammar.refusals import readable, refusal
from woolly.engine.sampling.stages import Mask
from woolly.engine.work_clock import worked_s
from woolly.errors import RequestError, UnsupportedError, printable
from woolly.io.cancellation import check
from woolly.limits import LIMITS
from woolly.request import Text, Thought
from woolly.request.format import Format
from woolly.system import check_room
from woolly.text import AnswerPart, Output, Style, Tokenizer

if TYPE_CHECKING:
    from llguidance import LLMatcher, LLTokenizer

NamedFormats: TypeAlias = tuple[tuple[str, Format], ...]

ROOM = 64 << 20  # bytes that must be free for a format: llguidance ends the process where it gets no memory
KEPT = 64  # grammars, the most recently used
ANSWER = "@answer"  # the name of the format in a frame
OBJECT = {"type": "object"}
TOO_SLOW = "it takes too long to tell which tokens may follow"
SIMPLER = "make the format simpler"
# No white space between values: it is a place where a small model can stay forever.
STRICT = {"x-guidance": {"whitespace_flexible": False, "lenient": False, "coerce_one_of": False}}
LENIENT = {"x-guidance": {"whitespace_flexible": False, "lenient": True, "coerce_one_of": True}}


class Grammars:
    """The grammars of one vocabulary. For any thread."""

    def __init__(self, tokenizer: Tokenizer) -> None:
        self._tokenizer = tokenizer
        self._words: LLTokenizer | None = None
        self._control = ""  # the control tokens, as `try_out` takes them
        self._compiled: OrderedDict[tuple[Format, str, NamedFormats], Grammar] = OrderedDict()
        self._lock = Lock()

    def grammar(
        self, format: Format, frame: str = ANSWER, parts: NamedFormats = (), *, budget: Budget | None = None
    ) -> Grammar:
        """The grammar of a format, compiled once. RequestError tells what of it cannot be kept to.

        frame: a rule of Lark for the whole answer, in which `@answer` stands for the text of this format. parts: other
        formats, for which `@name` stands. budget: what is left of its request's; None is a whole one.
        """
        key = (format, frame, parts)
        check_room(ROOM)
        words = self._vocabulary()
        with self._lock:
            grammar = self._compiled.get(key)
        if grammar is None:  # without the lock, so that a slow format does not delay other requests
            budget = budget or Budget()
            source = _source(format, frame, parts, budget)
            try_out(source, budget, self._control)
            check()
            grammar = Grammar(words, source, Terms(format, frame, parts))
        if grammar.slow:
            raise RequestError(TOO_SLOW, suggestion=SIMPLER, param="format")
        with self._lock:
            self._compiled[key] = grammar
            self._compiled.move_to_end(key)
            if len(self._compiled) > KEPT:
                self._compiled.popitem(last=False)
        return grammar

    def check(self, format: Format, budget: Budget) -> None:
        """Refuse a format that cannot be kept to, without making a grammar of it."""
        check_room(ROOM)
        self._vocabulary()
        failed, messages = try_out(_source(format, ANSWER, (), budget), budget, self._control)
        if failed:
            raise refusal(format, messages[-1] if messages else "")

    def _vocabulary(self) -> LLTokenizer:
        with self._lock:
            if self._words is None:
                COMPILER.start()  # it comes up while the vocabulary is read
                self._words, self._control = _vocabulary(self._tokenizer)
            return self._words


class Terms(NamedTuple):
    """What a grammar is made of: the same terms give the same grammar, wherever the vocabulary is the same."""

    format: Format
    frame: str
    parts: NamedFormats


class Grammar:
    """A compiled format. `matcher` begins an answer.

    slow: a token of an answer took too long. Its answers end, and there are no new ones.
    """

    __slots__ = ("_first", "slow", "terms", "words")

    def __init__(self, words: LLTokenizer, source: str, terms: Terms) -> None:
        from llguidance import LLMatcher, LLParserLimits

        self._first = LLMatcher(words, source, log_level=0, limits=LLParserLimits(verbose_errors=False))
        self.words = -(-words.vocab_size // 32)  # of 32 bits, in a mask
        self.slow = False
        self.terms = terms
        if self._first.is_error():
            raise refusal(terms.format, self._first.get_error())

    def matcher(self) -> Matcher:
        return Matcher(self, self._first.deep_copy())


class Matcher:
    """Where one answer stands in its grammar. For one thread at a time, and for none once the grammar is slow."""

    __slots__ = ("_debt_s", "_mask_s", "_state", "grammar", "words")

    def __init__(self, grammar: Grammar, state: LLMatcher) -> None:
        self.grammar = grammar
        self._state = state
        self._debt_s = 0.0  # seconds beyond what is usual, of all tokens so far
        self._mask_s = 0.0  # seconds that the last mask took
        self.words = grammar.words  # of 32 bits, in a mask

    @property
    def complete(self) -> bool:
        """Whether nothing may follow but the end."""
        return self._state.is_stopped() and not self._state.is_error()

    @property
    def late(self) -> bool:
        """Whether it has taken too long: for a token of any answer, or for all of this one."""
        return self.grammar.slow or self._debt_s > LIMITS.mask_debt_s

    @property
    def quick(self) -> bool:
        """Whether its last mask took so little time that a step can wait for the masks of a draft."""
        return self._mask_s < LIMITS.mask_usual_s / 4

    @property
    def error(self) -> str:
        """Why the answer cannot go on: a grammar that turned out too complex. Empty where it can."""
        return TOO_SLOW if self.late else self._state.get_error()

    def take(self, token: int) -> None:
        """Go on by a token that the last mask allowed. Once a token; not for an end token."""
        begun = worked_s()
        taken = self._state.consume_token(token)
        self._worked(begun, LIMITS.mask_usual_s)
        if not taken or self.late:
            raise UnsupportedError(
                f"the answer cannot go on in its format: {printable(self.error, 200)}",
                suggestion=SIMPLER,
                code="generation_error",
            )

    def forced(self) -> int | None:
        """The one token that is allowed now, where the grammar leaves one text to write."""
        begun = worked_s()
        tokens = self._state.compute_ff_tokens()
        self._worked(begun)
        return tokens[0] if tokens else None

    def fill(self, mask: Mask) -> None:
        """Write the mask of the next token. Without the GIL."""
        if mask.nbytes != 4 * self.words or not mask.flags.c_contiguous:
            raise ValueError("a mask has a bit for each token")
        begun = worked_s()
        self._state.unsafe_compute_mask_ptr(mask.ctypes.data, mask.nbytes)
        self._mask_s = self._worked(begun)
        if self._state.is_error():
            mask[:] = 0  # which tokens are allowed is unknown: none is

    def _worked(self, begun: float, usual_s: float = 0.0) -> float:
        """Note how long this thread has worked, and how much of that is usual for a token. Gives the seconds."""
        took = worked_s() - begun
        self._debt_s = max(self._debt_s + took - usual_s, 0.0)
        if took > LIMITS.mask_s:
            self.grammar.slow = True
        return took

    def accepts(self, tokens: Sequence[int]) -> int:
        """How many of these tokens may follow, one after another. The matcher does not move."""
        return self._state.validate_tokens(list(tokens))

    def fill_ahead(self, masks: Sequence[Mask], tokens: Sequence[int]) -> int:
        """Write the mask of the next token, and those after each of `tokens`, as far as they may follow.

        Gives the number of masks that were written. The matcher does not move.
        """
        taken = 0
        self.fill(masks[0])
        for token, mask in zip(tokens, masks[1:], strict=True):
            if not _allows(masks[taken], token) or self.complete:
                break
            self.take(token)
            taken += 1
            self.fill(mask)
        if taken:
            self._state.rollback(taken)
        return taken + 1


def frame_of(output: Output, tokenizer: Tokenizer, prompt: str, *, think: bool | None, marked: bool = True) -> str:
    """What stands around the text of an answer to a rendered chat, as Lark: the format begins after the thought.

    A thought that the prompt has opened is closed first. Where it has opened none the model may, if its style opens one
    by a token and `think` does not forbid it. An answer that its style puts between control tokens has the first of
    them, and may have the last; `marked` false leaves these out.
    """
    style, opened = output.style, output.opened(prompt)
    tokens = [part for part in style.parts if part.opening in output.anywhere or tokenizer.id_of(part.opening)]
    thoughts = [part for part in tokens if part.kind is Thought and think is not False]
    text_part = next((part for part in reversed(tokens) if part.kind is Text and marked), None)
    head = _head(style, text_part) if text_part is not None else ""
    rules = [f"{name}: {pattern}" for name, pattern in (("TEXT", "/(.|\\n)+/"), ("SPACE", "/[ \\t\\r\\n]{0,4}/"))]
    marks = Delimiters(tokenizer)

    def closed(part: AnswerPart) -> str:
        """A thought from its text on."""
        if marks.pieces(part.closing)[0].startswith("<["):
            return f"TEXT? {marks.written(part.closing)} SPACE {marks.written(head)}"
        rules.append(f"thought_{len(rules)}[suffix={json.dumps(part.closing)}]: /(.|\\n)*/")
        return f"thought_{len(rules) - 1} SPACE {marks.written(head)}"

    around = [""] * 3
    if opened is not None:
        around[0] = closed(opened)
    elif thoughts:
        around[0] = "(" + " | ".join(f"{marks.written(part.opening)} {closed(part)}" for part in thoughts) + ")?"
    if text_part is not None and not prompt.rstrip().endswith(text_part.opening):
        begins = style.heads.openings if style.heads else ""  # after any other mark a head would not be read
        ignored = (m for m in style.ignored if m in output.anywhere and m != head and m.startswith(begins))
        between = [marks.written(mark) for mark in ignored if not marks.ends(mark)]
        around[1] = " ".join((*(f"({mark})?" for mark in between), marks.written(text_part.opening)))
    if text_part is not None and not marks.ends(text_part.closing):
        around[2] = f"({marks.written(text_part.closing)})?"
    if not any(around):
        return ANSWER
    return "\n".join((f"start: {around[0]} {around[1]} {ANSWER} {around[2]}", *rules))


def _head(style: Style, text_part: AnswerPart) -> str:
    """The mark that must come before the text of an answer, where the opening of that text does not begin a message."""
    if style.heads is None or text_part.opening.startswith(style.heads.openings):
        return ""
    return next((mark for mark in style.ignored if mark.startswith(style.heads.openings)), "")


class Delimiters:
    """Marks of a style as Lark: control tokens by their ids, all else as text."""

    def __init__(self, tokenizer: Tokenizer) -> None:
        self._tokenizer = tokenizer
        self._control = frozenset(tokenizer.control)

    def pieces(self, mark: str) -> list[str]:
        split = self._tokenizer.split(mark)
        texts = [self._tokenizer.text_of(piece) if isinstance(piece, int) else piece for piece in split]
        pairs = zip(split, texts, strict=True)
        return [f"<[{piece}]>" if text in self._control else json.dumps(text) for piece, text in pairs]

    def written(self, mark: str) -> str:
        return " ".join(self.pieces(mark))

    def ends(self, mark: str) -> bool:
        """Whether an end token is part of the mark."""
        return any(piece in self._tokenizer.ends for piece in self._tokenizer.split(mark))


def left_out(format: Format, budget: Budget | None = None) -> tuple[str, ...]:
    """The parts of a schema that is not strict that answers are not held to, in words; none for other formats."""
    return _schema(format, budget or Budget())[1]


def _allows(mask: Mask, token: int) -> bool:
    return bool(mask[token // 32] >> np.uint32(token % 32) & np.uint32(1))


class _Vocabulary:
    """A vocabulary as llguidance reads it: a token without text begins with the byte 0xFF, which no text has."""

    def __init__(self, tokenizer: Tokenizer) -> None:
        self._encode = tokenizer.encode_within
        control = frozenset(tokenizer.control)
        self.tokens: list[bytes] = []
        self.special_token_ids: list[int] = []
        for token in range(tokenizer.vocab):
            spelling, text = tokenizer.bytes_of(token), tokenizer.text_of(token)
            if not spelling or token in tokenizer.ends or (text in control and tokenizer.is_special(token)):
                spelling = b"\xff" + text.encode()
                self.special_token_ids.append(token)
            self.tokens.append(spelling)
        self.ends = sorted(tokenizer.ends)
        if not self.ends:  # a file that names none: its answers end where nothing else is allowed
            self.ends = [len(self.tokens)]
            self.tokens.append(b"\xff<end>")
        self.eos_token_id, self.bos_token_id = self.ends[0], tokenizer.bos

    def __call__(self, text: str) -> list[int]:
        return self._encode(text)


def _vocabulary(tokenizer: Tokenizer) -> tuple[LLTokenizer, str]:
    """A vocabulary for matching, and, as JSON, the parts of it that compiling a grammar depends on."""
    from llguidance import LLTokenizer, TokenizerWrapper

    words = _Vocabulary(tokenizer)
    control = {token: tokenizer.text_of(token) for token in words.special_token_ids}
    vocabulary = LLTokenizer(TokenizerWrapper(words), n_vocab=len(words.tokens), eos_token=words.ends)
    return vocabulary, json.dumps([tokenizer.vocab, control])


def _source(format: Format, frame: str, parts: NamedFormats, budget: Budget) -> str:
    """A format as llguidance reads it."""
    grammars = [_answer(format, budget)]
    if frame != ANSWER:
        grammars = [{"lark_grammar": frame}, grammars[0] | {"name": ANSWER[1:]}]
    grammars += [_answer(part, budget) | {"name": name} for name, part in parts]
    return json.dumps({"grammars": grammars})


def _answer(format: Format, budget: Budget) -> dict[str, Any]:
    from llguidance import regex_to_lark

    check()
    match format.kind:
        case "json" | "schema":
            return {"json_schema": _schema(format, budget)[0]}
        case "regex":
            lark = f"start: /{regex_to_lark(format.value, '')}/"
        case "lark":
            lark = format.value
        case "gbnf":
            lark = lark_of(format.value)
        case "choice":
            lark = "start: CHOICE\nCHOICE: " + " | ".join(map(json.dumps, format.value))
    return {"lark_grammar": lark}


def _schema(format: Format, budget: Budget) -> tuple[dict[str, Any], tuple[str, ...]]:
    """A schema with how it is to be read, and what of it is left out."""
    schema: dict[str, Any] = json.loads(format.value) if format.kind == "schema" else OBJECT
    if "x-guidance" in schema:
        raise RequestError("the keyword 'x-guidance' of the schema is not for a request to set", param="format")
    if format.strict:
        return schema | STRICT, ()
    failed, notes = try_out(json.dumps({"grammars": [{"json_schema": schema | LENIENT}]}), budget)
    return OBJECT | STRICT if failed else schema | LENIENT, tuple(map(readable, notes))
