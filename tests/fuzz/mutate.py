"""Files that are almost right: a small model with one to five changes, each number of a row of seeds.

Half of the changes are deep (a number, a token, the length of an array, a shape, a weight): they get past the first
checks. The others take things out, repeat them, give them another type, set a field to an edge of its type, change a
byte, or cut the file. `mutation(seed, number)` gives the same bytes every time.
"""

from __future__ import annotations

import random
import struct
import tempfile
from dataclasses import dataclass, replace
from functools import cache
from pathlib import Path

import numpy as np

from tests.families import FAMILY_CASES
from tests.gguf.forge import ARR, F32, I32, STR, U32
from tests.tiny import tiny
from woolly import gguf
from woolly.gguf.tensor_types import FORMATS

EDGES = (
    0, 1, 2, 3, 7, 8, 15, 16, 17, 31, 32, 33, 63, 64, 65, 127, 128, 255, 256, 257, 512, 1023, 1024, 1025, 65535, 65536,
    2**31 - 1, 2**31, 2**32 - 2, 2**32 - 1, 2**32, 2**32 + 1, 2**42 + 1, 2**53, 2**60, 2**61 + 1, 2**62, 2**63 - 1,
    2**63, 2**64 - 64, 2**64 - 32, 2**64 - 1,
)  # fmt: skip
FLOATS = (0.0, -0.0, -1.0, 1e-45, 1e-6, 1.0, 1e6, 3e38, -3e38, float("inf"), float("-inf"), float("nan"))
HALVES = (0x7C00, 0xFC00, 0x7E00, 0xFFFF, 0x7BFF, 0xFBFF, 0x0001, 0x8000)  # infinities, NaNs, the largest, the least
TEXTS = (b"", b"\xff", b"\0", b" ", b"<0x-1>", b"<0x41>", b"x" * 70_000, b"a b c", "\ufdd0".encode(), b"%n{{", b"../..")

# Keys that a file may have and that change nothing here, so that changes hit them too.
OPTIONAL = {
    "general.alignment": 32, "llama.attention.sliding_window": 64, "llama.rope.scaling.type": "linear",
    "llama.rope.scaling.factor": 1.0, "llama.expert_count": 0, "llama.attention.scale": 0.0, "split.count": 1,
    "split.no": 0, "split.tensors.count": 14, "tokenizer.ggml.padding_token_id": 3, "tokenizer.ggml.eot_token_id": 272,
    "tokenizer.ggml.add_space_prefix": False, "general.sampling.temp": 0.5,
}  # fmt: skip


@dataclass(frozen=True, slots=True)
class Pair:
    """An entry of the metadata; `items` of an array are encoded one by one."""

    key: bytes
    kind: int
    value: bytes = b""
    element: int = 0
    items: tuple[bytes, ...] = ()


@dataclass(frozen=True, slots=True)
class Tensor:
    name: bytes
    dims: tuple[int, ...]  # fastest first
    kind: int
    data: bytes
    offset: int | None = None  # None: one after the other


@dataclass(frozen=True, slots=True)
class Model:
    pairs: tuple[Pair, ...]
    tensors: tuple[Tensor, ...]


def text(raw: bytes) -> bytes:
    return struct.pack("<Q", len(raw)) + raw


FAMILIES = {case.family: case for case in FAMILY_CASES}  # one of each


@cache
def base(family: str) -> Model:
    """A valid model in pieces: of a family, or (without one) of every kind of block."""
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "base.gguf"
        if family:
            FAMILIES[family].write(path, words=True)
        else:
            tiny(
                path, layers=1, width=64, ffn=256, context=64, tied=False,
                formats={"token_embd": "Q8_0", "attn_v": "Q5_1", "ffn_down": "Q6_K", "output": "F16"}, meta=OPTIONAL,
            )  # fmt: skip
        with gguf.open(path) as file:
            pairs = tuple(_pair(key, file.meta[key]) for key in file.meta)
            tensors = tuple(
                Tensor(name.encode(), info.shape[::-1], FORMATS[info.format].id, bytes(file.data(name)))
                for name, info in file.tensors.items()
            )
    return Model(pairs, tensors)


def _pair(key: str, value: object) -> Pair:
    name = key.encode()
    if isinstance(value, str):
        return Pair(name, STR, text(value.encode()))
    if isinstance(value, bool):
        return Pair(name, 7, bytes([value]))
    if isinstance(value, int):
        return Pair(name, U32, struct.pack("<I", value))
    if isinstance(value, float):
        return Pair(name, F32, struct.pack("<f", value))
    if isinstance(value, list):
        return Pair(name, ARR, element=STR, items=tuple(text(item.encode()) for item in value))
    numbers = np.asarray(value)
    element, form = {"b": (7, "<?"), "f": (F32, "<f")}.get(numbers.dtype.kind, (I32, "<i"))
    return Pair(name, ARR, element=element, items=tuple(struct.pack(form, number) for number in numbers.tolist()))


