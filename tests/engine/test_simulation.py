"""The engine under a storm: a seed makes arrivals, lengths, formats, adapters, cancels, tiny pools, stopped and failing
steps, a disk that is slow, full, broken, ends reads early and changes what was written, and drafts that are right,
wrong, and wrong in the middle.

After every turn the sentences at the top of pages.py and scheduler.py hold; in the end every sequence has ended once,
and its tokens equal those of the same request alone. A failure names its seed: `storm(SEED)` repeats it.
"""

from __future__ import annotations

import random
from collections import Counter, deque
from collections.abc import Callable
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any
from zlib import crc32

import numpy as np
import pytest
from numpy.typing import NDArray

from tests.engine.asking import alone
from tests.engine.failing_disk import failing
from tests.engine.fake import Fake, Outputs, logits_after, logits_of, used
from tests.text.small import CONTROL, bpe
from woolly.device import Batch, StepSize
from woolly.device.batch import SLOTS
from woolly.engine import Adapters, AnswerOptions, Engine, Grammars, LogprobOptions, Scores, Sequence
from woolly.engine.cache.disk import BLOCK, LOCK, DiskStore, ModelDiskStore
from woolly.engine.cache.disk_io import DiskCacheIO
from woolly.engine.sampling.stages import NO_TOKEN, pick
from woolly.engine.speculation.draft import Drafts
from woolly.errors import NativeError
from woolly.model import Adapter
from woolly.request import End, Failed, Prompt, Sampling, Start, SubmitOptions, Text
from woolly.request.format import Format
from woolly.text import Tokenizer

SEEDS = 300  # for the plainest storms; `make soak` runs ten thousand of all kinds
SAMPLINGS: tuple[dict[str, Any], ...] = (
    {"temperature": 0.0},
    {"temperature": 1.0},
    {"temperature": 1.0, "mirostat": 2, "mirostat_tau": 2.0, "mirostat_eta": 0.5},
    {"temperature": 1.0, "xtc_probability": 0.5, "min_keep": 2},
    {"temperature": 0.0, "dry_multiplier": 2.0, "dry_allowed_length": 1},
    {"temperature": 1.0, "repetition_penalty": 1.5, "repeat_last_n": 5, "presence_penalty": 0.5},
)
VOCAB = 16
ENDS = (13, 14, 15)  # end tokens of answers that have a format


def letters() -> Tokenizer:
    """A token for each letter but the last three, which are end tokens."""
    ends = dict.fromkeys(("<|eot_id|>", "<|im_end|>", "<|endoftext|>"), CONTROL)
    meta = bpe([], ends)
    tokens, kinds = meta["tokenizer.ggml.tokens"][ord("a") :][: VOCAB - 3], [1] * (VOCAB - 3) + [CONTROL] * 3
    return Tokenizer(
        meta | {"tokenizer.ggml.tokens": [*tokens, *ends], "tokenizer.ggml.token_type": np.array(kinds, np.int32)}
    )


GRAMMARS = Grammars(letters())
FORMATS = (
    Format("regex", "[a-f]*"),
    Format("regex", "(abcdefabcdef|ghi){1,3}[a-m]?"),
    Format("choice", ("abcdefghijklm", "abcdefgabc", "m")),
    Format("gbnf", 'root ::= "abc" root "cba" | [d-m]'),
)


ADAPTERS = Adapters([Adapter(name, {}, name.encode() * 16) for name in "ab"], [0.0, 0.0])
LORAS: tuple[dict[str, float], ...] = ({}, {}, {"a": 1.0}, {"a": 0.5}, {"a": 0.5, "b": -2.0})


