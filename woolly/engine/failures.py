"""The errors of steps and answers that fail."""

from __future__ import annotations

import numpy as np

from woolly.engine.sampling.stages import Logits
from woolly.engine.sequence import Sequence
from woolly.errors import NativeError, UnsupportedError, WoollyError, printable, shortage


def step_error(error: Exception) -> WoollyError:
    """Why a step failed."""
    if isinstance(error, WoollyError):
        return error
    return shortage(error, "a step of the model") or internal_error(error)


def internal_error(error: BaseException) -> NativeError:
    return NativeError(
        f"a step failed: {type(error).__name__}: {printable(error, 300)}",
        suggestion="this is a bug in Woolly; please report it with the model's name",
    )


def no_token(sequence: Sequence, logits: Logits) -> WoollyError:
    """Why no token could be chosen."""
    matcher = sequence.answer.matcher
    if matcher is None or not np.isfinite(logits).all():
        return not_finite(len(sequence.tokens), "logits")
    why = printable(matcher.error, 200) or "it allows no token here"
    return UnsupportedError(
        f"the answer cannot go on in its format after {len(sequence.tokens) - sequence.prompt:,} tokens: {why}",
        suggestion="make the format simpler",
        code="generation_error",
    )


def not_finite(position: int, output: str) -> NativeError:
    return NativeError(
        f"the model's {output} for position {position:,} is not finite",
        suggestion="the file is likely damaged; fetch it again",
        code="generation_error",
        position=position,
    )
