"""validate: honest verdicts on a model's file and on a server that answers with it.

In: a loaded LLM and the tokens of a text; or a URL and a file. Out: a Likelihood, counted as other programs count it; a
Divergence between the engine's logits and those of plain float32 arithmetic over the decoded weights of the same file;
or a report of gates, as JSON, with Markdown and HTML made from it.
Never changes what it judges: it asks as any program could, and trusts only its own clock, tokenizer and arithmetic.
Read gates.py, then run.py; each category has a file.
"""

from __future__ import annotations

from woolly.validate.divergence import Divergence, DivergenceSum, ExactModel
from woolly.validate.gates import GATES
from woolly.validate.likelihood import Likelihood, LikelihoodSum, chunks, losses
from woolly.validate.run import validate

__all__ = [
    "GATES",
    "Divergence",
    "DivergenceSum",
    "ExactModel",
    "Likelihood",
    "LikelihoodSum",
    "chunks",
    "losses",
    "validate",
]
