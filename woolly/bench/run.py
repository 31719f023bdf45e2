"""Everything about one model, in the order in which it can be measured without one figure disturbing another."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

from woolly import native, system
from woolly.bench import state as states
from woolly.bench.against import SECONDS, compare_all
from woolly.bench.model import Test, positions_of, speed, tests_of, turn_seconds
from woolly.bench.peer import Options, find_peer
from woolly.bench.profile import Profile, profile, rates
from woolly.bench.report import Report
from woolly.bench.subject import Subject

TOUCHED = 256 << 20  # bytes for the rate of a first touch


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
    profile: bool = False
    against: str = ""
    python: str = ""  # one that has llama_cpp; ours if left out
    seconds: float = SECONDS  # of one comparison


def bench_model(path: Path, name: str, todo: Plan, *, say: Callable[[str], None] = lambda what: None) -> Report:
    """Load a model, time it, and compare it; `say` hears what is being done. A missing peer is told of first."""
    if todo.against:
        find_peer(todo.against, todo.python)
    tests = tests_of(todo.prompt, todo.tokens, todo.depth, todo.batches)
    positions, sequences = positions_of(tests), max(test.sequences for test in tests)
    say("loading")
    subject = Subject(path, threads=todo.threads, positions=positions, sequences=sequences, kv=todo.kv)
    try:
        watch = states.Watch()
        speeds = []
        for test in tests:
            say(test.name)
            speeds.append(speed(subject, test, repetitions=todo.repetitions))
        foreign = watch.foreign()
        # Buffers and peers come after this: they are not the model's.
        peak, huge = system.usage().peak, states.huge_pages()
        profiles = _profiles(subject, tests, say) if todo.profile else {}

        def options(repack: bool) -> Options:
            return Options(str(path), todo.threads, positions, sequences, todo.kv, repack)

        comparison = None
        if todo.against:
            comparison = compare_all(subject, tests, todo.against, todo.python, options, seconds=todo.seconds, say=say)
        return Report(
            model=name,
            architecture=subject.architecture,
            isa=subject.isa,
            threads=todo.threads,
            kv=todo.kv,
            processor=states.processor(),
            load_average=states.load_average(),
            machine=states.probe(todo.threads),
            touch=native.Buffer(TOUCHED).touch(todo.threads),
            load_s=subject.load.seconds,
            file_bytes=subject.load.nbytes,
            packed_bytes=subject.program.weight_bytes,
            huge_bytes=huge,
            peak_rss=peak,
            turn_s=turn_seconds(path, subject.vocab),
            speeds=tuple(speeds),
            profiles=profiles,
            comparison=comparison,
            foreign=foreign,
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
