"""Woolly runs language models from GGUF files on ordinary CPUs.

    from woolly import LLM

    with LLM("smollm2") as llm:
        print(llm.chat([{"role": "user", "content": "What is a woolly mammoth?"}]).text)

The public names are those of `__all__`; each is imported when it is first used, so that `import woolly` costs nothing.
"""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from woolly.answer_format import Format
    from woolly.errors import (
        BusyError,
        ContextError,
        DownloadError,
        FileError,
        NativeError,
        NotFoundError,
        RequestError,
        UnsupportedError,
        WoollyError,
    )
    from woolly.llm import LLM, Tokenizer
    from woolly.request import Completion

__version__ = "0.1.0"

__all__ = [
    "LLM",
    "BusyError",
    "Completion",
    "ContextError",
    "DownloadError",
    "FileError",
    "Format",
    "NativeError",
    "NotFoundError",
    "RequestError",
    "Tokenizer",
    "UnsupportedError",
    "WoollyError",
    "__version__",
]

_HOMES = {
    "LLM": "woolly.llm",
    "Tokenizer": "woolly.llm",
    "Completion": "woolly.request",
    "Format": "woolly.answer_format",
}


def __getattr__(name: str) -> object:
    if name not in __all__:
        raise AttributeError(f"module 'woolly' has no attribute '{name}'")
    value: object = getattr(import_module(_HOMES.get(name, "woolly.errors")), name)
    globals()[name] = value
    return value


def __dir__() -> list[str]:
    return sorted(__all__)
