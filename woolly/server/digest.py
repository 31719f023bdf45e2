"""The digest of a model's file, by which an answer says exactly what gave it; a name can mean another file tomorrow."""

from __future__ import annotations

import hashlib
from collections.abc import Callable
from pathlib import Path

CHUNK = 1 << 20


def digest(path: Path, wanted: Callable[[], bool]) -> str | None:
    """`sha256:` and the digest of the file, or of all files of a split set in their order; None once it is not wanted.

    In a thread: a second or so a gigabyte.
    """
    from woolly import gguf  # NumPy comes with it

    with gguf.open(path) as file:
        paths = [part.path for part in file.parts]
    made = hashlib.sha256()
    for each in paths:
        with each.open("rb", buffering=0) as data:
            while piece := data.read(CHUNK):
                made.update(piece)
                if not wanted():
                    return None
    return "sha256:" + made.hexdigest()
