"""What an adapter's file says about itself, after the checks that need no model."""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass
from pathlib import Path

from woolly import gguf, model
from woolly.device import cpu
from woolly.errors import printable


@dataclass(frozen=True, slots=True)
class AdapterReport:
    """A LoRA. Sizes are bytes."""

    path: Path
    file: str  # its name, safe to print
    size: int
    architecture: str  # of the models it is for
    alpha: float
    ranks: tuple[int, ...]
    tensors: tuple[str, ...]  # that it changes
    types: dict[str, int]  # tensors of each type
    quick: bool  # the values were not looked at


def report_adapter(path: Path, *, quick: bool = False) -> AdapterReport | None:
    """The report on an adapter; None where the file is no adapter."""
    with gguf.open(path) as file:
        if not model.is_adapter(file):
            return None
        alpha, pairs = model.read_pairs(file)
        if not quick:
            cpu.check_finite(file)
        return AdapterReport(
            path=file.path,
            file=printable(file.path.name),
            size=sum(part.view.nbytes for part in file.parts),
            architecture=printable(file.meta.get("general.architecture", "")),
            alpha=alpha,
            ranks=tuple(sorted({a.shape[0] for a, _ in pairs.values()})),
            tensors=tuple(map(printable, pairs)),
            types=dict(Counter(info.format for info in file.tensors.values()).most_common()),
            quick=quick,
        )
