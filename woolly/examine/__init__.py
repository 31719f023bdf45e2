"""examine: is this file right, and what is it? Every door asks here, so every door gives the same verdict.

In: an open file, and how its weights are to be looked at (packed, checked, or not at all). Out: its graph, tokenizer
and template, or the error that refuses it; for people and programs a `Report`.
Never loads a model by itself and never repairs anything: a file is right as a whole or refused.
"""

from __future__ import annotations

from woolly.examine.abilities import Abilities, abilities
from woolly.examine.report import BATCH, Need, Report, Words, name_of, planned, report
from woolly.examine.verdict import Examined, examine

__all__ = [
    "BATCH",
    "Abilities",
    "Examined",
    "Need",
    "Report",
    "Words",
    "abilities",
    "examine",
    "name_of",
    "planned",
    "report",
]
