"""Good files: what we read is what was written, and what the `gguf` package reads."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

from tests.golden import SHARED, Case, every_case, needs_shared
from tests.tiny import tiny
from woolly import gguf
from woolly.errors import FileError
from woolly.gguf.tensor_types import FORMATS


def same_as_package(path: Path) -> None:
    package = pytest.importorskip("gguf")
    theirs = package.GGUFReader(path)
    with gguf.open(path) as ours:
        assert list(ours.tensors) == [tensor.name for tensor in theirs.tensors]
        for tensor in theirs.tensors:
            info = ours.tensors[tensor.name]
            assert info.shape == tuple(int(n) for n in tensor.shape[::-1])
            assert (info.format, info.offset, info.nbytes) == (
                tensor.tensor_type.name,
                tensor.data_offset,
                tensor.n_bytes,
            )
            assert bytes(ours.data(tensor.name)) == tensor.data.tobytes()
        fields = {name: field.contents() for name, field in theirs.fields.items() if not name.startswith("GGUF.")}
        assert list(ours.meta) == list(fields)
        for name, value in fields.items():
            mine = ours.meta[name]
            assert (mine.tolist() if isinstance(mine, np.ndarray) else mine) == value, name


@pytest.mark.parametrize("format", ["F32", "Q4_0", "Q6_K"])
def test_a_file_reads_as_the_gguf_package_reads_it(format: str, tmp_path: Path):
    same_as_package(tiny(tmp_path / "t.gguf", format=format))


@every_case
def test_a_golden_file_reads_as_the_gguf_package_reads_it(case: Case):
    if "Q2_0" in case.types:
        pytest.skip("this version of the package does not know the type")
    same_as_package(case.file)


@needs_shared
def test_every_file_of_the_larger_set_can_be_opened():
    for path in sorted((SHARED / "tiny").glob("*.gguf")):
        gguf.open(path).close()


def test_version_2_reads_like_version_3(tmp_path: Path):
    files = [tiny(tmp_path / f"v{version}.gguf", version=version) for version in (2, 3)]
    assert files[0].read_bytes() != files[1].read_bytes()
    with gguf.open(files[0]) as two, gguf.open(files[1]) as three:
        assert two.tensors == three.tensors and list(two.meta) == list(three.meta)
        assert all(two.data(name) == three.data(name) for name in two.tensors)


def test_shapes_have_rows_first(tmp_path: Path):
    with gguf.open(tiny(tmp_path / "t.gguf", width=64, ffn=96, vocab=290)) as file:
        assert file.tensors["token_embd.weight"].shape == (290, 64)
        assert file.tensors["blk.0.ffn_down.weight"].shape == (64, 96)


def test_metadata_have_plain_python_types(tmp_path: Path):
    with gguf.open(tiny(tmp_path / "t.gguf", eps=1e-5)) as file:
        meta = file.meta
        assert type(meta["llama.block_count"]) is int
        assert meta["tokenizer.ggml.add_bos_token"] is False
        assert meta["llama.attention.layer_norm_rms_epsilon"] == float(np.float32(1e-5)) != 1e-5
        assert meta.get("llama.expert_count") is None and "llama.expert_count" not in meta
        with pytest.raises(KeyError):
            _ = meta["llama.expert_count"]


def test_arrays_are_decoded_when_asked_for_and_kept(tmp_path: Path):
    with gguf.open(tiny(tmp_path / "t.gguf", vocab=300)) as file:
        assert file.meta.length("tokenizer.ggml.tokens") == 300
        assert file.meta.length("general.name") is None
        tokens, types = file.meta["tokenizer.ggml.tokens"], file.meta["tokenizer.ggml.token_type"]
        assert isinstance(tokens, list) and tokens[65] == "A" and tokens[-1] == "Ġw299"
        assert isinstance(types, np.ndarray) and types.dtype == np.int32 and types.sum() == 300 + 2 * 3
        assert file.meta["tokenizer.ggml.tokens"] is tokens
        with pytest.raises(ValueError, match="read-only"):
            types[0] = 7


def test_data_is_a_read_only_view_of_the_file(tmp_path: Path):
    path = tiny(tmp_path / "t.gguf", format="F32")
    with gguf.open(path) as file:
        view = file.data("output_norm.weight")
        info = file.tensors["output_norm.weight"]
        assert view.readonly and bytes(view) == path.read_bytes()[info.offset : info.offset + info.nbytes]
        assert file.size == path.stat().st_size
        with pytest.raises(FileError, match="no tensor 'nothing'"):
            file.data("nothing")


def test_released_pages_leave_memory_and_come_back_when_touched(tmp_path: Path):
    size = 8 << 20
    values = np.arange(size // 4, dtype=np.float32)
    path = gguf.write(tmp_path / "t.gguf", {}, {"small": ("F32", (1,), b"abcd"), "big": ("F32", (size // 4,), values)})
    with gguf.open(path) as file:
        assert np.frombuffer(file.data("big"), np.float32).sum() > 0
        full = resident(path)
        file.release("big")
        assert full is None or resident(path) < full - size // 2
        assert np.array_equal(np.frombuffer(file.data("big"), np.float32), values)


def resident(path: Path) -> int | None:
    """Bytes of the mapped file that are in this process's memory."""
    maps = Path("/proc/self/smaps")
    if not maps.exists():
        return None
    lines = maps.read_text().split(str(path), 1)[1].splitlines()
    return next(int(line.split()[1]) * 1024 for line in lines if line.startswith("Rss:"))


def test_a_view_outlives_the_file_that_gave_it(tmp_path: Path):
    file = gguf.open(tiny(tmp_path / "t.gguf", format="F32"))
    view = file.data("output_norm.weight")
    array = np.frombuffer(view, np.float32)
    file.close()
    file.close()
    assert array.min() >= 0.9 and array.max() <= 1.1
    with pytest.raises(ValueError):
        file.data("output_norm.weight")


@pytest.mark.parametrize("format", FORMATS)
def test_tiny_models_of_every_format_decode_to_what_was_meant(format: str, tmp_path: Path):
    with gguf.open(tiny(tmp_path / "t.gguf", format=format)) as file:
        info = file.tensors["blk.1.attn_q.weight"]
        assert info.format == format
        raw = np.frombuffer(file.data(info.name), np.uint8)
        values = FORMATS[format].decode(raw, info.shape[1])
        assert values.shape == info.shape
        assert np.std(values) == pytest.approx(info.shape[1] ** -0.5, rel=0.15)
