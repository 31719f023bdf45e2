"""FORMATS: one row per tensor type that Woolly can compute with.

A quantised value is decoded as  (code - offset) * scale (+ least), rounded to float32 after the product and after the
sum. scale is d, or d times the small scale of its group; least is m, or -(m times the small minimum of its group).
"""

from __future__ import annotations

from dataclasses import dataclass, replace

import numpy as np
from numpy.typing import NDArray

from woolly.errors import FileError, RequestError, UnsupportedError
from woolly.formats.blocks import (
    SCALES_BYTES,
    SCALES_K3,
    SCALES_K4,
    SCALES_PAIRS,
    Bytes,
    Fields,
    Segment,
    half,
    join,
    plane,
    split,
)
from woolly.formats.quantize import quantize

F32 = NDArray[np.float32]


@dataclass(frozen=True, slots=True)
class Parts:
    """Rows of a quantised tensor as integers and scales: value = q * scale (+ least)."""

    q: NDArray[np.int8]  # [n, k]
    scale: F32  # [n, k/group]
    least: F32 | None  # [n, k/group], what is added


@dataclass(frozen=True, slots=True)
class Floats:
    """Where floats stand in a block: their places, their bytes, and the bits that are all set in what is no number."""

    places: tuple[int, ...]
    width: int
    exponent: int


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

    @property
    def is_float(self) -> bool:
        return not self.segments

    @property
    def floats(self) -> Floats:
        """The floats of a block: only they can be NaN or infinite."""
        if self.name in _FLOATS:
            return _FLOATS[self.name]
        at, places = 0, []
        for segment in self.segments:
            if segment.is_float:
                places.append(at)
            at += segment.nbytes
        return replace(_FLOATS["F16"], places=tuple(places))

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

    def parts(self, raw: Bytes) -> Parts:
        """Rows of bytes as integers and float32 scales (quantised types only)."""
        n, fields = len(raw), self.fields(raw)
        q = (fields.codes.astype(np.int16) - self.offset).astype(np.int8).reshape(n, -1)
        scale = _half(fields.d)
        least = _half(fields.m) if fields.m is not None else None
        with np.errstate(invalid="ignore"):  # a broken file may hold NaN and infinity; the caller judges them
            if fields.scales is not None:
                scale = scale[..., None] * fields.scales.astype(np.float32)
            if least is not None and fields.mins is not None:
                least = -(least[..., None] * fields.mins.astype(np.float32))
        return Parts(q, scale.reshape(n, -1), None if least is None else least.reshape(n, -1))

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
        fields = quantize(
            np.ascontiguousarray(x, np.float32).reshape(n, k // self.block, self.block // self.group, self.group),
            bits=self.bits,
            offset=self.offset,
            has_min=self.has_min,
            scale_range=self.scale_range,
        )
        if not np.isfinite(_half(fields.d)).all() or (fields.m is not None and not np.isfinite(_half(fields.m)).all()):
            raise RequestError(f"values do not fit {self.name}: not finite, or too large for a scale of 16 bits")
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
    )
}  # fmt: skip

_BY_ID = {row.id: row for row in FORMATS.values()}

# Names of the types that exist in files but not here, so that a refusal can name them.
_OTHERS = {
    9: "Q8_1", 15: "Q8_K", 16: "IQ2_XXS", 17: "IQ2_XS", 18: "IQ3_XXS", 19: "IQ1_S", 20: "IQ4_NL", 21: "IQ3_S",
    22: "IQ2_S", 23: "IQ4_XS", 24: "I8", 25: "I16", 26: "I32", 27: "I64", 28: "F64", 29: "IQ1_M", 34: "TQ1_0",
    35: "TQ2_0", 39: "MXFP4", 40: "NVFP4",
}  # fmt: skip


def format_of(number: int, where: str) -> Format:
    """The row with this GGUF type number; `where` says whose type it is, for the refusal."""
    row = _BY_ID.get(number)
    if row is None:
        name = _OTHERS.get(number, "unknown")
        raise UnsupportedError(
            f"{where} has type {number} ({name}), which is not supported",
            suggestion="use a file of the types " + ", ".join(FORMATS),
            type=number,
            type_name=name,
        )
    return row
