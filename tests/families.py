"""Small models of every family, made from a table: `data/families.json` says which tensors and keys a file has, its
weights are random and the same everywhere, and `data/families.npz` has their logits, or what encoders make of a text.

A file is written where it is needed, so that the tree holds results and no weights.
"""

from __future__ import annotations

import json
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from numpy.typing import NDArray

from tests.golden import DATA, nmse
from woolly import gguf

POSITIONS = (0, 1, 9, 20, 33, 39)  # of the logits that are kept
COUNT = POSITIONS[-1] + 1  # tokens of a prompt


@dataclass(frozen=True, slots=True)
class FamilyCase:
    """A model of a family: its tensors and keys, and the context it is used with."""

    name: str
    family: str
    shows: str
    context: int
    keys: dict[str, Any]
    tensors: dict[str, list[int]]

    @property
    def vocab(self) -> int:
        return self.tensors["token_embd.weight"][0]

    @property
    def tokens(self) -> list[int]:
        return [int(t) for t in _random(self.name, "tokens").randint(0, self.vocab, COUNT)]

    def write(self, path: Path, *, words: bool = False) -> Path:
        """The file of this model; with words it has a vocabulary, as a file that commands take must have."""
        keys = {"general.architecture": self.family, **self.keys, **(_vocabulary(self.vocab) if words else {})}
        tensors = {name: ("F32", tuple(shape), self.values(name).tobytes()) for name, shape in self.tensors.items()}
        gguf.write(path, keys, tensors)
        return path

    def values(self, name: str) -> NDArray[np.float32]:
        """What a tensor holds: products keep the size of what they are given, norms are near 1, biases near 0. What is
        added to the stream is small, so that the rounding of a deep model does not grow."""
        shape = self.tensors[name]
        x = _random(self.name, name).standard_normal(shape)
        if "rope_f" in name or name.endswith("act.scales"):
            x = 1.0 + np.abs(x)
        elif name.endswith(("scale", "scale.weight")):
            x = 1.0 + 0.2 * np.tanh(x)
        elif name.endswith("ssm_a"):
            x = -np.exp(0.5 * x)
        elif name.endswith("ssm_d") or "_lerp_" in name:
            x = 0.5 + 0.3 * np.tanh(x)
        elif "norm" in name and not name.endswith("bias"):
            x = (0.25 if "post_" in name else 1.0) * (1.0 + 0.2 * x)
        elif name.endswith(("bias", "exp_probs_b")):
            x = 0.2 * x
        elif len(shape) > 1:
            small = any(part in name for part in ("_down", "attn_output", "altup", "_out", "mix_value", "mix_output"))
            gain = 3.0 if name in ("output.weight", "token_embd.weight") else 0.5 if small else 1.0
            x = gain * x / np.sqrt(shape[-1])
        return x.astype(np.float32)

    def error(self, logits: NDArray[np.float32]) -> float:
        """The NMSE of logits at all positions of the prompt; of the last row where there is one for the whole text."""
        golden = np.load(DATA / "families.npz")[self.name]
        rows = logits[list(POSITIONS)] if len(golden) == len(POSITIONS) else logits[-1:]
        return nmse(rows, golden.reshape(rows.shape))


def _vocabulary(count: int) -> dict[str, Any]:
    return {
        "tokenizer.ggml.model": "llama",
        "tokenizer.ggml.tokens": ["<unk>", "<s>", "</s>", *(f"w{i}" for i in range(count - 3))],
        "tokenizer.ggml.scores": np.zeros(count, np.float32),
        "tokenizer.ggml.token_type": np.array([2, 3, 3] + [1] * (count - 3), np.int32),
        "tokenizer.ggml.bos_token_id": 1,
        "tokenizer.ggml.eos_token_id": 2,
    }


def _random(*names: str) -> np.random.RandomState:
    """NumPy promises the numbers of this generator for ever."""
    return np.random.RandomState(list(" ".join(names).encode()))


FAMILY_CASES = [FamilyCase(**row) for row in json.loads((DATA / "families.json").read_text())]

every_family_case = pytest.mark.parametrize("case", [pytest.param(case, id=case.name) for case in FAMILY_CASES])
