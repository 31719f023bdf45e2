"""The one promise over everything that the engine does: the same request has the same answer, to the bit.

A seed makes requests of every kind: greedy and sampled, with stops, likelihoods, formats and adapters, and several
choices of one prompt. Each is answered alone first, in pages that nobody used before; then in each of the `WAYS`.
"""

from __future__ import annotations

import multiprocessing
import random
import signal
import time
from collections import deque
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from functools import cache, partial
from multiprocessing.synchronize import Semaphore
from pathlib import Path
from typing import Any, TypeAlias

import pytest

from tests.families import FAMILY_CASES
from tests.lora import LINEAR, adapter
from tests.tiny import byte_vocabulary, tiny
from woolly import LLM, Format
from woolly.engine.cache.pages import Pages
from woolly.request import Completion, Request, SubmitOptions, complete, request_of

FEW, MANY = 24, 200  # requests of each kind of model
OTHERS = 16
VOCAB = 288
CONTEXT = 512
DISK = 4 << 20
KINDS = {"plain": "", "windowed": "gemma3", "hybrid": "lfm2", "delta": "qwen3next", "recurrent": "mamba2"}
CARRY = ("hybrid", "delta", "recurrent")  # a state that cannot go back behind a wrong guess

TEXT = "the sheep and the wool and the yarn, then the sheep said to the wool: in the morning there is a song. " * 3
SAMPLINGS: tuple[dict[str, Any], ...] = (
    {"temperature": 0},
    {"temperature": 0},
    {"temperature": 0.3},
    {"temperature": 1.2, "top_k": 0, "top_p": 1.0},
    {"temperature": 0.8, "top_k": 20, "min_p": 0.05, "typical_p": 0.9},
    {"temperature": 0.9, "repetition_penalty": 1.3, "presence_penalty": 0.4, "repeat_last_n": 20},
    {"temperature": 1.0, "mirostat": 2, "mirostat_tau": 3.0},
    {"temperature": 1.0, "xtc_probability": 0.5, "min_keep": 2, "top_n_sigma": 2.0},
    {"temperature": 0.7, "dry_multiplier": 0.8, "dynatemp_range": 0.5},
    {"temperature": 0.5, "logit_bias": {" the": 3.0, 101: -100.0}},
)
SCHEMA = {
    "type": "object",
    "properties": {"animal": {"enum": ["sheep", "goat"]}, "wool": {"type": "integer"}},
    "required": ["animal", "wool"],
    "additionalProperties": False,
}
FORMATS: tuple[Format, ...] = (
    Format("json"),
    Format("schema", SCHEMA),
    Format("regex", "(the sheep and |the wool and ){1,4}[a-z]{2,8}\\."),
    Format("choice", ("the sheep and the wool", "the sheep said", "yarn")),
    Format("lark", 'start: "the " ANIMAL (" and " ANIMAL)*\nANIMAL: /[a-z]{3,6}/'),
    Format("gbnf", 'root ::= "the " ("sheep" | "wool") (" and " root)?'),
)
LORAS: tuple[dict[str, float], ...] = ({}, {}, {"one": 1.0}, {"other": 0.5}, {"one": 0.5, "other": -1.0})

Answer: TypeAlias = tuple[Any, ...]


def requests_of(seed: int, count: int) -> list[Request]:
    """So many requests; many prompts begin alike, and some are choices of one prompt, which differ in their seeds."""
    dice = random.Random(seed)
    requests: list[Request] = []
    while len(requests) < count:
        options: dict[str, Any] = dict(dice.choice(SAMPLINGS), lora=dice.choice(LORAS), max_tokens=dice.randint(1, 32))
        if dice.random() < 0.3:
            options["stop"] = dice.sample(["e", "sheep", "the w", "\n", "aa", "§"], dice.randint(1, 3))
        if dice.random() < 0.4:
            options["format"] = dice.choice(FORMATS)
        if dice.random() < 0.4:
            options["logprobs"] = dice.randint(0, 5)
            options["prompt_logprobs"] = dice.random() < 0.2
        first = dice.choice([0, 0, 0, 30])
        prompt = TEXT[first : first + dice.randint(1, 270)] + dice.choice(["", "", "a song", "Then: "])
        drawn = dice.getrandbits(40)
        for choice in range(dice.choice([1, 1, 1, 2])):
            requests.append(request_of(options | {"seed": drawn + choice}, prompt=prompt))
    return requests[:count]


