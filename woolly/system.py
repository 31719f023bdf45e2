"""What the operating system allows and tells: cores, memory, resident set.

A container often sees the whole machine and may use a tenth of it: threads beyond the quota wait for each other, and
memory beyond the limit ends the process. So every limit counts that lies on the way from this process up to the root of
its control groups, in version 1, version 2, or both at once. A limit that a system does not report is no limit (macOS
has none of these files).
"""

from __future__ import annotations

import logging
import mmap
import os
import resource
import sys
from collections.abc import Collection, Iterator
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import Literal

_log = logging.getLogger("woolly")
ROOT = Path("/")
THREAD = 16 << 20  # bytes of address space that a thread begins with: its stack, and what Python takes for its frames
NO_LIMIT = 1 << 60  # cgroup v1 writes "no limit" as the largest multiple of a page below 2^63


@dataclass(frozen=True, slots=True)
class Usage:
    """Bytes of memory this process holds, and the most it ever held."""

    current: int
    peak: int


@dataclass(frozen=True, slots=True)
class Cores:
    """How many threads are worth starting, and how that came about."""

    threads: int
    logical: int  # CPUs of the machine
    allowed: int  # of them, in the affinity mask
    fast: int  # of the allowed, those that are no efficiency cores
    physical: int  # cores that these belong to
    quota: float | None  # the smallest quota of the control groups, in cores

    @property
    def most(self) -> int:
        """The most threads that can run at the same time."""
        return max(1, min(self.allowed, self.allowed if self.quota is None else int(self.quota)))

    @property
    def limit(self) -> Literal["quota", "affinity", "efficiency", "siblings", "none"]:
        """Why there are fewer threads than CPUs: the first reason that applies, in the order of the return type."""
        if self.quota is not None and int(self.quota) < self.physical:
            return "quota"
        if self.allowed < self.logical:
            return "affinity"
        if self.fast < self.allowed:
            return "efficiency"
        return "siblings" if self.physical < self.fast else "none"


@dataclass(frozen=True, slots=True)
class MemoryLimit:
    """Bytes that one limit of memory leaves free. kind: "machine", "cgroup" or "rlimit"; what: its name for users."""

    kind: Literal["machine", "cgroup", "rlimit"]
    what: str
    free: int


def cores(*, root: Path = ROOT, allowed: Collection[int] | None = None) -> int:
    """How many threads are worth starting: physical cores we may run on, within the CPU quota, at least one.

    `allowed` are the logical CPUs of the affinity mask (the process's own if left out).
    """
    return count_cores(root=root, allowed=allowed).threads


def threads(asked: int | None = None, *, root: Path = ROOT, allowed: Collection[int] | None = None) -> int:
    """How many threads compute: as many as are asked for, but not more than can run at the same time: a step waits for
    its last thread, and beyond that it would wait for one that does not run."""
    counted = count_cores(root=root, allowed=allowed)
    if asked is None:
        return counted.threads
    if asked > counted.most:
        _warn_of_threads(asked, counted.most)
    return min(asked, counted.most)


@cache
def _warn_of_threads(asked: int, most: int) -> None:
    _log.warning("woolly: %d threads are asked for; %d compute, as no more can run at the same time", asked, most)


def count_cores(*, root: Path = ROOT, allowed: Collection[int] | None = None) -> Cores:
    """As `cores`, with the counts that lead to it."""
    cpus = _affinity() if allowed is None else allowed
    fast = _fast(root, cpus)
    physical = len({_core(root, cpu) for cpu in fast})
    quotas = list(_cpu_quotas(root))
    return Cores(
        threads=max(1, min([physical, *map(int, quotas)])),
        logical=max(count_list(read_text(root / "sys/devices/system/cpu/online")) or os.cpu_count() or 1, len(cpus)),
        allowed=len(cpus),
        fast=len(fast),
        physical=physical,
        quota=min(quotas, default=None),
    )


