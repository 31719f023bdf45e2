"""Whether figures can be believed: token counts, streams and processor time of answers that a server gave."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from woolly import gguf, native
from woolly.model import EXACT, Reference, build
from woolly.text import Tokenizer
from woolly.validate.client import Answer
from woolly.validate.subject import File

TIE = 0.5  # of a logit: rounding may turn a greedy choice between two tokens that are nearer than this
PASSES = 4  # of the reference over one answer
REPLACED = "\ufffd"


def tokens_of(file: File, answer: Answer) -> int:
    """The tokens of an answer: what the server says, where that can be, else what our tokenizer counts."""
    said = answer.completion_tokens
    return said if said is not None and may_be(file.tokenizer, answer.text, said) else _own(file.tokenizer, answer.text)


def may_be(tokenizer: Tokenizer, text: str, said: int) -> bool:
    """Whether a text may have been so many tokens. Models need not write a text in the tokens that it is cut into, so
    twice as many as ours are believed, and no fewer than any cut would give."""
    return tokenizer.fewest(text.replace(REPLACED, "")) <= said <= 2 * max(1, _own(tokenizer, text))


def count_error(file: File, prompt: str, answer: Answer, asked: int) -> str:
    """What is wrong with the counts of an answer to a prompt; nothing where they are right."""
    own = file.prompt_tokens(prompt)
    if answer.prompt_tokens != own:
        return f"a prompt of {own} tokens was counted as {answer.prompt_tokens}"
    said = answer.completion_tokens
    if said is None or said > asked or (answer.reason == "length" and said != asked):
        return f"an answer of at most {asked} tokens that ended by '{answer.reason}' was counted as {said}"
    if not may_be(file.tokenizer, answer.text, said):
        return f"a text of {_own(file.tokenizer, answer.text)} tokens was counted as {said}"
    return ""


def least_cpu_s(file: File, tokens: int) -> float:
    """The processor time below which no core of this machine computes so many tokens: nothing but multiplications."""
    return tokens * file.token_macs / max(max(one.rate for one in native.peaks(1)) for _ in range(5))


@dataclass(frozen=True, slots=True)
class Greedy:
    """An answer beside the reference: tokens: the path of the reference through its text; why: what differs."""

    tokens: int
    whole: bool  # the path covers the text
    why: str = ""


@dataclass(slots=True)
class _Case:
    prompt: list[int]
    text: bytes  # up to where a character was cut
    whole: bool  # none was
    draft: list[int]
    path: list[int]
    done: Greedy | None = None


def recompute(file: File, answers: Sequence[tuple[str, str]]) -> list[Greedy]:
    """Each prompt and greedy text beside what plain float32 arithmetic over the decoded weights says, token by token.

    The text's own tokens are guesses that the reference judges in one pass. Where it takes another token that the text
    goes on with, its path goes on from there. What follows a character that was cut is not compared.
    """
    tokenizer = file.tokenizer
    cases = []
    for prompt, text in answers:
        sure = text.partition(REPLACED)[0]
        ids = tokenizer.encode(prompt, special=True, bos=None)
        cases.append(_Case(ids, sure.encode(), sure == text, tokenizer.encode_within(sure), []))
    with gguf.open(file.path) as opened:
        reference = Reference(build(opened, 512), opened, ops=EXACT)
        for _ in range(PASSES):
            left = [case for case in cases if case.done is None]
            if not left:
                break
            for case, logits in zip(left, _logits(reference, left), strict=True):
                _walk(tokenizer, case, logits)
    return [case.done or Greedy(len(case.path), False) for case in cases]


def _logits(reference: Reference, cases: list[_Case]) -> list[NDArray[np.float32]]:
    """For each case the logits after its path and after each token of its draft, all in one step."""
    tokens: list[int] = []
    spans, want = [], []
    for case in cases:
        row = [*case.prompt, *case.path, *case.draft]
        spans.append([len(tokens), len(row), 0])
        first = len(tokens) + len(case.prompt) + len(case.path) - 1
        want.append(range(first, len(tokens) + len(row)))
        tokens += row
    rows = reference.run(tokens, spans, [one for some in want for one in some])
    for number in range(len(cases)):
        reference.forget(number)
    return np.split(rows, np.cumsum([len(some) for some in want])[:-1])


def _walk(tokenizer: Tokenizer, case: _Case, logits: NDArray[np.float32]) -> None:
    """Follow the reference through the text until its tokens and ours part."""
    for row, token in zip(logits, case.draft, strict=False):
        if row.argmax() == token:
            case.path.append(token)
            continue
        before = b"".join(map(tokenizer.bytes_of, case.path))
        rest = case.text[len(before) :]
        taken = likeliest(tokenizer, row, rest)
        if taken is None:
            said, right = (tokenizer.text_of(int(one)) for one in (token, row.argmax()))
            apart = float(row.max() - row[token])
            why = f"token {len(case.path) + 1} is {said!r}; the reference says {right!r}, {apart:.1f} logits higher"
            case.done = Greedy(len(case.path), False, why)
            return
        case.path.append(taken)
        try:
            case.draft = tokenizer.encode_within(rest[len(tokenizer.bytes_of(taken)) :].decode())
        except UnicodeDecodeError:  # its path cuts a character: ours cannot follow
            case.done = Greedy(len(case.path), False)
        return
    case.done = Greedy(len(case.path), case.whole)


def likeliest(tokenizer: Tokenizer, row: NDArray[np.float32], rest: bytes) -> int | None:
    """The token with which the text may go on, of those that rounding can make the greedy choice."""
    near = np.flatnonzero(row > row.max() - TIE)
    for token in near[np.argsort(-row[near])]:
        spelt = tokenizer.bytes_of(int(token))
        if spelt and rest.startswith(spelt):
            return int(token)
    return None


def _own(tokenizer: Tokenizer, text: str) -> int:
    return len(tokenizer.encode_within(text))
