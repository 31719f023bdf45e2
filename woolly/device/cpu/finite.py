"""Check every float of a file: a weight that is NaN or infinite gives wrong answers without an error.

Quantised activations hide a NaN, so the logits may look right. Packing sees every scale anyway (packing.py); this is a
check without packing. A file is read once from end to end, and nothing of its size is allocated.
"""

from __future__ import annotations

from collections.abc import Iterable

import woolly._core as _core
from woolly.errors import FileError, printable
from woolly.gguf import GgufFile
from woolly.gguf.tensor_types import FORMATS


def check_finite(file: GgufFile, names: Iterable[str] | None = None) -> None:
    """FileError names the first tensor with a NaN or an infinity, of those named or of all. Releases the GIL."""
    for name in file.tensors if names is None else names:
        info = file.tensors[name]
        row = FORMATS[info.format]
        floats = row.floats
        at = _core.find_not_finite(file.data(name), row.nbytes, floats.places, floats.width, floats.exponent)
        if at >= 0:
            raise FileError(
                f"{printable(file.path.name)}: tensor '{name}' holds a value that is not finite "
                f"(byte {info.offset + at:,})",
                suggestion="the file is damaged; download it again",
                tensor=name,
                offset=info.offset + at,
            )
        file.release(name)
