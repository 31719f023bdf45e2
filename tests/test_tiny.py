"""The models that tests make for themselves."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.tiny import ALL_BIASES, FAMILIES, byte_letters, tiny
from woolly import gguf


@pytest.mark.parametrize("family", FAMILIES)
def test_the_same_arguments_give_the_same_bytes(family: str, tmp_path: Path):
    one, two, other = (tiny(tmp_path / name, family, seed=seed) for name, seed in (("1", 1), ("2", 1), ("3", 2)))
    assert one.read_bytes() == two.read_bytes() != other.read_bytes()


def test_odd_shapes_fall_back_to_f16_where_blocks_do_not_fit(tmp_path: Path):
    path = tiny(tmp_path / "t", format="Q4_0", ffn=17, heads=3, kv_heads=1, head_dim=14, tied=False, layer=ALL_BIASES)
    with gguf.open(path) as file:
        tensors = file.tensors
        assert tensors["blk.0.ffn_up.weight"].format == "Q4_0" and tensors["blk.0.ffn_up.weight"].shape == (17, 64)
        assert tensors["blk.0.ffn_down.weight"].format == tensors["blk.0.attn_output.weight"].format == "F16"
        assert tensors["blk.1.attn_q.bias"].shape == (42,) and tensors["output.weight"].shape == (288, 64)


def test_any_tensor_may_be_added_or_left_out(tmp_path: Path):
    layer = {
        "attn_norm.weight": None,
        "post_attention_norm.weight": ("width",),
        "ffn_up_exps.weight": (3, "ffn", "width"),
    }
    path = tiny(
        tmp_path / "t", layer=layer, file={"token_embd_norm.weight": ("width",), "blk.1.ffn_up_exps.weight": None}
    )
    with gguf.open(path) as file:
        tensors = file.tensors
        assert "blk.0.attn_norm.weight" not in tensors and "blk.1.ffn_up_exps.weight" not in tensors
        assert tensors["blk.0.ffn_up_exps.weight"].shape == (3, 64, 64)
        for name in ("blk.1.post_attention_norm.weight", "token_embd_norm.weight"):
            assert (tensors[name].shape, tensors[name].format) == ((64,), "F32")


def test_extra_keys_are_written_and_unwanted_ones_left_out(tmp_path: Path):
    keys = {"rope.scaling.type": "linear", "rope.scaling.factor": 4.0}
    with gguf.open(tiny(tmp_path / "t", family_keys=keys, meta={"tokenizer.chat_template": None})) as file:
        assert file.meta["llama.rope.scaling.type"] == "linear" and "tokenizer.chat_template" not in file.meta


def test_the_256_byte_letters_are_distinct_and_visible():
    letters = byte_letters()
    assert len(set(letters)) == 256 and letters[65] == "A" and letters[32] == "Ġ"
    assert all(letter.isprintable() and not letter.isspace() for letter in letters)
