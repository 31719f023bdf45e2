"""Sampling that the publishers of well-known models recommend on their model cards, for files that carry no such keys.

A row counts for models of its architecture whose name matches its pattern; the first row that matches wins. Names are
compared in lower case with every run of other characters as one space: `Qwen3-4B-Instruct-2507` is `qwen3 4b instruct
2507`. Where a model thinks or not as it is asked, the values are those of how it answers when nobody says.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Any, NamedTuple


class Recommendation(NamedTuple):
    architectures: str
    name: str  # a pattern, looked for anywhere in the name
    values: Mapping[str, Any]


_QWEN3 = {"top_k": 20, "min_p": 0.0}
_GEMMA = {"temperature": 1.0, "top_p": 0.95, "top_k": 64, "min_p": 0.0}
_LLAMA = {"temperature": 0.6, "top_p": 0.9}
_DEEPSEEK_R1 = {"temperature": 0.6, "top_p": 0.95}
_LFM2 = {"temperature": 0.3, "min_p": 0.15, "repetition_penalty": 1.05}
_QWEN3_5 = {"temperature": 1.0, "top_p": 0.95, **_QWEN3, "presence_penalty": 1.5}
_GREEDY = {"temperature": 0.0, "top_p": 1.0, "top_k": 0}

TABLE = (
    Recommendation("qwen2 llama qwen3", r"deepseek r1", _DEEPSEEK_R1),
    Recommendation(
        "qwen3 qwen3moe qwen3vl qwen3vlmoe", r"qwen3 .*(coder|instruct)", {"temperature": 0.7, "top_p": 0.8, **_QWEN3}
    ),
    Recommendation("qwen3 qwen3moe", r"qwen3 \d+\S*( a\d+b)?( \d+b)?$", {"temperature": 0.6, "top_p": 0.95, **_QWEN3}),
    Recommendation(
        "qwen35",
        r"qwen3 5 (0 8b|2b)$",
        {"temperature": 1.0, "top_p": 1.0, **_QWEN3, "presence_penalty": 2.0},
    ),
    Recommendation("qwen35 qwen35moe", r"qwen3 5 \d+b( a\d+b)?$", _QWEN3_5),
    Recommendation(
        "qwen2",
        r"qwen2 5 coder .*instruct",
        {"temperature": 0.7, "top_p": 0.8, "top_k": 20, "repetition_penalty": 1.05},
    ),
    Recommendation("gemma3 gemma3n gemma4", r"gemma (3|3n|4) .*it\b", _GEMMA),
    Recommendation("llama", r"llama 3 [12] .*instruct", _LLAMA),
    Recommendation("llama mistral3", r"mistral small 3 2 .*instruct", {"temperature": 0.15}),
    Recommendation("llama mistral3", r"ministral 3 .*instruct", {"temperature": 0.15, "top_p": 0.95}),
    Recommendation("smollm3", r"smollm3", {"temperature": 0.6, "top_p": 0.95}),
    Recommendation("granite granitemoe granitehybrid", r"granite 4 [01]", _GREEDY),
    Recommendation("gpt-oss", r"gpt oss", {"temperature": 1.0, "top_p": 1.0}),
    Recommendation("lfm2", r"lfm2 (1 2b|2 6b)$", _LFM2),
    Recommendation("lfm2", r"lfm2 5 1 2b instruct", {"temperature": 0.1, "top_k": 50, "repetition_penalty": 1.05}),
    Recommendation("deepseek2", r"glm 4 7 flash", {"temperature": 1.0, "top_p": 0.95}),
)


def recommended(architecture: str, name: str) -> Mapping[str, Any]:
    """What the table recommends for a model; nothing where no row knows it."""
    plain = re.sub(r"[^a-z0-9]+", " ", name.lower()).strip()
    for row in TABLE:
        if architecture in row.architectures.split() and re.search(row.name, plain):
            return row.values
    return {}
