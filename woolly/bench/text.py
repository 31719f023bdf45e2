"""Reports as text for people: each figure with its spread and the state of the machine beside it."""

from __future__ import annotations

from collections.abc import Iterator

from woolly.bench.against import PeerResult
from woolly.bench.kernels import Case, Product
from woolly.bench.machine import Roofline
from woolly.bench.model import SpeedResult
from woolly.bench.profile import Profile
from woolly.bench.ratios import Ratio, faster
from woolly.bench.run import BenchReport
from woolly.bench.state import State

KINDS = 20  # rows of a profile


def report_lines(report: BenchReport) -> Iterator[str]:
    """The text of `woolly bench MODEL`."""
    machine = report.machine
    mode = ", exact" if report.exact else ""
    yield f"{report.model}: {report.architecture}, {machine.isa}, {machine.threads} threads, cache {report.kv}{mode}"
    yield (
        f"{machine.processor}; {_state(machine.state)}, first touch {machine.touch_gb_s:.1f} GB/s, "
        f"load {machine.load_average:.1f}, others used {machine.foreign_share:.0%} of the processors"
    )
    yield (
        f"loaded {report.file_mb:,.0f} MB in {report.load_s:.2f} s ({report.load_gb_s:.2f} GB/s), "
        f"packed {report.packed_mb:,.0f} MB, of which a token reads {report.token_mb:,.0f} MB, "
        f"{report.huge_mb:,.0f} MB in huge pages, "
        f"peak memory {report.peak_rss_mb:,.0f} MB, Python {report.turn_us:.0f} us a turn"
    )
    yield ""
    yield f"{'test':<14} {'median':>9} {'best':>9} {'spread':>7}  {'ms/step':>8} {'of read':>8}  state before and after"
    yield from map(_speed, report.tests)
    for name, profile in (report.profile or {}).items():
        yield ""
        yield from _profile(name, profile)
    if report.peer is not None and report.ratios is not None:
        loads = ", ".join(f"{s:.2f} s ({name})" for name, s in report.peer.load_s.items() if s is not None)
        yield ""
        yield f"against {report.peer.version}" + (f", loaded in {loads}" if loads else "")
        yield from _ratios(report.ratios)
    if report.noisy:
        yield ""
        yield "noisy: others were busy, or ours against ours spread by more than 5 %; repeat on a calm machine"


def _speed(speed: SpeedResult) -> str:
    rate = speed.tokens_per_s
    spread = (rate.best - min(rate.runs)) / rate.median
    share = f"{speed.share_of_read:>8.1%}" if speed.share_of_read is not None else " " * 8
    return (
        f"{speed.test:<14} {rate.median:>9,.1f} {rate.best:>9,.1f} {spread:>7.1%}  "
        f"{speed.ms_per_step:>8.2f} {share}  {_state(speed.before)}; {_state(speed.after)}"
    )


def _state(state: State) -> str:
    return f"{state.state} ({state.barrier_ns:.0f} ns, {state.read_gb_s:.1f} GB/s)"


def _profile(name: str, profile: Profile) -> Iterator[str]:
    yield (
        f"where a step of {name} goes: {profile.ms:.2f} ms, of which {profile.neither_ms:.2f} ms "
        f"({profile.neither_ms / profile.ms:.0%}) are neither memory nor arithmetic"
    )
    yield f"{'us':>9} {'share':>6} {'wait us':>8} {'floor us':>9} {'GB/s':>6} {'GMAC/s':>7} {'times':>5}  instruction"
    for row in profile.kinds[:KINDS]:
        yield (
            f"{row.us:>9,.0f} {row.us / profile.ms / 1e3:>6.1%} {row.wait_us:>8,.0f} {row.floor_us:>9,.0f} "
            f"{row.bytes / row.us / 1e3:>6.1f} {row.macs / row.us / 1e3:>7.1f} {row.count:>5}  {row.what}"
        )


def _ratios(ratios: dict[str, PeerResult]) -> Iterator[str]:
    yield (
        f"{'test':<14} {'setting':<10} {'ratio':>6} {'quartiles':>13} {'won':>7} {'of best':>8}  "
        f"{'ours':>9} {'theirs':>9} tokens/s  state before and after"
    )
    for test, one in ratios.items():
        yield f"{test:<14} {'ours':<10} {_ratio(one.noise)}   the noise: ours against ours"
        for setting, row in one.settings.items():
            mark = "  <- the peer" if setting == one.peer and len(one.settings) > 1 else ""
            won = f"{row.ratio.wins}/{row.ratio.count}"
            yield (
                f"{test:<14} {setting:<10} {_ratio(row.ratio)} {won:>7} {row.best:>8.3f}"
                f"  {row.ours_tokens_per_s.median:>9,.1f} {row.theirs_tokens_per_s.median:>9,.1f}           "
                f"{_state(row.before)}; {_state(row.after)}{mark}"
            )
        verdict = "faster" if faster(one.ratio, one.noise) else "not faster beyond the noise"
        yield f"{test:<14} {verdict}: {one.ratio.median:.2f} x {'(noisy)' if one.noisy else ''}".rstrip()


def _ratio(ratio: Ratio) -> str:
    quartiles = f"{ratio.quartiles[0]:.3f}-{ratio.quartiles[1]:.3f}"
    return f"{ratio.median:>6.3f} {quartiles:>13}"


def roofline_lines(roofline: Roofline) -> Iterator[str]:
    """The text of `woolly bench machine`."""
    machine = roofline.machine
    yield f"{machine.processor}, {machine.clock_ghz:.2f} GHz; load {machine.load_average:.1f}; {_state(machine.state)}"
    yield f"barrier of {machine.threads} threads {machine.state.barrier_ns:.0f} ns"
    yield f"first touch of huge pages {machine.touch_gb_s:.1f} GB/s; {machine.huge_mb:,.0f} MB were given"
    yield ""
    yield f"{'read GB/s':<42} {'median':>8} {'best':>8}"
    for reading in roofline.read:
        what = f"{reading.threads} threads, {reading.pages} pages"
        yield f"{what:<42} {reading.gb_s.median:>8.1f} {reading.gb_s.best:>8.1f}"
    yield ""
    yield f"{'multiply-adds, GMAC/s':<42} {'median':>8} {'best':>8} {'a cycle and core':>17}"
    for row in roofline.multiply:
        what = f"{row.isa}: {row.what}, {row.threads} threads"
        yield f"{what:<42} {row.gmac_s.median:>8.1f} {row.gmac_s.best:>8.1f} {row.mac_per_cycle:>17.1f}"


PRODUCT_HEAD = (
    f"{'format':<6} {'set':<7} {'rows':>5} {'us':>9} {'GB/s':>7} {'of read':>8} {'MAC/cycle':>10} {'of peak':>8}"
)


def product_line(one: Product) -> str:
    """A row of `woolly bench kernels`."""
    peak = f"{one.share_of_peak:>8.1%}" if one.share_of_peak else ""
    return (
        f"{one.format:<6} {one.isa:<7} {one.rows:>5} {one.us:>9,.0f} {one.gb_s:>7.1f} "
        f"{one.share_of_read:>8.1%} {one.mac_per_cycle:>10.1f} {peak}"
    ).rstrip()


def case_line(case: Case) -> str:
    """A case of `woolly bench kernels`: microseconds of each set, and how many times as fast as scalar."""
    sets = ", ".join(
        f"{isa} {us:,.1f} us" + (f" ({case.times_scalar[isa]:.1f} x)" if isa != "scalar" else "")
        for isa, us in case.us.items()
    )
    return f"{case.case}: {sets}"
