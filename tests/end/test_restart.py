"""The prefix cache on disk, with a model: the same bits after a restart, of the same file, computed in the same way."""

from __future__ import annotations

import random
from collections.abc import Iterator
from contextlib import contextmanager
from functools import partial
from hashlib import blake2b
from pathlib import Path
from typing import Any

import pytest

from tests.golden import DATA
from tests.tiny import tiny
from woolly import LLM
from woolly.errors import RequestError
from woolly.model import NUMERICS_VERSION
from woolly.request import Completion, Request, Sampling, complete

PROMPT = tuple(index * 7 % 250 for index in range(200))  # three whole pages
WHOLE = 192


@pytest.fixture
def model(tmp_path: Path) -> Path:
    return tiny(tmp_path / "tiny.gguf", context=512)


@contextmanager
def loaded(model: Path, cache: Path | None, **options: Any) -> Iterator[LLM]:
    with LLM(model, threads=2, cache_dir=cache, **options) as llm:
        yield llm


def answer(llm: LLM, tokens: tuple[int, ...] = PROMPT, *, salt: bytes = b"", **sampling: Any) -> Completion:
    request = Request(tokens=tokens, sampling=Sampling(**{"seed": 3} | sampling), max_tokens=8, logprobs=3)
    return complete(llm.submit(request, salt=salt))


def same(one: Completion, other: Completion) -> bool:
    """The same text with the same likelihoods, to the bit."""
    return (one.text, one.logprobs) == (other.text, other.logprobs)


def test_d05_a_restart_reuses_all_whole_pages_and_gives_the_same_bits(model: Path, tmp_path: Path) -> None:
    with loaded(model, None) as llm:
        plain = answer(llm)
        assert llm.figures().shelf is None
    with loaded(model, tmp_path / "cache") as llm:
        cold = answer(llm)
    with loaded(model, tmp_path / "cache") as llm:
        warm, again = answer(llm), answer(llm)
    assert same(plain, cold) and same(plain, warm) and same(plain, again)
    assert (cold.usage.cached_tokens, cold.usage.disk_tokens) == (0, 0)
    assert (warm.usage.cached_tokens, warm.usage.disk_tokens) == (WHOLE, WHOLE)
    assert (again.usage.cached_tokens, again.usage.disk_tokens) == (WHOLE, 0)


@pytest.mark.parametrize(
    "other", [{"kv": "q8"}, {"kv": "f32"}, {"exact": True}, {"exact": True, "kv": "f16"}], ids=lambda other: str(other)
)
def test_f22_what_was_computed_in_another_way_is_not_used(model: Path, tmp_path: Path, other: dict[str, Any]) -> None:
    with loaded(model, None, **other) as llm:
        plain = answer(llm)
    with loaded(model, tmp_path / "cache") as llm:
        answer(llm)
    with loaded(model, tmp_path / "cache", **other) as llm:
        found = answer(llm)
    assert found.usage.cached_tokens == 0 and same(found, plain)


def test_what_another_file_gave_is_not_used_though_it_has_the_same_name_and_size(model: Path, tmp_path: Path) -> None:
    with loaded(model, tmp_path / "cache") as llm:
        answer(llm)
    nbytes = model.stat().st_size
    tiny(model, context=512, seed=9)
    assert model.stat().st_size == nbytes
    with loaded(model, None) as llm:
        plain = answer(llm)
    with loaded(model, tmp_path / "cache") as llm:
        found = answer(llm)
    assert found.usage.cached_tokens == 0 and same(found, plain)


def test_sizes_of_steps_pools_and_contexts_change_nothing(model: Path, tmp_path: Path) -> None:
    with loaded(model, tmp_path / "cache", batch=32, sequences=2, context=256) as llm:
        cold = answer(llm)
    with loaded(model, tmp_path / "cache", context=512) as llm:
        warm = answer(llm)
    assert warm.usage.disk_tokens == WHOLE and same(cold, warm)


def test_a_byte_of_a_page_that_changed_is_told_of_and_computed_again(
    model: Path, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    cache, dice = tmp_path / "cache", random.Random(2)
    with loaded(model, cache) as llm:
        cold = answer(llm)
    pages = {path.name for path in cache.iterdir() if path.stat().st_size > 1000}
    assert len(pages) == 3
    for name in sorted(pages):
        data = bytearray((cache / name).read_bytes())
        data[dice.randrange(len(data))] ^= 1 << dice.randrange(8)
        (cache / name).write_bytes(data)
        with loaded(model, cache) as llm:
            found = answer(llm)
            counts = llm.figures().shelf
        assert counts is not None and counts.rejected == 1 and found.usage.disk_tokens < WHOLE
        assert same(found, cold)
        assert "other bytes than were written" in caplog.text
    with loaded(model, cache) as llm:
        assert answer(llm).usage.disk_tokens == WHOLE


def test_random_requests_are_answered_as_without_a_disk(model: Path, tmp_path: Path) -> None:
    """Prompts that share beginnings, salts, temperatures; a restart after every few of them, and a folder that is too
    small for all."""
    dice = random.Random(4)
    asked = [
        (PROMPT[: dice.randrange(1, 200)] + tuple(dice.randrange(250) for _ in range(dice.randrange(100))), options)
        for options in [{"temperature": 0.0}, {"temperature": 1.0}, {"temperature": 1.5, "seed": 5}] * 10
    ]
    salts = [dice.choice([b"", b"one", b"two"]) for _ in asked]
    with loaded(model, None) as llm:
        expected = [answer(llm, tokens, **options) for tokens, options in asked]
    disk = 0
    for begin in range(0, len(asked), 6):
        with loaded(model, tmp_path / "cache", disk_bytes=400_000) as llm:
            for index in range(begin, begin + 6):
                tokens, options = asked[index]
                found = answer(llm, tokens, salt=salts[index], **options)
                assert same(found, expected[index])
                disk += found.usage.disk_tokens
        assert sum(path.stat().st_size for path in (tmp_path / "cache").iterdir()) <= 400_000
    assert disk > 300


def test_zero_bytes_are_no_cache(model: Path, tmp_path: Path) -> None:
    with loaded(model, tmp_path / "cache", disk_bytes=0) as llm:
        assert llm.figures().shelf is None
    assert not (tmp_path / "cache").exists()
    with pytest.raises(RequestError, match="disk_bytes"):
        LLM(model, cache_dir=tmp_path / "cache", disk_bytes=-1)


STATES = {1: "e643fd29c332651ecd59f963377165aa"}  # by version


def test_a_version_of_the_numerics_means_these_bits() -> None:
    """If this fails because bits of the state have changed on purpose, raise NUMERICS_VERSION and add its row: pages of
    the version before lie on users' disks."""
    made = blake2b(digest_size=16)
    for name, options in (("q4_1", {}), ("q5_k", {"kv": "q8"}), ("qwen3", {"exact": True}), ("llama_yarn", {})):
        with LLM(DATA / "models" / f"{name}.gguf", threads=2, tokenizer=False, **options) as llm:
            llm.generate([index * 7 % 100 for index in range(70)], max_tokens=1)
            runner, (page,) = llm.engine.runner, llm.engine.pages.groups[0].pages.values()
            made.update(llm.engine.between(partial(runner.read_page, 0, page)).result())
    assert made.hexdigest() == STATES[NUMERICS_VERSION]
