"""tensor_types: what each tensor type means, and the packed layout it becomes.

In: rows of bytes as a GGUF file holds them. Out: float32 values, integers with scales, or the bytes of packed panels;
and the way back from each. FORMATS and LAYOUTS are tables; a walk over them tests every row.
Never opens a file and never computes with weights: gguf reads, the op table computes, the compiled core packs.
"""

from __future__ import annotations

from woolly.gguf.tensor_types.layouts import LAYOUTS, PANEL, Layout
from woolly.gguf.tensor_types.table import FORMATS, Format, ScaledIntegers, format_of

__all__ = ["FORMATS", "LAYOUTS", "PANEL", "Format", "Layout", "ScaledIntegers", "format_of"]
