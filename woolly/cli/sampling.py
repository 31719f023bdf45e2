"""The sampling that a user can ask for: options of `run`, names of `/set`."""

from __future__ import annotations

from woolly.request import SAMPLING

OPTIONS: dict[str, tuple[type[int] | type[float], str]] = {  # option -> (type, what it does)
    "max_tokens": (int, "the most tokens to answer with (default: to the end of the context)"),
    **{name: (row.type, f"{row.help} (default {row.default:g})") for name, row in SAMPLING.items()},
    "seed": (int, "the same seed gives the same answer"),
}
