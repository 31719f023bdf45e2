"""FORMATS: one row per tensor type that Woolly can compute with.

A quantised value is decoded as  integer * scale (+ least), rounded to float32 after the product and after the sum. The
integer is code - offset, or what the code stands for in a codebook. scale is d, or d times the small scale of its
group, or d times the level that the small scale is the index of; least is m, or -(m times the group's small minimum).
"""

from __future__ import annotations

from dataclasses import dataclass, replace

import numpy as np
from numpy.typing import NDArray

from woolly.errors import FileError, RequestError, UnsupportedError
from woolly.gguf.tensor_types.blocks import (
    CODES_XS,
    CODES_XXS,
    EXPONENT,
    SCALES_1M,
    SCALES_BYTES,
    SCALES_K3,
    SCALES_K4,
    SCALES_PAIRS,
    SIGN_WORDS,
    THREES,
    UPPER_1S,
    Bytes,
    Fields,
    Floats,
    Segment,
    half,
    join,
    plane,
    split,
)
from woolly.gguf.tensor_types.codebooks import Codebook, grid, leaning, listed
from woolly.gguf.tensor_types.quantize import quantize, quantize_by_codebook, scale_of

F32 = NDArray[np.float32]


@dataclass(frozen=True, slots=True)
class ScaledIntegers:
    """Rows of a quantised tensor as integers and scales: value = q * scale (+ least)."""

    q: NDArray[np.int8]  # [n, k]
    scale: F32  # [n, k/group]
    least: F32 | None  # [n, k/group], what is added


_FLOATS = {"F32": Floats((0,), 4, 0x7F800000), "F16": Floats((0,), 2, 0x7C00), "BF16": Floats((0,), 2, 0x7F80)}


