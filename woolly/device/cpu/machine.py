"""Which instruction set the core uses: the best this machine has, unless the environment names another."""

from __future__ import annotations

import os
from difflib import get_close_matches

import woolly._core as _core
from woolly.errors import UnsupportedError, printable

SETS: tuple[str, ...] = tuple(_core.sets())  # the best last


def chosen_set(environment: dict[str, str] | os._Environ[str] = os.environ) -> str:
    """The set to use: WOOLLY_ISA, else scalar with WOOLLY_DISABLE_SIMD=1, else the best."""
    name = environment.get("WOOLLY_ISA", "")
    if not name:
        return "scalar" if environment.get("WOOLLY_DISABLE_SIMD", "") not in ("", "0") else SETS[-1]
    if name not in SETS and name in _core.sets_of_machine():
        hint = "make dev compiles all instruction sets"
        raise UnsupportedError(f"WOOLLY_ISA is '{name}', which was not compiled", suggestion=hint)
    if name not in SETS:
        near = get_close_matches(name, SETS, 1)
        hint = f"did you mean {near[0]}?" if near else f"this machine has {', '.join(SETS)}"
        raise UnsupportedError(f"WOOLLY_ISA is '{printable(name)}', which this machine does not have", suggestion=hint)
    return name


ISA = chosen_set()


def machine() -> dict[str, object]:
    """What the core found here: the instruction sets, best last, and the one in use."""
    return {"sets": list(SETS), "isa": ISA}
