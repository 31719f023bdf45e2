"""Split sets: all parts or none, and only parts that belong together."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

from tests.tiny import tiny
from woolly import gguf
from woolly.errors import FileError


def parts_of(first: Path) -> list[Path]:
    return sorted(first.parent.glob(first.name.replace("00001-of", "*-of")))


def test_opening_any_part_opens_the_whole_set(tmp_path: Path):
    complete = tiny(tmp_path / "whole.gguf")
    paths = parts_of(tiny(tmp_path / "t.gguf", parts=3))
    assert [path.name for path in paths] == [f"t-0000{i}-of-00003.gguf" for i in (1, 2, 3)]
    with gguf.open(complete) as one:
        for path in paths:
            with gguf.open(path) as file:
                assert [part.path for part in file.parts] == paths
                assert file.size == sum(p.stat().st_size for p in paths)
                assert list(file.tensors) == list(one.tensors)
                assert {info.part for info in file.tensors.values()} == {0, 1, 2}
                assert all(file.data(name) == one.data(name) for name in one.tensors)
                assert file.meta["tokenizer.ggml.tokens"] == one.meta["tokenizer.ggml.tokens"]
                file.release("output_norm.weight")


def test_a_set_of_one_needs_no_special_name(tmp_path: Path):
    path = tiny(tmp_path / "t.gguf", parts=1)
    path.rename(tmp_path / "plain.gguf")
    with gguf.open(tmp_path / "plain.gguf") as file:
        assert len(file.parts) == 1


def test_the_gguf_package_reads_each_part(tmp_path: Path):
    package = pytest.importorskip("gguf")
    first = tiny(tmp_path / "t.gguf", parts=2)
    with gguf.open(first) as file:
        names = [tensor.name for path in parts_of(first) for tensor in package.GGUFReader(path).tensors]
        assert names == list(file.tensors)


SPLIT = {"split.no": np.uint16(0), "split.count": np.uint16(2), "split.tensors.count": np.int32(2)}
A, B = ("a", ("F32", (1,), b"aaaa")), ("b", ("F32", (1,), b"bbbb"))


def refused(tmp_path: Path, words: str, first: dict[str, object], second: dict[str, object] | None, tensor=B) -> None:
    """A set of two with some keys changed; a key that is None is left out."""

    def put(number: int, keys: dict[str, object], tensors: list) -> None:
        meta = {**SPLIT, "split.no": np.uint16(number), **keys}
        present = {key: value for key, value in meta.items() if value is not None}
        gguf.write(tmp_path / f"s-0000{number + 1}-of-00002.gguf", present, tensors)

    put(0, first, [A])
    if second is not None:
        put(1, second, [tensor])
    for path in tmp_path.glob("s-*"):
        with pytest.raises(FileError, match=words) as caught:
            gguf.open(path)
        assert "\n" not in str(caught.value)


def test_a_missing_part_is_named(tmp_path: Path):
    refused(tmp_path, "part 2 of 2 is missing", {}, None)


def test_a_part_that_says_another_number_is_refused(tmp_path: Path):
    refused(tmp_path, "split.no is 0, but the name says 1", {}, {"split.no": np.uint16(0)})


def test_a_part_without_a_number_is_refused(tmp_path: Path):
    refused(tmp_path, "split.no is missing", {}, {"split.no": None})


@pytest.mark.parametrize("count", [0, 3, 65535])
def test_a_count_that_is_not_the_names_is_refused(count: int, tmp_path: Path):
    refused(tmp_path, f"split.count is {count}", {"split.count": np.uint16(count)}, {"split.count": np.uint16(count)})


def test_a_count_that_is_no_number_is_refused(tmp_path: Path):
    refused(tmp_path, "split.count is two", {"split.count": "two"}, {"split.count": "two"})


def test_parts_of_different_sets_are_refused(tmp_path: Path):
    llama, qwen = {"general.architecture": "llama"}, {"general.architecture": "qwen2"}
    refused(tmp_path, "'general.architecture' is not as in part 1", llama, qwen)


def test_a_tensor_in_two_parts_is_refused(tmp_path: Path):
    refused(tmp_path, "tensor 'a' is in an earlier part", {}, {}, A)


@pytest.mark.parametrize("count", [1, 3, None])
def test_a_wrong_number_of_tensors_is_refused(count: int | None, tmp_path: Path):
    keys = {"split.tensors.count": None if count is None else np.int32(count)}
    refused(tmp_path, "split.tensors.count is", keys, keys)


def test_a_value_that_is_no_number_is_the_same_in_every_part(tmp_path: Path):
    first = gguf.write(tmp_path / "t.gguf", {"a.b": float("nan")}, [A, B], parts=2)
    second = tmp_path / "t-00002-of-00002.gguf"
    meta = {**SPLIT, "split.no": np.uint16(1), "a.b": float("nan")}
    gguf.write(second, meta, [B])
    gguf.open(first).close()
    gguf.write(second, {**meta, "a.b": 1.0}, [B])
    with pytest.raises(FileError, match=r"'a\.b' is not as in part 1"):
        gguf.open(first)


@pytest.mark.parametrize("key", ["split.no", "split.count", "split.tensors.count"])
def test_a_number_of_the_set_that_is_an_array_is_refused(key: str, tmp_path: Path):
    refused(tmp_path, f"{key} is", {key: np.array([], np.uint8)}, {key: np.array([], np.uint8)})


def test_a_part_under_another_name_is_refused(tmp_path: Path):
    first = tiny(tmp_path / "t.gguf", parts=2)
    first.rename(tmp_path / "renamed.gguf")
    with pytest.raises(FileError, match="NAME-00001-of-00002"):
        gguf.open(tmp_path / "renamed.gguf")
