"""The settings that `/set` can change, and how their values are read and checked."""

from __future__ import annotations

from collections.abc import Mapping
from difflib import get_close_matches
from typing import Any

from woolly.cli.sampling import BIAS, OPTIONS, TEXTS, read_bias, read_option
from woolly.errors import RequestError, printable
from woolly.request import request_of

SWITCHES = {"think": "whether a model that can think first does (on, off)"}
HELP = {
    **{name: what for name, (_, what) in (OPTIONS | TEXTS).items()},
    "logit_bias": BIAS,
    **SWITCHES,
}
NAMES = tuple(HELP)
_WORDS = {"on": True, "true": True, "yes": True, "off": False, "false": False, "no": False}


def check(options: Mapping[str, Any]) -> dict[str, Any]:
    """The options, after refusing unknown names and wrong values."""
    for name in options:
        if name not in NAMES:
            raise unknown(name)
    request_of(options, prompt="")
    return dict(options)


def changed(options: Mapping[str, Any], name: str, value: str) -> dict[str, Any]:
    """The options with one set to what the user wrote; `default` takes it back."""
    name = name.replace("-", "_").lower()
    if name not in NAMES:
        raise unknown(name)
    rest = {key: other for key, other in options.items() if key != name}
    return rest if value == "default" else check(rest | {name: _read(name, value)})


def lines(options: Mapping[str, Any], model: Mapping[str, Any]) -> str:
    """Every setting with its value; the values of the model are marked."""
    rows = []
    for name, what in HELP.items():
        if name in options:
            value = printable(options[name])
        else:
            value = f"{model[name]:g} (the model's)" if name in model else "-"
        rows.append(f"  {name:<22}{value:<16}{what}")
    return "\n".join(rows)


def unknown(name: str) -> RequestError:
    near = get_close_matches(name, NAMES, n=1)
    hint = f"did you mean '{near[0]}'?" if near else f"there are {', '.join(NAMES)}"
    return RequestError(f"there is no setting '{printable(name)}'", suggestion=hint)


def _read(name: str, value: str) -> Any:
    if name in TEXTS:
        return [value.replace("\\n", "\n").replace("\\t", "\t")]
    if name == "logit_bias":
        return dict([read_bias(value)])
    if name in SWITCHES:
        if value.lower() not in _WORDS:
            raise RequestError(f"{name} is '{printable(value)}', but must be on or off")
        return _WORDS[value.lower()]
    return read_option(name, value, name)
