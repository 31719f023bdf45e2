"""Meta: the numbers of one model, read from a file's metadata and checked before they are used.

What every family has is read at once; what only some have is read by the families that honour it, so that a switch
which the file's family has not read can be refused (keys.py).
"""

from __future__ import annotations

import math
from dataclasses import dataclass, field, replace
from typing import Literal

import numpy as np

from woolly.errors import FileError, printable
from woolly.gguf import GgufFile
from woolly.limits import LIMITS
from woolly.model.keys import Keys
from woolly.model.tables import RopeTable, TemperatureTable

Pooling = Literal["", "none", "mean", "cls", "last", "rank"]  # "": a model that continues texts; cls: the first row
POOLINGS: tuple[Pooling, ...] = ("", "mean", "cls", "last", "rank")  # by their numbers in files

Gating = Literal["softmax", "sigmoid", "chosen"]  # over all experts, of each for itself, over the chosen ones
_GATINGS: dict[int, Gating] = {1: "softmax", 2: "sigmoid", 3: "chosen"}


@dataclass(frozen=True, slots=True)
class Mixture:
    """How rows choose their experts: the score, the number of experts and of those used (the same of groups), and how
    their weights are scaled."""

    experts: int
    used: tuple[int, ...]  # in each layer
    gating: Gating
    renormalized: bool
    scale: float
    groups: int
    groups_used: int


@dataclass(frozen=True, slots=True)
class Block:
    """One layer: its sizes, and the names of its weights: `block.attn_q` is "blk.{i}.attn_q.weight", behind a prefix in
    some files."""

    index: int
    heads: int
    kv_heads: int
    head_dim: int
    value_dim: int
    ffn: int
    window: int  # 0: all positions are seen
    prefix: str = ""

    def __getattr__(self, name: str) -> str:
        if name.startswith("_"):
            raise AttributeError(name)
        return f"{self.prefix}blk.{self.index}.{name}.weight"


