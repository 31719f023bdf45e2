"""pick: the tokens of rows of logits that are on the host. engine/sampling/stages.py defines the result; the core gives
the same, faster."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

import woolly._core as _core
from woolly.device.cpu.machine import ISA


def pick(
    logits: NDArray[np.float32],
    rows: NDArray[np.uint8],
    count: int,
    masks: NDArray[np.uint32] | None = None,
    *,
    isa: str = ISA,
) -> list[int]:
    """A token for each of the first `count` rows, or -1 when a logit is not finite or its mask allows none.

    logits: [wants, vocab]. rows: the bytes of PICK_ROWs. masks: [n, words], bit i of word w allows token 32 w + i.
    Releases the GIL; once a step.
    """
    return _core.pick(logits, rows, count, masks, isa)
