"""pick: one token of a row of logits. engine/sampling.py defines the result; this is the same, faster."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

import woolly._core as _core
from woolly.native.machine import ISA


def pick(
    logits: NDArray[np.float32],
    /,
    *,
    temperature: float,
    top_k: int,
    top_p: float,
    min_p: float,
    seed: int,
    position: int,
    isa: str = ISA,
) -> int:
    """A token, or -1 when a logit is NaN or infinite. Releases the GIL; once a token."""
    return _core.pick(
        logits,
        temperature=temperature,
        top_k=top_k,
        top_p=top_p,
        min_p=min_p,
        seed=seed,
        position=position,
        isa=isa,
    )
