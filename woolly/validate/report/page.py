"""The report as one HTML file with charts, made from its JSON alone. It loads nothing and runs no script."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from html import escape
from statistics import median
from typing import Any

from woolly.validate.report.charts import Series, chart
from woolly.validate.report.markdown import MARKS, must, spread, summary, value

STYLE = """
:root { color-scheme: light dark; --back: #fff; --text: #1b1f24; --dim: #667; --edge: #d5d9e0; --good: #19703b;
  --bad: #b3261e; --line0: #2563eb; --line1: #d9480f; --line2: #2b8a3e; --line3: #9c36b5 }
@media (prefers-color-scheme: dark) { :root { --back: #14171c; --text: #e6e8eb; --dim: #9aa3ad; --edge: #333a44;
  --good: #63d391; --bad: #ff8a80; --line0: #7aa8ff; --line1: #ff9f66; --line2: #7ddf8f; --line3: #d79bf0 } }
body { margin: 0 auto; max-width: 72rem; padding: 1.5rem; background: var(--back); color: var(--text);
  font: 15px/1.5 system-ui, sans-serif }
h1 { font-size: 1.5rem; margin: 0 0 .3rem } h2 { font-size: 1.15rem; margin: 2rem 0 .5rem }
p, dd { margin: 0; overflow-wrap: anywhere }
dl { display: grid; grid-template-columns: max-content 1fr; gap: .2rem 1rem }
dt { color: var(--dim) }
.table { overflow-x: auto } table { border-collapse: collapse; width: 100%; font-variant-numeric: tabular-nums }
th, td { text-align: left; padding: .35rem .6rem; border-bottom: 1px solid var(--edge); vertical-align: top }
td:first-child { white-space: nowrap }
th { color: var(--dim); font-weight: 600 } td small { color: var(--dim); display: block }
.pass { color: var(--good) } .does-not-apply { color: var(--dim) }
.fail, .not-measured { color: var(--bad); font-weight: 600 }
.charts { display: grid; grid-template-columns: repeat(auto-fit, minmax(min(28rem, 100%), 1fr)); gap: 1rem }
figure { margin: 0; border: 1px solid var(--edge); border-radius: 6px; padding: .6rem } figcaption { font-weight: 600 }
svg { width: 100%; height: auto } svg text { fill: var(--dim); font-size: 12px } .grid { stroke: var(--edge) }
pre { overflow-x: auto; border: 1px solid var(--edge); border-radius: 6px; padding: .6rem; font-size: 12px }
"""


def html(report: Mapping[str, Any]) -> str:
    """The whole page."""
    name = escape(str(report["model"]["name"]))
    return (
        f'<!doctype html>\n<html lang="en"><head><meta charset="utf-8"><title>Validation of {name}</title>'
        '<meta name="viewport" content="width=device-width, initial-scale=1">'
        "<meta http-equiv=\"Content-Security-Policy\" content=\"default-src 'none'; style-src 'unsafe-inline'\">"
        f"<style>{STYLE}</style></head><body>{''.join(_body(report, name))}</body></html>\n"
    )


def _body(report: Mapping[str, Any], name: str) -> Iterator[str]:
    model, machine, about = report["model"], report["machine"], report["metadata"]
    yield f"<h1>Validation of {name}</h1><p>{escape(summary(report))}</p><h2>What was measured</h2><dl>"
    for term, words in (
        ("when", about["timestamp"]),
        ("server", about["server"]),
        ("model", f"{model['file']}, {model['size_bytes']:,} bytes, SHA-256 {model['sha256']}"),
        ("machine", f"{machine['processor']}, {machine['cores']} cores, {machine['instruction_set']}"),
        (
            "state",
            f"{machine['state']} cores ({machine['barrier_ns']:.0f} ns a barrier), memory read at "
            f"{machine['read_gb_s']:.1f} GB/s; load {machine['load_average']:.1f} before, "
            f"{machine['after']['load_average']:.1f} after",
        ),
    ):
        yield f"<dt>{term}</dt><dd>{escape(str(words))}</dd>"
    yield '</dl><h2>Gates</h2><div class="table"><table>'
    yield "<tr><th>gate<th>what<th>value<th>must be<th>runs<th>verdict</tr>"
    for row in report["gates"]:
        kind = row["state"].replace(" ", "-")
        why = f"<small>{escape(row['why'])}</small>" if row["why"] else ""
        yield (
            f"<tr><td>{row['id']}<td>{escape(row['name'].replace('_', ' '))}<small>{escape(row['how'])}</small>"
            f"<td>{escape(value(row))}<td>{escape(must(row))}<td>{escape(spread(row))}"
            f'<td class="{kind}">{MARKS[row["state"]].strip("*")}{why}</tr>'
        )
    yield "</table></div>"
    charts = [one for one in _charts(report) if one]
    if charts:
        yield f'<h2>Charts</h2><div class="charts">{"".join(charts)}</div>'


def _charts(report: Mapping[str, Any]) -> Iterator[str]:
    """Time per token, first token by prompt length, latency under load, memory over time, slices."""
    tests = report["tests"]
    speed = tests.get("inference_speed", {})
    gaps = speed.get("detailed_measurements", {}).get("gaps_ms", [])
    yield chart("Time per token", "token of the answer", "ms", [Series("", tuple(enumerate(gaps, 2)))])
    firsts = speed.get("single_token_latency", {}).get("first_token_ms", {})
    yield chart(
        "First token by length of the prompt", "tokens of the prompt", "ms",
        [
            Series(kind, tuple((float(length), median(row[f"{kind}_ms"])) for length, row in firsts.items()))
            for kind in ("cold", "warm")
        ],
    )  # fmt: skip
    levels = tests.get("load_testing", {}).get("levels", [])
    yield chart(
        "Latency under load", "users", "ms",
        [
            Series(what, tuple((float(o["users"]), o["latency_ms"][what]) for o in levels if o.get("latency_ms")))
            for what in ("p50", "p95", "p99")
        ],
    )  # fmt: skip
    yield chart(
        "Tokens a second under load", "users", "tokens/s",
        [Series("", tuple((float(one["users"]), one["tokens_per_second"]) for one in levels))],
    )  # fmt: skip
    memory = tests.get("reliability", {}).get("memory") or report["process"]["memory"]
    yield chart(
        "Memory over time", "seconds", "MB", [Series("", tuple((row["at_s"], row["rss"] / 1e6) for row in memory))]
    )
    slices = speed.get("slices", [])
    rates = tuple((float(i), row["tokens_per_s"]) for i, row in enumerate(slices, 1))
    yield chart("Speed slice by slice", "slice", "tokens/s", [Series("", rates)], dots=True)
