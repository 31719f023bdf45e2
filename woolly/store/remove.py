"""Removing a model that is ours. What another program keeps is never touched: its owner is named instead."""

from __future__ import annotations

import contextlib
from pathlib import Path

from woolly.config import Config
from woolly.errors import RequestError, printable
from woolly.io.disk import models_faults
from woolly.store.model import OWNERS, Model, parts_of
from woolly.store.places import HF

BY_ITS_OWNER = {  # the owner of a file -> how the user can remove it
    "package": "remove the package with `pip uninstall`",
    "hub": "`hf cache` shows and removes what lies there",
    "lm_studio": "remove it in LM Studio (My Models)",
    "ollama": "`ollama rm` removes it",
}


def check_owned(model: Model) -> None:
    """Refuse a model that another program keeps, and say whose it is."""
    if model.owner != "woolly":
        raise RequestError(
            f"'{printable(model.name)}' belongs to {OWNERS[model.owner]} ({printable(model.path, 300)}); "
            "Woolly only reads it",
            suggestion=BY_ITS_OWNER[model.owner],
            param="model",
        )


def remove(model: Model, config: Config) -> list[Path]:
    """Delete the files of a model, the first part first: a set without it has no name. Returns the removed paths."""
    check_owned(model)
    gone = []
    with models_faults(model.path.parent):
        for path in parts_of(model.path):
            path.unlink()
            gone.append(path)
    top = config.models / HF
    for folder in model.path.parents:  # remove the empty folders that a download made
        if not folder.is_relative_to(top):
            break
        with contextlib.suppress(OSError):
            folder.rmdir()
    return gone
