"""Keys: checked reading of the numbers of one architecture from a file's metadata.

A key that is missing, of the wrong type or out of range is a FileError that names it. A switch that would change the
result and that the family has not read is an UnsupportedError that names it: an answer of another model is worse than
none.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from woolly.errors import FileError, UnsupportedError, printable

# Keys that change the result, and the values that mean "off".
SWITCHES: Mapping[str, tuple[int | float | bool, ...]] = {
    "embedding_scale": (0.0, 1.0),
    "residual_scale": (0.0, 1.0),
    "logit_scale": (0.0, 1.0),
    "attention.scale": (0.0,),
    "attention.output_scale": (0.0,),
    "attention.value_scale": (0.0, 1.0),
    "attention.temperature_scale": (0.0,),
    "attention.clamp_kqv": (0.0,),
    "attention.max_alibi_bias": (0.0,),
    "attention.shared_kv_layers": (0,),
    "attn_logit_softcapping": (0.0,),
    "final_logit_softcapping": (0.0,),
    "use_parallel_residual": (False,),
    "pooling_type": (0,),
    "expert_count": (0,),
    "expert_used_count": (0,),
    "rope.scaling.alpha": (0.0, 1.0),
    "rope.scaling.yarn_attn_factor": (1.0,),
    "rope.scaling.yarn_ext_factor": (1.0,),
    "rope.scaling.yarn_log_multiplier": (0.0,),
}


@dataclass(frozen=True, slots=True)
class Keys:
    """Checked reading of the keys under one architecture's name; it remembers which were asked for."""

    where: str  # the file, for messages
    prefix: str
    meta: Mapping[str, Any]
    read: set[str] = field(default_factory=set)

    def get(self, key: str) -> Any:
        self.read.add(key)
        return self.meta.get(f"{self.prefix}.{key}")

    def missing(self, key: str) -> FileError:
        return FileError(f"{self.where}: metadata key {self.prefix}.{key} is missing", key=f"{self.prefix}.{key}")

    def need(self, condition: bool, key: str, value: object, expected: str) -> None:
        if not condition:
            name = f"{self.prefix}.{key}"
            raise FileError(f"{self.where}: {name} is {_shown(value)}; expected {expected}", key=name, value=value)

    def unsupported(self, key: str, value: object, why: str) -> UnsupportedError:
        name = f"{self.prefix}.{key}"
        return UnsupportedError(f"{self.where}: {name} = {_shown(value)} is not supported: {why}", key=name)

    def count(self, key: str, most: int, default: int | None = None, *, least: int = 1) -> int:
        """A whole number of `least` to `most`."""
        value = self.get(key)
        if value is None:
            if default is None:
                raise self.missing(key)
            return default
        is_integer = isinstance(value, int) and not isinstance(value, bool)
        self.need(is_integer and least <= value <= most, key, value, f"a whole number of {least} to {most:,}")
        return int(value)

    def counts(
        self, key: str, layers: int, most: int, default: int | None = None, *, least: int = 1, alone: int = 1
    ) -> tuple[int, ...]:
        """A count that a file may give once or per layer: one for each layer. `least` bounds the numbers of an array,
        `alone` the one number for all layers."""
        value = self.get(key)
        if not isinstance(value, list | np.ndarray):
            return (self.count(key, most, default, least=alone),) * layers
        self._need_each(key, value, layers)
        for v in value:
            is_integer = isinstance(v, int | np.integer) and not isinstance(v, bool)
            self.need(is_integer and least <= v <= most, key, v, f"whole numbers of {least} to {most:,}")
        return tuple(int(v) for v in value[:layers])

    def reals(self, key: str, layers: int, default: float) -> tuple[float, ...]:
        """A finite float that a file may give once or per layer: one for each layer."""
        value = self.get(key)
        if not isinstance(value, list | np.ndarray):
            return (self.real(key, default=default),) * layers
        self._need_each(key, value, layers)
        for v in value:
            self.need(isinstance(v, float | np.floating) and abs(float(v)) <= 1e30, key, v, "finite numbers")
        return tuple(float(v) for v in value[:layers])

    def _need_each(self, key: str, value: Any, layers: int) -> None:
        """Refuse an array without a number for each layer; numbers of draft layers, which are left out, may follow."""
        fits = len(value) in (layers, self.meta.get(f"{self.prefix}.block_count"))
        self.need(fits, key, value, f"one number, or one for each of {layers} layers")

    def flag(self, key: str, default: bool) -> bool:
        value = self.get(key)
        if value is None:
            return default
        self.need(isinstance(value, bool), key, value, "true or false")
        return bool(value)

    def real(self, key: str, least: float = -1e30, most: float = 1e30, default: float | None = None) -> float:
        """A finite float in a range."""
        value = self.get(key)
        if value is None:
            if default is None:
                raise self.missing(key)
            return default
        self.need(isinstance(value, float) and least <= value <= most, key, value, f"a number of {least:g} to {most:g}")
        return float(value)

    def scale(self, key: str, default: float) -> float:
        """A factor; 0 in a file means absent."""
        return self.real(key, default=0.0) or default

    def text(self, key: str, default: str) -> str:
        value = self.get(key)
        if value is None:
            return default
        self.need(isinstance(value, str), key, value, "a text")
        return str(value)

    def refuse_unread(self, context: int) -> None:
        """Refuse a file that sets a switch which its family has not read."""
        for key, off in SWITCHES.items():
            value = self.meta.get(f"{self.prefix}.{key}")
            if key in self.read or value is None:
                continue
            if not isinstance(value, int | float) or value not in off:
                raise self.unsupported(key, value, f"the family {self.prefix} has no such switch here")
        if "attention.sliding_window" not in self.read:
            # a window as long as the context changes nothing; a shorter one would
            window = self.count("attention.sliding_window", 2**32, 0, least=0)
            if 0 < window < context:
                raise self.unsupported("attention.sliding_window", window, f"the context is {context:,} positions")


def _shown(value: object) -> str:
    """A value of the file with its type, where the type is not plain to see."""
    if isinstance(value, str):
        return f"the text '{printable(value)}'"
    return f"an array of {len(value):,}" if isinstance(value, list | np.ndarray) else printable(value)
