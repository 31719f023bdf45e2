"""Metadata: every number is checked, and a switch the family does not know is refused by name."""

from __future__ import annotations

import math
from typing import Any

import numpy as np
import pytest

from tests.tiny import tiny
from woolly import gguf
from woolly.errors import FileError, UnsupportedError, WoollyError
from woolly.model import Graph, Meta, RopeTable, TemperatureTable, build
from woolly.model.keys import SWITCHES


def graph(tmp_path, family: str = "llama", **keys: Any) -> Graph:
    """The graph of a tiny file with these keys changed; None takes a key out, `__` stands for a dot."""
    meta = {f"{family}.{key.replace('__', '.')}": value for key, value in keys.items()}
    with gguf.open(tiny(tmp_path / "a.gguf", family, meta=meta)) as file:
        return build(file)


def read(tmp_path, family: str = "llama", **keys: Any) -> Meta:
    return graph(tmp_path, family, **keys).meta


def test_the_numbers_of_a_file_are_read(tmp_path):
    m = read(tmp_path)
    assert (m.layers, m.width, m.head_dim, m.value_dim, m.vocab) == (2, 64, 16, 16, 288)
    assert (m.heads, m.kv_heads, m.ffn) == ((4, 4), (2, 2), (64, 64))
    assert (m.context, m.rope.rot, m.rope.base, m.attention_scale) == (2048, 16, 10000.0, 0.25)


def test_what_a_file_may_leave_out_has_a_default(tmp_path):
    keys = ("rope.dimension_count", "rope.freq_base", "attention.key_length", "attention.value_length", "vocab_size")
    m = read(tmp_path, **{key.replace(".", "__"): None for key in keys})
    assert (m.rope.rot, m.head_dim, m.rope.base, m.vocab) == (16, 16, 10000.0, 288)


def test_constants_of_granite_and_mistral3_are_read(tmp_path):
    nodes = graph(tmp_path, "granite").nodes
    assert {n.attrs["by"] for n in nodes if n.op == "scale"} == {12.0, float(np.float32(0.22))}
    assert {n.attrs["by"] for n in nodes if n.op == "divide"} == {4.0}
    assert {n.attrs["scale"] for n in nodes if n.op == "attend"} == {0.0625}
    tables = graph(tmp_path, "mistral3").tables
    temperature_table, rope = tables["temperature"], tables["rope"]
    assert temperature_table == TemperatureTable(float(np.float32(0.1)), 16)
    assert isinstance(rope, RopeTable)
    assert (rope.scaling, rope.factor, rope.original, rope.log_multiplier) == ("yarn", 16.0, 16, 1.0)


REQUIRED = (
    "block_count", "context_length", "embedding_length", "feed_forward_length", "attention.head_count",
    "attention.layer_norm_rms_epsilon",
)  # fmt: skip


@pytest.mark.parametrize("key", REQUIRED)
def test_a_required_key_is_missed_by_name(tmp_path, key):
    with pytest.raises(FileError, match=f"metadata key llama.{key} is missing") as error:
        read(tmp_path, **{key.replace(".", "__"): None})
    assert error.value.facts["key"] == f"llama.{key}"


NAN, INF = math.nan, math.inf
WRONG: list[tuple[str, Any]] = [
    *(("block_count", v) for v in (0, 3, 1025, 2**32 - 1, -2, 2.0, "2", True)),
    *(("context_length", v) for v in (0, 2**31, "2048")),
    *(("embedding_length", v) for v in (0, 96, 131_073)),
    *(("feed_forward_length", v) for v in (0, 256, 2**32 - 1)),
    *(("attention.head_count", v) for v in (0, 3, 1025, np.array([4]), np.array([4, 0]), np.array([4.0, 4.0]))),
    *(("attention.head_count_kv", v) for v in (0, 3, 8, 2**32 - 1, ["2", "2"])),
    *(("attention.key_length", v) for v in (0, 32, 2**32 - 1)),
    *(("attention.layer_norm_rms_epsilon", v) for v in (NAN, INF, -1.0, "1e-5", 1)),
    *(("rope.dimension_count", v) for v in (0, 15, 32)),
    *(("rope.freq_base", v) for v in (0.0, -1e4, NAN, INF, 1.0)),
    *(("rope.scaling.factor", v) for v in (0.0, NAN, -1.0, "4")),
    ("rope.scaling.type", 7),
    ("rope.scaling.attn_factor", 0.0),
    ("vocab_size", 287),
    ("vocab_size", 2**32 - 1),
]


