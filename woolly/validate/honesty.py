"""Whether figures can be believed: token counts, streams and processor time of answers that a server gave."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from woolly import gguf
from woolly.device import cpu
from woolly.model import EXACT, Reference, build
from woolly.text import Tokenizer
from woolly.validate.client import Answer
from woolly.validate.subject import ModelFile

TIE = 0.5  # of a logit: rounding may turn a greedy choice between two tokens that are nearer than this
PASSES = 4  # the most runs of the reference over one answer
REPLACED = "\ufffd"


def tokens_of(file: ModelFile, answer: Answer) -> int:
    """The tokens of an answer: the server's count where that is possible, otherwise the count of our tokenizer."""
    count = answer.completion_tokens
    return (
        count
        if count is not None and is_possible_count(file.tokenizer, answer.text, count)
        else _count_tokens(file.tokenizer, answer.text)
    )


def is_possible_count(tokenizer: Tokenizer, text: str, count: int) -> bool:
    """Whether a text may have been so many tokens. A model need not write a text in the tokens that a tokenizer would
    cut it into, so up to twice our count is possible, but not less than the shortest cut."""
    return tokenizer.fewest(text.replace(REPLACED, "")) <= count <= 2 * max(1, _count_tokens(tokenizer, text))


def count_error(file: ModelFile, prompt: str, answer: Answer, asked: int) -> str:
    """What is wrong with the counts of an answer to a prompt; nothing where they are right."""
    own = file.prompt_tokens(prompt)
    if answer.prompt_tokens != own:
        return f"a prompt of {own} tokens was counted as {answer.prompt_tokens}"
    count = answer.completion_tokens
    if count is None or count > asked or (answer.reason == "length" and count != asked):
        return f"an answer of at most {asked} tokens that ended by '{answer.reason}' was counted as {count}"
    if not is_possible_count(file.tokenizer, answer.text, count):
        return f"a text of {_count_tokens(file.tokenizer, answer.text)} tokens was counted as {count}"
    return ""


def least_cpu_s(file: ModelFile, tokens: int) -> float:
    """The processor time below which no core of this machine computes so many tokens: nothing but multiplications."""
    return tokens * file.token_macs / max(max(one.rate for one in cpu.peaks(1)) for _ in range(5))


@dataclass(frozen=True, slots=True)
class GreedyCheck:
    """An answer beside the reference. tokens: how many the reference took along its text; why: what differs."""

    tokens: int
    covers_text: bool  # the reference went through the whole text
    why: str = ""


@dataclass(slots=True)
class _Recomputation:
    prompt: list[int]
    text: bytes  # up to the first incomplete character
    is_complete: bool  # the text has no incomplete character
    draft: list[int]
    path: list[int]
    result: GreedyCheck | None = None


def recompute(file: ModelFile, answers: Sequence[tuple[str, str]]) -> list[GreedyCheck]:
    """Each prompt and greedy text beside what plain float32 arithmetic over the decoded weights says, token by token.

    The tokens of the text are a draft that the reference checks in one pass. Where the reference prefers another token
    that spells the text too, its path goes on with that token. Text after an incomplete character is not compared.
    """
    tokenizer = file.tokenizer
    cases = []
    for prompt, text in answers:
        sure = text.partition(REPLACED)[0]
        ids = tokenizer.encode(prompt, special=True, bos=None)
        cases.append(_Recomputation(ids, sure.encode(), sure == text, tokenizer.encode_within(sure), []))
    with gguf.open(file.path) as opened:
        reference = Reference(build(opened, 512), opened, ops=EXACT)
        for _ in range(PASSES):
            left = [case for case in cases if case.result is None]
            if not left:
                break
            for case, logits in zip(left, _logits(reference, left), strict=True):
                _follow_reference(tokenizer, case, logits)
    return [case.result or GreedyCheck(len(case.path), False) for case in cases]


def _logits(reference: Reference, cases: list[_Recomputation]) -> list[NDArray[np.float32]]:
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


def _follow_reference(tokenizer: Tokenizer, case: _Recomputation, logits: NDArray[np.float32]) -> None:
    """Extend the path by the draft until the reference prefers another token."""
    for row, token in zip(logits, case.draft, strict=False):
        if row.argmax() == token:
            case.path.append(token)
            continue
        before = b"".join(map(tokenizer.bytes_of, case.path))
        rest = case.text[len(before) :]
        taken = continuing_token(tokenizer, row, rest)
        if taken is None:
            wrong, right = (tokenizer.text_of(int(one)) for one in (token, row.argmax()))
            apart = float(row.max() - row[token])
            why = f"token {len(case.path) + 1} is {wrong!r}; the reference says {right!r}, {apart:.1f} logits higher"
            case.result = GreedyCheck(len(case.path), False, why)
            return
        case.path.append(taken)
        try:
            case.draft = tokenizer.encode_within(rest[len(tokenizer.bytes_of(taken)) :].decode())
        except UnicodeDecodeError:  # the path of the reference ends inside a character
            case.result = GreedyCheck(len(case.path), False)
        return
    case.result = GreedyCheck(len(case.path), case.is_complete)


def continuing_token(tokenizer: Tokenizer, row: NDArray[np.float32], rest: bytes) -> int | None:
    """The likeliest token that spells the next bytes of the text, of those that rounding can make the greedy choice."""
    near = np.flatnonzero(row > row.max() - TIE)
    for token in near[np.argsort(-row[near])]:
        spelt = tokenizer.bytes_of(int(token))
        if spelt and rest.startswith(spelt):
            return int(token)
    return None


def _count_tokens(tokenizer: Tokenizer, text: str) -> int:
    return len(tokenizer.encode_within(text))
