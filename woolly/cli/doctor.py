"""Explain this machine: what it has, what this process may use of it, and what limits the models that are here.

    woolly doctor                          for people; put it into a report of a fault
    woolly doctor --json                   the same for programs
    WOOLLY_ISA=avx2 woolly doctor          what another instruction set would mean

A token reads every weight once, of experts only those it chooses: a model's tokens a second are at most what memory
gives over these bytes.
"""

from __future__ import annotations

import argparse
import json
from dataclasses import asdict
from itertools import groupby
from pathlib import Path
from typing import TYPE_CHECKING

from woolly.cli.interrupt import ctrl_c_kills
from woolly.cli.status import status
from woolly.cli.terminal import size
from woolly.config import read_config
from woolly.errors import printable
from woolly.store import paths_inside_folders

if TYPE_CHECKING:
    from woolly.bench import Diagnosis

WHY = {  # by what limits the cores
    "quota": "the CPU quota of {c.quota:g} allows no more",
    "affinity": "{c.allowed} of {c.logical} CPUs are in the affinity mask, on {c.physical} cores",
    "efficiency": "the fast ones of {c.logical} CPUs: a step waits for its slowest thread",
    "siblings": "{c.logical} CPUs share {c.physical} cores, and a second thread on a core gains nothing",
    "none": "one for each core",
}


def arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("-q", "--quiet", action="store_true", help="only what limits")
    parser.add_argument("--json", action="store_true", help="one line of JSON; sizes in bytes")


def call(args: argparse.Namespace) -> int:
    config = read_config()
    say = status(quiet=args.quiet)
    with ctrl_c_kills():
        from woolly.bench import diagnose  # NumPy and the native core: not before a wrong word was refused
    say("reading memory")
    diagnosis = diagnose(config, paths_inside_folders(config))
    say("")
    if args.json:
        print(json.dumps(asdict(diagnosis) | {"models_folder": str(config.models)}, ensure_ascii=False))
        return 0
    rows = [] if args.quiet else [*_machine(diagnosis), *_memory(diagnosis), *_models(diagnosis, config.models)]
    rows += [("limits" if i == 0 else "", f"{row.what}; {row.remedy}") for i, row in enumerate(diagnosis.limits)]
    for word, sentence in rows:
        print(f"{word:<11} {sentence}")
    return 0


def _machine(d: Diagnosis) -> list[tuple[str, str]]:
    packages = ", ".join(f"{name} {version}" for name, version in d.packages.items())
    chosen = f"{d.forced} asks for it" if d.forced else "the best here"
    why = WHY[d.cores.limit].format(c=d.cores)
    if d.threads != d.cores.threads:
        why = f"a setting says so; {d.cores.threads} would be worth starting"
    return [
        ("woolly", f"{d.version}, {d.python}, {d.system}; {packages}"),
        ("processor", f"{d.processor}, load {d.load:.1f}"),
        ("sets", f"{', '.join(d.sets)}; {d.isa} is used: {chosen}"),
        ("cores", f"{d.threads} thread{'s' * (d.threads != 1)}: {why}"),
        ("caches", _caches(d) or "the system does not tell"),
    ]


def _caches(d: Diagnosis) -> str:
    levels = []
    for level, group in groupby(d.caches, key=lambda cache: cache.level):
        one = max(group, key=lambda cache: (cache.kind != "Instruction", cache.nbytes))
        size = f"{one.nbytes >> 20} MiB" if one.nbytes >= 1 << 20 else f"{one.nbytes >> 10} KiB"
        levels.append(f"L{level} {size}" + (f" for {one.shared} CPUs" if one.shared > 1 else ""))
    return ", ".join(levels)


def _memory(d: Diagnosis) -> list[tuple[str, str]]:
    from woolly.plan import gib

    least = min(d.rooms, key=lambda room: room.free)
    huge = d.huge or "the system does not tell"
    if d.probed:
        huge += f"; {d.huge_bytes / 1e6:,.0f} of {d.probed / 1e6:,.0f} MB were given"
    rows = [("memory", f"{gib(d.memory)} may be taken: {least.what}"), ("huge pages", huge)]
    if d.state is None:
        return [*rows, ("reading", "not measured: there is no room for a buffer")]
    if d.threads == 1:
        return [*rows, ("reading", f"{d.state.read_gb_s:.1f} GB/s by 1 thread")]
    place = "near each other" if d.state.state == "near" else "far apart"
    return [
        *rows,
        (
            "reading",
            f"{d.state.read_gb_s:.1f} GB/s by {d.threads} threads; the cores lie {place}: "
            f"a barrier costs {d.state.barrier_ns:.0f} ns",
        ),
    ]


def _models(d: Diagnosis, folder: Path) -> list[tuple[str, str]]:
    if not d.models:
        return [("models", f"none in {printable(folder, 300)}; `woolly run` fetches a small one")]
    rows = []
    for i, one in enumerate(d.models):
        if one.problem:
            what = one.problem
        else:
            rate = f"at most {one.tokens_s:,.0f} tokens/s" if one.tokens_s is not None else "speed not known"
            read = f"reads {size(one.token_bytes)} of {size(one.weight_bytes)} a token"
            what = f"{rate} ({read}), a context of {one.context:,} fits"
        rows.append(("models" if i == 0 else "", f"{one.name}: {what}"))
    return rows
