"""Everything about one model, in the order in which it can be measured without one figure disturbing another."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

from woolly import native, system
from woolly.bench import state as states
from woolly.bench.against import SECONDS, Compared, Loaded, compare_all
from woolly.bench.machine import Machine
from woolly.bench.model import Speed, Test, positions_of, speed, tests_of, turn_seconds
from woolly.bench.peer import Options, find_peer
from woolly.bench.profile import Profile, profile, rates
from woolly.bench.subject import Subject

TOUCHED = 256 << 20  # bytes for the rate of a first touch
MOST_FOREIGN = 0.05  # of the processors: where others used more, figures are to be doubted


@dataclass(frozen=True, slots=True)
class Report:
    """All figures of one model. The machine's state is by a buffer of its own, when everything else was done."""

    machine: Machine
    model: str
    architecture: str
    kv: str
    exact: bool
    load_s: float
    load_gb_s: float
    file_mb: float
    packed_mb: float
    token_mb: float  # of the packed ones those that a token reads
    huge_mb: float
    peak_rss_mb: float
    turn_us: float  # what Python adds to a step
    tests: tuple[Speed, ...]
    profile: dict[str, Profile] | None
    peer: Loaded | None
    ratios: dict[str, Compared] | None
    noisy: bool


@dataclass(frozen=True, slots=True)
class Plan:
    """What is to be measured. `against` is llama.cpp, or the path of a llama-bench program."""

    prompt: int = 512
    tokens: int = 64
    threads: int = 1
    repetitions: int = 5
    batches: tuple[int, ...] = (1, 2, 4, 8)
    depth: int = 0
    kv: str = "f16"
    exact: bool = False
    profile: bool = False
    against: str = ""
    python: str = ""  # one that has llama_cpp; ours if left out
    seconds: float = SECONDS  # of one comparison


def bench_model(path: Path, name: str, todo: Plan, *, say: Callable[[str], None] = lambda what: None) -> Report:
    """Load a model, time it, and compare it; `say` is called with what is being done. A missing peer
    is reported first."""
    if todo.against:
        find_peer(todo.against, todo.python)
    tests = tests_of(todo.prompt, todo.tokens, todo.depth, todo.batches)
    positions, sequences = positions_of(tests), max(test.sequences for test in tests)
    say("loading")
    subject = Subject(
        path, threads=todo.threads, positions=positions, sequences=sequences, kv=todo.kv, exact=todo.exact
    )
    try:
        watch = states.Watch()
        speeds = []
        for test in tests:
            say(test.name)
            speeds.append(speed(subject, test, repetitions=todo.repetitions))
        foreign = watch.foreign()
        # Buffers and peers come after this: they are not the model's.
        peak, huge = system.usage().peak, states.huge_pages()
        profiles = _profiles(subject, tests, say) if todo.profile else None
        peer = ratios = None
        if todo.against:
            options = Options(str(path), todo.threads, positions, sequences, todo.kv)
            peer, ratios = compare_all(
                subject, tests, todo.against, todo.python, options, seconds=todo.seconds, say=say
            )
        return Report(
            machine=Machine(
                states.probe(todo.threads)[0],
                todo.threads,
                states.processor(),
                native.Buffer(TOUCHED).touch(todo.threads) / 1e9,
                states.load_average(),
                isa=subject.isa,
                foreign_share=foreign,
            ),
            model=name,
            architecture=subject.architecture,
            kv=todo.kv,
            exact=todo.exact,
            load_s=subject.load_s,
            load_gb_s=subject.file_bytes / subject.load_s / 1e9,
            file_mb=subject.file_bytes / 1e6,
            packed_mb=subject.program.weight_bytes / 1e6,
            token_mb=subject.program.token_bytes / 1e6,
            huge_mb=huge / 1e6,
            peak_rss_mb=peak / 1e6,
            turn_us=turn_seconds(path, subject.vocab) * 1e6,
            tests=tuple(speeds),
            profile=profiles,
            peer=peer,
            ratios=ratios,
            noisy=foreign > MOST_FOREIGN or any(one.noisy for one in (ratios or {}).values()),
        )
    finally:
        subject.close()


def _profiles(subject: Subject, tests: list[Test], say: Callable[[str], None]) -> dict[str, Profile]:
    """A step of the prompt and a token of one sequence, instruction by instruction."""
    say("profile")
    limits = rates(subject)
    found = {}
    for test in tests:
        if test.sequences > 1:
            continue
        subject.fill(test.depth)
        if test.kind == "prompt":
            batch, runs = subject.prompt_step(test.count, test.depth), 3
        else:
            batch, runs = subject.step(test.depth + test.count // 2), 15
        found[test.name] = profile(subject, batch, limits, runs=runs)
    return found
