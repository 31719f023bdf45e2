"""DraftModel: a smaller model that guesses the next tokens of a larger one. Both have the same vocabulary.

Each answer has a copy here, which is the same text with a state of its own, as far as the smaller model has read it.
Guesses are drawn with the seed and the position that the answer's own tokens are drawn with, so that two models with
similar probabilities draw the same tokens. Wrong guesses are forgotten when the copy is next compared.
"""

from __future__ import annotations

from time import perf_counter

from woolly.device import Runner
from woolly.engine.answer import AnswerOptions
from woolly.engine.batch import Writer
from woolly.engine.cache.pages import Pages
from woolly.engine.sampling.sampler import Sampler
from woolly.engine.sampling.stages import NO_TOKEN
from woolly.engine.scheduler import Pace, Span
from woolly.engine.sequence import Sequence
from woolly.engine.speculation.lookup import Chance
from woolly.request import SubmitOptions


class DraftModel:
    """Owned by the engine thread once it is made."""

    def __init__(self, runner: Runner) -> None:
        self._runner = runner
        self._pages = Pages(runner.pages, runner.page, windows=runner.windows)
        self._writer = Writer(runner.batch)
        self._sampler = Sampler(1, runner)
        self._pace = Pace(runner.rows)
        self._copies: dict[Sequence, tuple[Sequence, Chance]] = {}
        self.seconds = 0.0  # of one guess, lately

    def chance(self, sequence: Sequence) -> Chance | None:
        """How likely guesses for this answer are right; None where there is no room to make any."""
        if sequence.features:  # which the smaller model cannot read
            return None
        copied = self._copies.get(sequence)
        if copied is None:
            limit = min(sequence.limit, self._runner.context)
            how = AnswerOptions(sequence.answer.sampling, sequence.answer.seed)
            copy = Sequence(sequence.tokens, limit=limit, answer=how, options=SubmitOptions(sequence.options.salt))
            if len(copy.tokens) > limit or not self._pages.admit(copy, spare=0):
                return None
            copied = self._copies[sequence] = copy, Chance()
        return copied[1]

    def guess(self, sequence: Sequence, count: int) -> list[int]:
        """The next tokens of an answer for which there is a chance; none while the copy is still being computed."""
        copy = self._copies[sequence][0]
        if len(sequence.tokens) >= copy.limit:
            return []
        self._compare(copy, sequence)
        guessed: list[int] = []
        while len(guessed) < count and len(copy.tokens) < copy.limit:
            missing, rows = len(copy.tokens) - copy.computed, self._pace.rows(with_decodes=True)
            token = self._step(copy, min(missing, rows))
            if token is None:
                break
            copy.tokens.append(token)
            guessed.append(token)
        return guessed

    def forget(self, sequence: Sequence) -> None:
        """The answer is over."""
        copied = self._copies.pop(sequence, None)
        if copied is not None:
            self._pages.release(copied[0])

    def close(self) -> None:
        del self._writer  # its views keep the runner's memory alive
        self._runner.close()

    def _compare(self, copy: Sequence, sequence: Sequence) -> None:
        """Give the copy the tokens of its answer again. Only the last guesses may differ from these."""
        same = copy.prompt  # tokens that were known, and not guessed, when they were compared last
        while same < min(len(copy.tokens), len(sequence.tokens)) and copy.tokens[same] == sequence.tokens[same]:
            same += 1
        copy.tokens[same:] = sequence.tokens[same:]
        copy.prompt = len(copy.tokens)
        copy.computed = min(copy.computed, same, len(copy.tokens) - 1)
        self._pages.computed(copy)

    def _step(self, copy: Sequence, rows: int) -> int | None:
        """Compute the next rows of a copy: its next token where these were all that is missing, and there are pages."""
        known, end = len(copy.tokens), copy.computed + rows
        if not self._pages.grow(copy, end):
            return None
        begun = perf_counter()
        want = range(known - 1, known) if end == known else range(0)
        outputs = self._runner.run(self._writer.write([Span(copy, copy.computed, rows, want)]))
        if outputs is None:
            return None
        copy.computed = end
        if not want:
            self._pace.measure(rows, perf_counter() - begun, with_decodes=False)
            return None
        (token,) = self._sampler.tokens(outputs, [(copy.answer, 0, known)])
        if rows == 1:
            took = perf_counter() - begun
            self.seconds += 0.2 * (took - self.seconds) if self.seconds else took
        return token if token != NO_TOKEN else None
