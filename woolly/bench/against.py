"""Ours against a peer, test by test: ours against ours first, then each setting of the peer, in alternating slices."""

from __future__ import annotations

from collections.abc import Callable
from contextlib import closing
from dataclasses import dataclass, field, replace
from statistics import median

from woolly.bench.figures import FLAT
from woolly.bench.model import SpeedTest, slice_of, state
from woolly.bench.peer import SETTINGS, Peer, PeerOptions, find_peer, start_peer
from woolly.bench.ratios import Quadruple, Ratio, compare, noise, noisy, ratio_of
from woolly.bench.state import State, Watch
from woolly.bench.subject import Subject

SECONDS = 60.0  # how long one comparison takes


@dataclass(frozen=True, slots=True)
class SideRate:
    """Tokens a second of one side."""

    median: float
    best: float


@dataclass(frozen=True, slots=True)
class SettingResult:
    """One test against one setting of the peer."""

    ratio: Ratio = field(metadata=FLAT)
    best: float  # the ratio of the best slices: a disturbance only ever makes a run slower
    ours_tokens_per_s: SideRate
    theirs_tokens_per_s: SideRate
    before: State
    after: State
    slices: list[Quadruple]


@dataclass(frozen=True, slots=True)
class PeerResult:
    """One test against the peer in the faster of its settings."""

    ratio: Ratio = field(metadata=FLAT)  # our speed over the peer's
    peer: str
    noise: Ratio  # our speed over our own, measured the same way
    noisy: bool
    settings: dict[str, SettingResult]


@dataclass(frozen=True, slots=True)
class PeerLoad:
    """The peer's version, and the seconds in which it loaded with each setting."""

    version: str
    load_s: dict[str, float | None]


def compare_all(
    subject: Subject,
    tests: list[SpeedTest],
    word: str,
    python: str,
    options: PeerOptions,
    *,
    seconds: float = SECONDS,
    say: Callable[[str], None] = lambda what: None,
) -> tuple[PeerLoad, dict[str, PeerResult]]:
    """Every test that the peer can run, by its name, with repacked weights and without."""
    program = find_peer(word, python)
    noises: dict[SpeedTest, Ratio] = {}
    for test in tests:
        say(f"{test.name}: ours against ours")
        noises[test] = noise(slice_of(subject, test)[0], seconds=seconds, watch=Watch())
    ratios: dict[SpeedTest, dict[str, SettingResult]] = {test: {} for test in tests}
    load_s: dict[str, float | None] = {}
    version = ""
    for setting in SETTINGS:
        say(f"loading the peer, {setting}")
        with closing(start_peer(word, program, replace(options, repack=setting == SETTINGS[0]))) as peer:
            version, load_s[setting] = peer.version, peer.load_s
            for test in filter(peer.supports, tests):
                say(f"{test.name}: against {version}, {setting}")
                ratios[test][setting] = _against(subject, test, peer, seconds)
    return PeerLoad(version, load_s), {
        test.name: _compared(noises[test], rows) for test, rows in ratios.items() if rows
    }


def _compared(quiet: Ratio, settings: dict[str, SettingResult]) -> PeerResult:
    peer = min(settings, key=lambda setting: settings[setting].ratio.median)
    doubtful = noisy(quiet, *(one.ratio for one in settings.values()))
    return PeerResult(settings[peer].ratio, peer, quiet, doubtful, settings)


def _against(subject: Subject, test: SpeedTest, peer: Peer, seconds: float) -> SettingResult:
    ours, count = slice_of(subject, test)
    peer.fill(test)
    peer.seconds(test, count)  # a first run warms up and is not counted
    before = state(subject)
    slices = compare(ours, lambda: peer.seconds(test, count), seconds=seconds, watch=Watch(peer.pids))
    tokens = count * test.sequences
    ours_s, theirs_s = [s for row in slices for s in row.ours_s], [s for row in slices for s in row.theirs_s]
    a, b = _rate(tokens, ours_s), _rate(tokens, theirs_s)
    return SettingResult(ratio_of(slices), a.best / b.best, a, b, before, state(subject), slices)


def _rate(tokens: int, seconds: list[float]) -> SideRate:
    return SideRate(tokens / median(seconds), tokens / min(seconds))
