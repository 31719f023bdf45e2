"""One verdict for every way: files with a right container and wrong contents, and odd ones that are right."""

from __future__ import annotations

import os
import struct
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from tests.text.small import spm
from tests.tiny import MERGES, byte_letters, tiny
from woolly import LLM, examine, gguf
from woolly.device import cpu
from woolly.errors import FileError, UnsupportedError, WoollyError
from woolly.examine import report

pytestmark = pytest.mark.native

NAN, INF = float("nan"), float("inf")
TOKENS = [*byte_letters(), *(merge.replace(" ", "") for merge in MERGES), "<|endoftext|>", "<|im_start|>", "<|im_end|>"]


def tokens(count: int = 288, **changed: str | bytes) -> list[str]:
    """The words of a tiny model; `at_5="x"` changes one."""
    words = TOKENS + [f"Ġw{i}" for i in range(len(TOKENS), count)]
    for name, word in changed.items():
        words[int(name.removeprefix("at_"))] = word
    return words[:count]


def wrong(kind: type[WoollyError], words: str, **meta: Any) -> tuple[type[WoollyError], str, dict[str, Any]]:
    """A row: the refusal, and metadata of a tiny llama; `__` in a name is a dot."""
    return kind, words, {name.replace("__", "."): value for name, value in meta.items()}


def llama(
    kind: type[WoollyError], words: str, key: str, value: object
) -> tuple[type[WoollyError], str, dict[str, Any]]:
    return kind, words, {f"llama.{key}": value}


def ggml(kind: type[WoollyError], words: str, **meta: Any) -> tuple[type[WoollyError], str, dict[str, Any]]:
    return kind, words, {f"tokenizer.ggml.{name}": value for name, value in meta.items()}


