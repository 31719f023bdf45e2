"""From a file to its graph: the architecture is looked up in FAMILIES, never imported or joined to a path."""

from __future__ import annotations

import difflib

from woolly.errors import FileError, UnsupportedError, printable
from woolly.gguf import GgufFile
from woolly.model.builder import Builder
from woolly.model.families import ENCODERS, FAMILIES
from woolly.model.graph import Graph
from woolly.model.meta import read_meta


def build(file: GgufFile, context: int | None = None) -> Graph:
    """The checked graph of a model file; every tensor of the file has its place in it.

    context: the most positions that a sequence will have, where it is not what the file says: some models rotate by
    other angles for long contexts.
    """
    where = printable(file.path.name)
    kind = file.meta.get("general.type", "model")
    architecture = file.meta.get("general.architecture")
    if {"mmproj", "clip"} & {word for word in (kind, architecture) if isinstance(word, str)}:
        raise UnsupportedError(
            f"{where}: the file is the half of a model that sees or hears (mmproj), and Woolly reads texts alone",
            suggestion="give the other file of the model, whose name has no mmproj in it",
            type="mmproj",
        )
    if not isinstance(kind, str) or kind != "model":
        adapter = isinstance(kind, str) and kind == "adapter"
        raise UnsupportedError(
            f"{where}: the file is of type {printable(kind)}, not a model",
            suggestion="give it with the model it is for: `woolly run MODEL --lora FILE`" if adapter else "",
            type=kind,
        )
    if architecture is None:
        raise FileError(
            f"{where}: metadata key general.architecture is missing: the file holds no model",
            key="general.architecture",
        )
    if not isinstance(architecture, str):
        raise FileError(
            f"{where}: general.architecture is {printable(architecture)}, but a text is expected",
            key="general.architecture",
        )
    family = FAMILIES.get(architecture)
    if family is None:
        near = difflib.get_close_matches(architecture[:100], FAMILIES, n=1)
        raise UnsupportedError(
            f"{where}: architecture '{printable(architecture)}' is not supported"
            + (f" (the nearest is '{near[0]}')" if near else ""),
            suggestion=f"get another model, or a newer Woolly: this one knows {len(FAMILIES)} architectures",
            architecture=architecture,
        )
    meta = read_meta(file, architecture, encoder=architecture in ENCODERS)
    builder = Builder(meta, file, context or meta.context)
    family(meta, builder)
    return builder.finish()