def fields(model: Model) -> list[tuple[str, bytes]]:
    """The bytes of a file, cut at its fields: (what, bytes)."""
    out = [("magic", b"GGUF"), ("version", struct.pack("<I", 3))]
    out += [("tensors", struct.pack("<Q", len(model.tensors))), ("pairs", struct.pack("<Q", len(model.pairs)))]
    for pair in model.pairs:
        out += [("key length", struct.pack("<Q", len(pair.key))), ("key", pair.key)]
        out.append(("kind", struct.pack("<I", pair.kind)))
        if pair.kind == ARR:
            out += [("element", struct.pack("<I", pair.element)), ("count", struct.pack("<Q", len(pair.items)))]
            out.append(("items", b"".join(pair.items)))
        else:
            out.append(("value", pair.value))
    at = 0
    for tensor in model.tensors:
        out += [("name length", struct.pack("<Q", len(tensor.name))), ("name", tensor.name)]
        out.append(("dimensions", struct.pack("<I", len(tensor.dims))))
        out += [("dimension", struct.pack("<Q", size & 2**64 - 1)) for size in tensor.dims]
        out.append(("type", struct.pack("<I", tensor.kind & 2**32 - 1)))
        out.append(("offset", struct.pack("<Q", at if tensor.offset is None else tensor.offset)))
        at += len(tensor.data) + -len(tensor.data) % 32
    out.append(("padding", bytes(-sum(len(data) for _, data in out) % 32)))
    out += [("data", tensor.data + bytes(-len(tensor.data) % 32)) for tensor in model.tensors]
    return out


def mutation(seed: int, number: int) -> tuple[bytes, str]:
    """The file with this number, and what was done to it."""
    rng = random.Random(f"{seed}/{number}")
    family = rng.choice(["", rng.choice([*FAMILIES])])
    model, notes = base(family), [family or "every kind of block"]
    changes = rng.choices((1, 2, 3, 5), (60, 25, 10, 5))[0]
    kinds = rng.choices(("deep", "blunt", "field", "byte", "cut"), (50, 12, 25, 10, 3), k=changes)
    for kind in kinds:
        if kind in ("deep", "blunt"):
            change = rng.choice(DEEP if kind == "deep" else BLUNT)
            model, note = change(model, rng)
            notes.append(note)
    parts = fields(model)
    head = [i for i, (what, data) in enumerate(parts) if what != "data" and data]
    for kind in kinds:
        i = rng.choice(head)
        what, data = parts[i]
        if kind == "field" and len(data) in (4, 8):
            value = rng.choice(EDGES) & (1 << 8 * len(data)) - 1
            parts[i] = what, value.to_bytes(len(data), "little")
            notes.append(f"{what} {i} = {value}")
        elif kind in ("field", "byte"):
            at = rng.randrange(len(data))
            parts[i] = what, data[:at] + rng.randbytes(1) + data[at + 1 :]
            notes.append(f"byte {at} of {what} {i}")
    raw = b"".join(data for _, data in parts)
    if "cut" in kinds:
        raw = raw[: rng.randrange(len(raw))]
        notes.append(f"cut at {len(raw)}")
    return raw, "; ".join(notes)


def _swap(model: Model, pair: Pair, new: Pair) -> Model:
    return replace(model, pairs=tuple(new if p is pair else p for p in model.pairs))


def _swap_tensor(model: Model, tensor: Tensor, new: Tensor) -> Model:
    return replace(model, tensors=tuple(new if t is tensor else t for t in model.tensors))


def set_number(model: Model, rng: random.Random) -> tuple[Model, str]:
    pair = rng.choice([p for p in model.pairs if p.kind == U32] or list(model.pairs))
    value = rng.choice(EDGES) & 2**32 - 1
    return _swap(model, pair, replace(pair, kind=U32, value=struct.pack("<I", value))), f"{pair.key!r} = {value}"


def set_float(model: Model, rng: random.Random) -> tuple[Model, str]:
    pair = rng.choice([p for p in model.pairs if p.kind == F32] or list(model.pairs))
    value = rng.choice(FLOATS)
    return _swap(model, pair, replace(pair, kind=F32, value=struct.pack("<f", value))), f"{pair.key!r} = {value}"


