"""The bytes of a block, taken apart and put together again.

A quantised block is a run of segments: scales as f16, scales of scales as small integers, codes cut into planes of
8, 4, 2 or 1 bits. `split` reads the segments of many blocks at once into `Fields`, `join` writes them back bit for bit.
A segment works on the last axis alone, so the same functions serve files (one row of blocks after the other) and panels
(sixteen rows side by side, layouts.py).

Plane of b bits with lines of n bytes: a line holds 8/b * n codes, code j*n + i in bits b*j.. of byte i. So all the odd
looking orders of the K types are one rule with other numbers:

    Q4_0  codes 0..31 of a block:  byte i = code i | code i+16 << 4                            (one line of 16)
    Q4_K  codes 0..255:            byte i of line l = code 64l+i | code 64l+32+i << 4          (four lines of 32)
    Q6_K  low four bits:           byte i of line l = code 128l+i | code 128l+64+i << 4        (two lines of 64)
    Q5_0  fifth bits:              byte i = bits of codes 8i .. 8i+7                           (four lines of 1)
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

    codes: Bytes  # [..., block], offset not yet subtracted
    d: NDArray[np.uint16]  # [...], the bits of an f16
    m: NDArray[np.uint16] | None = None  # [...], the minimum (Q4_1, Q5_1) or the scale of the minimums (K types), f16
    scales: NDArray[np.int8] | None = None  # [..., block/group]
    mins: Bytes | None = None  # [..., block/group]


@dataclass(frozen=True, slots=True)
class Segment:
    """Some bytes of a block: what they say, and how they are written."""

    nbytes: int
    read: Callable[[Bytes], dict[str, Array]]  # [..., nbytes] to named fields; codes of several planes are or-ed
    write: Callable[[Fields], Bytes]
    is_float: bool = False  # an f16: the only kind of segment that can hold what is no number


def split(segments: tuple[Segment, ...], raw: Bytes) -> Fields:
    """The fields of blocks: raw is [..., bytes of a block]."""
    found: dict[str, Array] = {}
    at = 0
    for segment in segments:
        for name, value in segment.read(raw[..., at : at + segment.nbytes]).items():
            found[name] = found[name] | value if name in found else value
        at += segment.nbytes
    return Fields(**found)


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

    return Segment(2, read, write, is_float=True)


def plane(codes: int, bits: int, line: int, shift: int = 0, flip: int = 0) -> Segment:
    """Bits `shift` .. `shift + bits - 1` of all `codes` of a block, in lines of `line` bytes (drawing above)."""
    per = 8 // bits
    shifts = np.arange(per, dtype=np.uint8)[:, None] * np.uint8(bits)
    mask = np.uint8((1 << bits) - 1)

    def read(raw: Bytes) -> dict[str, Array]:
        lines = raw.reshape(*raw.shape[:-1], -1, 1, line) ^ np.uint8(flip)
        return {"codes": (((lines >> shifts) & mask) << np.uint8(shift)).reshape(*raw.shape[:-1], codes)}

    def write(fields: Fields) -> Bytes:
        shape = fields.codes.shape[:-1]
        parts = ((fields.codes >> np.uint8(shift)) & mask).reshape(*shape, -1, per, line)
        lines: Bytes = np.bitwise_or.reduce(parts << shifts, axis=-2)
        return lines.reshape(*shape, -1) ^ np.uint8(flip)

    return Segment(codes * bits // 8, read, write)


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
