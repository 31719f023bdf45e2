"""Read and check the header of a GGUF file; a header that passes needs no second check.

    | magic "GGUF" | u32 version | u64 tensors | u64 pairs |
    | pairs: key, u32 type, value | tensors: name, u32 dimensions, u64 each, u32 type, u64 offset | zeros | data |

What holds afterwards: keys and names are printable and unique; every tensor has a known type, whole blocks, and an
aligned place that lies inside the file and is shared with no other tensor.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, replace

from woolly.errors import FileError, UnsupportedError, printable
from woolly.gguf.cursor import Cursor
from woolly.gguf.tensor_types import format_of
from woolly.gguf.values import Metadata, Span, read_value
from woolly.limits import LIMITS

DEFAULT_ALIGNMENT = 32


@dataclass(frozen=True, slots=True)
class TensorInfo:
    """A tensor of a file: its shape has rows first, as in NumPy (the file writes it the other way round).

    Leading dimensions of 1 are dropped while more than two are left: 1 x 1 x 8 x 64 is 8 x 64.
    """

    name: str
    shape: tuple[int, ...]
    format: str
    offset: int  # of its first byte in its part
    nbytes: int
    part: int = 0


@dataclass(frozen=True, slots=True)
class Header:
    """All that comes before the data of a file; the data begin at `start`, each tensor at a multiple of `alignment`."""

    version: int
    meta: Metadata
    tensors: dict[str, TensorInfo]
    start: int
    alignment: int


def read_header(view: memoryview, name: str) -> Header:
    """The header of a mapped file that begins with the magic."""
    c = Cursor(view, name)
    c.need(4, "the magic")
    version = c.u32("the version")
    if int.from_bytes(version.to_bytes(4, "big"), "little") in (1, 2, 3):
        raise UnsupportedError(
            f"{c.name}: big-endian file; only little-endian GGUF is supported",
            suggestion="convert it, or get the little-endian file", file=c.name, version=version,
        )  # fmt: skip
    if version not in (2, 3):
        raise UnsupportedError(
            f"{c.name}: GGUF version {version} is not supported, only 2 and 3", file=c.name, version=version
        )
    tensor_count = c.u64("the number of tensors")
    pair_count = c.u64("the number of metadata entries")
    values = _read_pairs(c, c.fits(pair_count, LIMITS.entries, 13, "the number of metadata entries"))
    alignment = _alignment(c, values.get("general.alignment", DEFAULT_ALIGNMENT))
    tensors = dict(_read_tensors(c, c.fits(tensor_count, LIMITS.tensors, 33, "the number of tensors")))
    start = -(-c.at // alignment) * alignment if tensors else c.at
    return Header(version, Metadata(c.name, view, values), _place(c, tensors, start, alignment), start, alignment)


def _read_pairs(c: Cursor, count: int) -> dict[str, int | float | bool | str | Span]:
    values: dict[str, int | float | bool | str | Span] = {}
    for number in range(count):
        key = c.label(LIMITS.key, f"key {number}")
        shown = printable(key)
        c.where = f"in key '{shown}'"
        if key in values:
            raise c.fail(f"duplicate key '{shown}'", key=key)
        values[key] = read_value(c)
        c.where = f"after key '{shown}'"
    return values


def _alignment(c: Cursor, value: object) -> int:
    if isinstance(value, bool) or not isinstance(value, int):
        raise c.fail("general.alignment has the wrong type: a whole number is expected", key="general.alignment")
    if not LIMITS.alignment_least <= value <= LIMITS.alignment_most or value & (value - 1):
        raise c.fail(
            f"general.alignment is {value}, not a power of two from {LIMITS.alignment_least} to "
            f"{LIMITS.alignment_most:,}",
            key="general.alignment",
        )
    return value


def _read_tensors(c: Cursor, count: int) -> Iterator[tuple[str, TensorInfo]]:
    """The tensor table; offsets are still those of the file, from the start of its data."""
    seen: set[str] = set()
    for number in range(count):
        name = c.label(LIMITS.tensor_name, f"the name of tensor {number}")
        c.where = f"in tensor '{name}'"
        if name in seen:
            raise c.fail(f"duplicate tensor '{name}'", tensor=name)
        seen.add(name)
        dimensions = c.u32("the number of dimensions")
        if not 1 <= dimensions <= LIMITS.dimensions:
            raise c.fail(f"{dimensions:,} dimensions, 1 to {LIMITS.dimensions} are expected", tensor=name)
        shape = tuple(c.u64("a dimension") for _ in range(dimensions))
        if 0 in shape:
            raise c.fail("a dimension is 0", tensor=name)
        row = format_of(c.u32("the type"), f"{c.name}: tensor '{name}'")
        if shape[0] % row.block:
            raise c.fail(f"a row of {shape[0]:,} is not a multiple of {row.name}'s block of {row.block}", tensor=name)
        nbytes = row.row_bytes(shape[0])
        for rows in shape[1:]:
            nbytes *= rows
        while len(shape) > 2 and shape[-1] == 1:
            shape = shape[:-1]  # some writers fill up to four dimensions with ones
        yield name, TensorInfo(name, shape[::-1], row.name, c.u64("the offset"), nbytes)
        c.where = f"after tensor '{name}'"


def _place(c: Cursor, tensors: dict[str, TensorInfo], start: int, alignment: int) -> dict[str, TensorInfo]:
    """The tensors with absolute offsets; each must lie inside the file, and no two may overlap."""
    size = len(c.data)
    if any(c.data[c.at : start]):
        # A wrong number of tensors would move the start of the data, and every weight with it.
        raise c.fail("the bytes between the tensor table and the data are not zero; the table does not end here")
    placed = {}
    for info in tensors.values():
        if info.offset % alignment:
            raise c.fail(
                f"tensor '{info.name}' has offset {info.offset:,}, not a multiple of the alignment {alignment}",
                tensor=info.name,
            )
        end = start + info.offset + info.nbytes
        if end > size:
            raise FileError(
                f"{c.name}: tensor '{info.name}' ends at byte {end:,} but the file has {size:,}",
                suggestion="the download may be incomplete",
                file=c.name, tensor=info.name, needed=end, size=size, offset=start + info.offset,
            )  # fmt: skip
        placed[info.name] = replace(info, offset=start + info.offset)
    before: TensorInfo | None = None
    for info in sorted(placed.values(), key=lambda info: info.offset):
        if before is not None and before.offset + before.nbytes > info.offset:
            raise c.fail(f"tensors '{before.name}' and '{info.name}' overlap", tensor=info.name)
        before = info
    return placed