@dataclass(frozen=True, slots=True)
class Format:
    """A tensor type of GGUF: its number there, its block, and the way from bytes to numbers and back."""

    name: str
    id: int
    block: int  # values in a block
    nbytes: int  # bytes of a block
    group: int = 1  # values that share a scale
    bits: int = 0  # of a code; 0 for floats
    offset: int = 0  # subtracted from a code
    has_min: bool = False
    scale_range: tuple[int, int] | None = None  # of the small scales of a super-block
    segments: tuple[Segment, ...] = ()
    codebook: Codebook | None = None  # the integers of codes, where these are not code - offset
    levels: tuple[float, ...] | None = None  # the values of small scales, where these are indices

    @property
    def is_float(self) -> bool:
        return not self.segments

    @property
    def floats(self) -> Floats:
        """The floats of a block: only they can be NaN or infinite."""
        if self.name in _FLOATS:
            return _FLOATS[self.name]
        at, floats, places = 0, _FLOATS["F16"], []
        for segment in self.segments:
            if segment.floats is not None:
                floats = segment.floats
                places += [at + place for place in floats.places]
            at += segment.nbytes
        return replace(floats, places=tuple(places))

    def row_bytes(self, k: int) -> int:
        """Bytes of a row of k values."""
        if k % self.block:
            raise FileError(f"a row of {k:,} values is not a multiple of {self.name}'s block of {self.block}")
        return k // self.block * self.nbytes

    def fields(self, raw: Bytes) -> Fields:
        """The stored numbers of rows of bytes: [n, row bytes] to fields over [n, blocks]."""
        return split(self.segments, raw.reshape(len(raw), -1, self.nbytes))

    def raw(self, fields: Fields) -> Bytes:
        """The inverse of `fields`."""
        return join(self.segments, fields).reshape(len(fields.codes), -1)

    def parts(self, raw: Bytes) -> ScaledIntegers:
        """Rows of bytes as integers and float32 scales (quantised types only)."""
        n, fields = len(raw), self.fields(raw)
        if self.codebook is not None:
            q = self.codebook.values(fields)
        else:
            q = (fields.codes.astype(np.int16) - self.offset).astype(np.int8)
        least = _half(fields.m) if fields.m is not None else None
        if least is not None:
            least = least[..., None]
            if fields.mins is not None:
                with np.errstate(invalid="ignore"):  # as scale_of does
                    least = -(least * fields.mins.astype(np.float32))
        scale = self._by_group(scale_of(fields, self.levels))
        return ScaledIntegers(q.reshape(n, -1), scale, None if least is None else self._by_group(least))

    def _by_group(self, x: F32) -> F32:
        """One number for each group; x [n, blocks, ...] may have one for the whole block."""
        n, blocks = x.shape[:2]
        return np.broadcast_to(x, (n, blocks, self.block // self.group)).reshape(n, -1)

    def decode(self, raw: Bytes, k: int) -> F32:
        """Rows of bytes as float32 [n, k], bit for bit what the format says."""
        raw = np.ascontiguousarray(raw).reshape(-1, self.row_bytes(k))
        if self.is_float:
            return _decode_float(self.name, raw)
        parts = self.parts(raw)
        with np.errstate(invalid="ignore", over="ignore"):
            y: F32 = parts.q.reshape(*parts.scale.shape, self.group) * parts.scale[..., None]
            if parts.least is not None:
                y = y + parts.least[..., None]
        return y.reshape(len(raw), k)

    def encode(self, x: F32) -> Bytes:
        """The nearest bytes to float32 [n, k] by a plain quantiser: for tests and tools."""
        n, k = x.shape
        self.row_bytes(k)
        if self.is_float:
            return _encode_float(self.name, np.ascontiguousarray(x, np.float32))
        groups = np.ascontiguousarray(x, np.float32).reshape(n, k // self.block, self.block // self.group, self.group)
        fits = True
        if self.codebook is not None:
            empty = self.fields(np.zeros((1, self.nbytes), np.uint8)).d
            fields, fits = quantize_by_codebook(
                groups, self.codebook, self.levels, None if empty is None else empty.dtype
            )
        else:
            fields = quantize(
                groups, bits=self.bits, offset=self.offset, has_min=self.has_min, scale_range=self.scale_range
            )
        fits = fits and bool(np.isfinite(scale_of(fields, self.levels)).all())
        if not fits or (fields.m is not None and not np.isfinite(_half(fields.m)).all()):
            raise RequestError(f"values do not fit {self.name}: not finite, or too large for its scales")
        return self.raw(fields)


def _half(bits: NDArray[np.uint16]) -> F32:
    return bits.view(np.float16).astype(np.float32)


def _decode_float(name: str, raw: Bytes) -> F32:
    if name == "F32":
        return raw.view("<f4").astype(np.float32)
    if name == "F16":
        return raw.view("<f2").astype(np.float32)
    return (raw.view("<u2").astype(np.uint32) << np.uint32(16)).view(np.float32)


def _encode_float(name: str, x: F32) -> Bytes:
    if name == "F32":
        return x.astype("<f4").view(np.uint8)
    if name == "F16":
        with np.errstate(over="ignore"):
            return x.astype("<f2").view(np.uint8)
    bits = x.view(np.uint32)
    rounded = bits + np.uint32(0x7FFF) + (bits >> np.uint32(16) & np.uint32(1))
    quiet = bits | np.uint32(0x400000)  # rounding must not turn a NaN into infinity
    return (np.where(np.isnan(x), quiet, rounded) >> np.uint32(16)).astype("<u2").view(np.uint8)


_D, _M = half("d"), half("m")
_SIX, _FOUR = (-32, 31), (0, 15)


def _odd(count: int, unit: float) -> tuple[float, ...]:
    """The levels of small scales: odd multiples of a unit."""
    return tuple((2 * scale + 1) * unit for scale in range(count))


def _ue4m3(byte: int) -> float:
    """Half the value of an unsigned float of 4 bits of exponent and 3 of fraction: E2M1 is listed doubled."""
    power, fraction = byte >> 3 & 15, byte & 7
    if byte == 127:  # the NaN of this type of float counts as 0 here
        return 0.0
    return fraction / 1024 if power == 0 else (8 + fraction) / 16 * 2.0 ** (power - 7)


_NL = listed(-127, -104, -83, -65, -49, -35, -22, -10, 1, 13, 25, 38, 53, 69, 89, 113)
_E2M1 = listed(0, 1, 2, 3, 4, 6, 8, 12, 0, -1, -2, -3, -4, -6, -8, -12)  # doubled, so that they are integers
_TWO_BITS = listed(-1, 0, 1, 2)
_THIRDS = (8, 25, 43)


def _low(count: int) -> Segment:
    return plane(count, 8, count)


def _nibbles(count: int) -> Segment:
    return plane(count, 4, 1, name="scales")


_SIGNS = plane(256, 1, 1, name="signs")

FORMATS: dict[str, Format] = {
    row.name: row
    for row in (
        Format("F32", 0, 1, 4),
        Format("F16", 1, 1, 2),
        Format("BF16", 30, 1, 2),
        Format("Q4_0", 2, 32, 18, 32, 4, 8, segments=(_D, plane(32, 4, 16))),
        Format("Q4_1", 3, 32, 20, 32, 4, 0, True, segments=(_D, _M, plane(32, 4, 16))),
        Format("Q5_0", 6, 32, 22, 32, 5, 16, segments=(_D, plane(32, 1, 1, shift=4), plane(32, 4, 16))),
        Format("Q5_1", 7, 32, 24, 32, 5, 0, True, segments=(_D, _M, plane(32, 1, 1, shift=4), plane(32, 4, 16))),
        Format("Q8_0", 8, 32, 34, 32, 8, 128, segments=(_D, plane(32, 8, 32, flip=0x80))),
        Format("Q2_K", 10, 256, 84, 16, 2, 0, True, _FOUR, (SCALES_PAIRS, plane(256, 2, 32), _D, _M)),
        Format(
            "Q3_K", 11, 256, 110, 16, 3, 4, False, _SIX, (plane(256, 1, 32, shift=2), plane(256, 2, 32), SCALES_K3, _D)
        ),
        Format("Q4_K", 12, 256, 144, 32, 4, 0, True, (0, 63), (_D, _M, SCALES_K4, plane(256, 4, 32))),
        Format(
            "Q5_K", 13, 256, 176, 32, 5, 0, True, (0, 63),
            (_D, _M, SCALES_K4, plane(256, 1, 32, shift=4), plane(256, 4, 32)),
        ),
        Format(
            "Q6_K", 14, 256, 210, 16, 6, 32, False, (-128, 127),
            (plane(256, 4, 64), plane(256, 2, 32, shift=4), SCALES_BYTES, _D),
        ),
        Format("IQ4_NL", 20, 32, 18, 32, 4, codebook=_NL, segments=(_D, plane(32, 4, 16))),
        Format(
            "IQ4_XS", 23, 256, 136, 32, 4, codebook=_NL, levels=tuple(range(-32, 32)),
            segments=(_D, plane(8, 2, 1, shift=4, name="scales"), _nibbles(8), plane(256, 4, 16)),
        ),
        Format("MXFP4", 39, 32, 17, 32, 4, codebook=_E2M1, segments=(EXPONENT, plane(32, 4, 16))),
        Format(
            "NVFP4", 40, 64, 36, 16, 4, codebook=_E2M1, levels=tuple(map(_ue4m3, range(256))),
            segments=(plane(4, 8, 4, name="scales"), plane(64, 4, 8)),
        ),
        Format("Q1_0", 41, 128, 18, 32, 1, codebook=listed(-1, 1), segments=(_D, plane(128, 1, 1))),
        Format("Q2_0", 42, 64, 18, 32, 2, codebook=_TWO_BITS, segments=(_D, plane(64, 2, 1))),
        Format("TQ1_0", 34, 256, 54, 32, 2, codebook=listed(-1, 0, 1), segments=(THREES, _D)),
        Format("TQ2_0", 35, 256, 66, 32, 2, codebook=_TWO_BITS, segments=(plane(256, 2, 32), _D)),
        Format(
            "IQ2_XXS", 16, 256, 66, 32, 2, codebook=grid("IQ2_XXS", *_THIRDS, even=True), levels=_odd(16, 1 / 8),
            segments=(_D, CODES_XXS),
        ),
        Format(
            "IQ2_XS", 17, 256, 74, 16, 2, codebook=grid("IQ2_XS", *_THIRDS, even=True), levels=_odd(16, 1 / 8),
            segments=(_D, CODES_XS, _nibbles(16)),
        ),
        Format(
            "IQ2_S", 22, 256, 82, 16, 2, codebook=grid("IQ2_S", *_THIRDS), levels=_odd(16, 1 / 8),
            segments=(_D, _low(32), _SIGNS, plane(32, 2, 1, shift=8), _nibbles(16)),
        ),
        Format(
            "IQ3_XXS", 18, 256, 98, 32, 3, codebook=grid("IQ3_XXS", 4, 12, 20, 28, 36, 44, 52, 62, even=True),
            levels=_odd(16, 1 / 4), segments=(_D, _low(64), SIGN_WORDS),
        ),
        Format(
            "IQ3_S", 21, 256, 110, 32, 3, codebook=grid("IQ3_S", *range(1, 16, 2)), levels=_odd(16, 1),
            segments=(_D, _low(64), plane(64, 1, 1, shift=8), _SIGNS, _nibbles(8)),
        ),
        Format(
            "IQ1_S", 19, 256, 50, 32, 1, codebook=leaning(4), levels=_odd(8, 1 / 8),
            segments=(_D, _low(32), UPPER_1S),
        ),
        Format(
            "IQ1_M", 29, 256, 56, 16, 1, codebook=leaning(1), levels=_odd(8, 1 / 8),
            segments=(_low(32), plane(32, 4, 1, shift=8), SCALES_1M),
        ),
    )
}  # fmt: skip

_BY_ID = {row.id: row for row in FORMATS.values()}

# Tensor types that are not supported, so that a refusal can name them.
_OTHERS = {9: "Q8_1", 15: "Q8_K", 24: "I8", 25: "I16", 26: "I32", 27: "I64", 28: "F64"}


def format_of(number: int, where: str) -> Format:
    """The row with this GGUF type number; `where` says whose type it is, for the refusal."""
    row = _BY_ID.get(number)
    if row is None:
        name = _OTHERS.get(number, "unknown")
        raise UnsupportedError(
            f"{where} has type {number} ({name}), which is not supported",
            suggestion="get a file of another type, such as Q4_K_M or Q8_0",
            type=number,
            type_name=name,
        )
    return row
