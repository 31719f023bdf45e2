"""GGUF files put together byte by byte, so that any field can lie."""

from __future__ import annotations

import struct

U8, I8, U16, I16, U32, I32, F32, BOOL, STR, ARR, U64, I64, F64 = range(13)


def text(value: bytes | str, length: int | None = None) -> bytes:
    raw = value.encode() if isinstance(value, str) else value
    return struct.pack("<Q", len(raw) if length is None else length) + raw


def pair(key: bytes | str, kind: int, value: bytes) -> bytes:
    return text(key) + struct.pack("<I", kind) + value


def entry(
    name: bytes | str = "t",
    dims: tuple[int, ...] = (8,),
    kind: int = 0,
    offset: int = 0,
    count: int | None = None,
) -> bytes:
    """A line of the tensor table; dims fastest first, as in the file."""
    return text(name) + struct.pack(f"<I{len(dims)}QIQ", len(dims) if count is None else count, *dims, kind, offset)


def forge(
    pairs: tuple[bytes, ...] = (),
    tensors: tuple[bytes, ...] = (),
    data: bytes = b"",
    *,
    version: int = 3,
    pair_count: int | None = None,
    tensor_count: int | None = None,
    alignment: int = 32,
) -> bytes:
    head = b"GGUF" + struct.pack(
        "<IQQ",
        version,
        len(tensors) if tensor_count is None else tensor_count,
        len(pairs) if pair_count is None else pair_count,
    )
    head += b"".join(pairs) + b"".join(tensors)
    return head + bytes(-len(head) % alignment if tensors else 0) + data


U32_7 = struct.pack("<I", 7)
GOOD = forge((pair("general.architecture", STR, text("llama")), pair("a.b", U32, U32_7)), (entry(),), bytes(range(32)))
