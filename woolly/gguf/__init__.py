"""gguf: read and write GGUF files, trusting nothing in them.

In: a path. Out: a `GgufFile`: metadata, the tensors' places, and their bytes as views of the mapped file.
All of the header is checked at `open`, split sets included; large arrays are decoded when asked for.
Never interprets the metadata (text and model do) and never changes a file it reads.
"""

from __future__ import annotations

from woolly.gguf.header import TensorInfo
from woolly.gguf.read import GgufFile, Part, open
from woolly.gguf.values import Metadata, Value
from woolly.gguf.write import write

__all__ = ["GgufFile", "Metadata", "Part", "TensorInfo", "Value", "open", "write"]