class Storm(Fake):
    """A fake runner that sometimes fails, stops, or gives a NaN, and that checks which pages are written."""

    engine: Engine

    def __init__(self, dice: random.Random, **sizes: int) -> None:
        super().__init__(**sizes)
        self.dice = dice
        self.trouble = dice.choice([0.0, 0.0, 0.05, 0.2])
        self.failed = False  # whether the last step failed; an engine whose steps fail in a row is broken

    def run(self, size: StepSize) -> Outputs | None:
        assert size.rows <= self.rows and size.wants <= self.wants and size.spans <= self.sequences
        batch = used(self.batch, size)
        self.assert_fair(batch)
        for index, (_, count, first, *_) in enumerate(batch.spans.tolist()):
            for group, table in zip(self.engine.pages.groups, batch.pages[:, index], strict=True):
                for page in table[first // self.page : (first + count - 1) // self.page + 1].tolist():
                    assert group.holders[page] == 1, "a page is written only by the one that holds it alone"
                    assert group.names[page] is None, "and only before it is remembered"
        if self.dice.random() < self.trouble:
            super().run(size)  # a stopped or failed step may have written its pages
            self.failed = not self.failed and self.dice.random() < 0.5
            if not self.failed:
                return None
            raise self.dice.choice([RuntimeError("broken"), NativeError("broken")])
        self.failed = False
        outputs = super().run(size)
        if self.dice.random() < self.trouble / 4 and size.wants:
            assert outputs is not None
            outputs["logits"][self.dice.randrange(size.wants), 3] = np.nan
        return outputs

    def assert_fair(self, batch: Batch) -> None:
        """Answers that have begun are in the step, however long a prompt is; equal pages are filled once at a time."""
        pages, running = self.engine.pages, self.engine.running
        answering = [one for one in running if one.answers]
        if self.rows >= sum(len(one.tokens) - one.computed for one in answering):
            computing = [sequence for sequence, _ in self.engine.writer._written[: len(batch.spans)]]
            assert all(one in computing for one in answering), "every answer has its rows"
        filling = [
            pages._digest(one, one.remembered)
            for one in running
            if pages.reuse
            and not pages.carries  # with carried states a page is of no use without a snapshot
            and not one.answers
            and (one.remembered + 1) * pages.size <= min(one.wanted, one.prompt)
        ]
        assert len(filling) == len(set(filling)), "no page is filled twice at a time"


class Guesses(Drafts):
    """Drafts of any length, whether they pay or not: of the right tokens, with mistakes in some."""

    def __init__(self, dice: random.Random, engine: Engine, right: dict[int, list[int]]) -> None:
        super().__init__(engine.bounds, engine.pages)
        self.dice, self.right = dice, right

    def guess(self, sequence: Sequence, rows: int, answers: int, most: int) -> list[int]:
        count = min(most, self.dice.choice([0, 1, 2, 5, 9]))
        after = self.right[id(sequence)][len(sequence.tokens) - sequence.prompt :][:count]
        draft = [token if self.dice.random() < 0.8 else self.dice.randrange(16) for token in after]
        return draft + [self.dice.randrange(16) for _ in range(count - len(draft))]


class Wakeful(Engine):
    def sleep(self) -> None:
        waits = self.disk_io is not None and self.disk_io.sequences  # for the disk, whose reads may hold all pages
        assert waits or (not self.waiting and not self.running), "nobody sleeps while there is something to do"


class Disk:
    """A disk store in a folder, and its threads simulated at random: their work is done some turns later, in order."""

    def __init__(self, dice: random.Random, folder: Path, scope: str) -> None:
        self.dice = dice
        self.disk_store = DiskStore(folder, dice.choice([1 << 20, 1 << 20, 60 * BLOCK]))
        self.trouble = dice.choice([0.0, 0.2])
        self.works: tuple[deque[Callable[[], None] | None], ...] = (deque(), deque())
        self.scope = scope

    def put_into(self, engine: Engine) -> None:
        assert self.disk_store.open()
        if self.trouble:
            self.harm()
        engine.pages.save = True
        read, write = (works.append for works in self.works)
        model, runner = ModelDiskStore(self.disk_store, self.scope.encode()), engine.runner
        engine.disk_io = DiskCacheIO(
            model, runner, engine.scheduler, engine.inbox.put, read_worker=read, write_worker=write
        )

    def turn(self) -> None:
        for works in self.works:
            while works and self.dice.random() < 0.4:
                work = works.popleft()
                if work is not None:
                    if self.dice.random() < 0.5:
                        self.disk_store._paused_s = 0.0  # after a write that was refused
                    with failing(self.dice, self.trouble / 4):
                        work()
        if self.dice.random() < self.trouble:
            self.harm()

    def harm(self) -> None:
        """Change, cut or remove some files behind the store's back."""
        files = sorted(path for path in self.disk_store.folder.iterdir() if path.name != LOCK)
        for victim in self.dice.sample(files, len(files) // 5):
            data = bytearray(victim.read_bytes() or b" ")
            match self.dice.randrange(3):
                case 0:
                    data[self.dice.randrange(len(data))] ^= 1 << self.dice.randrange(8)
                    victim.write_bytes(data)
                case 1:
                    victim.write_bytes(data[: self.dice.randrange(len(data))])
                case 2:
                    victim.unlink()


@dataclass
class Watched:
    """A sequence, the answer it gives alone, and its scores, if those were asked for."""

    order: int
    sequence: Sequence
    alone: list[int]
    scores: NDArray[np.float32] | None


def arrival(dice: random.Random, runner: Fake, engine: Engine, order: int) -> Watched:
    room = min(runner.context, engine.pages.room())
    beginning = [7, 8, 9, 7, 8, 9, 7, 8, 9, 7, 8][: dice.randrange(12)]  # shared by many prompts
    prompt = (beginning + [dice.randrange(runner.vocab) for _ in range(dice.randint(1, 12))])[: room - 1]
    lora = ADAPTERS.chosen(dice.choice(LORAS))
    salt = ADAPTERS.salt(b"", lora)
    if dice.random() < 0.15:
        rows = np.zeros((len(prompt), runner.vocab), np.float32)
        sequence = Sequence(prompt, limit=len(prompt), options=SubmitOptions(salt), lora=lora, scores=Scores(rows))
        engine.add(sequence)
        return Watched(order, sequence, [], rows)
    limit = min(room, len(prompt) + dice.randint(1, 20))
    sampling, seed = Sampling(**{**dice.choice(SAMPLINGS), "top_k": dice.choice([0, 5])}), dice.getrandbits(64)
    ends = frozenset(dice.sample(range(runner.vocab), dice.choice([0, 1, 3])))
    grammar = GRAMMARS.grammar(dice.choice(FORMATS)) if dice.random() < 0.4 else None
    likely = order % 3 == 0 or grammar is None or dice.random() < 0.3  # otherwise forced tokens need no own step
    how = AnswerOptions(
        sampling=sampling,
        seed=seed,
        ends=ends if grammar is None else frozenset(ENDS),
        logprobs=LogprobOptions(1, of_prompt=order % 3 == 0) if likely else None,
        matcher=grammar.matcher() if grammar is not None else None,
    )
    options = SubmitOptions(salt, dice.choice("abc"))
    sequence = Sequence(prompt, limit=limit, answer=how, options=options, lora=lora)
    engine.add(sequence)
    return Watched(
        order,
        sequence,
        alone(
            prompt,
            sampling,
            seed,
            limit,
            how.ends,
            runner.vocab,
            windows=runner.windows,
            slots=bool(runner.slots),
            grammar=grammar,
            lora=lora,
        ),
        None,
    )


def check(engine: Engine, watched: dict[int, Watched]) -> None:
    for number, group in enumerate(engine.pages.groups):
        holders = [0] * group.count
        for sequence in engine.running:
            assert sequence.computed <= sequence.page_count * engine.pages.size
            assert sequence.computed < len(sequence.tokens), "what was guessed is not known"
            assert sequence.remembered * engine.pages.size <= sequence.computed
            assert sequence.table is not None
            own = sequence.table[number, sequence.begins[number] : sequence.page_count].tolist()
            assert len(set(own)) == len(own)
            for page in own:
                holders[page] += 1
        for page in fetching(engine, number):
            holders[page] += 1
        assert holders == group.holders, "each page has the count its owners say"
        nobody = {page for page in range(group.count) if holders[page] == 0}
        assert nobody == set(group.free) | set(group.idle) and len(group.free) + len(group.idle) == len(nobody)
        assert all(group.names[page] is None for page in group.free)
        assert {page: name for name, page in group.pages.items()} == {p: n for p, n in enumerate(group.names) if n}
        assert set(group.idle) <= set(group.pages.values())
    if engine.runner.slots:
        taken = [sequence.slot for sequence in engine.running]
        assert sorted(taken + engine.pages.slots) == list(range(engine.runner.slots)), "each slot has one owner"
        snapshots = engine.pages.snapshots
        assert snapshots.count + len(fetching(engine, SLOTS)) == engine.runner.snapshots, "no snapshot is lost"
        assert len(snapshots.copies) <= len(engine.runner.batch.copies)


def fetching(engine: Engine, number: int) -> list[int]:
    """The pages of a group, or the slots, that are held while they are read from the disk."""
    fetch = engine.disk_io.fetch if engine.disk_io is not None else None
    if fetch is None:
        return []
    return [page for group, page in fetch.present if group == number] + [
        missing.page for missing in fetch.missing if missing.group == number
    ]


def assert_is_prompt(prompt: Prompt, sequence: Sequence, runner: Storm) -> None:
    """Each token of the prompt was reported once, with the likelihood by the logits after the tokens before it."""
    known = sequence.tokens[: sequence.prompt]
    assert [prompt.first[0], *(row.token for row in prompt.logprobs)] == known
    for index, row in enumerate(prompt.logprobs):
        logits = logits_after(known[: index + 1], VOCAB, runner.windows, slots=bool(runner.slots), lora=sequence.lora)
        assert row.top[0][0] == logits.argmax()
        assert row.value - row.top[0][2] == pytest.approx(float(logits[row.token]) - float(logits.max()), abs=1e-6)


def storm(
    seed: int,
    windows: tuple[int, ...] = (0,),
    *,
    slots: bool = False,
    snapshots: int = 0,
    most: int = 12,
    folder: Path | None = None,
) -> Storm:
    """One run of at most `most` sequences, with a disk if a folder is given; returns the runner."""
    dice = random.Random(seed)
    page = dice.choice([1, 2, 4])
    crowd = most > 12
    runner = Storm(
        dice,
        rows=dice.choice([48, 64, 128] if crowd else [1, 3, 8, 40]),
        wants=dice.choice([32, 48] if crowd else [1, 2, 5]),
        sequences=dice.choice([32, 40] if crowd else [1, 2, 4]),
        context=48,
        page=page,
        pages=dice.choice([120, 400, 1500] if crowd else [20, 33, 60, 120]) // page,
        vocab=VOCAB,
        windows=windows,
        slots=slots,
        adapters=2,
        snapshots=snapshots,
    )
    runner.engine = engine = Wakeful(runner)
    engine.pages.snapshot_every = 8
    disk = Disk(dice, folder, f"{page} {windows} {slots}") if folder is not None else None
    if disk is not None:
        disk.put_into(engine)
    right: dict[int, list[int]] = {}
    if engine.drafts is not None and dice.random() < 0.7:
        engine.drafts = Guesses(dice, engine, right)
    watched, cancelled = rage(dice, runner, dice.randint(most - 11, most), right, disk)
    for one in watched:
        assert_ended_as_alone(one, runner, was_cancelled=one.order in cancelled)
    return runner


def rage(
    dice: random.Random, runner: Storm, arrivals: int, right: dict[int, list[int]], disk: Disk | None = None
) -> tuple[list[Watched], set[int]]:
    """Sequences arrive and are cancelled until all have ended. Returns them, and the orders of the cancelled ones."""
    engine = runner.engine
    watched: dict[int, Watched] = {}
    cancelled: set[int] = set()
    for _ in range(5000):
        while len(watched) < arrivals and dice.random() < (0.4 if arrivals <= 12 else 0.8):
            new = arrival(dice, runner, engine, len(watched))
            watched[id(new.sequence)] = new
            right[id(new.sequence)] = new.alone
        if watched and dice.random() < 0.03:
            victim = dice.choice(list(watched.values()))
            cancelled.add(victim.order)
            victim.sequence.answer.stream.cancel()
        if disk is not None:
            disk.turn()
        if engine.inbox.empty() and not engine.sequences():
            if len(watched) == arrivals:
                return list(watched.values()), cancelled
            continue
        engine.turn()
        check(engine, watched)
    pytest.fail("the storm never ended")


def assert_ended_as_alone(one: Watched, runner: Storm, *, was_cancelled: bool) -> None:
    """The sequence ended once and for a reason, and its tokens until then equal those of the same request alone."""
    events = list(one.sequence.answer.stream)
    last = events[-1]
    assert [type(event) for event in events if isinstance(event, End | Failed)] == [type(last)], "ends once"
    assert all(isinstance(event, Start) == (index == 0) for index, event in enumerate(events[:-1]))
    tokens = [token for event in events if isinstance(event, Text) for token in event.tokens]
    assert tokens == one.alone[: len(tokens)], "the tokens of running it alone"
    if isinstance(last, Failed):
        assert "broken" in last.error.message or last.error.code == "generation_error", last.error
        assert runner.trouble
        return
    assert isinstance(last, End)
    if last.reason == "cancelled":
        assert was_cancelled
        return
    assert tokens == one.alone
    if one.scores is not None:
        assert_are_scores(one.scores, one.sequence, runner, trouble=bool(runner.trouble))
        return
    assert last.usage.completion_tokens == len(tokens)
    prompts = [event for event in events if isinstance(event, Prompt)]
    assert len(prompts) == (one.order % 3 == 0)
    for prompt in prompts:
        assert_is_prompt(prompt, one.sequence, runner)


def assert_are_scores(scores: NDArray[np.float32], sequence: Sequence, runner: Storm, *, trouble: bool) -> None:
    """The scores are the logits after each token; with `trouble`, some may be NaN."""
    known = sequence.tokens
    state: dict[str, Any] = {"slots": bool(runner.slots), "lora": sequence.lora}
    right = [logits_after(known[: i + 1], VOCAB, runner.windows, **state) for i in range(len(known))]
    assert ((scores == right) | np.isnan(scores)).all()
    assert trouble or not np.isnan(scores).any()


def seeds(count: int, *kind: object) -> range:
    """Other seeds for each kind of storm."""
    first = crc32(repr(kind).encode())
    return range(first, first + count)


@pytest.mark.parametrize("block", range(10))
def test_l15_everything_ends_once_and_as_if_alone(block: int) -> None:
    for seed in range(block * SEEDS // 10, (block + 1) * SEEDS // 10):
        try:
            storm(seed)
        except BaseException as error:
            error.add_note(f"storm({seed})")
            raise


@pytest.mark.parametrize(("windows", "slots"), [((0, 6), False), ((5,), False), ((0,), True), ((3, 0, 9), True)])
def test_so_it_does_with_windows_and_with_states_that_are_carried(windows: tuple[int, ...], slots: bool) -> None:
    for seed in seeds(15, windows, slots):
        try:
            storm(seed, windows, slots=slots)
        except BaseException as error:
            error.add_note(f"storm({seed}, {windows}, slots={slots})")
            raise


@pytest.mark.parametrize("windows", [(0,), (), (5,), (3, 0, 9)])
@pytest.mark.parametrize("snapshots", [1, 3, 50])
def test_so_it_does_with_snapshots(windows: tuple[int, ...], snapshots: int) -> None:
    """Few snapshots are forgotten again and again, many are found; a model may have no pages at all."""
    for seed in seeds(8, windows, snapshots):
        try:
            storm(seed, windows, slots=True, snapshots=snapshots)
        except BaseException as error:
            error.add_note(f"storm({seed}, {windows}, slots=True, snapshots={snapshots})")
            raise


def test_snapshots_spare_rows() -> None:
    without, few, many = (
        sum(storm(seed, slots=True, snapshots=count, most=40).computed for seed in range(5)) for count in (0, 2, 50)
    )
    assert many < few < without


@pytest.mark.parametrize(
    ("windows", "slots", "snapshots"),
    [((0,), False, 0), ((0, 6), False, 0), ((0,), True, 0), ((0,), True, 4), ((), True, 20)],
)
def test_so_it_does_in_a_crowd(windows: tuple[int, ...], slots: bool, snapshots: int) -> None:
    for seed in seeds(3, windows, slots, snapshots):
        try:
            storm(seed, windows, slots=slots, snapshots=snapshots, most=64)
        except BaseException as error:
            error.add_note(f"storm({seed}, {windows}, slots={slots}, snapshots={snapshots}, most=64)")
            raise


PAGED = [((0,), 0), ((0, 6), 0), ((5,), 0), ((3, 0, 9), 0)]
CARRIED = [((), 3), ((0,), 2), ((0,), 20), ((3, 0, 9), 5)]  # windows, and how many snapshots there are


@pytest.mark.parametrize("kinds", [PAGED, CARRIED], ids=["pages", "snapshots"])
def test_so_it_does_with_a_disk_that_fails_and_after_restarts(
    kinds: list[tuple[tuple[int, ...], int]], tmp_path: Path
) -> None:
    """Storm after storm over one folder: each begins with the undamaged pages that earlier ones have written."""
    total = Counter[str]()
    for windows, snapshots in kinds:
        for number in range(44):
            seed = number // 2  # each twice: the second begins as the first did
            try:
                runner = storm(seed, windows, slots=snapshots > 0, snapshots=snapshots, folder=tmp_path / "disk")
            except BaseException as error:
                error.add_note(
                    f"storm({seed}, {windows}, slots={snapshots > 0}, snapshots={snapshots}, folder=...), "
                    f"time {number % 2}, after those before it"
                )
                raise
            counts = runner.engine.figures().disk
            assert counts is not None
            total.update(asdict(counts))
    assert total["hits"] > 50 and total["rejected"] + total["misses"] > 5, f"the storms met too little: {total}"


@pytest.mark.soak
def test_l15_so_it_does_ten_thousand_times(tmp_path: Path) -> None:
    for seed in range(10_000):
        windows, snapshots = (PAGED + CARRIED)[seed % 8]
        options = {"slots": snapshots > 0, "snapshots": snapshots, "most": 64 if seed % 10 == 0 else 12}
        try:
            storm(seed, windows, folder=tmp_path / "disk" if seed % 3 else None, **options)
        except BaseException as error:
            error.add_note(f"storm({seed}, {windows}, {options}, folder={seed % 3 > 0})")
            raise


def test_a_storm_can_be_repeated() -> None:
    assert storm(11).computed == storm(11).computed


def test_the_fake_sees_a_wrong_token() -> None:
    one, other = np.array([1, 2, 3], np.int32), np.array([1, 2, 4], np.int32)
    assert (logits_of(one, 32) != logits_of(other, 32)).sum() >= 30
    assert pick(np.full(4, np.nan, np.float32), Sampling(temperature=0.0), seed=0, position=0) == NO_TOKEN
