"""examine: is this file right, and what is it? Library, commands and server ask here, and so agree.

In: an open file. Out: its `Card`; its graph, tokenizer and template, or the error that refuses it; for people and
programs a `Report`.
Never loads a model by itself and never repairs anything: a file is right as a whole or refused.
"""

from __future__ import annotations

from woolly.examine.abilities import Abilities, abilities
from woolly.examine.adapter import AdapterReport, report_adapter
from woolly.examine.card import Card, OutputKind, beyond_training, read_card
from woolly.examine.report import ModelReport, Need, TokenizerSummary, report, report_data
from woolly.examine.verdict import Checked, check, read_text

__all__ = [
    "Abilities",
    "AdapterReport",
    "Card",
    "Checked",
    "ModelReport",
    "Need",
    "OutputKind",
    "TokenizerSummary",
    "abilities",
    "beyond_training",
    "check",
    "read_card",
    "read_text",
    "report",
    "report_adapter",
    "report_data",
]