@dataclass(frozen=True, slots=True)
class Meta:
    """Sizes and constants of a model; floats are the float32 values of the file."""

    architecture: str
    layers: int
    width: int
    vocab: int
    context: int
    heads: tuple[int, ...]  # in each layer, as are the next two
    kv_heads: tuple[int, ...]
    ffn: tuple[int, ...]
    head_dim: int
    value_dim: int
    rope: RopeTable
    keys: Keys = field(compare=False)
    drafts: int = 0  # further layers, which predict several tokens at once; they are left out
    causal: bool = True  # a row sees no later position

    @property
    def attention_scale(self) -> float:
        """What scores are multiplied by, unless a family says otherwise."""
        return 1.0 / math.sqrt(self.head_dim)

    @property
    def sqrt_width(self) -> float:
        """The root of the width, as a float32: what some families multiply embeddings by."""
        return float(np.sqrt(np.float32(self.width)))

    @property
    def local_rope(self) -> RopeTable:
        """The angles of layers with a window, in families that have two kinds: another base, no scaling."""
        base = _base(self.keys, "rope.freq_base_swa", 10000.0)
        return RopeTable(base, self.rope.rot, attn_factor=self.rope.attn_factor)

    def block(self, index: int, window: int, head_dim: int, value_dim: int, prefix: str) -> Block:
        """A layer, whose heads may have another size than the model's (0: they do not)."""
        dims = (head_dim or self.head_dim, value_dim or self.value_dim)
        return Block(index, self.heads[index], self.kv_heads[index], *dims, self.ffn[index], window, prefix)

    def pooling(self) -> Pooling:
        """How the rows of a text are pooled, in families that can give an embedding; where the file says nothing, a
        causal model continues texts ("") and any other gives all rows ("none")."""
        number = self.keys.count("pooling_type", len(POOLINGS) - 1, 0, least=0)
        return POOLINGS[number] or ("" if self.causal else "none")

    def temperature(self) -> TemperatureTable | None:
        """How rotated queries grow with their position, where the file says so."""
        scale = self.keys.real("attention.temperature_scale", default=0.0)
        return TemperatureTable(scale, self.rope.original) if scale else None

    def windows(self, period: int, *, global_first: bool = False, default: int = 0) -> tuple[int, ...]:
        """The window of each layer, 0 where it is global: the last of every `period` layers is (the first, where
        `global_first`), unless the file says which are, or has another period."""
        size = self.keys.count("attention.sliding_window", 2**32 - 1, default, least=0)
        pattern = self.keys.get("attention.sliding_window_pattern")
        if size == 0:
            return (0,) * self.layers
        key = "attention.sliding_window_pattern"
        if isinstance(pattern, list | np.ndarray):
            fits = len(pattern) in (self.layers, self.layers + self.drafts)
            fits = fits and all(isinstance(v, bool | np.bool_) for v in pattern)
            self.keys.need(fits, key, pattern, f"true or false for each of {self.layers} layers")
            return tuple(size if windowed else 0 for windowed in pattern[: self.layers])
        period = self.keys.count(key, LIMITS.layers, period)
        last = 0 if global_first else period - 1
        return tuple(0 if i % period == last else size for i in range(self.layers))

    def mixture(
        self,
        gating: Gating = "softmax",
        *,
        renormalized: bool | None = True,
        by_key: bool = False,
        scaled: bool = False,
    ) -> Mixture | None:
        """How experts are chosen; None where the file has none. A family may leave to the file: the gating (`by_key`),
        whether weights are divided by their sum (`renormalized` is None), a factor of them (`scaled`)."""
        keys = self.keys
        experts = keys.count("expert_count", LIMITS.experts, 0, least=0)
        if not experts:
            return None
        used = keys.counts("expert_used_count", self.layers, experts)
        number = keys.count("expert_gating_func", 3, 0, least=0) if by_key else 0
        groups = keys.count("expert_group_count", experts, 1, least=0) or 1
        groups_used = keys.count("expert_group_used_count", groups, groups) if groups > 1 else 1
        each = experts // groups
        fits = experts % groups == 0 and (groups == 1 or (each >= 2 and max(used) <= groups_used * each))
        keys.need(fits, "expert_group_count", groups, f"groups of {experts} experts that hold {max(used)}")
        return Mixture(
            experts, used, _GATINGS.get(number, gating),
            keys.flag("expert_weights_norm", False) if renormalized is None else renormalized,
            keys.scale("expert_weights_scale", 1.0) if scaled else 1.0,
            groups, groups_used,
        )  # fmt: skip


def read_meta(file: GgufFile, architecture: str, *, encoder: bool = False) -> Meta:
    """What every family has in its metadata. encoder: rows of the family see all positions, whatever the file says."""
    keys = Keys(printable(file.path.name), architecture, file.meta)
    blocks = keys.count("block_count", LIMITS.layers)
    drafts = keys.count("nextn_predict_layers", blocks - 1, 0, least=0)
    layers = blocks - drafts
    context = keys.count("context_length", 2**31 - 1)
    width = keys.count("embedding_length", LIMITS.width)
    carries = any(keys.get(key) is not None for key in ("ssm.inner_size", "wkv.head_size"))
    least = 0 if carries else 1  # all layers of a model may be recurrent, without heads
    heads = keys.counts("attention.head_count", layers, LIMITS.heads, least=0, alone=least)
    kv_heads = keys.counts("attention.head_count_kv", layers, LIMITS.heads, heads[0], least=0, alone=least)
    if keys.get("attention.head_count_kv") is None:
        kv_heads = heads
    for h, kv in zip(heads, kv_heads, strict=True):
        keys.need(kv == 0 or h % kv == 0, "attention.head_count_kv", kv, f"a divisor of the {h} heads")
    head_dim = keys.count("attention.key_length", LIMITS.width, 0)
    if not head_dim and carries and heads[0] == 0:
        head_dim = width
    elif not head_dim:
        keys.need(heads[0] > 0 and width % heads[0] == 0, "attention.head_count", heads[0], f"a divisor of {width}")
        head_dim = width // heads[0]
    return Meta(
        architecture=architecture,
        layers=layers,
        width=width,
        vocab=_vocabulary(keys, file),
        context=context,
        heads=heads,
        kv_heads=kv_heads,
        ffn=keys.counts("feed_forward_length", layers, LIMITS.width * 8, least=0, alone=least),
        head_dim=head_dim,
        value_dim=keys.count("attention.value_length", LIMITS.width, head_dim),
        rope=_rope(keys, head_dim, context),
        keys=keys,
        drafts=drafts,
        causal=keys.flag("attention.causal", True) and not encoder,
    )


