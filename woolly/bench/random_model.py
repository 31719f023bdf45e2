"""Random models of real shapes, written at the speed of a disk and in little memory.

A random block is random bits for its codes, and scales chosen so that the weights have mean 0 and the wanted standard
deviation: nothing is ever quantised. Which bytes are scales follows from FORMATS. Activations stay near 1 and logits
have a standard deviation near 3, so nothing overflows and no step meets denormal numbers.
"""

from __future__ import annotations

import math
import shutil
import zlib
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from woolly import gguf
from woolly.bench.mixers import MIXERS, LayerTensor
from woolly.bench.shapes import Mix, Shape, format_of
from woolly.errors import FileError
from woolly.gguf.tensor_types import FORMATS, Format
from woolly.gguf.tensor_types.blocks import Fields
from woolly.gguf.tensor_types.codebooks import Codebook

PIECE = 8 << 20  # bytes made at a time
LOGITS = 3.0  # standard deviation of the logits

MERGES = ("Ġ t", "h e", "Ġt he", "i n", "e r", "a n", "Ġ a", "Ġ s", "r e", "o n", "in g", "an d", "o u", "o r", "e n")
CONTROL = ("<|begin|>", "<|end|>")


def write_model(path: Path, title: str, shape: Shape, mix: Mix, *, seed: int = 1, hollow: bool = False) -> Path:
    """Write a random model of this shape; refuses before it begins where the disk has no room.

    hollow: the matrices are holes in a sparse file, which costs no disk; for tests that read no weights.
    """
    tensors = [
        (name, (form, size, None if hollow and len(size) > 1 else _pieces(name, form, size, deviation, shape, seed)))
        for name, size, form, deviation in _tensors(shape, mix)
    ]
    need = sum(FORMATS[form].row_bytes(size[-1]) * math.prod(size[:-1]) for _, (form, size, _) in tensors)
    free = shutil.disk_usage(path.parent).free
    if need * 1.02 > free and not hollow:
        raise FileError(
            f"a model of {title} takes {need / 1e9:.2f} GB, {path.parent} has {free / 1e9:.2f} GB free",
            suggestion="TMPDIR names another folder",
            code="disk_full",
        )
    return gguf.write(path, _meta(title, shape, mix), tensors)