BROKEN: dict[str, tuple[type[WoollyError], str, dict[str, Any]]] = {
    # types, and keys that are not there
    "a text for a number": llama(FileError, "block_count is the text 'two'", "block_count", "two"),
    "a float for a number": llama(FileError, "embedding_length", "embedding_length", 64.0),
    "a negative number": llama(FileError, "head_count", "attention.head_count", -4),
    "no layers said": llama(FileError, "llama.block_count is missing", "block_count", None),
    "no width said": llama(FileError, "llama.embedding_length is missing", "embedding_length", None),
    "no architecture": wrong(FileError, "general.architecture is missing", general__architecture=None),
    "an architecture that is a number": wrong(FileError, "a text is expected", general__architecture=7),
    "numbers for tokens": ggml(FileError, "expected a list of texts", tokens=np.arange(288, dtype=np.int32)),
    # heads, rotation, sizes
    "no heads": llama(FileError, "head_count", "attention.head_count", 0),
    "heads that do not divide": llama(FileError, "head_count_kv", "attention.head_count_kv", 3),
    "heads of another number of layers": llama(FileError, "2 layers", "attention.head_count", np.array([4], np.int32)),
    "more rotated than there are": llama(FileError, "rope.dimension_count", "rope.dimension_count", 32),
    "an odd number rotated": llama(FileError, "rope.dimension_count", "rope.dimension_count", 15),
    "a rotation by NaN": llama(FileError, "rope.freq_base", "rope.freq_base", NAN),
    "an endless rotation": llama(FileError, "rope.freq_base", "rope.freq_base", INF),
    "an epsilon of NaN": llama(FileError, "epsilon", "attention.layer_norm_rms_epsilon", NAN),
    "an unknown scaling": llama(UnsupportedError, "spiral", "rope.scaling.type", "spiral"),
    "no layer": llama(FileError, "block_count", "block_count", 0),
    "a layer too many": llama(FileError, "blk.2.attn_norm.weight is missing", "block_count", 3),
    "a layer too few": llama(FileError, "blk.1.* is no part of", "block_count", 1),
    "four billion layers": llama(FileError, "block_count", "block_count", 2**32 - 1),
    "a width of four billion": llama(FileError, "embedding_length", "embedding_length", 2**32 - 1),
    "no context": llama(FileError, "context_length", "context_length", 0),
    "experts": llama(FileError, "expert_count", "expert_count", 2**32 - 1),
    "another vocabulary": llama(FileError, "vocab_size", "vocab_size", 2**32 - 1),
    "a window that is an array": llama(FileError, "sliding_window", "attention.sliding_window", np.array([], np.uint8)),
    # what the file is
    "an unknown architecture": wrong(UnsupportedError, "nearest is 'llama'", general__architecture="llamma"),
    "a path as architecture": wrong(UnsupportedError, "not supported", general__architecture="../../etc/passwd"),
    "no name of an architecture": wrong(UnsupportedError, "'' is not supported", general__architecture=""),
    "an adapter": wrong(UnsupportedError, "type adapter", general__type="adapter"),
    "a type that is an array": wrong(UnsupportedError, "not a model", general__type=np.array([], np.uint8)),
    # the tokenizer
    "too few tokens": ggml(
        FileError, "283 tokens, but 288", tokens=tokens(283), token_type=np.ones(283, np.int32), eos_token_id=3
    ),
    "no tokens": ggml(FileError, "missing or empty", tokens=[]),
    "too few kinds": ggml(FileError, "100 entries for 288", token_type=np.ones(100, np.int32)),
    "kinds of 8 bits": ggml(FileError, "uint8, expected int32", token_type=np.ones(288, np.uint8)),
    "an unknown kind": ggml(FileError, "kind 2147483647", token_type=np.full(288, 2**31 - 1, np.int32)),
    "scores of NaN": ggml(FileError, "score of token 0", scores=np.full(288, NAN, np.float32)),
    "an end outside": ggml(FileError, "eos_token_id is 288", eos_token_id=288),
    "a negative end": ggml(FileError, "eos_token_id is -7", eos_token_id=-7),
    "an end that is an array": ggml(FileError, "eos_token_id is a ndarray", eos_token_id=np.array([], np.uint8)),
    "a beginning that is not there": ggml(FileError, "names no beginning", bos_token_id=None, add_bos_token=True),
    "half a merge": ggml(FileError, "merge 14 'th' is not two parts", merges=[*MERGES, "th"]),
    "an empty merge": ggml(FileError, "merge 14 '' is not two parts", merges=[*MERGES, ""]),
    "a merge of unknown parts": ggml(FileError, "needs 'qqqq'", merges=[*MERGES, "qqqq zzzz"]),
    "a merge twice": ggml(FileError, "there twice", merges=[*MERGES, MERGES[0]]),
    "a token twice": ggml(FileError, "is also token", tokens=tokens(at_287="a")),
    "an empty token": ggml(FileError, "token 287 is empty", tokens=tokens(at_287="")),
    "an unknown tokenizer": ggml(UnsupportedError, "abacus", model="abacus"),
    "an unknown pre-tokenizer": ggml(UnsupportedError, "no-such-pre", pre="no-such-pre"),
    "a byte that is none": (FileError, "reads '<0xZZ>'", {**spm(), "tokenizer.ggml.tokens": ["<unk>"]}),
    # the file's own sampling
    "a temperature in words": wrong(FileError, "its sampling defaults are wrong", general__sampling__temp="hot"),
    "a probability of NaN": wrong(FileError, "its sampling defaults are wrong", general__sampling__top_p=NAN),
    "tokens to keep that are an array": wrong(FileError, "top_k", general__sampling__top_k=np.array([1], np.int32)),
    # templates that are refused at load
    "a template of 2 MiB": wrong(FileError, "limit is 1,048,576", tokenizer__chat_template="x" * (2 << 20)),
    "a template that is a number": wrong(FileError, "expected text", tokenizer__chat_template=7),
}


