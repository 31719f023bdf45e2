"""The prefix cache on disk, with a model: the same bits after a restart, of the same file, computed in the same way."""

from __future__ import annotations

import multiprocessing
import random
import signal
import time
from collections.abc import Iterator
from contextlib import AbstractContextManager, contextmanager, suppress
from functools import partial
from hashlib import blake2b
from pathlib import Path
from typing import Any, NamedTuple

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from tests.families import FAMILY_CASES
from tests.golden import DATA
from tests.tiny import tiny
from woolly import LLM
from woolly.errors import RequestError
from woolly.model import NUMERICS_VERSION
from woolly.request import Completion, Request, Sampling, SubmitOptions, complete

PROMPT = tuple(index * 7 % 250 for index in range(200))  # three whole pages
PROMPT_PAGES = 192
CASES = {case.name: case for case in FAMILY_CASES}
CARRYING = ("mamba2", "mamba", "rwkv7", "lfm2", "qwen3next", "kimi-linear")
WORDLESS: dict[str, Any] = {"tokenizer": False, "context": 2048}


@pytest.fixture
def model(tmp_path: Path) -> Path:
    return tiny(tmp_path / "tiny.gguf", context=512)


@contextmanager
def loaded(model: Path, cache: Path | None, **options: Any) -> Iterator[LLM]:
    with LLM(model, threads=2, cache_dir=cache, **options) as llm:
        yield llm


def answer(llm: LLM, tokens: tuple[int, ...] = PROMPT, *, salt: bytes = b"", **sampling: Any) -> Completion:
    request = Request(tokens=tokens, sampling=Sampling(**{"seed": 3} | sampling), max_tokens=8, logprobs=3)
    return complete(llm.submit(request, SubmitOptions(salt)))


def same(one: Completion, other: Completion) -> bool:
    """The same text with the same likelihoods, to the bit."""
    return (one.text, one.logprobs) == (other.text, other.logprobs)


def test_d05_a_restart_reuses_all_whole_pages_and_gives_the_same_bits(model: Path, tmp_path: Path) -> None:
    with loaded(model, None) as llm:
        plain = answer(llm)
        assert llm.figures().disk is None
    with loaded(model, tmp_path / "cache") as llm:
        cold = answer(llm)
    with loaded(model, tmp_path / "cache") as llm:
        warm, again = answer(llm), answer(llm)
    assert same(plain, cold) and same(plain, warm) and same(plain, again)
    assert (cold.usage.cached_tokens, cold.usage.disk_tokens) == (0, 0)
    assert (warm.usage.cached_tokens, warm.usage.disk_tokens) == (PROMPT_PAGES, PROMPT_PAGES)
    assert (again.usage.cached_tokens, again.usage.disk_tokens) == (PROMPT_PAGES, 0)


@pytest.mark.parametrize(
    "other", [{"kv": "q8"}, {"kv": "f32"}, {"exact": True}, {"exact": True, "kv": "f16"}], ids=lambda other: str(other)
)
def test_f22_what_was_computed_in_another_way_is_not_used(model: Path, tmp_path: Path, other: dict[str, Any]) -> None:
    with loaded(model, None, **other) as llm:
        plain = answer(llm)
    with loaded(model, tmp_path / "cache") as llm:
        answer(llm)
    with loaded(model, tmp_path / "cache", **other) as llm:
        completion = answer(llm)
    assert completion.usage.cached_tokens == 0 and same(completion, plain)


def test_what_another_file_gave_is_not_used_though_it_has_the_same_name_and_size(model: Path, tmp_path: Path) -> None:
    with loaded(model, tmp_path / "cache") as llm:
        answer(llm)
    nbytes = model.stat().st_size
    tiny(model, context=512, seed=9)
    assert model.stat().st_size == nbytes
    with loaded(model, None) as llm:
        plain = answer(llm)
    with loaded(model, tmp_path / "cache") as llm:
        completion = answer(llm)
    assert completion.usage.cached_tokens == 0 and same(completion, plain)