@pytest.mark.parametrize(("key", "value"), WRONG, ids=lambda v: str(v))
def test_a_number_that_does_not_fit_is_refused(tmp_path, key, value):
    with pytest.raises(WoollyError) as error:
        read(tmp_path, **{key.replace(".", "__"): value})
    assert type(error.value) in (FileError, UnsupportedError)
    named = "attention.value_length" if key == "attention.key_length" and value == 32 else key  # the two must agree
    assert f"llama.{named}" in str(error.value) or "tensor" in error.value.facts


def test_a_wrong_type_is_named(tmp_path):
    with pytest.raises(FileError, match=r"llama.block_count is the text '2'; expected a whole number of 1 to 1,024"):
        read(tmp_path, block_count="2")


def test_sizes_that_tensors_do_not_have_are_told_by_the_tensor(tmp_path):
    with pytest.raises(FileError, match=r"blk.1.attn_k.weight is 32 x 64, but 16 x 64 is expected"):
        read(tmp_path, attention__head_count_kv=np.array([2, 1]))
    with pytest.raises(FileError, match=r"blk.0.attn_v.weight is 32 x 64, but 16 x 64 is expected"):
        read(tmp_path, attention__value_length=8)


def test_experts_that_the_file_does_not_have_are_missed(tmp_path):
    with pytest.raises(FileError, match=r"llama.expert_count is 8; expected 0: no layer has experts"):
        read(tmp_path, expert_count=8, expert_used_count=2)


@pytest.mark.parametrize("name", ["spiral", "su"])
def test_an_unknown_rope_scaling_is_refused_by_name(tmp_path, name):
    with pytest.raises(UnsupportedError, match=rf"llama.rope.scaling.type = the text '{name}'"):
        read(tmp_path, rope__scaling__type=name)


def test_a_factor_that_is_left_out_is_one_or_what_its_old_name_says(tmp_path):
    assert read(tmp_path, rope__scaling__type="yarn").rope.factor == 1.0
    assert read(tmp_path, rope__scale_linear=4.0).rope.factor == 4.0


def test_scaling_by_one_is_no_scaling(tmp_path):
    assert read(tmp_path, rope__scaling__type="linear", rope__scaling__factor=1.0) == read(tmp_path)
    assert read(tmp_path, rope__scaling__type="none", rope__scaling__factor=4.0) == read(tmp_path)


@pytest.mark.parametrize("key", SWITCHES)
def test_a_switch_that_the_family_does_not_know_is_refused_by_name(tmp_path, key):
    off = SWITCHES[key][0]
    other: Any = (not off) if isinstance(off, bool) else type(off)(2)
    with pytest.raises(UnsupportedError, match=f"smollm3.{key} = {other}"):
        read(tmp_path, "smollm3", **{key.replace(".", "__"): other})
    for value in SWITCHES[key]:
        assert read(tmp_path, "smollm3", **{key.replace(".", "__"): value}).layers >= 2
    with pytest.raises(UnsupportedError, match=f"smollm3.{key}"):
        read(tmp_path, "smollm3", **{key.replace(".", "__"): np.array([1, 2])})


def test_a_window_shorter_than_the_context_is_refused_by_name(tmp_path):
    with pytest.raises(UnsupportedError, match=r"llama.attention.sliding_window = 2047"):
        read(tmp_path, attention__sliding_window=2047)
    for window in (0, 2048, 4096):
        assert read(tmp_path, attention__sliding_window=window).context == 2048
