"""Figures as JSON: the dataclass that the text is printed from, field by field under the same names."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, fields, is_dataclass
from statistics import median
from typing import Any


@dataclass(frozen=True, slots=True)
class Figure:
    """A rate, run by run."""

    runs: tuple[float, ...]

    @property
    def median(self) -> float:
        return median(self.runs)

    @property
    def best(self) -> float:
        return max(self.runs)


# Metadata of dataclass fields. FLAT: JSON shows the value's own fields instead. HIDDEN: JSON omits the field.
FLAT, HIDDEN = {"flat": True}, {"hidden": True}


def figures(value: object) -> Any:
    """The JSON of a value: fields and properties of a dataclass, but for fields that are None.

    Floats have four digits: no figure here is worth more.
    """
    if isinstance(value, float):
        return float(f"{value:.4g}")
    if isinstance(value, Mapping):
        return {name: figures(one) for name, one in value.items()}
    if isinstance(value, list | tuple):
        return [figures(one) for one in value]
    if not is_dataclass(value):
        return value
    data: dict[str, Any] = {}
    for one in fields(value):
        item = getattr(value, one.name)
        if "flat" in one.metadata:
            data |= figures(item)
        elif "hidden" not in one.metadata and item is not None:
            data[one.name] = figures(item)
    properties = [name for name, one in vars(type(value)).items() if isinstance(one, property)]
    return data | {name: figures(getattr(value, name)) for name in properties}
