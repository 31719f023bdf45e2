"""One step of a runner, from a batch made by hand."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from woolly.device import Batch, Runner


def computed(runner: Runner, batch: Batch) -> NDArray[np.float32] | None:
    """The logits that the batch wants, valid until the next step; None when it was stopped."""
    outputs = runner.run(runner.batch.put(batch))
    return None if outputs is None else outputs["logits"][: len(batch.want)]
