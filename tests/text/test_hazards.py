"""Texts that hurt tokenizers: long, odd, or made against the patterns. Times are CPU seconds of one core."""

from __future__ import annotations

import mmap
import random
import subprocess
import sys
import threading
import time
from collections.abc import Callable
from pathlib import Path

import pytest

from tests.text.small import MERGES, bpe, spm
from woolly import gguf
from woolly.errors import RequestError
from woolly.text import TextStream, Tokenizer
from woolly.text.tokenizer.patterns import PRE
from woolly.text.tokenizer.special import Splitter

MB = 1_000_000
RUNS = {"a": "a", "space": " ", "newline": "\n", "underscore": "_", "emoji": "🙂", "cjk": "中", "nul": "\0"}
BPE = Tokenizer(bpe())
SPM = Tokenizer(spm())


def megabyte(text: str) -> str:
    return text * (MB // len(text.encode()))


def seconds(tokenizer: Tokenizer, text: str) -> float:
    begin = time.process_time()
    tokenizer.encode(text)
    return time.process_time() - begin


def linear(tokenizer: Tokenizer, text: str) -> bool:
    """8 times the text takes about 8 times the time; 64 times would be square. A slow try may be the machine's."""
    part = text[: len(text) // 8 - 1] + text[-1]
    return any(seconds(tokenizer, text) < 32 * seconds(tokenizer, part) + 0.05 for _ in range(3))


@pytest.mark.parametrize("name", RUNS)
@pytest.mark.parametrize("tokenizer", [BPE, SPM], ids=["bpe", "spm"])
def test_t01_a_megabyte_of_one_character_takes_linear_time(tokenizer: Tokenizer, name: str) -> None:
    text = megabyte(RUNS[name])
    assert linear(tokenizer, text)
    assert tokenizer.decode(tokenizer.encode(text[:100_000])) == text[:100_000]


@pytest.mark.parametrize("name", RUNS)
def test_t01_the_default_model_takes_a_megabyte_of_one_character(smollm2: Path, name: str) -> None:
    with gguf.open(smollm2) as file:
        assert linear(Tokenizer(file.meta), megabyte(RUNS[name]))


def test_t01_memory_stays_bounded() -> None:
    code = """
import resource
from tests.text.small import bpe
from woolly.text import Tokenizer
tokenizer = Tokenizer(bpe())
tokenizer.encode("warm")
before = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
tokenizer.encode("a" * 1_000_000)
print(resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - before)
"""
    root = Path(__file__).resolve().parents[2]
    out = subprocess.run([sys.executable, "-c", code], cwd=root, capture_output=True, text=True, check=True).stdout
    assert int(out) < 200_000  # KB


@pytest.mark.parametrize("tokenizer", [BPE, SPM], ids=["bpe", "spm"])
def test_t02_a_megabyte_of_letters_without_a_space_takes_linear_time(tokenizer: Tokenizer) -> None:
    letters = "".join(random.Random(1).choices("abcdefghijklmnopqrstuvwxyz", k=MB))
    assert linear(tokenizer, letters)


AGAINST_PATTERNS = {
    "spaces before a letter": " " * 199_999 + "x",
    "spaces before newlines": (" " * 99 + "\n") * 2_000,
    "spaces and returns": " \r" * 100_000,
    "digits": "1" * 200_000,
    "digits before a letter": "1" * 199_999 + "x",
    "apostrophes": "'" * 200_000,
    "apostrophes with letters": "'s" * 100_000,
    "capitals": "A" * 200_000,
    "words of capitals and small letters": "Aa" * 100_000,
    "marks on one letter": "a" + "\u0301" * 100_000,
    "letters and spaces": "a " * 100_000 + "1",
    "slashes": "/" * 200_000,
    "tabs": "\t" * 200_000,
    "image codes": "IMGIMG" + "A" * 200_000,
}


@pytest.mark.parametrize("text", AGAINST_PATTERNS.values(), ids=AGAINST_PATTERNS)
def test_t03_a_text_made_against_the_pattern_takes_no_longer(text: str) -> None:
    assert linear(BPE, text)


@pytest.mark.parametrize("pre", sorted({pre: name for name, pre in PRE.items() if not pre.spaced}.values()))
def test_t03_no_pattern_takes_more_than_linear_time(pre: str) -> None:
    tokenizer = Tokenizer(bpe(merges=[], special={}, pre=pre))
    for name, text in AGAINST_PATTERNS.items():
        assert linear(tokenizer, text[:12_500] + text[-12_500:]), name


def test_t04_merges_that_each_enable_the_next_take_linear_time() -> None:
    # Every join makes a longer word, which only then can be joined again; the longest has 1,500 letters.
    chain = [f"{'x' * i} x" for i in range(1, 1_500)]
    assert linear(Tokenizer(bpe(merges=chain, special={})), "x" * 100_000)
    scored = Tokenizer(spm(words={"x" * i: float(i) for i in range(2, 1_501)}))
    assert linear(scored, "x" * 100_000)
    # Backwards through the whole text: each join of a pair is made possible by the one to its right.
    alphabet = "abcdefghijklmnopqrstuvwxyz"
    steps = {alphabet[-i:]: float(-i) for i in range(2, 27)}
    assert linear(Tokenizer(spm(words=steps)), alphabet * 4_000)


def test_t05_bytes_are_no_text() -> None:
    with pytest.raises(RequestError, match="str, not bytes"):
        BPE.encode(b"\xff")  # type: ignore[arg-type]


@pytest.mark.parametrize("text", ["\ud800", "abc\udfff", "\ud83d"])
@pytest.mark.parametrize("tokenizer", [BPE, SPM], ids=["bpe", "spm"])
def test_t06_a_lone_surrogate_is_refused_with_its_place(tokenizer: Tokenizer, text: str) -> None:
    for encode in (
        tokenizer.encode,
        lambda t: tokenizer.encode(t, special=True),
        lambda t: tokenizer.encode_chat(t, ""),
    ):
        with pytest.raises(RequestError, match=f"at character {len(text) - 1}") as caught:
            encode(text)
        assert caught.value.offset == len(text) - 1
        str(caught.value).encode()


ODD = [
    "\0",
    "\ufeffBOM",
    "a\u2028b\u2029c",
    "\u202eright to left\u202c",
    "e\u0301 \u00e9",
    "a" + "\u0301" * 100_000,
    "\ufdd0",
]


@pytest.mark.parametrize("text", ODD, ids=range(len(ODD)))
@pytest.mark.parametrize("tokenizer", [BPE, SPM], ids=["bpe", "spm"])
def test_t18_odd_characters_are_kept_as_they_are(tokenizer: Tokenizer, text: str) -> None:
    ids = tokenizer.encode(text)
    assert tokenizer.decode(ids) == text
    stream = TextStream(tokenizer)
    assert "".join([*map(stream.feed, ids), stream.flush()]) == text


def test_t18_composed_and_decomposed_letters_stay_different() -> None:
    assert BPE.encode("e\u0301") != BPE.encode("\u00e9")


def test_t20_an_empty_text_is_the_beginning_token_or_nothing() -> None:
    assert BPE.encode("") == []
    assert BPE.encode("", special=True, bos=None) == []
    assert SPM.encode("", bos=None) == [1]
    assert BPE.encode_chat("", "\ufdd0") == []
    assert BPE.encode_chat("\ufdd0", "\ufdd0") == []
    assert BPE.decode([]) == ""


def test_t21_a_byte_without_a_token_is_dropped() -> None:
    meta = bpe(merges=list(MERGES))
    meta["tokenizer.ggml.tokens"][4] = "<|gone|>"
    tokenizer = Tokenizer(meta)
    assert tokenizer.encode("a\x04b") == tokenizer.encode("ab")
    assert tokenizer.decode(tokenizer.encode("a\x04b")) == "ab"


def test_t21_a_character_cut_that_way_never_becomes_invalid_text() -> None:
    meta = bpe(merges=[])
    meta["tokenizer.ggml.tokens"][0xC3] = "<|gone|>"
    tokenizer = Tokenizer(meta)
    text = tokenizer.decode(tokenizer.encode("caf\u00e9"))
    assert text == "caf\ufffd"
    text.encode()


@pytest.mark.parametrize("tokenizer", [BPE, SPM], ids=["bpe", "spm"])
def test_other_threads_run_while_a_long_text_is_encoded(tokenizer: Tokenizer) -> None:
    """A call that holds the lock would stop us for as long as it takes. A slow try may be the machine's."""
    text = "".join(random.Random(2).choices("abcdefgh ijk lmn", k=2 * MB))
    assert any(runs_meanwhile(lambda: tokenizer.encode(text)) for _ in range(5))


def runs_meanwhile(call: Callable[[], object]) -> bool:
    """Whether this thread comes to its turn again and again while another one makes the call."""
    longest, done = 0.0, threading.Event()
    worker = threading.Thread(target=lambda: (call(), done.set()))
    worker.start()
    begin = last = time.perf_counter()
    count = 0
    while not done.is_set():
        time.sleep(0.001)
        now = time.perf_counter()
        longest, last = max(longest, now - last), now
        count += 1
    worker.join()
    return count > 20 and longest < (last - begin) / 2


@pytest.mark.skipif(not Path("/proc/self/statm").exists(), reason="needs /proc")
def test_texts_that_were_encoded_are_not_kept() -> None:
    """A server would grow by each new prompt, and remember what it was told."""
    splitter, dice = Splitter([("<|end|>", 7)]), random.Random(3)

    def encode(count: int) -> int:
        for _ in range(count):
            splitter.split("".join(dice.choices("abcdefgh ", k=200)))
        return int(Path("/proc/self/statm").read_text().split()[1]) * mmap.PAGESIZE

    before = encode(1000)
    assert encode(6000) - before < 8 << 20