def _byte_words() -> dict[str, Any]:
    words = tokens()
    words[:256] = [f"<0x{b:02X}>" for b in range(256)]
    words[200] = "<0xZZ>"
    kinds = np.array([6] * 256 + [1] * 32, np.int32)
    return {
        "tokenizer.ggml.model": "llama",
        "tokenizer.ggml.tokens": words,
        "tokenizer.ggml.token_type": kinds,
        "tokenizer.ggml.scores": np.zeros(288, np.float32),
    }


BROKEN["a byte that is none"] = (FileError, "reads '<0xZZ>'", _byte_words())

RIGHT: dict[str, dict[str, Any]] = {
    "nothing odd": {},
    "layers as 64 bits": {"llama.block_count": np.uint64(2)},
    "a long context": {"llama.context_length": 2**31 - 1},
    "no end token": {"tokenizer.ggml.eos_token_id": 2**32 - 1},
    "a padding token outside": {"tokenizer.ggml.padding_token_id": 288},
    "no merges": {"tokenizer.ggml.merges": []},
    "a byte without a token": {"tokenizer.ggml.tokens": tokens(at_4="<|gone|>")},
    "no kinds": {"tokenizer.ggml.token_type": None},
    "no template": {"tokenizer.chat_template": None},
    "a name that is an array": {"general.name": np.array([1, 2], np.uint8)},
    "a hostile template": {"tokenizer.chat_template": "{{ 9 ** (9 ** 9) }}"},
    "alignment 8": {"general.alignment": 8},
}


def by_report(path: Path) -> None:
    report(path)


def by_library(path: Path) -> None:
    LLM(path, context=64, threads=1).close()


WAYS: dict[str, Callable[[Path], None]] = {"inspect": by_report, "LLM": by_library}


@pytest.mark.parametrize("name", BROKEN)
def test_a_file_that_is_wrong_inside_is_refused_by_every_way_with_the_same_words(name: str, tmp_path: Path) -> None:
    kind, words, meta = BROKEN[name]
    path = tiny(tmp_path / "wrong.gguf", meta=meta)
    messages = set()
    for way in WAYS.values():
        with pytest.raises(kind, match=words) as caught:
            way(path)
        messages.add(str(caught.value))
    assert len(messages) == 1
    assert messages.pop().isprintable()


@pytest.mark.parametrize("way", WAYS)
@pytest.mark.parametrize("name", RIGHT)
def test_an_odd_file_that_is_right_passes_every_way(name: str, way: str, tmp_path: Path) -> None:
    WAYS[way](tiny(tmp_path / "right.gguf", meta=RIGHT[name]))


def poked(path: Path, tensor: str, at: int, raw: bytes) -> Path:
    """The file with some bytes of a tensor changed."""
    with gguf.open(path) as file:
        place = file.tensors[tensor].offset + at
    with path.open("r+b") as out:
        out.seek(place)
        out.write(raw)
    return path


F16_INF, F16_NAN, F32_NAN = struct.pack("<e", INF), struct.pack("<e", NAN), struct.pack("<f", NAN)
WEIGHTS = {  # format, where its floats stand in a block
    "Q4_0": (0,), "Q4_1": (0, 2), "Q5_0": (0,), "Q5_1": (0, 2), "Q8_0": (0,),
    "Q2_K": (80, 82), "Q3_K": (108,), "Q4_K": (0, 2), "Q5_K": (0, 2), "Q6_K": (208,), "F16": (0,),
}  # fmt: skip


@pytest.mark.parametrize("format", WEIGHTS)
def test_g51_a_scale_that_is_no_number_is_refused_by_every_way_with_its_tensor_and_byte(
    format: str, tmp_path: Path
) -> None:
    for number, place in enumerate(WEIGHTS[format]):
        path = tiny(tmp_path / f"{number}.gguf", format=format, layers=1)
        report(path)
        poked(path, "blk.0.attn_k.weight", place, F16_NAN if number else F16_INF)
        messages = set()
        for way in WAYS.values():
            with pytest.raises(FileError, match=r"'blk\.0\.attn_k\.weight' holds a value that is not finite") as caught:
                way(path)
            messages.add((str(caught.value), caught.value.offset))
        assert len(messages) == 1


