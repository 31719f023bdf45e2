"""Meta: the numbers of one architecture, read from a file's metadata and checked before anyone computes with them.

A key that is missing, of the wrong type or out of range is a FileError that names it. A switch that would change the
result and that the family does not know is an UnsupportedError that names it: an answer of another model is worse than
none.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np

from woolly.errors import FileError, UnsupportedError, printable
from woolly.gguf import GgufFile
from woolly.limits import LIMITS
from woolly.model.tables import RopeTable, TemperatureTable

# Switches and the values that mean "off"; a family names those it knows.
SWITCHES: Mapping[str, tuple[int | float | bool, ...]] = {
    "embedding_scale": (0.0, 1.0),
    "residual_scale": (0.0, 1.0),
    "logit_scale": (0.0, 1.0),
    "attention.scale": (0.0,),
    "attention.temperature_scale": (0.0,),
    "attention.temperature_length": (0,),
    "attention.causal": (True,),
    "attention.clamp_kqv": (0.0,),
    "attention.max_alibi_bias": (0.0,),
    "attn_logit_softcapping": (0.0,),
    "final_logit_softcapping": (0.0,),
    "use_parallel_residual": (False,),
    "expert_count": (0,),
    "expert_used_count": (0,),
    "nextn_predict_layers": (0,),
    "rope.scale_linear": (0.0, 1.0),
    "rope.scaling.yarn_attn_factor": (1.0,),
    "rope.scaling.yarn_ext_factor": (1.0,),
    "rope.scaling.yarn_log_multiplier": (0.0,),
}


@dataclass(frozen=True, slots=True)
class Meta:
    """Sizes and constants of a model; floats are the float32 values of the file."""

    architecture: str
    layers: int
    width: int
    heads: int
    kv_heads: int
    head_dim: int
    ffn: int
    vocab: int
    context: int
    eps: float
    rope: RopeTable
    attention_scale: float
    embedding_scale: float = 1.0
    residual_scale: float = 1.0
    logit_scale: float = 1.0
    temperature: TemperatureTable | None = None
    causal: bool = True  # a row sees no later position; else a sequence is computed whole

    @property
    def rot(self) -> int:
        """Columns of a head that are rotated."""
        return self.rope.rot


def read_meta(file: GgufFile, architecture: str, switches: tuple[str, ...] = ()) -> Meta:
    """The metadata of an architecture whose family knows these switches."""
    keys = _Keys(printable(file.path.name), architecture, file.meta)
    layers = keys.count("block_count", LIMITS.layers)
    context = keys.count("context_length", 2**31 - 1)
    keys.refuse_switches(switches)
    keys.refuse_window(context)

    width = keys.count("embedding_length", LIMITS.width)
    heads = keys.each("attention.head_count", layers, LIMITS.heads)
    kv_heads = keys.each("attention.head_count_kv", layers, LIMITS.heads, default=heads)
    keys.need(heads % kv_heads == 0, "attention.head_count_kv", kv_heads, f"a divisor of the {heads} heads")
    head_dim = keys.count("attention.key_length", LIMITS.width, default=0)
    if not head_dim:
        keys.need(width % heads == 0, "attention.head_count", heads, f"a divisor of the width {width}")
        head_dim = width // heads
    value_dim = keys.count("attention.value_length", LIMITS.width, default=head_dim)
    if value_dim != head_dim:
        raise keys.unsupported("attention.value_length", value_dim, f"the key length is {head_dim}")

    original = keys.count("rope.scaling.original_context_length", 2**31 - 1, default=context)
    scale = keys.real("attention.temperature_scale", default=0.0)
    return Meta(
        architecture=architecture,
        layers=layers,
        width=width,
        heads=heads,
        kv_heads=kv_heads,
        head_dim=head_dim,
        ffn=keys.each("feed_forward_length", layers, LIMITS.width * 8),
        vocab=_vocabulary(keys, file),
        context=context,
        eps=keys.real("attention.layer_norm_rms_epsilon", least=0.0, most=1.0),
        rope=_rope(keys, head_dim, original),
        attention_scale=keys.scale("attention.scale", 1.0 / math.sqrt(head_dim)),
        embedding_scale=keys.scale("embedding_scale", 1.0),
        residual_scale=keys.scale("residual_scale", 1.0),
        logit_scale=keys.scale("logit_scale", 1.0),
        temperature=TemperatureTable(scale, original) if scale else None,
    )


def missing_tensor(file: GgufFile, name: str) -> FileError:
    """The error for a tensor that a model needs and the file does not have."""
    return FileError(
        f"{printable(file.path.name)}: tensor {name} is missing",
        suggestion="the file is incomplete or was made wrongly: get another one",
        tensor=name,
    )


def _vocabulary(keys: _Keys, file: GgufFile) -> int:
    """Rows of the embedding; the key, where it is there, must say the same."""
    embedding = file.tensors.get("token_embd.weight")
    if embedding is None:
        raise missing_tensor(file, "token_embd.weight")
    vocab = embedding.shape[0]
    if vocab > LIMITS.vocabulary:
        raise FileError(f"{keys.where}: a vocabulary of {vocab:,} words; at most {LIMITS.vocabulary:,} are allowed")
    stated = keys.count("vocab_size", LIMITS.vocabulary, default=vocab)
    keys.need(stated == vocab, "vocab_size", stated, f"{vocab}, the rows of token_embd.weight")
    return vocab


def _rope(keys: _Keys, head_dim: int, original: int) -> RopeTable:
    rot = keys.count("rope.dimension_count", LIMITS.width, default=head_dim)
    keys.need(rot % 2 == 0 and rot <= head_dim, "rope.dimension_count", rot, f"even and at most {head_dim}")
    base = keys.real("rope.freq_base", least=1.0, most=1e30, default=10000.0)
    keys.need(base > 1.0, "rope.freq_base", base, "above 1")
    scaling = keys.text("rope.scaling.type", default="linear")
    if scaling not in ("none", "linear", "yarn"):
        raise keys.unsupported("rope.scaling.type", scaling, "none, linear and yarn are supported")
    least = 1e-6  # zero would divide by zero; a factor is a ratio of two context lengths
    factor = keys.real("rope.scaling.factor", least=least, most=1e6, default=None if scaling == "yarn" else 1.0)
    plain = scaling == "none" or (scaling == "linear" and factor == 1.0)
    return RopeTable(
        base=base,
        rot=rot,
        scaling="none" if plain else "yarn" if scaling == "yarn" else "linear",
        factor=1.0 if plain else factor,
        original=original,
        beta_fast=keys.real("rope.scaling.yarn_beta_fast", least=least, most=1e6, default=32.0),
        beta_slow=keys.real("rope.scaling.yarn_beta_slow", least=least, most=1e6, default=1.0),
        attn_factor=keys.real("rope.scaling.attn_factor", least=least, most=1e6, default=1.0),
        log_multiplier=keys.real("rope.scaling.yarn_log_multiplier", least=0.0, most=1e6, default=0.0),
    )


def _shown(value: object) -> str:
    """A value of the file with its type, where the type is not plain to see."""
    if isinstance(value, str):
        return f"the text '{printable(value)}'"
    return f"an array of {len(value):,}" if isinstance(value, list | np.ndarray) else printable(value)


@dataclass(frozen=True, slots=True)
class _Keys:
    """Checked reading of the keys under one architecture's name."""

    where: str
    prefix: str
    meta: Mapping[str, Any]

    def get(self, key: str) -> Any:
        return self.meta.get(f"{self.prefix}.{key}")

    def missing(self, key: str) -> FileError:
        return FileError(f"{self.where}: metadata key {self.prefix}.{key} is missing", key=f"{self.prefix}.{key}")

    def need(self, condition: bool, key: str, value: object, expected: str) -> None:
        if not condition:
            name = f"{self.prefix}.{key}"
            raise FileError(f"{self.where}: {name} is {_shown(value)}; expected {expected}", key=name, value=value)

    def unsupported(self, key: str, value: object, why: str) -> UnsupportedError:
        name = f"{self.prefix}.{key}"
        return UnsupportedError(f"{self.where}: {name} = {_shown(value)} is not supported: {why}", key=name)

    def count(self, key: str, most: int, default: int | None = None) -> int:
        """A whole number of 1 to `most`."""
        value = self.get(key)
        if value is None:
            if default is None:
                raise self.missing(key)
            return default
        whole = isinstance(value, int) and not isinstance(value, bool)
        self.need(whole and 1 <= value <= most, key, value, f"a whole number of 1 to {most:,}")
        return int(value)

    def each(self, key: str, layers: int, most: int, default: int | None = None) -> int:
        """A count that a file may give once or per layer; layers that differ are not supported."""
        value = self.get(key)
        if not isinstance(value, (list, np.ndarray)):
            return self.count(key, most, default)
        self.need(len(value) == layers, key, value, f"one number, or one for each of {layers} layers")
        counts = {int(v) if isinstance(v, int | np.integer) else v for v in value}
        for v in counts:
            self.need(isinstance(v, int) and 1 <= v <= most, key, v, f"whole numbers of 1 to {most:,}")
        if len(counts) > 1:
            raise self.unsupported(key, printable(sorted(counts)), "all layers must have the same number")
        return int(counts.pop())

    def real(self, key: str, least: float = -1e30, most: float = 1e30, default: float | None = None) -> float:
        """A finite float in a range."""
        value = self.get(key)
        if value is None:
            if default is None:
                raise self.missing(key)
            return default
        self.need(isinstance(value, float) and least <= value <= most, key, value, f"a number of {least:g} to {most:g}")
        return float(value)

    def scale(self, key: str, default: float) -> float:
        """A factor; 0 in a file means absent."""
        return self.real(key, default=0.0) or default

    def text(self, key: str, default: str) -> str:
        value = self.get(key)
        if value is None:
            return default
        self.need(isinstance(value, str), key, value, "a text")
        return str(value)

    def refuse_switches(self, known: tuple[str, ...]) -> None:
        for key, off in SWITCHES.items():
            value = self.get(key)
            if key in known or value is None:
                continue
            if not isinstance(value, int | float) or value not in off:
                raise self.unsupported(key, value, f"the family {self.prefix} has no such switch here")

    def refuse_window(self, context: int) -> None:
        """A window as long as the context changes nothing; a shorter one would."""
        window = self.get("attention.sliding_window")
        off = window is None or (isinstance(window, int) and window == 0)
        if not off and self.count("attention.sliding_window", 2**32) < context:
            raise self.unsupported("attention.sliding_window", window, f"the context is {context:,} positions")
