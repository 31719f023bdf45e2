"""What was measured as text for people: each figure with its spread and the state of the machine beside it."""

from __future__ import annotations

from collections.abc import Iterator

from woolly.bench.against import Comparison
from woolly.bench.kernels import Case, Product
from woolly.bench.machine import Limits
from woolly.bench.model import Speed
from woolly.bench.profile import Profile
from woolly.bench.ratios import Ratio, faster
from woolly.bench.report import Report
from woolly.bench.state import State

KINDS = 20  # rows of a profile


def report_lines(report: Report) -> Iterator[str]:
    """The text of `woolly bench MODEL`."""
    yield f"{report.model}: {report.architecture}, {report.isa}, {report.threads} threads, cache {report.kv}"
    yield (
        f"{report.processor}; {_state(report.machine)}, first touch {report.touch / 1e9:.1f} GB/s, "
        f"load {report.load_average:.1f}, others used {report.foreign:.0%} of the processors"
    )
    yield (
        f"loaded {report.file_bytes / 1e6:,.0f} MB in {report.load_s:.2f} s "
        f"({report.file_bytes / report.load_s / 1e9:.2f} GB/s), "
        f"packed {report.packed_bytes / 1e6:,.0f} MB, {report.huge_bytes / 1e6:,.0f} MB in huge pages, "
        f"peak memory {report.peak_rss / 1e6:,.0f} MB, Python {report.turn_s * 1e6:.0f} us a turn"
    )
    yield ""
    yield f"{'test':<14} {'median':>9} {'best':>9} {'spread':>7}  {'ms/step':>8} {'of read':>8}  state before and after"
    yield from map(_speed, report.speeds)
    for name, profile in report.profiles.items():
        yield ""
        yield from _profile(name, profile)
    if report.comparison is not None:
        yield ""
        yield from _comparison(report.comparison)
    if report.noisy:
        yield ""
        yield "noisy: others were busy, or ours against ours spread by more than 5 %; repeat on a calm machine"


def _speed(speed: Speed) -> str:
    rates = speed.rates
    spread = (max(rates) - min(rates)) / speed.median
    step = speed.test.count if speed.test.kind == "tokens" else 1
    share = f"{speed.share_of_read:>8.1%}" if speed.share_of_read is not None else " " * 8
    return (
        f"{speed.test.name:<14} {speed.median:>9,.1f} {speed.best:>9,.1f} {spread:>7.1%}  "
        f"{min(speed.seconds) / step * 1e3:>8.2f} {share}  {_state(speed.before)}; {_state(speed.after)}"
    )


def _state(state: State) -> str:
    return f"{state.place} ({state.barrier_ns:.0f} ns, {state.read_gb_s:.1f} GB/s)"


def _profile(name: str, profile: Profile) -> Iterator[str]:
    yield (
        f"where a step of {name} goes: {profile.seconds * 1e3:.2f} ms, of which {profile.neither * 1e3:.2f} ms "
        f"({profile.neither / profile.seconds:.0%}) are neither memory nor arithmetic"
    )
    yield f"{'us':>9} {'share':>6} {'wait us':>8} {'floor us':>9} {'GB/s':>6} {'GMAC/s':>7} {'times':>5}  instruction"
    for row in profile.kinds[:KINDS]:
        yield (
            f"{row.seconds * 1e6:>9,.0f} {row.seconds / profile.seconds:>6.1%} {row.wait * 1e6:>8,.0f} "
            f"{row.floor * 1e6:>9,.0f} {row.nbytes / row.seconds / 1e9:>6.1f} {row.macs / row.seconds / 1e9:>7.1f} "
            f"{row.count:>5}  {row.what}"
        )


