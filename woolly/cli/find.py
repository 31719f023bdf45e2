"""From the name that a user gives to a file."""

from __future__ import annotations

from pathlib import Path

from woolly.cli.terminal import progress_bar
from woolly.config import Config
from woolly.errors import printable
from woolly.store import resolve


def find_model(name: str, config: Config, *, quiet: bool = False) -> Path:
    """The file of a model; one that is not here yet is downloaded, with a bar unless quiet."""
    return resolve(name, config=config, progress=progress_bar(f"downloading {printable(name)}", quiet=quiet))
