"""Write GGUF files, whole or split: for tests and tools.

The bytes of a tensor are a buffer, or a function that gives them in pieces when they are written, so that a file may be
larger than the memory. None leaves a hole: zeros that take no space on a file system with sparse files.

The type of a metadata value follows from the Python value: int is u32 (i32, u64, i64 where it must be), float is f32,
bool, str, a list of str, or a NumPy array or scalar, which keeps its own type.
"""

from __future__ import annotations

import os
import struct
from collections.abc import Callable, Iterable, Mapping
from pathlib import Path
from typing import Any, TypeAlias

import numpy as np

from woolly.errors import FileError
from woolly.gguf.header import DEFAULT_ALIGNMENT
from woolly.gguf.tensor_types import FORMATS
from woolly.gguf.values import ARRAY, BOOL, NUMBERS, STRING

Pieces: TypeAlias = "Callable[[], Iterable[Any]]"
Tensor: TypeAlias = "tuple[str, tuple[int, ...], Any | Pieces | None]"  # format, shape (rows first), its bytes
_KINDS = {np.dtype(code): kind for kind, code in NUMBERS.items()} | {np.dtype(np.bool_): BOOL}


def write(
    path: str | Path,
    meta: Mapping[str, object],
    tensors: Mapping[str, Tensor] | Iterable[tuple[str, Tensor]],
    *,
    version: int = 3,
    parts: int = 0,
) -> Path:
    """Write a file; with `parts`, NAME-00001-of-0000N.gguf and its siblings. Returns the path of the (first) file.

    Tensors are placed by `general.alignment` of the metadata, 32 without it.
    """
    path, listed = Path(path), list(tensors.items() if isinstance(tensors, Mapping) else tensors)
    if not parts:
        _write_file(path, meta, listed, version)
        return path
    each = -(-len(listed) // parts)
    names = [path.with_name(f"{path.stem}-{i + 1:05}-of-{parts:05}.gguf") for i in range(parts)]
    for i, name in enumerate(names):
        keys: dict[str, object] = dict(meta) if i == 0 else {}
        keys |= {
            "split.no": np.uint16(i),
            "split.count": np.uint16(parts),
            "split.tensors.count": np.int32(len(listed)),
        }
        _write_file(name, keys, listed[i * each : (i + 1) * each], version)
    return names[0]


def _write_file(path: Path, meta: Mapping[str, object], tensors: list[tuple[str, Tensor]], version: int) -> None:
    alignment = meta.get("general.alignment", DEFAULT_ALIGNMENT)
    assert isinstance(alignment, int | np.integer)
    step = int(alignment)
    head = [b"GGUF", struct.pack("<IQQ", version, len(tensors), len(meta))]
    head += [_string(key) + _value(key, value) for key, value in meta.items()]
    offset = 0
    for name, tensor in tensors:
        form, shape, data = tensor
        nbytes = _nbytes(tensor)
        if data is not None and not callable(data):
            _check_size(name, tensor, memoryview(data).nbytes)
        numbers = (len(shape), *shape[::-1], FORMATS[form].id, offset)
        head.append(_string(name) + struct.pack(f"<I{len(shape)}QIQ", *numbers))
        offset += nbytes + -nbytes % step
    header = b"".join(head)
    with path.open("wb") as out:
        out.write(header)
        if tensors:
            out.write(bytes(-len(header) % step))
        for name, tensor in tensors:
            data = tensor[2]
            if data is None:
                size = _nbytes(tensor)
                out.truncate(out.seek(size + -size % step, os.SEEK_CUR))
                continue
            size = sum(out.write(memoryview(piece)) for piece in (data() if callable(data) else [data]))
            _check_size(name, tensor, size)
            out.write(bytes(-size % step))


def _nbytes(tensor: Tensor) -> int:
    form, shape, _ = tensor
    return FORMATS[form].row_bytes(shape[-1]) * int(np.prod(shape[:-1], dtype=np.int64))


def _check_size(name: str, tensor: Tensor, size: int) -> None:
    form, shape, _ = tensor
    if size != (expected := _nbytes(tensor)):
        raise FileError(f"tensor '{name}' of {form} {shape} has {size:,} bytes, {expected:,} are expected")


def _string(text: str) -> bytes:
    raw = text.encode("utf-8")
    return struct.pack("<Q", len(raw)) + raw


def _value(key: str, value: object) -> bytes:
    if isinstance(value, str):
        return struct.pack("<I", STRING) + _string(value)
    if isinstance(value, list) and all(isinstance(text, str) for text in value):
        return struct.pack("<IIQ", ARRAY, STRING, len(value)) + b"".join(map(_string, value))
    array = np.asarray(value, _plain_type(value))
    little = array.astype(array.dtype.newbyteorder("<"))
    if little.dtype not in _KINDS or array.ndim > 1:
        raise FileError(f"the value of '{key}' cannot be written to a GGUF file: {type(value).__name__}")
    kind = _KINDS[little.dtype]
    if array.ndim:
        return struct.pack("<IIQ", ARRAY, kind, len(array)) + little.tobytes()
    return struct.pack("<I", kind) + little.tobytes()


def _plain_type(value: object) -> str | None:
    """The file's type for a plain Python number; None leaves it to NumPy."""
    if isinstance(value, np.generic | bool):
        return None
    if isinstance(value, float):
        return "<f4"
    if isinstance(value, int):
        if value < 0:
            return "<i4" if value >= -(1 << 31) else "<i8"
        return "<u4" if value < 1 << 32 else "<u8"
    return None