def _comparison(comparison: Comparison) -> Iterator[str]:
    loads = ", ".join(f"{s:.2f} s ({name})" for name, s in comparison.load_s.items() if s is not None)
    yield f"against {comparison.version}" + (f", loaded in {loads}" if loads else "")
    yield (
        f"{'test':<14} {'setting':<10} {'ratio':>6} {'quartiles':>13} {'won':>7} {'of best':>8}  "
        f"{'ours':>9} {'theirs':>9} tokens/s  state before and after"
    )
    for one in comparison.tests:
        quiet = f"{one.noise.quartiles[0]:.3f}-{one.noise.quartiles[1]:.3f}"
        yield f"{one.test.name:<14} {'ours':<10} {one.noise.median:>6.3f} {quiet:>13}   the noise: ours against ours"
        for row in one.settings:
            mark = "  <- the peer" if row is one.peer and len(one.settings) > 1 else ""
            yield (
                f"{one.test.name:<14} {row.setting:<10} {_ratio(row.ratio)} {row.best_ratio:>8.3f}  "
                f"{row.ours.median:>9,.1f} {row.theirs.median:>9,.1f}           "
                f"{_state(row.before)}; {_state(row.after)}{mark}"
            )
        verdict = "faster" if faster(one.peer.ratio, one.noise) else "not faster beyond the noise"
        yield f"{one.test.name:<14} {verdict}: {one.peer.ratio.median:.2f} x {'(noisy)' if one.noisy else ''}".rstrip()


def _ratio(ratio: Ratio) -> str:
    quartiles = f"{ratio.quartiles[0]:.3f}-{ratio.quartiles[1]:.3f}"
    return f"{ratio.median:>6.3f} {quartiles:>13} {f'{ratio.wins}/{ratio.count}':>7}"


def limits_lines(limits: Limits) -> Iterator[str]:
    """The text of `woolly bench machine`."""
    yield f"{limits.processor}, {limits.clock_hz / 1e9:.2f} GHz; load {limits.load:.1f}; {_state(limits.state)}"
    yield f"barrier of {limits.threads} threads {limits.barrier_ns:.0f} ns"
    yield f"first touch of huge pages {limits.touch / 1e9:.1f} GB/s; {limits.huge_bytes / 1e6:,.0f} MB were given"
    yield ""
    yield f"{'read GB/s':<42} {'median':>8} {'best':>8}"
    for reading in limits.reading:
        what = f"{reading.threads} threads, {'huge' if reading.huge else 'small'} pages"
        yield f"{what:<42} {reading.rate.median / 1e9:>8.1f} {reading.rate.best / 1e9:>8.1f}"
    yield ""
    yield f"{'multiply-adds, GMAC/s':<42} {'median':>8} {'best':>8} {'a cycle and core':>17}"
    for row in limits.multiplying:
        what = f"{row.isa}: {row.what}, {row.threads} threads"
        rate = row.rate
        yield f"{what:<42} {rate.median / 1e9:>8.1f} {rate.best / 1e9:>8.1f} {row.per_cycle(limits.clock_hz):>17.1f}"


PRODUCT_HEAD = (
    f"{'format':<6} {'set':<7} {'rows':>5} {'us':>9} {'GB/s':>7} {'of read':>8} {'MAC/cycle':>10} {'of peak':>8}"
)


def product_line(product: Product, clock_hz: float) -> str:
    """A row of `woolly bench kernels`."""
    peak = f"{product.share_of_peak:>8.1%}" if product.peak else ""
    return (
        f"{product.form:<6} {product.isa:<7} {product.rows:>5} "
        f"{product.seconds * 1e6:>9,.0f} {product.bytes_s / 1e9:>7.1f} "
        f"{product.share_of_read:>8.1%} {product.macs_per_cycle(clock_hz):>10.1f} {peak}"
    ).rstrip()


def case_line(case: Case) -> str:
    """A case of `woolly bench kernels`: microseconds of each set, and how many times as fast as scalar."""
    sets = ", ".join(
        f"{isa} {seconds * 1e6:,.1f} us" + (f" ({case.times_scalar(isa):.1f} x)" if isa != "scalar" else "")
        for isa, seconds in case.seconds.items()
    )
    return f"{case.name}: {sets}"
