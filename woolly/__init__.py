"""Woolly runs language models from GGUF files on ordinary CPUs.

    from woolly import LLM

    with LLM("smollm2") as llm:
        print(llm.chat([{"role": "user", "content": "What is a woolly mammoth?"}]).text)

The public names are those of `__all__`; each is imported when it is first used, so that `import woolly` costs nothing.
"""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING

from woolly.version import __version__

if TYPE_CHECKING:
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
    from woolly.llm.llm import LLM, Tokenizer
    from woolly.request import Completion
    from woolly.request.format import Format

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
    "LLM": "woolly.llm.llm",
    "Tokenizer": "woolly.llm.llm",
    "Completion": "woolly.request",
    "Format": "woolly.request.format",
}


def __getattr__(name: str) -> object:
    if name not in __all__:
        raise AttributeError(f"module 'woolly' has no attribute '{name}'")
    value: object = getattr(import_module(_HOMES.get(name, "woolly.errors")), name)
    globals()[name] = value
    return value


def __dir__() -> list[str]:
    return sorted(__all__)
