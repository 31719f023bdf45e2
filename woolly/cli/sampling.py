"""The sampling that a user or a file can ask for: options of `run`, names of `/set`, metadata of a model."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from woolly.errors import FileError, RequestError, printable
from woolly.request import Sampling

SAMPLING = {  # option -> (type, what it does)
    "max_tokens": (int, "the most tokens to answer with (default: to the end of the context)"),
    "temperature": (float, "0 always takes the most likely token; higher is more daring (default 0.7)"),
    "top_k": (int, "choose among the K most likely tokens (default 50; 0: all)"),
    "top_p": (float, "choose among the fewest tokens that reach this probability together (default 0.9)"),
    "min_p": (float, "leave out tokens less than this times as likely as the best (default 0)"),
    "repetition_penalty": (float, "makes tokens of the last 64 less likely (default 1: off)"),
    "presence_penalty": (float, "taken from tokens that the answer has already (default 0)"),
    "frequency_penalty": (float, "the same for each time it has them (default 0)"),
    "seed": (int, "the same seed gives the same answer"),
}

FILE_SAMPLING = {  # metadata of a file -> option
    "general.sampling.temp": "temperature",
    "general.sampling.top_k": "top_k",
    "general.sampling.top_p": "top_p",
    "general.sampling.min_p": "min_p",
    "general.sampling.penalty_repeat": "repetition_penalty",
}


def file_sampling(path: Path) -> dict[str, Any]:
    """The sampling that the file itself recommends; it counts for what the user does not say."""
    from woolly import gguf

    with gguf.open(path) as file:
        values: dict[str, Any] = {name: file.meta[key] for key, name in FILE_SAMPLING.items() if key in file.meta}
    try:
        Sampling(**values)
    except RequestError as error:
        raise FileError(f"{printable(path.name)}: its sampling defaults are wrong: {error.message}") from error
    return values
