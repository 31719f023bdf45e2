"""The writer: whatever it writes, the reader gives back."""

from __future__ import annotations

import math
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from woolly import gguf
from woolly.errors import FileError
from woolly.gguf.tensor_types import FORMATS

KEYS = st.text(st.characters(min_codepoint=32, max_codepoint=126), min_size=1, max_size=20).filter(
    lambda key: key != "general.alignment" and not key.startswith("split.")
)
VALUES = st.one_of(
    st.integers(-(2**63), 2**64 - 1),
    st.floats(width=32),
    st.booleans(),
    st.text(st.characters(codec="utf-8")),
    st.lists(st.text(st.characters(codec="utf-8"), max_size=9), max_size=9),
    st.tuples(st.sampled_from("bBhHiIqQfd"), st.binary(max_size=64)).map(
        lambda pick: np.frombuffer(pick[1][: len(pick[1]) // 8 * 8], pick[0])
    ),
    st.lists(st.booleans()).map(lambda flags: np.array(flags, np.bool_)),
)
TENSORS = st.lists(
    st.tuples(st.sampled_from(list(FORMATS)), st.integers(1, 2), st.lists(st.integers(1, 3), max_size=3)), max_size=5
)


def same(read: object, written: object) -> bool:
    if isinstance(written, np.ndarray):
        return isinstance(read, np.ndarray) and read.dtype == written.dtype and read.tobytes() == written.tobytes()
    if isinstance(written, float) and math.isnan(written):
        return isinstance(read, float) and math.isnan(read)
    return type(read) is type(written) and read == written


@given(
    meta=st.dictionaries(KEYS, VALUES, max_size=6),
    kinds=TENSORS,
    alignment=st.sampled_from([None, 8, 32, 256]),
    version=st.sampled_from([2, 3]),
    parts=st.integers(0, 3),
)
def test_what_is_written_is_read_again(tmp_path_factory, meta, kinds, alignment, version, parts):
    rng = np.random.default_rng(len(kinds))
    tensors = {}
    for i, (name, blocks, rows) in enumerate(kinds):
        shape = (*rows, blocks * FORMATS[name].block)
        tensors[f"t{i}"] = (name, shape, rng.bytes(FORMATS[name].row_bytes(shape[-1]) * math.prod(rows)))
    if alignment is not None:
        meta = {**meta, "general.alignment": alignment}
    path = gguf.write(tmp_path_factory.mktemp("written") / "a.gguf", meta, tensors, version=version, parts=parts)
    with gguf.open(path) as file:
        assert [key for key in file.meta if not key.startswith("split.")] == list(meta)
        assert all(same(file.meta[key], value) for key, value in meta.items())
        assert list(file.tensors) == list(tensors)
        for name, (form, shape, raw) in tensors.items():
            info = file.tensors[name]
            while len(shape) > 2 and shape[0] == 1:
                shape = shape[1:]
            assert (info.format, info.shape, bytes(file.data(name))) == (form, shape, raw)
            assert info.offset % (alignment if alignment and info.part == 0 else 8) == 0


def test_numbers_get_the_narrowest_usual_type_and_scalars_keep_theirs(tmp_path: Path):
    package = pytest.importorskip("gguf")
    values = {"a": 1, "b": -1, "c": 2**40, "d": -(2**40), "e": 0.5, "f": np.uint16(3), "g": np.float64(0.1), "h": True}
    path = gguf.write(tmp_path / "a.gguf", values, {})
    fields = package.GGUFReader(path).fields
    types = [fields[key].types[0].name for key in values]
    assert types == ["UINT32", "INT32", "UINT64", "INT64", "FLOAT32", "UINT16", "FLOAT64", "BOOL"]
    with gguf.open(path) as file:
        assert dict(file.meta) == values


def test_a_value_that_gguf_cannot_hold_is_refused_by_key(tmp_path: Path):
    for value in (None, {"a": 1}, [["a"]], 1j, b"bytes", np.zeros((2, 2), np.int32)):
        with pytest.raises(FileError, match="'key' cannot be written"):
            gguf.write(tmp_path / "a.gguf", {"key": value}, {})


def test_a_tensor_with_too_few_bytes_is_refused(tmp_path: Path):
    with pytest.raises(FileError, match=r"'t' of Q4_0 \(2, 32\) has 35 bytes, 36 are expected"):
        gguf.write(tmp_path / "a.gguf", {}, {"t": ("Q4_0", (2, 32), bytes(35))})


def test_a_tensor_may_be_given_in_pieces_when_its_turn_comes(tmp_path: Path):
    order: list[str] = []

    def pieces(name: str, *sizes: int):
        def give():
            order.append(name)
            yield from (bytes([i] * size) for i, size in enumerate(sizes))

        return give

    tensors = {"a": ("Q4_0", (2, 32), pieces("a", 30, 6)), "b": ("F32", (1,), pieces("b", 4))}
    with gguf.open(gguf.write(tmp_path / "a.gguf", {}, tensors)) as file:
        assert bytes(file.data("a")) == bytes(30) + bytes([1] * 6)
        assert bytes(file.data("b")) == bytes(4)
    assert order == ["a", "b"]
    with pytest.raises(FileError, match="has 35 bytes, 36 are expected"):
        gguf.write(tmp_path / "a.gguf", {}, {"t": ("Q4_0", (2, 32), pieces("t", 30, 5))})


def test_a_tensor_without_bytes_is_a_hole_of_zeros(tmp_path: Path) -> None:
    values = np.arange(8, dtype=np.float32)
    large = ("F32", (1 << 10, 1 << 12), None)
    path = gguf.write(
        tmp_path / "hollow.gguf", {}, {"hole": large, "odd": ("F32", (3,), None), "v": ("F32", (8,), values)}
    )
    assert path.stat().st_size > 16 << 20
    assert path.stat().st_blocks * 512 < 1 << 20
    with gguf.open(path) as file:
        assert not np.frombuffer(file.data("hole"), np.uint8).any() and len(file.data("odd")) == 12
        assert np.array_equal(np.frombuffer(file.data("v"), np.float32), values)