def missing_tensor(file: GgufFile, name: str) -> FileError:
    """The error for a tensor that a model needs and the file does not have."""
    return FileError(
        f"{printable(file.path.name)}: tensor {name} is missing",
        suggestion="the file is incomplete or was made wrongly: get another one",
        tensor=name,
    )


def _vocabulary(keys: Keys, file: GgufFile) -> int:
    """Rows of the embedding; `vocab_size`, where the file has it, must be the same number."""
    embedding = file.tensors.get("token_embd.weight")
    if embedding is None:
        raise missing_tensor(file, "token_embd.weight")
    vocab = embedding.shape[0]
    if vocab > LIMITS.vocabulary:
        raise FileError(f"{keys.where}: a vocabulary of {vocab:,} words; at most {LIMITS.vocabulary:,} are allowed")
    stated = keys.count("vocab_size", LIMITS.vocabulary, default=vocab)
    keys.need(stated == vocab, "vocab_size", stated, f"{vocab}, the rows of token_embd.weight")
    return vocab


def _base(keys: Keys, key: str, default: float) -> float:
    base = keys.real(key, least=1.0, most=1e30, default=default)
    keys.need(base > 1.0, key, base, "above 1")
    return base


def _rope(keys: Keys, head_dim: int, context: int) -> RopeTable:
    rot = keys.count("rope.dimension_count", LIMITS.width, head_dim)
    keys.need(rot % 2 == 0 and rot <= head_dim, "rope.dimension_count", rot, f"even and at most {head_dim}")
    scaling = keys.text("rope.scaling.type", default="linear")
    if scaling not in ("none", "linear", "yarn", "longrope"):
        raise keys.unsupported("rope.scaling.type", scaling, "none, linear, yarn and longrope are supported")
    least = 1e-6  # zero would divide by zero; a factor is a ratio of two context lengths
    old = keys.scale("rope.scale_linear", 1.0)  # the factor by its older name
    keys.need(least <= old <= 1e6, "rope.scale_linear", old, f"a number of {least:g} to 1e+06")
    stated = keys.real("rope.scaling.factor", least=least, most=1e6, default=old)
    factor = stated if scaling != "none" else 1.0
    return RopeTable(
        base=_base(keys, "rope.freq_base", 10000.0),
        rot=rot,
        scaling="yarn" if scaling == "yarn" else "none" if factor == 1.0 else "linear",
        factor=factor,
        original=keys.count("rope.scaling.original_context_length", 2**31 - 1, context),
        beta_fast=keys.real("rope.scaling.yarn_beta_fast", least=least, most=1e6, default=32.0),
        beta_slow=keys.real("rope.scaling.yarn_beta_slow", least=least, most=1e6, default=1.0),
        attn_factor=keys.real("rope.scaling.attn_factor", least=least, most=1e6, default=1.0),
    )


def read_sections(keys: Keys) -> tuple[int, ...]:
    """The sizes of the sections of angles; none where the file has none."""
    sections = keys.get("rope.dimension_sections")
    if sections is None:
        return ()
    fits = isinstance(sections, list | np.ndarray) and 3 <= len(sections) <= 4
    fits = fits and all(isinstance(n, int | np.integer) and 0 <= n <= LIMITS.width for n in sections)
    keys.need(fits and sum(sections) > 0, "rope.dimension_sections", sections, "three or four sizes of sections")
    return tuple(int(n) for n in sections)


def sectioned(rope: RopeTable, keys: Keys) -> RopeTable:
    """The table of a family whose angles have sections for time, height and width. In text all three are the
    position; pairs of a fourth section are not rotated."""
    sections = read_sections(keys)
    total, turning = sum(sections), sum(sections[:3])
    if not sections or turning >= rope.rot // 2:
        return rope
    return replace(rope, factors=tuple(1.0 if i % total < turning else math.inf for i in range(rope.rot // 2)))
