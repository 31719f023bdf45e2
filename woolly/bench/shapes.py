"""SHAPES: the sizes of real models, and MIXES: which tensor type each matrix gets in a file of a common name.

What costs time is real: widths, heads, layers, experts, vocabulary, rotary tables, norms, biases, tied or own output
matrix, granite's factors, and the types of the matrices. The weights are noise (random_model.py).
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from types import MappingProxyType

from woolly.errors import RequestError, printable
from woolly.gguf.tensor_types import FORMATS


@dataclass(frozen=True, slots=True)
class RopeScaling:
    """Rope frequencies scaled for long contexts, as in Llama 3.1 and later."""

    factor: float
    low: float = 1.0
    high: float = 4.0
    context: int = 8192  # positions of the training before the extension


@dataclass(frozen=True, slots=True)
class Experts:
    """The experts of a layer, which replace its one feed-forward network; a token uses some of them."""

    count: int
    used: int
    ffn: int
    shared: int = 0  # width of the shared expert, which every row uses; 0: none
    gated: bool = False  # the shared expert has a gate of its own
    after: int = 0  # how many first layers have one network and no experts


QKV = ("attn_q", "attn_k", "attn_v")


@dataclass(frozen=True, slots=True)
class Shape:
    """A model in numbers. `factors` are the keys of the metadata that only granite has, `keys` those of other families;
    `biases` names the matrices that have one, `vectors` further weights of a layer with their lengths."""

    family: str
    layers: int
    width: int
    heads: int
    kv_heads: int
    head_dim: int
    ffn: int
    vocab: int
    base: float
    eps: float
    context: int
    tied: bool = True
    biases: tuple[str, ...] = ()
    vectors: Mapping[str, int] = field(default_factory=lambda: MappingProxyType({}))
    ffn_norm: str = "ffn_norm"
    fused: bool = False  # q, k and v are one matrix, and so are gate and up
    experts: Experts | None = None
    rope_scaling: RopeScaling | None = None
    mixers: tuple[str, ...] = ("attention",)  # by which layers mix positions, in turn (mixers.py)
    gated: bool = False  # attention has a gate beside each query
    output_norm: str = "output_norm"
    factors: Mapping[str, float] = field(default_factory=lambda: MappingProxyType({}))
    keys: Mapping[str, object] = field(default_factory=lambda: MappingProxyType({}))
    pre: str = "llama-bpe"

    def mixer(self, layer: int) -> str:
        return self.mixers[layer % len(self.mixers)]

    def number(self, key: str) -> int:
        """A size that the metadata has under this key."""
        value = self.keys[key]
        assert isinstance(value, int)
        return value


def _norms(queries: int, keys: int) -> Mapping[str, int]:
    """The norms of queries and keys, by their lengths: a head, or a whole row."""
    return MappingProxyType({"attn_q_norm": queries, "attn_k_norm": keys})


def _granite(attention: float, logit: float) -> Mapping[str, float]:
    return MappingProxyType(
        {"embedding_scale": 12.0, "residual_scale": 0.22, "attention.scale": attention, "logit_scale": logit}
    )


def _yarn(factor: float, original: int, *, window: int) -> Mapping[str, object]:
    return MappingProxyType(
        {
            "rope.scaling.type": "yarn",
            "rope.scaling.factor": factor,
            "rope.scaling.original_context_length": original,
            "attention.sliding_window": window,
        }
    )


SHAPES: dict[str, Shape] = {
    "smollm2-135m": Shape("llama", 30, 576, 9, 3, 64, 1536, 49152, 1e5, 1e-5, 8192, pre="smollm"),
    "smollm2-360m": Shape("llama", 32, 960, 15, 5, 64, 2560, 49152, 1e5, 1e-5, 8192, pre="smollm"),
    "smollm2-1.7b": Shape("llama", 24, 2048, 32, 32, 64, 8192, 49152, 1.3e5, 1e-5, 8192, pre="smollm"),
    "llama-3.2-1b": Shape(
        "llama", 16, 2048, 32, 8, 64, 8192, 128256, 5e5, 1e-5, 131072, rope_scaling=RopeScaling(32.0)
    ),
    "llama-3.2-3b": Shape(
        "llama", 28, 3072, 24, 8, 128, 8192, 128256, 5e5, 1e-5, 131072, rope_scaling=RopeScaling(32.0)
    ),
    "llama-3.1-8b": Shape(
        "llama", 32, 4096, 32, 8, 128, 14336, 128256, 5e5, 1e-5, 131072, tied=False, rope_scaling=RopeScaling(8.0)
    ),
    "qwen2.5-0.5b": Shape(
        "qwen2", 24, 896, 14, 2, 64, 4864, 151936, 1e6, 1e-6, 32768, biases=QKV, pre="qwen2"
    ),
    "qwen3-0.6b": Shape(
        "qwen3", 28, 1024, 16, 8, 128, 3072, 151936, 1e6, 1e-6, 40960, vectors=_norms(128, 128), pre="qwen2"
    ),
    "granite-3.3-2b": Shape(
        "granite", 40, 2048, 32, 8, 64, 8192, 49159, 1e7, 1e-5, 131072,
        factors=_granite(1 / 64, 8.0), pre="refact",
    ),
    "granite-3.3-8b": Shape(
        "granite", 40, 4096, 32, 8, 128, 12800, 49159, 1e7, 1e-5, 131072,
        factors=_granite(1 / 128, 16.0), pre="refact",
    ),
    "gemma-3-4b": Shape(
        "gemma3", 34, 2560, 8, 4, 256, 10240, 262144, 1e6, 1e-6, 131072,
        vectors=MappingProxyType({**_norms(256, 256), "post_attention_norm": 2560, "post_ffw_norm": 2560}),
        keys=MappingProxyType(
            {"attention.sliding_window": 1024, "rope.scaling.type": "linear", "rope.scaling.factor": 8.0}
        ),
    ),
    "phi-4": Shape(
        "phi3", 40, 5120, 40, 10, 128, 17920, 100352, 2.5e5, 1e-5, 16384, tied=False, fused=True, pre="dbrx"
    ),
    "olmoe-1b-7b": Shape(
        "olmoe", 16, 2048, 16, 16, 128, 1024, 50304, 1e4, 1e-5, 4096, tied=False,
        vectors=_norms(2048, 2048), experts=Experts(64, 8, 1024), pre="olmo",
    ),
    "qwen3-30b-a3b": Shape(
        "qwen3moe", 48, 2048, 32, 4, 128, 6144, 151936, 1e6, 1e-6, 40960, tied=False,
        vectors=_norms(128, 128), experts=Experts(128, 8, 768), pre="qwen2",
    ),
    "mixtral-8x7b": Shape(
        "llama", 32, 4096, 32, 8, 128, 14336, 32000, 1e6, 1e-5, 32768, tied=False, experts=Experts(8, 2, 14336)
    ),
    "gpt-oss-20b": Shape(
        "gpt-oss", 24, 2880, 64, 8, 64, 2880, 201088, 1.5e5, 1e-5, 131072, tied=False,
        biases=(*QKV, "attn_output", "ffn_gate_inp", "ffn_gate_exps", "ffn_up_exps", "ffn_down_exps"),
        vectors=MappingProxyType({"attn_sinks": 64}), ffn_norm="post_attention_norm", experts=Experts(32, 4, 2880),
        keys=_yarn(32.0, 4096, window=128), pre="gpt-4o",
    ),
    "llama-4-scout": Shape(
        "llama4", 48, 5120, 40, 8, 128, 16384, 202048, 5e5, 1e-5, 10485760, tied=False,
        experts=Experts(16, 1, 8192, shared=8192), keys=MappingProxyType({"interleave_moe_layer_step": 1}),
        pre="llama4",
    ),
    "deepseek-2-lite": Shape(
        "deepseek2", 27, 2048, 16, 1, 576, 10944, 102400, 1e4, 1e-6, 163840, tied=False, mixers=("latent",),
        experts=Experts(64, 6, 1408, shared=2816, after=1), pre="deepseek-llm",
        keys=MappingProxyType(
            {
                "attention.q_lora_rank": 0, "attention.kv_lora_rank": 512, "attention.value_length": 512,
                "attention.key_length_mla": 192, "attention.value_length_mla": 128, "rope.dimension_count": 64,
                "expert_shared_count": 2, "leading_dense_block_count": 1, "expert_weights_scale": 1.0,
                "rope.scaling.type": "yarn", "rope.scaling.factor": 40.0,
                "rope.scaling.original_context_length": 4096, "rope.scaling.yarn_log_multiplier": 0.0707,
            }
        ),
    ),
    "qwen3-next-80b-a3b": Shape(
        "qwen3next", 48, 2048, 16, 2, 256, 5120, 151936, 1e7, 1e-6, 262144, tied=False, gated=True,
        mixers=("delta", "delta", "delta", "attention"), vectors=_norms(256, 256), ffn_norm="post_attention_norm",
        experts=Experts(512, 10, 512, shared=512, gated=True), pre="qwen2",
        keys=MappingProxyType(
            {
                "ssm.conv_kernel": 4, "ssm.state_size": 128, "ssm.group_count": 16, "ssm.time_step_rank": 32,
                "ssm.inner_size": 4096, "full_attention_interval": 4, "rope.dimension_count": 64,
                "expert_shared_feed_forward_length": 512,
            }
        ),
    ),
    "mamba-2-1.3b": Shape(
        "mamba2", 48, 2048, 0, 0, 0, 0, 50288, 1e4, 1e-5, 1048576, mixers=("mamba2",), ffn_norm="", pre="olmo",
        keys=MappingProxyType(
            {
                "ssm.conv_kernel": 4, "ssm.state_size": 128, "ssm.group_count": 1, "ssm.time_step_rank": 64,
                "ssm.inner_size": 4096,
            }
        ),
    ),
    "lfm2-1.2b": Shape(
        "lfm2", 16, 2048, 32, 8, 64, 8192, 65536, 1e6, 1e-5, 128000, vectors=_norms(64, 64),
        mixers=tuple("attention" if layer in (2, 5, 8, 10, 12, 14) else "short_conv" for layer in range(16)),
        output_norm="token_embd_norm", keys=MappingProxyType({"shortconv.l_cache": 3}),
    ),
}  # fmt: skip


@dataclass(frozen=True, slots=True)
class Mix:
    """The types in a file of this name. `sensitive` is for attn_v and ffn_down of those layers in which errors cost
    most, `non_expert` for the matrices outside of experts in a model with experts."""

    base: str
    sensitive: str = ""
    non_expert: str = ""
    number: int = 0  # general.file_type


MIXES: dict[str, Mix] = {
    "F32": Mix("F32", number=0),
    "F16": Mix("F16", number=1),
    "BF16": Mix("BF16", number=32),
    "Q4_0": Mix("Q4_0", number=2),
    "Q4_1": Mix("Q4_1", number=3),
    "Q5_0": Mix("Q5_0", number=8),
    "Q5_1": Mix("Q5_1", number=9),
    "Q8_0": Mix("Q8_0", number=7),
    "Q4_K_M": Mix("Q4_K", "Q6_K", number=15),
    "Q5_K_M": Mix("Q5_K", "Q6_K", number=17),
    "Q2_K": Mix("Q2_K", number=10),
    "Q3_K": Mix("Q3_K", number=11),
    "Q4_K": Mix("Q4_K", number=14),
    "Q5_K": Mix("Q5_K", number=16),
    "Q6_K": Mix("Q6_K", number=18),
    "IQ4_NL": Mix("IQ4_NL", number=25),
    "IQ4_XS": Mix("IQ4_XS", number=30),
    "MXFP4": Mix("MXFP4", non_expert="Q8_0", number=38),
    "IQ3_S": Mix("IQ3_S", number=26),
    "IQ2_XXS": Mix("IQ2_XXS", number=19),
    "TQ2_0": Mix("TQ2_0", number=37),
}

# The type in place of one with super-blocks, where a row is not a whole number of them.
_WITHOUT_SUPER_BLOCKS = {
    "Q2_K": "Q4_0", "Q3_K": "Q4_0", "Q4_K": "Q5_0", "Q5_K": "Q5_1", "Q6_K": "Q8_0",
    "IQ4_XS": "IQ4_NL", "IQ3_S": "IQ4_NL", "IQ2_XXS": "IQ4_NL", "TQ2_0": "Q4_0",
}  # fmt: skip


def format_of(mix: Mix, role: str, layer: int, shape: Shape, columns: int) -> str:
    """The type of a matrix: `role` is embed, head, or the middle of a layer's tensor name (attn_v, ffn_down)."""
    if FORMATS[mix.base].is_float:
        return mix.base
    name = mix.base
    if mix.non_expert and shape.experts and not role.endswith("_exps"):
        name = mix.non_expert
    elif role == "head" or (role == "embed" and shape.tied):
        name = "Q8_0" if mix.base == "Q8_0" else "Q6_K"
    elif role in ("attn_v", "ffn_down", "ffn_down_exps") and mix.sensitive and _is_sensitive_layer(layer, shape.layers):
        name = mix.sensitive
    return _WITHOUT_SUPER_BLOCKS[name] if columns % FORMATS[name].block else name


