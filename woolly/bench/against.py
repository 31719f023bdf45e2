"""Ours against a peer, test by test: ours against ours first, then each setting of the peer, in alternating slices."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from statistics import median

from woolly.bench.model import Test, slice_of, state
from woolly.bench.peer import SETTINGS, Options, Peer, find_peer, start_peer
from woolly.bench.ratios import Quadruple, Ratio, compare, noise, noisy, ratio_of
from woolly.bench.state import State, Watch
from woolly.bench.subject import Subject

SECONDS = 60.0  # of one comparison


@dataclass(frozen=True, slots=True)
class Rate:
    """Tokens a second of one side, slice by slice."""

    slices: list[float]

    @property
    def median(self) -> float:
        return median(self.slices)

    @property
    def best(self) -> float:
        return max(self.slices)


@dataclass(frozen=True, slots=True)
class Against:
    """One test against one setting of the peer, in slices of so many tokens."""

    setting: str
    tokens: int
    quadruples: tuple[Quadruple, ...]
    before: State
    after: State

    @property
    def ratio(self) -> Ratio:
        return ratio_of(self.quadruples)

    @property
    def ours(self) -> Rate:
        return Rate([self.tokens / seconds for one in self.quadruples for seconds in one.a])

    @property
    def theirs(self) -> Rate:
        return Rate([self.tokens / seconds for one in self.quadruples for seconds in one.b])

    @property
    def best_ratio(self) -> float:
        """The best slice over the best slice: what is left to compare where everything was disturbed."""
        return self.ours.best / self.theirs.best


@dataclass(frozen=True, slots=True)
class Compared:
    """One test against the peer; the peer is its better setting."""

    test: Test
    noise: Ratio
    settings: tuple[Against, ...]

    @property
    def peer(self) -> Against:
        return min(self.settings, key=lambda one: one.ratio.median)

    @property
    def noisy(self) -> bool:
        return noisy(self.noise, *(one.ratio for one in self.settings))


@dataclass(frozen=True, slots=True)
class Comparison:
    """All tests against one peer, which took `load_s` to load with each setting."""

    version: str
    load_s: dict[str, float | None]
    tests: tuple[Compared, ...]


def compare_all(
    subject: Subject,
    tests: list[Test],
    word: str,
    python: str,
    options: Callable[[bool], Options],
    *,
    seconds: float = SECONDS,
    say: Callable[[str], None] = lambda what: None,
) -> Comparison:
    """Every test that the peer can run; `options` are those of a peer with or without repacked weights."""
    program = find_peer(word, python)
    noises: dict[Test, Ratio] = {}
    for test in tests:
        say(f"{test.name}: ours against ours")
        noises[test] = noise(slice_of(subject, test)[0], seconds=seconds, watch=Watch())
    found: dict[Test, list[Against]] = {test: [] for test in tests}
    load_s: dict[str, float | None] = {}
    version = ""
    for setting in SETTINGS:
        say(f"loading the peer, {setting}")
        with start_peer(word, program, options(setting == SETTINGS[0])) as peer:
            version, load_s[setting] = peer.version, peer.load_s
            for test in filter(peer.can, tests):
                say(f"{test.name}: against {version}, {setting}")
                found[test].append(_against(subject, test, peer, setting, seconds))
    compared = tuple(Compared(test, noises[test], tuple(rows)) for test, rows in found.items() if rows)
    return Comparison(version, load_s, compared)


def _against(subject: Subject, test: Test, peer: Peer, setting: str, seconds: float) -> Against:
    ours, count = slice_of(subject, test)
    peer.fill(test)
    peer.seconds(test, count)  # the first is slower, and not counted
    before = state(subject)
    quadruples = compare(ours, lambda: peer.seconds(test, count), seconds=seconds, watch=Watch(peer.pids))
    return Against(setting, count * test.sequences, tuple(quadruples), before, state(subject))
