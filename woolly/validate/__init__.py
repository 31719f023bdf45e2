"""validate: honest correctness: how likely a model finds a text, and how far the engine is from the truth of its file.

In: a loaded LLM, and the tokens of a text. Out: a Likelihood, counted as other programs count it; a Divergence between
the engine's logits and those of plain float32 arithmetic over the decoded weights of the same file.
Never changes what it judges: it asks the library for logits as any program could.
"""

from __future__ import annotations

from woolly.validate.divergence import Divergence, Exact, Judge
from woolly.validate.likelihood import Likelihood, Score, chunks, losses

__all__ = ["Divergence", "Exact", "Judge", "Likelihood", "Score", "chunks", "losses"]
