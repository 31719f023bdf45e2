"""Ours against a peer, test by test: ours against ours first, then each setting of the peer, in alternating slices."""

from __future__ import annotations

from collections.abc import Callable
from contextlib import closing
from dataclasses import dataclass, field, replace
from statistics import median

from woolly.bench.figures import FLAT
from woolly.bench.model import Test, slice_of, state
from woolly.bench.peer import SETTINGS, Options, Peer, find_peer, start_peer
from woolly.bench.ratios import Quadruple, Ratio, compare, noise, noisy, ratio_of
from woolly.bench.state import State, Watch
from woolly.bench.subject import Subject

SECONDS = 60.0  # of one comparison


@dataclass(frozen=True, slots=True)
class Rate:
    """Tokens a second of one side."""

    median: float
    best: float


@dataclass(frozen=True, slots=True)
class Against:
    """One test against one setting of the peer."""

    ratio: Ratio = field(metadata=FLAT)
    best: float  # the best slice over the best slice: what is left to compare where everything was disturbed
    ours_tokens_per_s: Rate
    theirs_tokens_per_s: Rate
    before: State
    after: State
    slices: list[Quadruple]


@dataclass(frozen=True, slots=True)
class Compared:
    """One test against the peer, which is its better setting."""

    ratio: Ratio = field(metadata=FLAT)  # to the peer
    peer: str
    noise: Ratio  # ours to ours
    noisy: bool
    settings: dict[str, Against]


@dataclass(frozen=True, slots=True)
class Loaded:
    """The peer, and what it took to load it with each setting."""

    version: str
    load_s: dict[str, float | None]


def compare_all(
    subject: Subject,
    tests: list[Test],
    word: str,
    python: str,
    options: Options,
    *,
    seconds: float = SECONDS,
    say: Callable[[str], None] = lambda what: None,
) -> tuple[Loaded, dict[str, Compared]]:
    """Every test that the peer can run, by its name, with repacked weights and without."""
    program = find_peer(word, python)
    noises: dict[Test, Ratio] = {}
    for test in tests:
        say(f"{test.name}: ours against ours")
        noises[test] = noise(slice_of(subject, test)[0], seconds=seconds, watch=Watch())
    found: dict[Test, dict[str, Against]] = {test: {} for test in tests}
    load_s: dict[str, float | None] = {}
    version = ""
    for setting in SETTINGS:
        say(f"loading the peer, {setting}")
        with closing(start_peer(word, program, replace(options, repack=setting == SETTINGS[0]))) as peer:
            version, load_s[setting] = peer.version, peer.load_s
            for test in filter(peer.can, tests):
                say(f"{test.name}: against {version}, {setting}")
                found[test][setting] = _against(subject, test, peer, seconds)
    return Loaded(version, load_s), {test.name: _compared(noises[test], rows) for test, rows in found.items() if rows}


def _compared(quiet: Ratio, settings: dict[str, Against]) -> Compared:
    peer = min(settings, key=lambda setting: settings[setting].ratio.median)
    doubtful = noisy(quiet, *(one.ratio for one in settings.values()))
    return Compared(settings[peer].ratio, peer, quiet, doubtful, settings)


def _against(subject: Subject, test: Test, peer: Peer, seconds: float) -> Against:
    ours, count = slice_of(subject, test)
    peer.fill(test)
    peer.seconds(test, count)  # the first is slower, and not counted
    before = state(subject)
    slices = compare(ours, lambda: peer.seconds(test, count), seconds=seconds, watch=Watch(peer.pids))
    tokens = count * test.sequences
    ours_s, theirs_s = [s for row in slices for s in row.ours_s], [s for row in slices for s in row.theirs_s]
    a, b = _rate(tokens, ours_s), _rate(tokens, theirs_s)
    return Against(ratio_of(slices), a.best / b.best, a, b, before, state(subject), slices)


def _rate(tokens: int, seconds: list[float]) -> Rate:
    return Rate(tokens / median(seconds), tokens / min(seconds))
