"""What this machine allows, and what limits it: for a person, and for a report of a fault.

A token reads every weight once, but of experts only those it chooses: tokens a second are at most the bandwidth of
memory over the bytes of a token. Every other limit of a model's speed is named here, with advice.
"""

from __future__ import annotations

import os
import platform
from collections.abc import Callable, Collection, Iterable, Iterator
from contextlib import suppress
from dataclasses import dataclass, replace
from importlib.metadata import version as version_of
from pathlib import Path
from typing import TypeAlias

from woolly import gguf, model, plan, system
from woolly.bench.state import PROBE, State, load_average, probe, processor
from woolly.config import Config
from woolly.device import cpu
from woolly.errors import BusyError, WoollyError, printable
from woolly.plan import gib
from woolly.system import Cores, MemoryLimit, read_text
from woolly.version import __version__

PACKAGES = ("numpy", "tokenizers", "jinja2")
LEAST_PROBE = 16 << 20  # bytes; a smaller buffer would fit a cache
MOST_MODELS = 100
MORE_MEMORY = {  # what limits the memory -> how to get more
    "machine": "free some memory",
    "cgroup": "raise the limit of the container or service",
    "rlimit": "raise it with `ulimit -v`",
}

Probe: TypeAlias = Callable[..., tuple[State, int]]


@dataclass(frozen=True, slots=True)
class CacheLevel:
    """A cache of the first processor."""

    level: int
    kind: str  # Data, Instruction, Unified
    nbytes: int
    shared: int  # CPUs that share it


@dataclass(frozen=True, slots=True)
class ModelExpectation:
    """The speed and context that a model of this machine can have. context is 0 where none fits; problem says why."""

    name: str
    file_bytes: int
    weight_bytes: int
    token_bytes: int  # bytes of the weights that a token reads
    needed: int  # bytes of memory with that context; where none fits, with the smallest
    context: int
    tokens_s: float | None  # an upper bound; None where memory could not be measured
    problem: str


@dataclass(frozen=True, slots=True)
class Limit:
    """Something that holds models back. code: not_enough_memory, instruction_set, cpu_quota, affinity, threads,
    huge_pages, bandwidth."""

    code: str
    what: str
    remedy: str


@dataclass(frozen=True, slots=True)
class Diagnosis:
    """The machine, its memory, its models and their limits, the hardest limit first."""

    version: str
    python: str
    system: str
    packages: dict[str, str]
    processor: str
    sets: tuple[str, ...]  # the best last
    isa: str
    forced: str  # the environment variable that chose another set than the best; empty where none did
    cores: Cores
    threads: int  # as the setting says, otherwise by the usable cores
    rooms: tuple[MemoryLimit, ...]
    memory: int
    huge: str  # always, madvise, never, or nothing where the system does not tell
    huge_bytes: int  # bytes of the probed buffer that lay in huge pages
    probed: int  # bytes of the buffer by which memory was measured
    caches: tuple[CacheLevel, ...]
    state: State | None
    load: float
    models: tuple[ModelExpectation, ...]
    limits: tuple[Limit, ...]


def diagnose(
    config: Config,
    paths: Iterable[Path],
    *,
    root: Path = system.ROOT,
    allowed: Collection[int] | None = None,
    read: Probe = probe,
) -> Diagnosis:
    """Look at the machine and at the models of these paths; a second or two, and a quarter of a gigabyte."""
    cores = system.count_cores(root=root, allowed=allowed)
    threads = cores.threads if config.engine.threads is None else config.engine.threads
    rooms = tuple(system.memory_limits(root=root))
    memory = max(0, min(room.free for room in rooms))
    state, probed, huge = _probe(threads, memory, read)
    machine = cpu.machine()
    sets, isa = tuple(map(str, machine["sets"])), str(machine["isa"])  # type: ignore[call-overload]
    forced = next((name for name in ("WOOLLY_ISA", "WOOLLY_DISABLE_SIMD") if os.environ.get(name)), "")
    distinct = {path.resolve(): path for path in paths}  # a file with two paths is one model
    where = (platform.system(), platform.release(), platform.machine(), *filter(None, platform.libc_ver()))
    diagnosis = Diagnosis(
        version=__version__,
        python=f"{platform.python_implementation()} {platform.python_version()}",
        system=" ".join(where),
        packages={name: version_of(name) for name in PACKAGES},
        processor=processor(),
        sets=sets,
        isa=isa,
        forced=forced if isa != sets[-1] else "",
        cores=cores,
        threads=threads,
        rooms=rooms,
        memory=memory,
        huge=_huge(root),
        huge_bytes=huge,
        probed=probed,
        caches=tuple(_caches(root)),
        state=state,
        load=load_average(),
        models=tuple(_model_expectation(path, config, memory, state) for path in list(distinct.values())[:MOST_MODELS]),
        limits=(),
    )
    return replace(diagnosis, limits=tuple(_limits(diagnosis)))