def set_text(model: Model, rng: random.Random) -> tuple[Model, str]:
    pair = rng.choice(model.pairs)
    new = rng.choice(TEXTS)
    if pair.kind == ARR and pair.element == STR and pair.items:
        i = rng.randrange(len(pair.items))
        items = (*pair.items[:i], text(new), *pair.items[i + 1 :])
        return _swap(model, pair, replace(pair, items=items)), f"{pair.key!r}[{i}] = {new[:20]!r}"
    return _swap(model, pair, replace(pair, kind=STR, value=text(new))), f"{pair.key!r} = {new[:20]!r}"


def resize(model: Model, rng: random.Random) -> tuple[Model, str]:
    arrays = [p for p in model.pairs if p.kind == ARR]
    if not arrays:
        return model, "nothing"
    pair = rng.choice(arrays)
    count = rng.choice((0, 1, len(pair.items) - 1, len(pair.items) + 1, 2 * len(pair.items)))
    return _swap(model, pair, replace(pair, items=(pair.items * 3)[:count])), f"{pair.key!r} has {count}"


def bend(model: Model, rng: random.Random) -> tuple[Model, str]:
    if not model.tensors:
        return model, "nothing"
    tensor = rng.choice(model.tensors)
    how = rng.choice(("dimension", "type", "offset", "order", "more"))
    if how == "dimension":
        i = rng.randrange(len(tensor.dims))
        new = replace(tensor, dims=(*tensor.dims[:i], rng.choice(EDGES), *tensor.dims[i + 1 :]))
    elif how == "type":
        new = replace(tensor, kind=rng.choice((*range(42), 2**31, 2**32 - 1)))
    elif how == "offset":
        new = replace(tensor, offset=rng.choice(EDGES) // 32 * rng.choice((1, 32)))
    elif how == "order":
        new = replace(tensor, dims=tensor.dims[::-1])
    else:
        new = replace(tensor, dims=(*tensor.dims, rng.choice((1, 2, 2**32)))[-6:])
    return _swap_tensor(model, tensor, new), f"{how} of {tensor.name!r}: {new.dims} {new.kind} {new.offset}"


def rename(model: Model, rng: random.Random) -> tuple[Model, str]:
    if len(model.tensors) < 2:
        return model, "nothing"
    a, b = rng.sample(model.tensors, 2)
    changed = _swap_tensor(model, a, replace(a, name=b.name))
    return _swap_tensor(changed, b, replace(b, name=a.name)), f"{a.name!r} and {b.name!r} swapped"


def weights(model: Model, rng: random.Random) -> tuple[Model, str]:
    if not model.tensors:
        return model, "nothing"
    tensor = rng.choice(model.tensors)
    raw = bytearray(tensor.data)
    for _ in range(rng.choice((1, 4, 64))):
        if rng.random() < 0.5:
            struct.pack_into("<H", raw, rng.randrange(len(raw) - 1), rng.choice(HALVES))
        else:
            raw[rng.randrange(len(raw))] = rng.randrange(256)
    return _swap_tensor(model, tensor, replace(tensor, data=bytes(raw))), f"weights of {tensor.name!r}"


def drop(model: Model, rng: random.Random) -> tuple[Model, str]:
    pair = rng.choice(model.pairs)
    return replace(model, pairs=tuple(p for p in model.pairs if p is not pair)), f"no {pair.key!r}"


def repeat(model: Model, rng: random.Random) -> tuple[Model, str]:
    pair, at = rng.choice(model.pairs), rng.randrange(len(model.pairs) + 1)
    return replace(model, pairs=(*model.pairs[:at], pair, *model.pairs[at:])), f"{pair.key!r} twice"


def retype(model: Model, rng: random.Random) -> tuple[Model, str]:
    pair, kind = rng.choice(model.pairs), rng.randrange(14)
    new = Pair(pair.key, kind, rng.randbytes(rng.choice((1, 4, 8, 20))), element=rng.randrange(14))
    return _swap(model, pair, new), f"{pair.key!r} of type {kind}"


def drop_tensor(model: Model, rng: random.Random) -> tuple[Model, str]:
    if not model.tensors:
        return model, "nothing"
    tensor = rng.choice(model.tensors)
    return replace(model, tensors=tuple(t for t in model.tensors if t is not tensor)), f"no {tensor.name!r}"


DEEP = (set_number, set_number, set_float, set_text, resize, bend, rename, weights, weights)
BLUNT = (drop, repeat, retype, drop_tensor)
