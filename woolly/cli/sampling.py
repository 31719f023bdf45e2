"""The sampling that a user can ask for: options of `run`, names of `/set`."""

from __future__ import annotations

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