def _probe(threads: int, memory: int, read: Probe) -> tuple[State | None, int, int]:
    """The state of the memory, the size of the probed buffer, and its bytes in huge pages; None and 0 without room."""
    nbytes = min(PROBE, memory // 4)
    if nbytes >= LEAST_PROBE:
        with suppress(BusyError):
            state, huge = read(threads, nbytes=nbytes)
            return state, nbytes, huge
    return None, 0, 0


def _limits(d: Diagnosis) -> Iterator[Limit]:
    """The limits that apply, the hardest first."""
    least, cores = min(d.rooms, key=lambda room: room.free), d.cores
    for one in d.models:
        if not one.context and one.needed:
            what = f"{one.name} needs {gib(one.needed)}, {least.what} leaves {gib(max(0, least.free))}"
            yield Limit("not_enough_memory", what, MORE_MEMORY[least.kind] + ", or use a smaller model")
    if d.forced:
        yield Limit(
            "instruction_set",
            f"{d.forced} makes {d.isa} be used, and this machine has {d.sets[-1]}",
            f"unset {d.forced}; the answers stay the same to the bit, and come faster",
        )
    if d.threads != cores.threads:
        what = f"a setting asks for {d.threads} of {cores.threads} threads"
        if d.threads > cores.threads:
            what = (
                f"a setting asks for {d.threads} threads, and {cores.threads} can run at once: they wait for each other"
            )
        yield Limit("threads", what, "leave WOOLLY_CPU_THREADS out")
    if cores.limit == "quota":
        yield Limit(
            "cpu_quota",
            f"the CPU quota of {cores.quota:g} leaves {cores.threads} of {cores.physical} cores",
            "raise the quota of the container or service (cpu.max), to a whole number of cores",
        )
    elif cores.limit == "affinity":
        yield Limit(
            "affinity",
            f"this process may use {cores.allowed} of {cores.logical} CPUs",
            "widen the affinity mask (taskset, cpuset) for more threads",
        )
    if d.huge == "never":
        yield Limit(
            "huge_pages",
            "the system gives no huge pages: every read of a weight looks up more addresses",
            "echo madvise > /sys/kernel/mm/transparent_hugepage/enabled",
        )
    if d.state is not None:
        yield Limit(
            "bandwidth",
            f"memory is read at {d.state.read_gb_s:.1f} GB/s, and every token reads its weights",
            "a smaller model or a smaller type of weights is faster in proportion",
        )


def _model_expectation(path: Path, config: Config, memory: int, state: State | None) -> ModelExpectation:
    name, size = printable(path.name), 0
    try:
        with gguf.open(path) as file:
            size = file.size
            graph = model.build(file, config.engine.context)
        own = config.engine.context or graph.meta.context
        program = plan.plan(graph, cpu.TARGET, plan.bounds(graph, own), kv=config.engine.kv, exact=config.engine.exact)
        weights, token = program.weight_bytes, program.token_bytes
        rate = state.read_gb_s * 1e9 / token if state is not None and token else None
        try:
            budget = plan.fit(program, memory, asked=config.engine.context is not None)
        except BusyError as error:
            return ModelExpectation(name, size, weights, token, _needed(error), 0, rate, error.message)
        return ModelExpectation(name, size, weights, token, budget.total, budget.context, rate, "")
    except WoollyError as error:
        return ModelExpectation(name, size, 0, 0, _needed(error), 0, None, error.message)


def _needed(error: WoollyError) -> int:
    """The bytes that an error of memory says are needed, or 0."""
    needed = error.facts.get("needed", 0)
    return needed if isinstance(needed, int) else 0


def _huge(root: Path) -> str:
    words = read_text(root / "sys/kernel/mm/transparent_hugepage/enabled").split()
    return next((word.strip("[]") for word in words if word.startswith("[")), "")


def _caches(root: Path) -> Iterator[CacheLevel]:
    for folder in sorted((root / "sys/devices/system/cpu/cpu0/cache").glob("index*")):
        level, size = read_text(folder / "level"), read_text(folder / "size")
        if level.isdigit() and size[:-1].isdigit() and size[-1] in "KM":
            shared = system.count_list(read_text(folder / "shared_cpu_list"))
            nbytes = int(size[:-1]) << {"K": 10, "M": 20}[size[-1]]
            yield CacheLevel(int(level), read_text(folder / "type"), nbytes, shared)