def shares(count: int, *, root: Path = ROOT, allowed: Collection[int] | None = None) -> list[set[int]]:
    """The CPUs we may run on in so many parts, for processes that run at the same time: none is in two, the siblings of
    a core are in one, and a part lies within one memory node where there are nodes enough. With fewer cores than parts,
    some parts share a core."""
    cores = _cores_of_nodes(root, allowed)
    if count % len(cores) == 0:  # each node has as many parts
        parts = [part for node in cores for part in _dealt(node, count // len(cores))]
    else:
        parts = _dealt([core for node in cores for core in node], count)
    return [set().union(*part) for part in parts]


def nodes(*, root: Path = ROOT, allowed: Collection[int] | None = None) -> int:
    """The memory nodes that have CPUs we may run on, at least one."""
    return len(_cores_of_nodes(root, allowed))


def _cores_of_nodes(root: Path, allowed: Collection[int] | None) -> list[list[set[int]]]:
    """The CPUs of each core that we may run on, for each memory node."""
    by_node: dict[str, dict[str, set[int]]] = {}
    for cpu in sorted(_affinity() if allowed is None else allowed):
        node = next((root / f"sys/devices/system/cpu/cpu{cpu}").glob("node[0-9]*"), Path())
        by_node.setdefault(node.name, {}).setdefault(_core(root, cpu), set()).add(cpu)
    return [list(cores.values()) for cores in by_node.values()]


def _dealt(cores: list[set[int]], count: int) -> list[list[set[int]]]:
    """Cores in so many parts, neighbours together; what is left over goes to the first ones."""
    if len(cores) < count:
        return [[cores[index % len(cores)]] for index in range(count)]
    least, more = divmod(len(cores), count)
    ends = [(index + 1) * least + min(index + 1, more) for index in range(count)]
    return [cores[begin:end] for begin, end in zip([0, *ends], ends, strict=False)]


def memory(*, root: Path = ROOT) -> int:
    """Bytes this process may still take: the least that the machine, every control group and RLIMIT_AS leave free."""
    return max(0, min(limit.free for limit in memory_limits(root=root)))


def memory_limits(*, root: Path = ROOT) -> list[MemoryLimit]:
    """Every limit of memory on this process, with what it leaves free."""
    limits = [MemoryLimit("machine", "the machine's memory", _machine_free(root)), *_cgroup_free(root)]
    limit = resource.getrlimit(resource.RLIMIT_AS)[0]
    if limit != resource.RLIM_INFINITY:
        pages = read_text(root / "proc/self/statm").split()
        free = limit - (int(pages[0]) * os.sysconf("SC_PAGE_SIZE") if pages else 0)
        limits.append(MemoryLimit("rlimit", "the address space that `ulimit -v` allows", free))
    return limits


def has_room(nbytes: int) -> bool:
    """Whether so much more can be had at this moment."""
    try:
        mmap.mmap(-1, nbytes).close()
    except OSError:
        return False
    return True


def check_room(nbytes: int) -> None:
    """Raise MemoryError where so much more cannot be had; for code that ends the process where memory runs out."""
    if not has_room(nbytes):
        raise MemoryError


def check_thread() -> None:
    """Raise MemoryError where a thread would find no memory to begin. One that finds a stack and nothing else ends
    without a word, and whoever starts it waits for ever for it to begin."""
    check_room(THREAD)


def usage(*, root: Path = ROOT) -> Usage:
    """The resident set now and at its highest."""
    status = _fields(root / "proc/self/status")
    if "VmHWM" in status and "VmRSS" in status:
        return Usage(current=status["VmRSS"] * 1024, peak=status["VmHWM"] * 1024)
    # getrusage keeps the peak alone, in KiB on Linux and in bytes on macOS.
    peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * (1 if sys.platform == "darwin" else 1024)
    return Usage(current=peak, peak=peak)


def _affinity() -> Collection[int]:
    if sys.platform == "linux":
        return os.sched_getaffinity(0)
    return range(os.cpu_count() or 1)


def count_list(text: str) -> int:
    """How many numbers a list of the kernel holds, as in 0-3,8."""
    count = 0
    for part in text.split(","):
        first, _, last = part.partition("-")
        if first.isdigit() and (last or first).isdigit():
            count += int(last or first) - int(first) + 1
    return count


def _core(root: Path, cpu: int) -> str:
    """The physical core of a logical CPU, named by the list of its siblings; a CPU that tells nothing is its own."""
    topology = root / f"sys/devices/system/cpu/cpu{cpu}/topology"
    return read_text(topology / "core_cpus_list") or read_text(topology / "thread_siblings_list") or str(cpu)


def _fast(root: Path, cpus: Collection[int]) -> list[int]:
    """The CPUs without the efficiency cores: a step waits for its slowest thread."""
    speeds = {}
    for cpu in cpus:
        folder = root / f"sys/devices/system/cpu/cpu{cpu}"
        speeds[cpu] = _number(folder / "cpu_capacity") or _number(folder / "cpufreq/cpuinfo_max_freq") or 0
    best = max(speeds.values(), default=0)
    return [cpu for cpu, speed in speeds.items() if speed * 10 >= best * 8]


def _cpu_quotas(root: Path) -> Iterator[float]:
    for group in _groups(root, "cpu"):
        quota, _, period = read_text(group / "cpu.max").partition(" ")
        if not quota:
            quota, period = read_text(group / "cpu.cfs_quota_us"), read_text(group / "cpu.cfs_period_us")
        if quota.isdigit() and period.isdigit() and int(period) > 0:  # neither "max" nor "-1"
            yield int(quota) / int(period)


def _machine_free(root: Path) -> int:
    available = _fields(root / "proc/meminfo").get("MemAvailable")
    if available is not None:
        return available * 1024
    return os.sysconf("SC_PHYS_PAGES") * os.sysconf("SC_PAGE_SIZE")


def _cgroup_free(root: Path) -> Iterator[MemoryLimit]:
    for group in _groups(root, "memory"):
        stat = _fields(group / "memory.stat")
        # Pages of files that were not used lately count as used, but are given back when memory is needed.
        for limits, used, idle in (
            (("memory.max", "memory.high"), "memory.current", "inactive_file"),
            (("memory.limit_in_bytes",), "memory.usage_in_bytes", "total_inactive_file"),
        ):
            for name in limits:
                limit = _number(group / name)
                if limit is not None and limit < NO_LIMIT:
                    free = limit - (_number(group / used) or 0) + stat.get(idle, 0)
                    what = f"{name} of the control group /{group.relative_to(root)}"
                    yield MemoryLimit("cgroup", what, free)


def _groups(root: Path, controller: str) -> Iterator[Path]:
    """The folders of this process's control groups that may hold limits of a controller, each with its ancestors.

    /proc/self/cgroup names the group inside a hierarchy, /proc/self/mountinfo tells where that hierarchy is mounted and
    which group is the mount's root. In a container the group often lies outside of what is mounted: then the mount's
    root, which is the container's own group, is what there is to read.
    """
    paths = {}  # by controller; version 2 has one group for all and the name ""
    for line in read_text(root / "proc/self/cgroup").splitlines():
        _, controllers, path = line.split(":", 2)
        paths.update(dict.fromkeys(controllers.split(","), path))
    for line in read_text(root / "proc/self/mountinfo").splitlines():
        before, _, after = line.partition(" - ")
        place, system = before.split(), after.split()
        if len(place) < 5 or len(system) < 3:
            continue
        if system[0] == "cgroup2":
            group = paths.get("")
        elif system[0] == "cgroup" and controller in system[2].split(","):
            group = paths.get(controller)
        else:
            continue
        if group is None:
            continue
        mount = root / _unescaped(place[4]).lstrip("/")
        inside = _below(group, _unescaped(place[3]))
        yield from (mount.joinpath(*inside[:depth]) for depth in range(len(inside), -1, -1))


def _below(path: str, top: str) -> list[str]:
    """The names that lead from group `top` to group `path`; none where `path` is not below it."""
    names, start = path.split("/"), top.rstrip("/").split("/")
    if ".." in names or names[: len(start)] != start:
        return []
    return [name for name in names[len(start) :] if name]


def _unescaped(word: str) -> str:
    """A path of mountinfo, where blanks and backslashes are written in octal."""
    for octal, character in (("\\040", " "), ("\\011", "\t"), ("\\012", "\n"), ("\\134", "\\")):
        word = word.replace(octal, character)
    return word


def _fields(path: Path) -> dict[str, int]:
    """Lines of a name and a number, as in /proc/meminfo and memory.stat."""
    rows = (line.replace(":", " ").split() for line in read_text(path).splitlines())
    return {row[0]: int(row[1]) for row in rows if len(row) > 1 and row[1].isdigit()}


def _number(path: Path) -> int | None:
    text = read_text(path)
    return int(text) if text.isdigit() else None


def read_text(path: Path) -> str:
    """The text of a system file, without the blanks around it; "" where it cannot be read."""
    try:
        return path.read_text(errors="replace").strip()
    except OSError:
        return ""


def user_path(text: str | os.PathLike[str]) -> Path:
    """A path as a user writes it: `~` is a home folder; `~name` stays as it is where there is no such user."""
    return Path(os.path.expanduser(text))
