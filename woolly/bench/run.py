"""Everything about one model, in the order in which it can be measured without one figure disturbing another."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

from woolly import system
from woolly.bench import state as states
from woolly.bench.against import SECONDS, PeerLoad, PeerResult, compare_all
from woolly.bench.machine import Machine
from woolly.bench.model import SpeedResult, SpeedTest, positions_of, speed, speed_tests, turn_seconds
from woolly.bench.peer import PeerOptions, find_peer
from woolly.bench.profile import Profile, profile, rates
from woolly.bench.subject import Subject
from woolly.device import cpu

TOUCHED = 256 << 20  # bytes by which the rate of a first touch is measured
MOST_FOREIGN = 0.05  # share of the processors: where others used more, figures are marked noisy


@dataclass(frozen=True, slots=True)
class BenchReport:
    """All figures of one model. The machine's state is measured last, on a buffer of its own."""

    machine: Machine
    model: str
    architecture: str
    kv: str
    exact: bool
    load_s: float
    load_gb_s: float
    file_mb: float
    packed_mb: float
    token_mb: float  # megabytes of the packed weights that a token reads
    huge_mb: float
    peak_rss_mb: float
    turn_us: float  # microseconds that Python adds to a step
    tests: tuple[SpeedResult, ...]
    profile: dict[str, Profile] | None
    peer: PeerLoad | None
    ratios: dict[str, PeerResult] | None
    noisy: bool


@dataclass(frozen=True, slots=True)
class BenchPlan:
    """The measurements to make. `against` is llama.cpp, or the path of a llama-bench program."""

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
    python: str = ""  # a Python that has llama_cpp; empty: the running one
    seconds: float = SECONDS  # how long one comparison takes


def bench_model(
    path: Path, name: str, bench_plan: BenchPlan, *, say: Callable[[str], None] = lambda what: None
) -> BenchReport:
    """Load a model, time it, and compare it; `say` is called with what is being done. A missing peer
    is reported first."""
    if bench_plan.against:
        find_peer(bench_plan.against, bench_plan.python)
    tests = speed_tests(bench_plan.prompt, bench_plan.tokens, bench_plan.depth, bench_plan.batches)
    positions, sequences = positions_of(tests), max(test.sequences for test in tests)
    say("loading")
    threads, kv, exact = bench_plan.threads, bench_plan.kv, bench_plan.exact
    subject = Subject(path, threads=threads, positions=positions, sequences=sequences, kv=kv, exact=exact)
    try:
        watch = states.Watch()
        speeds = _speeds(subject, tests, bench_plan.repetitions, say)
        foreign = watch.foreign()
        # Read before buffers and peers are made, whose memory is not the model's.
        peak, huge = system.usage().peak, states.huge_pages()
        profiles = _profiles(subject, tests, say) if bench_plan.profile else None
        peer = ratios = None
        if bench_plan.against:
            options = PeerOptions(str(path), threads, positions, sequences, kv)
            peer, ratios = compare_all(
                subject, tests, bench_plan.against, bench_plan.python, options, seconds=bench_plan.seconds, say=say
            )
        return BenchReport(
            machine=_machine(threads, subject.isa, foreign),
            model=name,
            architecture=subject.architecture,
            kv=kv,
            exact=exact,
            load_s=subject.load_s,
            load_gb_s=subject.file_bytes / subject.load_s / 1e9,
            file_mb=subject.file_bytes / 1e6,
            packed_mb=subject.program.weight_bytes / 1e6,
            token_mb=subject.program.token_bytes / 1e6,
            huge_mb=huge / 1e6,
            peak_rss_mb=peak / 1e6,
            turn_us=turn_seconds(path, subject.vocab) * 1e6,
            tests=speeds,
            profile=profiles,
            peer=peer,
            ratios=ratios,
            noisy=foreign > MOST_FOREIGN or any(one.noisy for one in (ratios or {}).values()),
        )
    finally:
        subject.close()


def _speeds(
    subject: Subject, tests: list[SpeedTest], repetitions: int, say: Callable[[str], None]
) -> tuple[SpeedResult, ...]:
    results = []
    for test in tests:
        say(test.name)
        results.append(speed(subject, test, repetitions=repetitions))
    return tuple(results)


def _machine(threads: int, isa: str, foreign: float) -> Machine:
    """The machine, and the state that it is in now. foreign: what others had of its processors meanwhile."""
    return Machine(
        states.probe(threads)[0],
        threads,
        states.processor(),
        cpu.Buffer(TOUCHED).touch(threads) / 1e9,
        states.load_average(),
        isa=isa,
        foreign_share=foreign,
    )


def _profiles(subject: Subject, tests: list[SpeedTest], say: Callable[[str], None]) -> dict[str, Profile]:
    """A step of the prompt and a token of one sequence, instruction by instruction."""
    say("profile")
    limits = rates(subject)
    profiles = {}
    for test in tests:
        if test.sequences > 1:
            continue
        subject.fill(test.depth)
        if test.kind == "prompt":
            batch, runs = subject.prompt_step(test.count, test.depth), 3
        else:
            batch, runs = subject.step(test.depth + test.count // 2), 15
        profiles[test.name] = profile(subject, batch, limits, runs=runs)
    return profiles