def random_rows(form: str, rows: int, columns: int, deviation: float, rng: np.random.Generator) -> NDArray[np.uint8]:
    """Random rows of any type, [rows, bytes of a row]."""
    row = FORMATS[form]
    if row.is_float:
        return row.encode(rng.standard_normal((rows, columns), np.float32) * np.float32(deviation))
    blocks = rows * columns // row.block
    nbytes = blocks * row.nbytes
    words = rng.integers(0, 1 << 64, -(-nbytes // 8), np.uint64)  # twice as fast as rng.bytes
    raw = words.view(np.uint8)[:nbytes].reshape(blocks, row.nbytes)
    fields = _scales(row, blocks, deviation, rng)
    at = 0
    for segment in row.segments:
        if not segment.read(raw[:1, at : at + segment.nbytes]).keys() & {"codes", "signs"}:
            raw[:, at : at + segment.nbytes] = segment.write(fields)
        at += segment.nbytes
    return raw.reshape(rows, row.row_bytes(columns))


def _scales(row: Format, blocks: int, deviation: float, rng: np.random.Generator) -> Fields:
    """Scales (and minimums) of blocks whose codes are all equally likely. The minimum is half the range of a code."""
    if row.codebook is not None:
        return _scales_of_codebook(row, row.codebook, blocks, deviation, rng)
    codes = 1 << row.bits
    spread = math.sqrt((codes * codes - 1) / 12)  # standard deviation of a code
    middle = (codes - 1) / 2
    scales = mins = None
    if row.scale_range is not None:
        high = row.scale_range[1]
        scales = rng.integers(high // 2 + 1, high + 1, (blocks, row.block // row.group), np.int8)
        spread *= math.sqrt(np.mean(np.arange(high // 2 + 1, high + 1) ** 2.0))
        if row.has_min:
            mins = scales.view(np.uint8)
    # The scales of blocks differ, as in real files.
    d = (deviation / spread * (0.75 + 0.5 * rng.random(blocks, np.float32))).astype(np.float32)
    m = None
    if row.has_min:
        m = _half(d * np.float32(middle if row.scale_range is not None else -middle))
    else:  # codes minus their offset have a mean of half a step below 0: scales of both signs cancel it
        d = np.where(rng.integers(0, 2, blocks, np.int8) > 0, d, -d)
    return Fields(np.empty((blocks, 0), np.uint8), _half(d), m, scales, mins)


def _scales_of_codebook(
    row: Format, codebook: Codebook, blocks: int, deviation: float, rng: np.random.Generator
) -> Fields:
    """Scales of blocks whose codes index a codebook."""
    codes, scales = np.empty((blocks, 0), np.uint8), None
    wanted = deviation / _size(codebook.entries()) * (0.75 + 0.5 * rng.random(blocks, np.float32))
    if row.floats.width == 1:  # powers of two: a mixture of the nearest two that has the wanted deviation
        power = np.floor(np.log2(wanted))
        share = ((wanted / 2.0**power) ** 2 - 1) / 3
        return Fields(codes, (power + 128 + (rng.random(blocks) < share)).astype(np.uint8))
    if row.levels is not None:
        levels, groups = np.array(row.levels), row.block // row.group
        if not row.floats.places:  # small scales alone: the level nearest to the wanted scale
            return Fields(
                codes, scales=np.abs(wanted[:, None, None] - levels).argmin(-1).astype(np.uint8).repeat(groups, 1)
            )
        scales = rng.integers(0, len(levels), (blocks, groups), np.uint8)
        wanted /= _size(levels)
    return Fields(codes, _half(np.where(rng.integers(0, 2, blocks, np.int8) > 0, wanted, -wanted)), None, scales)


def _size(x: NDArray[Any]) -> float:
    return float(np.sqrt(np.mean(x.astype(np.float64) ** 2)))


def _half(x: NDArray[np.float32]) -> NDArray[np.uint16]:
    return x.astype(np.float16).view(np.uint16)


def _pieces(
    name: str, form: str, size: tuple[int, ...], deviation: float, shape: Shape, seed: int
) -> Any:  # a function for gguf.write
    """A function that generates the bytes of a tensor, piece by piece; name and seed determine them."""

    def pieces() -> Iterator[NDArray[np.uint8]]:
        rng = np.random.Generator(np.random.SFC64([seed, zlib.crc32(name.encode())]))
        if len(size) == 1 or size[-1] == 1:
            yield _vector(name, math.prod(size), deviation, shape, rng).view(np.uint8)
            return
        rows, columns = math.prod(size[:-1]), size[-1]
        step = max(1, PIECE // FORMATS[form].row_bytes(columns))
        for first in range(0, rows, step):
            yield random_rows(form, min(step, rows - first), columns, deviation, rng)

    return pieces


def _vector(name: str, n: int, deviation: float, shape: Shape, rng: np.random.Generator) -> NDArray[np.float32]:
    if name == "rope_freqs.weight":
        return _rope_freqs(shape, n)
    if name.endswith(".bias"):
        return (deviation * rng.standard_normal(n)).astype(np.float32)
    sign = -1 if name.endswith("ssm_a") else 1  # negative, so that the carried state decays
    return (sign * (0.9 + 0.2 * rng.random(n))).astype(np.float32)


def _rope_freqs(shape: Shape, n: int) -> NDArray[np.float32]:
    """The divisor of each frequency: the factor for long waves, 1 for short ones, with a smooth change in between."""
    rope_scaling = shape.rope_scaling
    assert rope_scaling is not None
    wave = 2 * np.pi * shape.base ** (np.arange(n) / n)
    part = np.clip((rope_scaling.context / wave - rope_scaling.low) / (rope_scaling.high - rope_scaling.low), 0, 1)
    return (1 / ((1 - part) / rope_scaling.factor + part)).astype(np.float32)


def _tensors(shape: Shape, mix: Mix) -> Iterator[tuple[str, tuple[int, ...], str, float]]:
    """Name, size, type and standard deviation of every tensor, in the order of the file."""
    width = shape.width
    embed = LOGITS * shape.factors.get("logit_scale", 1.0) / math.sqrt(width)
    # All branches together add 20 times the embedding: a tied head must not simply name the token it was given.
    # A branch is about half before its last matrix (attention averages, silu halves).
    start = embed * shape.factors.get("embedding_scale", 1.0)
    branch = 40 * start / shape.factors.get("residual_scale", 1.0) / math.sqrt(2 * shape.layers)

    yield "token_embd.weight", (shape.vocab, width), format_of(mix, "embed", 0, shape, width), embed
    if not shape.tied:
        yield "output.weight", (shape.vocab, width), format_of(mix, "head", 0, shape, width), embed
    yield f"{shape.output_norm}.weight", (width,), "F32", 0.0
    if shape.rope_scaling is not None:
        yield "rope_freqs.weight", (shape.head_dim // 2,), "F32", 0.0
    for layer in range(shape.layers):
        block = f"blk.{layer}."
        mixer = shape.mixer(layer)
        vectors = {"attn_norm": width, shape.ffn_norm: width} if shape.ffn_norm else {"attn_norm": width}
        if mixer == "attention":
            vectors |= dict(shape.vectors)
        for name, length in vectors.items():
            yield f"{block}{name}.weight", (length,), "F32", 0.0
        for part in (*MIXERS[mixer](shape, branch), *_feed_forward(shape, layer, branch)):
            role, size = part.role, part.size
            is_float = part.is_float or len(size) == 1
            form = "F32" if is_float else format_of(mix, role, layer, shape, size[-1])
            deviation = part.deviation if len(size) == 1 else part.deviation / math.sqrt(size[-1])
            yield f"{block}{role}{part.suffix}", size, form, deviation
            if role in shape.biases:
                yield f"{block}{role}.bias", size[:-1], "F32", 0.1


def _feed_forward(shape: Shape, layer: int, branch: float) -> Iterator[LayerTensor]:
    """The matrices of one network, or of experts and what chooses them."""
    width, experts = shape.width, shape.experts
    if experts is None or layer < experts.after:
        if not shape.ffn:
            return
        if not shape.fused:
            yield LayerTensor("ffn_gate", (shape.ffn, width))
        yield LayerTensor("ffn_up", (shape.ffn * (2 if shape.fused else 1), width))
        yield LayerTensor("ffn_down", (width, shape.ffn), branch)
        return
    yield LayerTensor("ffn_gate_inp", (experts.count, width), is_float=True)
    yield LayerTensor("ffn_gate_exps", (experts.count, experts.ffn, width))
    yield LayerTensor("ffn_up_exps", (experts.count, experts.ffn, width))
    yield LayerTensor("ffn_down_exps", (experts.count, width, experts.ffn), branch)
    if experts.shared:
        yield LayerTensor("ffn_gate_shexp", (experts.shared, width))
        yield LayerTensor("ffn_up_shexp", (experts.shared, width))
        yield LayerTensor("ffn_down_shexp", (width, experts.shared), branch)
    if experts.gated:
        yield LayerTensor("ffn_gate_inp_shexp", (width,), 1.0 / math.sqrt(width))


def _meta(title: str, shape: Shape, mix: Mix) -> dict[str, object]:
    keys: dict[str, object] = {
        "block_count": shape.layers,
        "context_length": shape.context,
        "embedding_length": shape.width,
        "feed_forward_length": shape.ffn,
        "attention.head_count": shape.heads,
        "attention.head_count_kv": _kv_heads(shape),
        "attention.key_length": shape.head_dim,
        "attention.value_length": shape.head_dim,
        "attention.layer_norm_rms_epsilon": shape.eps,
        "rope.dimension_count": shape.head_dim,
        "rope.freq_base": shape.base,
        "vocab_size": shape.vocab,
        **shape.factors,
        **shape.keys,
    }
    if not shape.head_dim:
        for key in ("attention.key_length", "attention.value_length", "rope.dimension_count"):
            del keys[key]
    if shape.experts is not None:
        keys["expert_count"], keys["expert_used_count"] = shape.experts.count, shape.experts.used
        keys["expert_feed_forward_length"] = shape.experts.ffn
    return {
        "general.architecture": shape.family,
        "general.name": f"random {title}",
        "general.file_type": mix.number,
        "general.quantization_version": 2,
        **{f"{shape.family}.{key}": value for key, value in keys.items()},
        **_tokenizer(shape),
    }


def _kv_heads(shape: Shape) -> int | NDArray[np.int32]:
    """The number of key heads, or one for each layer, 0 for short convolutions; 32 bits, as other readers expect."""
    if "short_conv" not in shape.mixers:
        return shape.kv_heads
    heads = [shape.kv_heads if shape.mixer(layer) == "attention" else 0 for layer in range(shape.layers)]
    return np.array(heads, np.int32)


def _tokenizer(shape: Shape) -> dict[str, object]:
    """Bytes, a few merges, two control tokens; the rest of the vocabulary are words that occur in no text."""
    plain = {*range(33, 127), *range(161, 173), *range(174, 256)}
    spare = iter(range(256, 512))
    tokens = [chr(byte) if byte in plain else chr(next(spare)) for byte in range(256)]
    tokens += [merge.replace(" ", "") for merge in MERGES]
    begin = len(tokens)
    tokens += CONTROL
    types = np.ones(shape.vocab, np.int32)
    types[begin : begin + len(CONTROL)] = 3
    tokens += [f"Ġw{i}" for i in range(len(tokens), shape.vocab)]
    return {
        "tokenizer.ggml.model": "gpt2",
        "tokenizer.ggml.pre": shape.pre,
        "tokenizer.ggml.tokens": tokens,
        "tokenizer.ggml.token_type": types,
        "tokenizer.ggml.merges": list(MERGES),
        "tokenizer.ggml.bos_token_id": begin,
        "tokenizer.ggml.eos_token_id": begin + 1,
        "tokenizer.ggml.add_bos_token": False,
    }