def test_g51_a_norm_that_is_no_number_is_refused_and_one_of_zeros_is_right(tmp_path: Path) -> None:
    path = tiny(tmp_path / "norm.gguf", layers=1)
    poked(path, "blk.0.attn_norm.weight", 0, bytes(256))
    report(path)
    by_library(path)
    poked(path, "blk.0.attn_norm.weight", 252, F32_NAN)
    for way in WAYS.values():
        with pytest.raises(FileError, match=r"blk\.0\.attn_norm\.weight"):
            way(path)


def test_g51_a_quick_look_reads_no_weight_and_says_so(tmp_path: Path) -> None:
    path = poked(tiny(tmp_path / "t.gguf", layers=1), "blk.0.attn_norm.weight", 0, F32_NAN)
    assert report(path, quick=True).quick


def test_what_is_no_model_file_is_the_same_for_every_way(tmp_path: Path) -> None:
    (tmp_path / "empty.gguf").write_bytes(b"")
    os.mkfifo(tmp_path / "pipe.gguf")
    for name in ("empty.gguf", "pipe.gguf", "."):
        for way in WAYS.values():
            with pytest.raises(FileError):
                way(tmp_path / name)


def test_a_report_tells_what_the_file_is(tmp_path: Path) -> None:
    path = tiny(
        tmp_path / "told.gguf", "qwen3", layers=3, context=4096, formats={"token_embd": "Q8_0"}, tied=False, parts=2
    )
    result = report(path)
    card = result.card
    assert (card.architecture, card.layers, card.width, card.heads, card.kv_heads) == ("qwen3", 3, 64, 4, 2)
    assert (card.parts, card.version, card.unused, card.name) == (2, 3, 0, "tiny qwen3")
    assert card.types == {"Q4_0": 22, "F32": 13, "Q8_0": 1}
    assert card.tensors == sum(card.types.values())
    assert result.tokenizer.model == "gpt2" and result.tokenizer.tokens == 288
    assert result.tokenizer.ends == ("<|endoftext|>", "<|im_end|>")
    assert card.template == examine.Abilities(system=True, turns=True, tools=False)
    assert [need.context for need in result.memory] == [512, 2048, 4096]
    assert all(need.total == need.weights + need.cache + need.work for need in result.memory)
    with LLM(path, context=2048) as llm:
        need = next(need for need in result.memory if need.context == 2048)
        assert (need.weights, need.cache, need.work) == (llm.info.weights, llm.info.cache, llm.info.work)


def test_bytes_that_belong_to_no_tensor_are_counted(tmp_path: Path) -> None:
    path = tiny(tmp_path / "t.gguf")
    with path.open("ab") as out:
        out.write(b"x" * 100)
    assert report(path).card.unused == 100


def test_a_template_that_refuses_or_does_nothing_is_told(tmp_path: Path) -> None:
    for source, problem in (
        ("{{ 9 ** (9 ** 9) }}", "longer than 1 s"),
        ("always the same", "does not write the messages"),
        ("{{ raise_exception('no \x1b[31m') }}", "no \\x1b"),
    ):
        template = report(tiny(tmp_path / "t.gguf", meta={"tokenizer.chat_template": source})).card.template
        assert template is not None and problem in template.problem


def test_looking_at_the_weights_allocates_nothing_of_their_size(tmp_path: Path) -> None:
    status = Path("/proc/self/status")
    if not status.exists():
        pytest.skip("resident memory cannot be read here")

    def resident() -> int:
        return next(int(line.split()[1]) << 10 for line in status.read_text().splitlines() if "RssAnon" in line)

    path = tiny(tmp_path / "big.gguf", format="F16", width=1024, ffn=4096, layers=2)
    with gguf.open(path) as file:
        cpu.check_finite(file)
        before = resident()
        cpu.check_finite(file)
        assert file.size > 50 << 20
        assert resident() - before < 1 << 20
