"""The report as Markdown, made from its JSON alone."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

from woolly.errors import printable
from woolly.validate.report.charts import number

MARKS = {"pass": "holds", "fail": "**fails**", "not measured": "**not measured**", "does not apply": "does not apply"}

CALM = 0.05  # share of the processors that other processes may use before the report says so


def markdown(report: Mapping[str, Any]) -> str:
    """The whole page."""
    return "\n".join(_lines(report)) + "\n"


def summary(report: Mapping[str, Any]) -> str:
    """How many gates hold, and whether the machine was calm, in one sentence."""
    states = [row["state"] for row in report["gates"]]
    parts = [f"{states.count(state)} {word.strip('*')}" for state, word in MARKS.items() if state in states]
    foreign = report["machine"].get("foreign_share") or 0.0
    doubt = f"; others used {foreign:.0%} of the processors, so that times are to be doubted" if foreign > CALM else ""
    return (", ".join(parts) or "no gate was asked for") + doubt


def _lines(report: Mapping[str, Any]) -> Iterator[str]:
    machine, model = report["machine"], report["model"]
    yield f"# Validation of {cell(model['name'])}"
    yield ""
    yield f"{report['metadata']['timestamp']}, server {cell(report['metadata']['server'])}: {summary(report)}."
    yield ""
    yield f"- model: `{cell(model['file'])}`, {model['size_bytes']:,} bytes, SHA-256 `{model['sha256']}`"
    yield (
        f"- machine: {cell(machine['processor'])}, {machine['cores']} cores, {machine['instruction_set']}, "
        f"{machine['state']} ({machine['barrier_ns']:.0f} ns, {machine['read_gb_s']:.1f} GB/s), load "
        f"{machine['load_average']:.1f} before and {machine['after']['load_average']:.1f} after"
    )
    yield ""
    yield "| gate | what | value | must be | runs (quartiles) | verdict |"
    yield "| --- | --- | --- | --- | --- | --- |"
    for row in report["gates"]:
        yield (
            f"| {row['id']} | {row['name'].replace('_', ' ')} | {value(row)} | {must(row)} | {spread(row)} | "
            f"{MARKS[row['state']]}{': ' + cell(row['why']) if row['why'] else ''} |"
        )
    yield ""
    yield "How each is measured:"
    yield ""
    for row in report["gates"]:
        yield f"- {row['id']}: {row['how']}."


def value(row: Mapping[str, Any]) -> str:
    return "" if row["value"] is None else f"{number(row['value'])} {row['unit']}"


def must(row: Mapping[str, Any]) -> str:
    return f"{'at least' if row['sense'] == '>=' else 'at most'} {number(row['threshold'])}"


def spread(row: Mapping[str, Any]) -> str:
    quartiles = f" ({' to '.join(map(number, row['spread']))})" if row.get("spread") else ""
    return f"{row['runs']}{quartiles}" if row["runs"] else ""


def cell(text: object) -> str:
    """Untrusted text for a cell of a table: one line, without the marks of a table."""
    return printable(text, 300).replace("|", "\\|")
