"""The bytes of a block, taken apart and put together again.

A quantised block is a run of segments: scales as f16, scales of scales as small integers, codes cut into planes of
8, 4, 2 or 1 bits, signs. `split` reads the segments of many blocks at once into `Fields`, `join` writes them back bit
for bit. A segment works on the last axis alone, so the same functions serve files (one row of blocks after the other)
and panels (sixteen rows side by side, layouts.py).

Plane of b bits with lines of n bytes: a line holds 8/b * n codes, code j*n + i in bits b*j.. of byte i. So all the odd
looking orders of the K types are one rule with other numbers:

    Q4_0  codes 0..31 of a block:  byte i = code i | code i+16 << 4                            (one line of 16)
    Q4_K  codes 0..255:            byte i of line l = code 64l+i | code 64l+32+i << 4          (four lines of 32)
    Q6_K  low four bits:           byte i of line l = code 128l+i | code 128l+64+i << 4        (two lines of 64)
    Q5_0  fifth bits:              byte i = bits of codes 8i .. 8i+7                           (four lines of 1)

The same rule holds the small scales, the signs and the upper bits of codes of the IQ types.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

Bytes = NDArray[np.uint8]
Array = NDArray[Any]


@dataclass(frozen=True, slots=True)
class Fields:
    """The numbers of blocks, as stored: nothing scaled, nothing rounded."""

    codes: Array  # [..., block], offset not yet subtracted; with a codebook one for each entry: [..., block/width]
    d: Array | None = None  # [...], the bits of an f16, or the byte that is a power of two (MXFP4)
    m: NDArray[np.uint16] | None = None  # [...], the minimum (Q4_1, Q5_1) or the scale of the minimums (K types), f16
    scales: Array | None = None  # [..., block/group]
    mins: Bytes | None = None  # [..., block/group]
    signs: Bytes | None = None  # [..., block], 1 where the value is negated


@dataclass(frozen=True, slots=True)
class Floats:
    """Where floats lie: their byte offsets, their width in bytes, and the bits that are all set in NaN and infinity."""

    places: tuple[int, ...]
    width: int
    exponent: int


@dataclass(frozen=True, slots=True)
class Segment:
    """Some bytes of a block: how they are read and written."""

    nbytes: int
    read: Callable[[Bytes], dict[str, Array]]  # [..., nbytes] to named fields; codes of several planes are or-ed
    write: Callable[[Fields], Bytes]
    floats: Floats | None = None  # the floats among these bytes: only they can be NaN or infinite


def split(segments: tuple[Segment, ...], raw: Bytes) -> Fields:
    """The fields of blocks: raw is [..., bytes of a block]."""
    fields: dict[str, Array] = {}
    at = 0
    for segment in segments:
        for name, value in segment.read(raw[..., at : at + segment.nbytes]).items():
            fields[name] = fields[name] | value if name in fields else value
        at += segment.nbytes
    return Fields(**fields)


def join(segments: tuple[Segment, ...], fields: Fields) -> Bytes:
    """The inverse of `split`."""
    return np.concatenate([segment.write(fields) for segment in segments], axis=-1)


def half(name: str, flip: int = 0) -> Segment:
    """One f16, field `d` or `m`; flip 0x8000 stores it negated."""

    def read(raw: Bytes) -> dict[str, Array]:
        low, high = raw[..., 0].astype(np.uint16), raw[..., 1].astype(np.uint16)
        return {name: (low | high << np.uint16(8)) ^ np.uint16(flip)}

    def write(fields: Fields) -> Bytes:
        bits = getattr(fields, name) ^ np.uint16(flip)
        return np.stack([bits & 0xFF, bits >> 8], axis=-1).astype(np.uint8)

    return Segment(2, read, write, Floats((0,), 2, 0x7C00))


def _read_exponent(raw: Bytes) -> dict[str, Array]:
    return {"d": raw[..., 0]}


def _write_exponent(fields: Fields) -> Bytes:
    assert fields.d is not None
    byte: Bytes = fields.d[..., None]
    return byte


EXPONENT = Segment(1, _read_exponent, _write_exponent, Floats((0,), 1, 0xFF))  # a scale that is a power of two (E8M0)


def plane(count: int, bits: int, line: int, shift: int = 0, flip: int = 0, name: str = "codes") -> Segment:
    """Bits `shift` .. `shift + bits - 1` of `count` codes (scales, signs), in lines of `line` bytes (drawing above)."""
    per = 8 // bits
    shifts = np.arange(per, dtype=np.uint8)[:, None] * np.uint8(bits)
    mask = np.uint8((1 << bits) - 1)
    wide: Any = np.uint16 if shift + bits > 8 else np.uint8

    def read(raw: Bytes) -> dict[str, Array]:
        lines = raw.reshape(*raw.shape[:-1], -1, 1, line) ^ np.uint8(flip)
        return {name: (((lines >> shifts) & mask).astype(wide) << wide(shift)).reshape(*raw.shape[:-1], count)}

    def write(fields: Fields) -> Bytes:
        values: Array = getattr(fields, name)
        shape = values.shape[:-1]
        parts = (values >> wide(shift)).astype(np.uint8).reshape(*shape, -1, per, line) & mask
        lines: Bytes = np.bitwise_or.reduce(parts << shifts, axis=-2)
        return lines.reshape(*shape, -1) ^ np.uint8(flip)

    return Segment(count * bits // 8, read, write)


def _read_k4(raw: Bytes) -> dict[str, Array]:
    first, second, third = raw[..., 0:4], raw[..., 4:8], raw[..., 8:12]
    scales = np.concatenate([first & 63, third & 15 | first >> 6 << 4], axis=-1)
    mins = np.concatenate([second & 63, third >> 4 | second >> 6 << 4], axis=-1)
    return {"scales": scales.view(np.int8), "mins": mins}


def _write_k4(fields: Fields) -> Bytes:
    assert fields.scales is not None and fields.mins is not None
    sc, mn = fields.scales.view(np.uint8), fields.mins
    first = sc[..., :4] | sc[..., 4:] >> 4 << 6
    second = mn[..., :4] | mn[..., 4:] >> 4 << 6
    return np.concatenate([first, second, sc[..., 4:] & 15 | mn[..., 4:] << 4], axis=-1)


def _read_k3(raw: Bytes) -> dict[str, Array]:
    low = np.concatenate([raw[..., :8] & 15, raw[..., :8] >> 4], axis=-1)
    high = np.concatenate([raw[..., 8:] >> s & 3 for s in (0, 2, 4, 6)], axis=-1)
    return {"scales": (low | high << 4).view(np.int8) - np.int8(32)}


def _write_k3(fields: Fields) -> Bytes:
    assert fields.scales is not None
    sc = (fields.scales + np.int8(32)).view(np.uint8)
    high = sc >> 4
    low = sc[..., :8] & 15 | sc[..., 8:] << 4
    return np.concatenate(
        [low, high[..., 0:4] | high[..., 4:8] << 2 | high[..., 8:12] << 4 | high[..., 12:16] << 6], axis=-1
    )


def _read_pairs(raw: Bytes) -> dict[str, Array]:
    return {"scales": (raw & 15).view(np.int8), "mins": raw >> 4}


def _write_pairs(fields: Fields) -> Bytes:
    assert fields.scales is not None and fields.mins is not None
    return fields.scales.view(np.uint8) | fields.mins << np.uint8(4)


def _read_bytes(raw: Bytes) -> dict[str, Array]:
    return {"scales": np.ascontiguousarray(raw).view(np.int8)}


def _write_bytes(fields: Fields) -> Bytes:
    assert fields.scales is not None
    return fields.scales.view(np.uint8)


# Scales and minimums of the groups of a super-block.
SCALES_K4 = Segment(12, _read_k4, _write_k4)  # 8 scales and 8 minimums of 6 bits: 4 + 4 whole, the rest cut 4 + 2
SCALES_K3 = Segment(12, _read_k3, _write_k3)  # 16 scales of 6 bits, 32 subtracted: 4 bits in 8 bytes, 2 bits in 4
SCALES_PAIRS = Segment(16, _read_pairs, _write_pairs)  # 16 scales of 4 bits, their minimums in the high halves
SCALES_BYTES = Segment(16, _read_bytes, _write_bytes)  # 16 signed bytes


# Signs of eight values in seven bits: an even number of the values is negative, which gives the eighth sign.


def even_signs(seven: Array) -> Bytes:
    """Seven bits for each eight values, [..., n], as signs [..., 8 n]."""
    bits = (seven[..., None] >> np.arange(7, dtype=seven.dtype) & 1).astype(np.uint8)
    eighth = np.bitwise_xor.reduce(bits, axis=-1, keepdims=True)
    return np.concatenate([bits, eighth], axis=-1).reshape(*seven.shape[:-1], -1)


def seven_bits(signs: Bytes) -> Array:
    """The inverse of `even_signs`, as uint32."""
    bits = signs.reshape(*signs.shape[:-1], -1, 8)[..., :7].astype(np.uint32)
    seven: Array = np.bitwise_or.reduce(bits << np.arange(7, dtype=np.uint32), axis=-1)
    return seven


_SEVENS = np.arange(0, 28, 7, dtype=np.uint32)


def _read_words(raw: Bytes) -> dict[str, Array]:
    words = np.ascontiguousarray(raw).view("<u4")
    seven = words[..., None] >> _SEVENS & np.uint32(127)
    return {"signs": even_signs(seven.reshape(*words.shape[:-1], -1)), "scales": (words >> 28).astype(np.uint8)}


def _write_words(fields: Fields) -> Bytes:
    assert fields.signs is not None and fields.scales is not None
    seven = seven_bits(fields.signs).reshape(*fields.scales.shape, 4)
    words = np.bitwise_or.reduce(seven << _SEVENS, axis=-1) | fields.scales.astype(np.uint32) << np.uint32(28)
    raw: Bytes = words.astype("<u4").view(np.uint8)
    return raw


def _read_xxs(raw: Bytes) -> dict[str, Array]:
    parts = raw.reshape(*raw.shape[:-1], 8, 2, 4)
    shape = (*raw.shape[:-1], 32)
    return {"codes": parts[..., 0, :].reshape(shape), **_read_words(parts[..., 1, :].reshape(shape))}


def _write_xxs(fields: Fields) -> Bytes:
    shape = (*fields.codes.shape[:-1], 8, 4)
    parts = np.stack([fields.codes.astype(np.uint8).reshape(shape), _write_words(fields).reshape(shape)], axis=-2)
    return parts.reshape(*fields.codes.shape[:-1], 64)


def _read_xs(raw: Bytes) -> dict[str, Array]:
    words = np.ascontiguousarray(raw).view("<u2")
    return {"codes": words & np.uint16(511), "signs": even_signs(words >> np.uint16(9))}


def _write_xs(fields: Fields) -> Bytes:
    assert fields.signs is not None
    raw: Bytes = (fields.codes | seven_bits(fields.signs) << np.uint32(9)).astype("<u2").view(np.uint8)
    return raw


# A word for each 32 values: four times seven signs, and above them a scale of 4 bits.
SIGN_WORDS = Segment(32, _read_words, _write_words)
CODES_XXS = Segment(64, _read_xxs, _write_xxs)  # for each 32 values four codes, then a word as in SIGN_WORDS
CODES_XS = Segment(64, _read_xs, _write_xs)  # codes of 9 bits, each with seven signs above it


def _read_1s(raw: Bytes) -> dict[str, Array]:
    words = np.ascontiguousarray(raw).view("<u2")
    upper = words[..., None] >> np.arange(0, 12, 3, dtype=np.uint16) & 7 | (words >> 15 << 3)[..., None]
    codes = (upper << 8).reshape(*words.shape[:-1], -1)
    return {"codes": codes, "scales": (words >> 12 & 7).astype(np.uint8)}


def _write_1s(fields: Fields) -> Bytes:
    assert fields.scales is not None
    upper = fields.codes.astype(np.uint16).reshape(*fields.scales.shape, 4) >> 8
    words = np.bitwise_or.reduce((upper & 7) << np.arange(0, 12, 3, dtype=np.uint16), axis=-1)
    words = words | fields.scales.astype(np.uint16) << 12 | upper[..., 0] >> 3 << 15
    raw: Bytes = words.astype("<u2").view(np.uint8)
    return raw


def _read_1m(raw: Bytes) -> dict[str, Array]:
    words = np.ascontiguousarray(raw).view("<u2")
    d = np.bitwise_or.reduce(words >> 12 << np.arange(0, 16, 4, dtype=np.uint16), axis=-1)
    scales = words[..., None] >> np.arange(0, 12, 3, dtype=np.uint16) & 7
    return {"d": d, "scales": scales.astype(np.uint8).reshape(*words.shape[:-1], -1)}


def _write_1m(fields: Fields) -> Bytes:
    assert fields.scales is not None and fields.d is not None
    threes = fields.scales.astype(np.uint16).reshape(*fields.scales.shape[:-1], 4, 4)
    words = np.bitwise_or.reduce(threes << np.arange(0, 12, 3, dtype=np.uint16), axis=-1)
    words = words | fields.d[..., None] >> np.arange(0, 16, 4, dtype=np.uint16) << 12
    raw: Bytes = words.astype("<u2").view(np.uint8)
    return raw


# For each 32 values a word: bits 8 .. 10 of four codes, a scale of 3 bits, and bit 11 of all four.
UPPER_1S = Segment(16, _read_1s, _write_1s)
# Four words: each has four scales of 3 bits, and above them four bits of the f16 d.
SCALES_1M = Segment(8, _read_1m, _write_1m, Floats((4,), 4, 0x7000C000))

# TQ1_0: five codes of 0 .. 2 are the base-3 digits of a number n, highest first; its byte is 256 n / 243, rounded up.
# A run of n bytes holds codes j n + i, j the digit; the last four bytes have four digits.
_RUNS = ((32, 5), (16, 5), (4, 4))


def _read_threes(raw: Bytes) -> dict[str, Array]:
    at, codes = 0, []
    for size, digits in _RUNS:
        run = raw[..., None, at : at + size] * np.array([1, 3, 9, 27, 81], np.uint8)[:digits, None]
        codes.append((run.astype(np.uint16) * 3 >> 8).astype(np.uint8).reshape(*raw.shape[:-1], -1))
        at += size
    return {"codes": np.concatenate(codes, axis=-1)}


def _write_threes(fields: Fields) -> Bytes:
    at, runs = 0, []
    for size, digits in _RUNS:
        codes = fields.codes[..., at : at + size * digits].reshape(*fields.codes.shape[:-1], digits, size)
        number = np.sum(codes * np.array([81, 27, 9, 3, 1], np.uint16)[:digits, None], axis=-2, dtype=np.uint16)
        runs.append((number * np.uint32(256) + 242) // 243)
        at += size * digits
    return np.concatenate(runs, axis=-1).astype(np.uint8)


THREES = Segment(52, _read_threes, _write_threes)
