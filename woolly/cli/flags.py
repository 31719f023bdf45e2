"""Options of the commands that are settings: made from the rows of the table, and read back by name."""

from __future__ import annotations

import argparse
from typing import Any

from woolly.config import SETTINGS
from woolly.config.rows import Setting


def add_flags(parser: argparse.ArgumentParser, *names: str) -> None:
    """Add the options of the settings with these names, or of all settings. The row of a setting checks its value."""
    taken = set()
    for one in SETTINGS:
        if one.flags and one.flags[0] not in taken and (not names or one.name in names):
            taken.add(one.flags[0])
            if one.kind == "bool":
                parser.add_argument(*one.flags, action=argparse.BooleanOptionalAction, help=one.help)
                continue
            parser.add_argument(
                *one.flags,
                choices=one.words or None,
                metavar=None if one.words else one.metavar,
                action="append" if one.kind.startswith("tuple") and one.metavar != "LIST" else "store",
                help=f"{one.help} (default {one.default})" if one.default else one.help,
            )


def flag_values(args: argparse.Namespace) -> dict[str, Any]:
    """The values of the options that the command line has, by the names of the settings."""
    options = {one.name: getattr(args, _dest(one), None) for one in SETTINGS if one.flags}
    return {name: value for name, value in options.items() if value is not None}


def _dest(one: Setting) -> str:
    return one.flags[0].lstrip("-").replace("-", "_")
