"""The golden data: what defines right, with the measures that compare with it.

`DATA` is part of the tree and holds at least one model of every family and every tensor type. `SHARED` is a larger set
that may lie beside the checkout: an addition, skipped with a reason where it is missing.
"""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from numpy.typing import NDArray

from woolly.gguf.tensor_types import FORMATS
from woolly.model import FAMILIES

DATA = Path(__file__).resolve().parent / "data"
SHARED = DATA.parents[2] / "shared" / "data"

needs_shared = pytest.mark.skipif(not SHARED.is_dir(), reason="the larger golden set is not beside this checkout")

EXACT = 1e-10  # the largest NMSE of float32 arithmetic

Logits = NDArray[np.float32]


@dataclass(frozen=True, slots=True)
class Case:
    """One small model and its logits, or embeddings, which float64 arithmetic gives on the decoded weights."""

    name: str
    family: str
    types: frozenset[str]
    file: Path
    bar: float  # the largest NMSE of what the core computes: int8 activations where weights are quantised
    context: int | None  # that it is used with, where it matters
    pooling: str  # "": it has logits

    def error(self, logits: Logits) -> float:
        """The NMSE of logits at all positions."""
        golden = self.golden
        return nmse(logits[golden["positions"]] if "positions" in golden else logits, golden["logits"])

    @property
    def golden(self) -> Mapping[str, NDArray[Any]]:
        arrays: Mapping[str, NDArray[Any]] = np.load(self.file.with_suffix(".npz"))
        return arrays

    @property
    def tokens(self) -> NDArray[np.int32]:
        return self.golden["tokens"]


def _read(folder: Path) -> Iterator[Case]:
    """The cases of a folder whose family and types Woolly has."""
    index = folder / "index.json"
    for row in json.loads(index.read_text())["cases"] if index.is_file() else ():
        types = row.get("tensor_types", ("F32",))
        family, types = row.get("arch", "llama"), frozenset((types,) if isinstance(types, str) else types)
        if family in FAMILIES and types <= set(FORMATS):
            exact = all(FORMATS[name].is_float for name in types)
            bar = EXACT if exact else 1.3 * row["int8_per32"]["nmse"]
            path = folder / f"{row['name']}.gguf"
            yield Case(row["name"], family, types, path, bar, row.get("n_ctx"), row.get("pooling", ""))


CASES = list(_read(DATA / "models"))
MORE = [
    case
    for folder in ("archs", "families", "tiny")
    for case in _read(SHARED / folder)
    if case.name not in {c.name for c in CASES}
]

_MISSING = [] if SHARED.is_dir() else [pytest.param(None, id="the larger set", marks=needs_shared)]
every_case = pytest.mark.parametrize(
    "case", [pytest.param(case, id=case.name) for case in CASES + MORE if not case.pooling] + _MISSING
)
every_pooled_case = pytest.mark.parametrize(
    "case", [pytest.param(case, id=case.name) for case in MORE if case.pooling] + _MISSING
)


def nmse(x: Logits, reference: Logits) -> float:
    a, b = x.astype(np.float64), reference.astype(np.float64)
    return float(np.sum((a - b) ** 2) / np.sum(b**2))