def answer_of(completion: Completion) -> Answer:
    """All that a caller is told of an answer but how long it took and what had been computed before."""
    fields = (completion.text, completion.tokens, completion.finish_reason, completion.stopped_by, completion.seed)
    return (*fields, completion.logprobs, completion.end_logprob, completion.prompt)


@dataclass
class Kit:
    """A model with two adapters, a smaller one that guesses, and the answers that were given alone."""

    kind: str
    folder: Path
    alone: dict[int, list[Answer]] = field(default_factory=dict)

    @property
    def model(self) -> Path:
        return self.folder / "model.gguf"

    @contextmanager
    def opened(self, **options: Any) -> Iterator[LLM]:
        lora = {name: self.folder / f"{name}.gguf" for name in ("one", "other")}
        with LLM(self.model, **{"threads": 2, "context": CONTEXT, "lora": lora, "draft": "off"} | options) as llm:
            yield llm

    def expected(self, count: int) -> list[Answer]:
        if count not in self.alone:
            with self.opened() as llm:
                answers = [
                    complete(llm.submit(request, SubmitOptions(b"%d" % index)))
                    for index, request in enumerate(requests_of(1, count))
                ]
                assert llm.figures().tally.most_sequences == 1 and not any(each.usage.cached_tokens for each in answers)
            self.alone[count] = [answer_of(each) for each in answers]
        return self.alone[count]


def written(kind: str, folder: Path) -> Kit:
    model = folder / "model.gguf"
    if kind == "plain":
        tiny(model, context=CONTEXT, vocab=VOCAB)
    else:
        case = next(case for case in FAMILY_CASES if case.name == KINDS[kind])
        rows = {
            name: [VOCAB, *case.tensors[name][1:]]
            for name in ("token_embd.weight", "output.weight")
            if name in case.tensors
        }
        keys = case.keys | byte_vocabulary(VOCAB)
        replace(case, tensors=case.tensors | rows, keys=keys).write(model)
    tiny(folder / "another.gguf", context=CONTEXT, vocab=VOCAB, seed=2)
    for seed, name in enumerate(("one", "other")):
        adapter(folder / f"{name}.gguf", model, seed=seed, only=(*LINEAR, "ssm_in.weight", "ssm_out.weight"))
    return Kit(kind, folder)


@pytest.fixture(scope="module")
def kit_of(tmp_path_factory: pytest.TempPathFactory) -> Callable[[str], Kit]:
    return cache(lambda kind: written(kind, tmp_path_factory.mktemp(kind)))


def crowded(llm: LLM, asked: list[Request], between: Callable[[], object] = lambda: None) -> list[Completion]:
    """Answer each among OTHERS others; `between` is called whenever one of them has got further."""
    running: deque[Any] = deque()
    completions = []
    for request in [*asked, *[None] * OTHERS]:
        if request is not None:
            running.append(llm.submit(request))
        if len(running) > OTHERS or request is None:
            stream = running.popleft()
            completions.append(complete(_watched(stream, between)))
    return completions


def _watched(stream: Any, between: Callable[[], object]) -> Iterator[Any]:
    for event in stream:
        between()
        yield event


def among_others(kit: Kit, asked: list[Request]) -> list[Completion]:
    with kit.opened(sequences=OTHERS + 1) as llm:
        completions = crowded(llm, asked)
        assert llm.figures().tally.most_sequences > OTHERS / 2
    assert sum(each.usage.cached_tokens > 0 for each in completions) > len(asked) / 4, "most prompts begin alike"
    return completions


def with_drafts(draft: str, kit: Kit, asked: list[Request]) -> list[Completion]:
    """By one after the other, and by all at once: guesses of one take rows from the guesses of others."""
    with kit.opened(draft=draft if draft == "text" else kit.folder / f"{draft}.gguf") as llm:
        completions = [complete(llm.submit(request)) for request in asked]
        tally = llm.figures().tally
        assert [answer_of(each) for each in crowded(llm, asked)] == [answer_of(each) for each in completions]
    if draft != "another":  # which is seldom right
        assert bool(tally.accepted) == (kit.kind not in CARRY)
    return completions