def test_sizes_of_steps_pools_and_contexts_change_nothing(model: Path, tmp_path: Path) -> None:
    with loaded(model, tmp_path / "cache", batch=32, sequences=2, context=256) as llm:
        cold = answer(llm)
    with loaded(model, tmp_path / "cache", context=512) as llm:
        warm = answer(llm)
    assert warm.usage.disk_tokens == PROMPT_PAGES and same(cold, warm)


@pytest.mark.parametrize("name", CARRYING)
def test_d05_a_restart_begins_with_the_last_snapshot_where_a_model_carries_a_state(name: str, tmp_path: Path) -> None:
    model, cache = CASES[name].write(tmp_path / "model.gguf"), tmp_path / "cache"
    long = tuple((17 * i + i // 7) % 90 for i in range(1300))
    branch = (*long[:1100], *long[:50])
    with loaded(model, None, **WORDLESS) as llm:
        plain, other = answer(llm, long), answer(llm, branch)
    with loaded(model, cache, **WORDLESS) as llm:
        cold = answer(llm, long)
    with loaded(model, cache, **WORDLESS) as llm:
        warm, branched, again = answer(llm, long), answer(llm, branch), answer(llm, long)
    assert same(plain, cold) and same(plain, warm) and same(plain, again) and same(other, branched)
    assert (cold.usage.cached_tokens, warm.usage.disk_tokens, again.usage.cached_tokens) == (0, 1280, 1280)
    assert branched.usage.disk_tokens == 1024, "the last multiple of 1,024 before it goes its own way"


class Stored(NamedTuple):
    """A model, the folder of its cache, how many pages and snapshots a prompt leaves there, and its answer."""

    model: Path
    cache: Path
    files: int
    answer: Completion

    def opened(self) -> AbstractContextManager[LLM]:
        return loaded(self.model, self.cache, tokenizer=False, context=512)


@pytest.fixture(scope="module", params=[("llama", 3), ("lfm2", 4)], ids=["llama", "lfm2"])
def stored(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Stored:
    (name, files), folder = request.param, tmp_path_factory.mktemp("kept")
    path, cache = folder / "model.gguf", folder / "cache"
    model = tiny(path, context=512) if name == "llama" else CASES[name].write(path)
    with loaded(model, cache, tokenizer=False, context=512) as llm:
        return Stored(model, cache, files, answer(llm, tuple(token % 90 for token in PROMPT)))


@settings(max_examples=30, suppress_health_check=[HealthCheck.function_scoped_fixture, HealthCheck.too_slow])
@given(data=st.data())
def test_f22_a_flipped_bit_anywhere_of_a_page_or_snapshot_is_told_of_and_it_is_computed_again(
    stored: Stored, data: st.DataObject, caplog: pytest.LogCaptureFixture
) -> None:
    prompt = tuple(token % 90 for token in PROMPT)
    files = sorted(path for path in stored.cache.iterdir() if path.stat().st_size > 100)
    assert len(files) == stored.files
    file = data.draw(st.sampled_from(files))
    content = bytearray(file.read_bytes())
    content[data.draw(st.integers(0, len(content) - 1))] ^= 1 << data.draw(st.integers(0, 7))
    file.write_bytes(content)
    caplog.clear()
    with stored.opened() as llm:
        completion = answer(llm, prompt)
        counts = llm.figures().disk
    assert counts is not None and counts.rejected == 1 and completion.usage.disk_tokens < PROMPT_PAGES
    assert same(completion, stored.answer)
    assert "other bytes than were written" in caplog.text
    with stored.opened() as llm:
        assert answer(llm, prompt).usage.disk_tokens == PROMPT_PAGES, "it is there again"


SMALL = 200_000  # bytes of a folder that is too small for all pages


def answer_for_ever(model: Path, cache: Path, seed: int) -> None:
    dice = random.Random(seed)
    with loaded(model, cache, tokenizer=False, context=512, disk_bytes=SMALL) as llm:
        while True:
            answer(llm, prompt_of(dice.randrange(40)))


def prompt_of(number: int) -> tuple[int, ...]:
    """Some share their beginnings."""
    return tuple((token + number % 10) % 90 for token in PROMPT[: 65 + 30 * (number // 10)])


def sizes(folder: Path) -> list[int]:
    """The bytes of each file; one that is renamed or removed while one looks is passed over."""
    each = []
    for path in folder.iterdir():
        with suppress(FileNotFoundError):
            each.append(path.stat().st_size)
    return each


def kill_while_answering(model: Path, folder: Path, times: int) -> int:
    """Kill a process so often while it answers; gives how many tokens were found on the disk. None may be wrong."""
    dice, from_disk = random.Random(8), 0
    with loaded(model, None, tokenizer=False, context=512) as llm:
        expected = [answer(llm, prompt_of(number)) for number in range(40)]
    for _ in range(times):
        context = multiprocessing.get_context("fork")
        process = context.Process(target=answer_for_ever, args=(model, folder, dice.randrange(10**6)), daemon=True)
        process.start()
        try:
            while not (folder.exists() and any(size > 4096 for size in sizes(folder))):
                assert process.is_alive()
                time.sleep(0.01)
            time.sleep(dice.uniform(0, 0.1))
        finally:  # a test that fails leaves nobody behind who answers for ever
            process.kill()
            process.join()
        assert process.exitcode == -signal.SIGKILL
        with loaded(model, folder, tokenizer=False, context=512, disk_bytes=SMALL) as llm:
            for number in dice.sample(range(40), 6):
                one = answer(llm, prompt_of(number))
                assert same(one, expected[number])
                from_disk += one.usage.disk_tokens
            counts = llm.figures().disk
        assert counts is not None and counts.rejected == 0
        assert sum(-(-size // 4096) * 4096 for size in sizes(folder)) <= SMALL
        assert not [path for path in folder.iterdir() if path.name.startswith(".part")]
    return from_disk


@pytest.mark.parametrize("times", [5, pytest.param(250, marks=pytest.mark.soak)])
def test_f02_a_process_that_is_killed_while_it_answers_leaves_no_wrong_page(
    stored: Stored, tmp_path: Path, times: int
) -> None:
    assert kill_while_answering(stored.model, tmp_path / "cache", times) > 0


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
                completion = answer(llm, tokens, salt=salts[index], **options)
                assert same(completion, expected[index])
                disk += completion.usage.disk_tokens
        assert sum(sizes(tmp_path / "cache")) <= 400_000
    assert disk > 300


def test_zero_bytes_are_no_cache(model: Path, tmp_path: Path) -> None:
    with loaded(model, tmp_path / "cache", disk_bytes=0) as llm:
        assert llm.figures().disk is None
    assert not (tmp_path / "cache").exists()
    with pytest.raises(RequestError, match="disk_bytes"):
        LLM(model, cache_dir=tmp_path / "cache", disk_bytes=-1)


STATES = {1: "e643fd29c332651ecd59f963377165aa"}  # by version


def test_a_version_of_the_numerics_means_these_bits() -> None:
    """If this fails because bits of the state have changed on purpose, raise NUMERICS_VERSION and add its row: pages of
    the version before lie on users' disks."""
    digest = blake2b(digest_size=16)
    for name, options in (("q4_1", {}), ("q5_k", {"kv": "q8"}), ("qwen3", {"exact": True}), ("llama_yarn", {})):
        with LLM(DATA / "models" / f"{name}.gguf", threads=2, tokenizer=False, **options) as llm:
            llm.generate([index * 7 % 100 for index in range(70)], max_tokens=1)
            runner, (page,) = llm.engine.runner, llm.engine.pages.groups[0].pages.values()
            digest.update(llm.engine.between(partial(runner.read_page, 0, page)).result())
    assert digest.hexdigest() == STATES[NUMERICS_VERSION]
