"""LAYOUTS: the packed form of each format, which the kernels read, defined in NumPy.

A panel is 16 rows, the sixteen lanes of a kernel. Along k it is a run of the format's blocks; a block of a panel is

    d, and m or -dmin          f16 of row r at byte 2r                                                   32 bytes each
    small scales               byte j of all 16 rows, then byte j+1: byte (j, r) at 16j + r
    codes                      block by block of 32 columns, in 64-byte lines; byte 4r+i is row r. Group g is the
                               columns 4g .. 4g+3 of the 32, and i = 0 .. 3 counts within it:
        bytes   8 lines        line g = group g
        nibbles 4 lines        line j = group j | group j+4 << 4, so a half of 16 columns is all low or all high nibbles
        2 bits  2 lines        line h = group 4h | group 4h+1 << 2 | group 4h+2 << 4 | group 4h+3 << 6
        1 bit   1 line         bit g of the line = group g
        6 bits  6 lines        three for four groups: line 3h+j = group 4h+j | bits 2j and 2j+1 of group 4h+3 << 6
    digits (TQ1_0)             four bytes of all 16 rows in a line, then the next four: byte (4j + i, r) at 64j + 4r + i
    signs                      as a plane of 1 bit. Where they are even, two lines for 64 columns, which are 8 times 8:
                               byte 4r+i of the first has column i, of the second column 4+i, and a bit is one of the
                               eight: bit 2h number h of the first 32 columns, bit 2h+1 of the second. The eighth column
                               follows from the others; its byte (4r+3) keeps two scales, or the uppermost bits of codes

Nothing is added and nothing widened: the packed size is the file's. The last panel is filled up with rows of zeros.
Floats are stored as [k][16 rows].
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from woolly.gguf.tensor_types.blocks import (
    EXPONENT,
    SCALES_1M,
    SCALES_BYTES,
    SCALES_K3,
    SCALES_PAIRS,
    THREES,
    UPPER_1S,
    Array,
    Bytes,
    Fields,
    Segment,
    half,
    join,
    plane,
    split,
)
from woolly.gguf.tensor_types.table import FORMATS, Format

PANEL = 16


@dataclass(frozen=True, slots=True)
class Layout:
    """How rows of a format lie in panels; `pack` defines the bytes, `unpack` is its inverse."""

    name: str
    format: Format
    segments: tuple[Segment, ...]  # of one block of a panel; none for floats
    panel: int = PANEL

    @property
    def nbytes(self) -> int:
        """Bytes of one block of a panel."""
        return self.panel * self.format.nbytes

    def size(self, rows: int, k: int) -> int:
        """Bytes of the packed form of rows x k."""
        return -(-rows // self.panel) * self.panel * self.format.row_bytes(k)

    def pack(self, raw: Bytes, k: int) -> Bytes:
        """Rows as in the file, [rows, row bytes], to the bytes of their panels, one after the other."""
        f = self.format
        rows = raw.reshape(-1, f.row_bytes(k))
        filled = np.zeros((-(-len(rows) // self.panel) * self.panel, rows.shape[1]), np.uint8)
        filled[: len(rows)] = rows
        blocks = filled.reshape(-1, self.panel, k // f.block, f.nbytes).swapaxes(1, 2)  # [panels, blocks, 16, bytes]
        if f.is_float:
            return np.ascontiguousarray(blocks).reshape(-1)
        return join(self.segments, split(f.segments, np.ascontiguousarray(blocks))).reshape(-1)

    def unpack(self, packed: Bytes, rows: int, k: int) -> Bytes:
        """The inverse of `pack`: [rows, row bytes]."""
        f = self.format
        if f.is_float:
            blocks = packed.reshape(-1, k, self.panel, f.nbytes)
        else:
            blocks = join(f.segments, split(self.segments, packed.reshape(-1, k // f.block, self.nbytes)))
        return np.ascontiguousarray(blocks.swapaxes(1, 2)).reshape(-1, f.row_bytes(k))[:rows]


def _row_by_row(row: Segment) -> Segment:
    """The segment of all 16 rows, one row after the other."""

    def read(raw: Bytes) -> dict[str, Array]:
        return row.read(raw.reshape(*raw.shape[:-1], PANEL, row.nbytes))

    def write(fields: Fields) -> Bytes:
        raw = row.write(fields)
        return raw.reshape(*raw.shape[:-2], -1)

    return Segment(PANEL * row.nbytes, read, write)


def _across(row: Segment) -> Segment:
    """The segment of all 16 rows, one byte of each row after the other."""

    def read(raw: Bytes) -> dict[str, Array]:
        return row.read(np.ascontiguousarray(raw.reshape(*raw.shape[:-1], row.nbytes, PANEL).swapaxes(-1, -2)))

    def write(fields: Fields) -> Bytes:
        raw = row.write(fields).swapaxes(-1, -2)
        return raw.reshape(*raw.shape[:-2], -1)

    return Segment(PANEL * row.nbytes, read, write)


def _by_fours(row: Segment) -> Segment:
    """The segment of all 16 rows, four bytes of each row after the other."""

    def read(raw: Bytes) -> dict[str, Array]:
        words = raw.reshape(*raw.shape[:-1], -1, PANEL, 4).swapaxes(-2, -3)
        return row.read(words.reshape(*raw.shape[:-1], PANEL, row.nbytes))

    def write(fields: Fields) -> Bytes:
        raw = row.write(fields)
        words = raw.reshape(*raw.shape[:-1], -1, 4).swapaxes(-2, -3)
        return words.reshape(*raw.shape[:-2], -1)

    return Segment(PANEL * row.nbytes, read, write)


def _groups(codes: Array, columns: int) -> Array:
    """Codes [..., 16 rows, columns] as [..., block of 32, group, 4r + i]."""
    shape = codes.shape[:-2]
    blocks = codes.reshape(*shape, PANEL, columns // 32, 8, 4)
    return np.moveaxis(blocks, -4, -2).reshape(*shape, columns // 32, 8, 64)


def _codes(groups: Array, columns: int) -> Array:
    """The inverse of `_groups`."""
    codes = np.moveaxis(groups.reshape(*groups.shape[:-1], PANEL, 4), -2, -4)
    return codes.reshape(*codes.shape[:-4], PANEL, columns)


# The groups that share a line, lowest bits first, for planes of 8, 4, 2 and 1 bits.
_GROUPS = {
    8: np.arange(8).reshape(8, 1),
    4: np.arange(8).reshape(2, 4).T,
    2: np.arange(8).reshape(2, 4),
    1: np.arange(8).reshape(1, 8),
}


def _lines(columns: int, *planes: tuple[int, int], name: str = "codes") -> Segment:
    """Planes (bits, shift) of the codes (or signs); for each 32 columns the lines of every plane in turn."""
    sizes = [64 * bits for bits, _ in planes]  # bytes per 32 columns

    def read(raw: Bytes) -> dict[str, Array]:
        raw = raw.reshape(*raw.shape[:-1], columns // 32, sum(sizes))
        groups = np.zeros((*raw.shape[:-1], 8, 64), np.uint8)
        at = 0
        for (bits, shift), size in zip(planes, sizes, strict=True):
            lines = raw[..., at : at + size].reshape(*raw.shape[:-1], -1, 64)
            for j, members in enumerate(_GROUPS[bits].T):
                groups[..., members, :] |= (lines >> np.uint8(bits * j) & np.uint8((1 << bits) - 1)) << np.uint8(shift)
            at += size
        return {name: _codes(groups, columns)}

    def write(fields: Fields) -> Bytes:
        groups = _groups(getattr(fields, name), columns)
        lines = []
        for bits, shift in planes:
            part = groups >> np.uint8(shift) & np.uint8((1 << bits) - 1)
            for members in _GROUPS[bits]:
                line = np.zeros_like(part[..., 0, :])
                for j, group in enumerate(members):
                    line |= part[..., group, :] << np.uint8(bits * j)
                lines.append(line)
        return np.concatenate(lines, axis=-1).reshape(*groups.shape[:-3], -1)

    return Segment(columns // 32 * sum(sizes), read, write)


def _lines6(columns: int) -> Segment:
    """Codes of six bits: of four groups three lie in the low bits of a line each, the fourth in their high bits."""

    def read(raw: Bytes) -> dict[str, Array]:
        lines = raw.reshape(*raw.shape[:-1], columns // 32, 2, 3, 64)
        fourth = lines[..., 0, :] >> 6 | lines[..., 1, :] >> 6 << 2 | lines[..., 2, :] >> 6 << 4
        groups = np.concatenate([lines & 63, fourth[..., None, :]], axis=-2)
        return {"codes": _codes(groups.reshape(*groups.shape[:-3], 8, 64), columns)}

    def write(fields: Fields) -> Bytes:
        groups = _groups(fields.codes, columns)
        fours = groups.reshape(*groups.shape[:-2], 2, 4, 64)
        pairs = fours[..., 3:, :] >> np.array([0, 2, 4], np.uint8)[:, None] & 3
        lines: Bytes = fours[..., :3, :] | pairs << 6
        return lines.reshape(*lines.shape[:-4], -1)

    return Segment(columns // 32 * 6 * 64, read, write)


_EIGHTS = (np.arange(4, dtype=np.uint8) * 2 + np.arange(2, dtype=np.uint8)[:, None])[..., None]  # [32s, number, 1]


def _even_signs(keeps: str) -> Segment:
    """Even signs (drawing above); the byte of the eighth column keeps `scales`, or the uppermost bits of `codes`."""

    def read(raw: Bytes) -> dict[str, Array]:
        halves = raw.reshape(*raw.shape[:-1], 4, 2, PANEL, 4)
        columns = np.moveaxis(halves, -2, -4).reshape(*raw.shape[:-1], PANEL, 4, 8).copy()
        eighth = columns[..., 7].copy()
        columns[..., 7] = np.bitwise_xor.reduce(columns[..., :7], axis=-1)
        signs = columns[..., None, None, :] >> _EIGHTS & 1
        if keeps == "scales":
            values = np.stack([eighth & 15, eighth >> 4], axis=-1)
        else:
            values = (eighth[..., None, None] >> _EIGHTS[..., 0] & 1).astype(np.uint16) << np.uint16(8)
        shape = (*raw.shape[:-1], PANEL, -1)
        return {"signs": signs.reshape(shape), keeps: values.reshape(shape)}

    def write(fields: Fields) -> Bytes:
        assert fields.signs is not None
        shape = fields.signs.shape[:-1]
        columns = np.bitwise_or.reduce(fields.signs.reshape(*shape, 4, 2, 4, 8) << _EIGHTS, axis=(-2, -3))
        if keeps == "scales":
            assert fields.scales is not None
            columns[..., 7] = fields.scales[..., 0::2] | fields.scales[..., 1::2] << 4
        else:
            upper = (fields.codes >> np.uint16(8)).astype(np.uint8).reshape(*shape, 4, 2, 4)
            columns[..., 7] = np.bitwise_or.reduce(upper << _EIGHTS[..., 0], axis=(-1, -2))
        halves = np.moveaxis(columns.reshape(*shape, 4, 2, 4), -4, -2)
        lines: Bytes = halves.reshape(*shape[:-1], -1)
        return lines

    return Segment(PANEL * 32, read, write)


def _read_k4(raw: Bytes) -> dict[str, Array]:
    low, high = raw[..., :8], np.stack([raw[..., 8:] & 15, raw[..., 8:] >> 4], axis=-1)
    high = high.reshape(*low.shape)
    return {"scales": (low & 15 | (high & 3) << 4).view(np.int8), "mins": low >> 4 | high >> 2 << 4}


def _write_k4(fields: Fields) -> Bytes:
    assert fields.scales is not None and fields.mins is not None
    sc, mn = fields.scales.view(np.uint8), fields.mins
    high = sc >> 4 | mn >> 4 << 2
    return np.concatenate([sc & 15 | mn << 4, high[..., 0::2] | high[..., 1::2] << 4], axis=-1)


# The 12 bytes of Q4_K's and Q5_K's small scales in the order the kernels want: byte j = low nibbles of scale and
# minimum j; byte 8 + j/2 = their high two bits each, of an even j in the low half, of an odd j in the high half.
_SCALES_K4 = Segment(12, _read_k4, _write_k4)

_D, _M = _row_by_row(half("d")), _row_by_row(half("m"))
_MINUS_M = _row_by_row(half("m", flip=0x8000))  # so that a kernel only ever adds
_SIGNS = _lines(256, (1, 0), name="signs")


def _low(count: int) -> Segment:
    return _across(plane(count, 8, count))


def _nibbles(count: int) -> Segment:
    return _across(plane(count, 4, 1, name="scales"))


LAYOUTS: dict[str, Layout] = {
    name: Layout(name, FORMATS[name.upper()], segments)
    for name, segments in {
        "f32": (),
        "f16": (),
        "bf16": (),
        "q4_0": (_D, _lines(32, (4, 0))),
        "q4_1": (_D, _M, _lines(32, (4, 0))),
        "q5_0": (_D, _lines(32, (4, 0), (1, 4))),
        "q5_1": (_D, _M, _lines(32, (4, 0), (1, 4))),
        "q8_0": (_D, _lines(32, (8, 0))),
        "q2_k": (_D, _MINUS_M, _across(SCALES_PAIRS), _lines(256, (2, 0))),
        "q3_k": (_D, _across(SCALES_K3), _lines(256, (2, 0), (1, 2))),
        "q4_k": (_D, _MINUS_M, _across(_SCALES_K4), _lines(256, (4, 0))),
        "q5_k": (_D, _MINUS_M, _across(_SCALES_K4), _lines(256, (4, 0)), _lines(256, (1, 4))),
        "q6_k": (_D, _across(SCALES_BYTES), _lines6(256)),
        "iq4_nl": (_D, _lines(32, (4, 0))),
        "iq4_xs": (_D, _across(plane(8, 2, 1, 4, name="scales")), _nibbles(8), _lines(256, (4, 0))),
        "mxfp4": (_row_by_row(EXPONENT), _lines(32, (4, 0))),
        "nvfp4": (_across(plane(4, 8, 4, name="scales")), _lines(64, (4, 0))),
        "q1_0": (_D, _lines(128, (1, 0))),
        "q2_0": (_D, _lines(64, (2, 0))),
        "tq1_0": (_D, _by_fours(THREES)),
        "tq2_0": (_D, _lines(256, (2, 0))),
        "iq2_xxs": (_D, _low(32), _even_signs("scales")),
        "iq2_xs": (_D, _low(32), _even_signs("codes"), _nibbles(16)),
        "iq2_s": (_D, _low(32), _across(plane(32, 2, 1, 8)), _nibbles(16), _SIGNS),
        "iq3_xxs": (_D, _low(64), _even_signs("scales")),
        "iq3_s": (_D, _low(64), _across(plane(64, 1, 1, 8)), _nibbles(8), _SIGNS),
        "iq1_s": (_D, _low(32), _across(UPPER_1S)),
        "iq1_m": (_low(32), _across(plane(32, 4, 1, 8)), _across(SCALES_1M)),
    }.items()
}