def with_evictions(kit: Kit, asked: list[Request]) -> list[Completion]:
    """In a pool of three contexts, whose remembered pages and snapshots are forgotten at random moments."""
    dice = random.Random(7)
    with kit.opened() as llm:
        pool = 3 * llm.info.cache
    with kit.opened(sequences=OTHERS + 1, cache=pool) as llm:

        def forget_some() -> None:
            if dice.random() < 0.2:
                llm.engine.between(partial(forget, llm.engine.pages, dice.getrandbits(32)))

        completions = crowded(llm, asked, forget_some)
        if llm.engine.pages.groups:
            assert llm.figures().evictions > 0
    return completions


def forget(pages: Pages, seed: int) -> None:
    dice = random.Random(seed)
    for group in pages.groups:
        for page in dice.sample([*group.idle], dice.randint(0, len(group.idle))):
            group.idle = {page: None} | group.idle  # as if it were the one used longest ago
            group.free.append(group.forget())
            pages.evictions += 1
    if dice.random() < 0.5:
        reserved = iter(pages.snapshots.reserve, None)
        for slot in [*reserved]:
            pages.snapshots.let_go(slot)


def answer_for_ever(kind: str, folder: Path, seed: int, count: int, rounds: Semaphore) -> None:
    """What is killed."""
    asked = requests_of(1, count)
    random.Random(seed).shuffle(asked)
    with Kit(kind, folder).opened(cache_dir=folder / "cache", disk_bytes=DISK, sequences=OTHERS + 1) as llm:
        while True:
            rounds.release()
            crowded(llm, asked)


def after_kills(kit: Kit, asked: list[Request]) -> list[Completion]:
    """Two: at some moment of the first round, and of the third, when what the first has made was written."""
    dice, folder, context = random.Random(3), kit.folder / "cache", multiprocessing.get_context("spawn")
    for kills in range(2):
        rounds = context.Semaphore(0)
        words = (kit.kind, kit.folder, kills, len(asked), rounds)
        process = context.Process(target=answer_for_ever, args=words, daemon=True)
        process.start()
        try:
            for _ in range(1 + 2 * kills):
                assert rounds.acquire(timeout=60)
            time.sleep(dice.uniform(0, 0.1))
        finally:  # a test that fails leaves nobody behind who answers for ever
            process.kill()
            process.join()
        assert process.exitcode == -signal.SIGKILL
    with kit.opened(cache_dir=folder, disk_bytes=DISK) as llm:
        completions = [complete(llm.submit(request)) for request in asked]
        counts = llm.figures().disk
    assert counts is not None and counts.hits > 0 and counts.rejected == 0
    assert sum(each.usage.disk_tokens for each in completions) > 0
    assert sum(path.stat().st_size for path in folder.iterdir()) <= DISK
    return completions


WAYS: dict[str, Callable[[Kit, list[Request]], list[Completion]]] = {
    "among others": among_others,
    "drafts of the text": partial(with_drafts, "text"),
    "drafts of a model": partial(with_drafts, "model"),
    "wrong drafts": partial(with_drafts, "another"),
    "evictions": with_evictions,
    "after kills": after_kills,
}
BY_A_MODEL = ("drafts of a model", "wrong drafts")  # which is refused for a model that carries a state


@pytest.mark.parametrize("count", [FEW, pytest.param(MANY, marks=pytest.mark.soak)])
@pytest.mark.parametrize(
    ("kind", "way"), [(kind, way) for kind in KINDS for way in WAYS if kind not in CARRY or way not in BY_A_MODEL]
)
def test_d01_d04_d05_d07_d09_an_answer_is_the_same_alone_and(
    kit_of: Callable[[str], Kit], kind: str, way: str, count: int
) -> None:
    kit, asked = kit_of(kind), requests_of(1, count)
    answers = WAYS[way](kit, asked)
    for request, one, expected in zip(asked, answers, kit.expected(count), strict=True):
        assert answer_of(one) == expected, request