def _is_sensitive_layer(layer: int, layers: int) -> bool:
    """The first and the last eighth, and every third between: where files of these names spend more bits."""
    eighth = layers // 8
    return layer < eighth or layer >= 7 * layers // 8 or (layer - eighth) % 3 == 2


def read_shape(word: str) -> tuple[str, Shape, Mix]:
    """`NAME:MIX`, or `NAME:MIX@LAYERS` for the first layers of it, as a title, a shape and a mix."""
    word, cut, layers = word.partition("@")
    name, _, mix = word.partition(":")
    name, mix = name.lower(), mix.upper()
    if name not in SHAPES:
        raise RequestError(
            f"there is no shape '{printable(name)}'", suggestion=f"the shapes are {', '.join(SHAPES)}", param="--shape"
        )
    if mix not in MIXES:
        raise RequestError(
            f"--shape {name} needs a mix of types after a colon, not '{printable(mix)}'",
            suggestion=f"as in {name}:Q4_K_M; the mixes are {', '.join(MIXES)}",
            param="--shape",
        )
    if not cut:
        return f"{name}:{mix}", SHAPES[name], MIXES[mix]
    most = SHAPES[name].layers
    if not (layers.isascii() and layers.isdecimal() and len(layers) < 10 and 1 <= int(layers) <= most):
        raise RequestError(
            f"--shape {name} has {most} layers, '{printable(layers)}' of them cannot be taken",
            suggestion=f"a number of 1 to {most} behind the @, as in {name}:{mix}@{max(1, most // 4)}",
            param="--shape",
        )
    return f"{name}:{mix}@{int(layers)}", replace(SHAPES[name], layers=int(layers)), MIXES[mix]
