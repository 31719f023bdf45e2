"""Measures Woolly beside llama.cpp, and makes of it the page docs/speed.md, its charts, and the README's table:

    .venv/bin/python tools/speed.py measure              all models, about an hour; one file each in docs/speed/SET
    .venv/bin/python tools/speed.py measure smollm2      one of them anew
    .venv/bin/python tools/speed.py write                the page, the charts and the table, from what was measured
    .venv/bin/python tools/speed.py check                exit 1 if they say something else

SET is the instruction set of the machine; each set has a table of its own. WOOLLY_PEER_PYTHON names a Python that has
llama_cpp (`woolly bench --against llama.cpp` says how to get one). Nothing else should run meanwhile: a figure that was
disturbed is marked, not left out.
"""

from __future__ import annotations

import json
import subprocess
import sys
import textwrap
from dataclasses import dataclass
from pathlib import Path
from typing import Any

ROOT = Path(__file__).resolve().parents[1]
MEASURED = ROOT / "docs/speed"
PAGE, README = ROOT / "docs/speed.md", ROOT / "README.md"
BEGIN, END = "<!-- tools/speed.py writes this table -->\n", "<!-- up to here -->\n"

ONE_SEQUENCE = ("--batch", "1", "--seconds", "12")
MODELS: dict[str, tuple[str, ...]] = {  # the name of the file -> the words behind `woolly bench`
    "smollm2": ("smollm2", "--seconds", "20"),
    "1b-q4_k_m": ("--shape", "llama-3.2-1b:Q4_K_M", "--seconds", "20"),
    **{
        f"1b-{mix.lower()}": ("--shape", f"llama-3.2-1b:{mix}", *ONE_SEQUENCE)
        for mix in ("Q8_0", "Q4_0", "Q4_1", "Q5_K", "Q6_K")
    },
    "8b-q4_k_m": ("--shape", "granite-3.3-8b:Q4_K_M", "-p", "128", "-n", "16", *ONE_SEQUENCE),
}


Measured = dict[str, dict[str, Any]]  # name of the file -> what `woolly bench --json` said


@dataclass(frozen=True, slots=True)
class Row:
    """One test of one model, ours and the better setting of theirs."""

    test: str
    ours: float  # tokens a second
    theirs: float
    setting: str
    ratio: float
    quartiles: tuple[float, float]
    share: float | None  # of a plain read of the weights; where one sequence decodes
    state: str
    noisy: bool

    @property
    def what(self) -> str:
        if self.test.startswith("pp"):
            return f"prompt of {self.test[2:]}"
        sequences = self.test.partition("x")[2] or "1"
        return "decode" if sequences == "1" else f"decode, {sequences} sequences"


def measure(names: list[str]) -> None:
    for name in names:
        words = [sys.executable, "-m", "woolly", "bench", *MODELS[name], "--against", "llama.cpp", "--json"]
        print("$ woolly", *words[3:], flush=True)
        done = subprocess.run(words, cwd=ROOT, stdout=subprocess.PIPE, text=True, check=True)
        data = json.loads(done.stdout) | {"command": " ".join(["woolly", *words[3:-1]])}
        for ratio in data["ratios"].values():
            for setting in ratio["settings"].values():
                del setting["slices"]
        folder = MEASURED / data["machine"]["isa"]
        folder.mkdir(exist_ok=True)
        (folder / f"{name}.json").write_text(json.dumps(data, indent=1) + "\n")


def measured() -> dict[str, Measured]:
    """What lies in docs/speed: the models of each instruction set, in the order of MODELS."""
    by_isa: dict[str, Measured] = {}
    for folder in sorted(MEASURED.iterdir()):
        files = {name: folder / f"{name}.json" for name in MODELS}
        by_isa[folder.name] = {name: json.loads(path.read_text()) for name, path in files.items() if path.exists()}
    return by_isa


def rows(data: dict[str, Any]) -> list[Row]:
    out = []
    for test in data["tests"]:
        name, ratio = test["test"], data["ratios"][test["test"]]
        setting = ratio["settings"][ratio["peer"]]
        out.append(
            Row(
                name,
                setting["ours_tokens_per_s"]["median"],
                setting["theirs_tokens_per_s"]["median"],
                ratio["peer"],
                ratio["median"],
                tuple(ratio["quartiles"]),
                test.get("share_of_read"),
                test["before"]["state"],
                ratio["noisy"],
            )
        )
    return out


def wrapped(text: str, indent: str = "") -> str:
    return textwrap.fill(text, 120, subsequent_indent=indent, break_long_words=False, break_on_hyphens=False)


def number(value: float) -> str:
    return f"{value:,.0f}" if value >= 100 else f"{value:.1f}"


def ratio_text(row: Row) -> str:
    low, high = row.quartiles
    return f"{row.ratio:.2f} ({low:.2f}–{high:.2f}){' *' if row.noisy else ''}"


def table(data: dict[str, Any]) -> str:
    """The README's: one model."""
    lines = ["| | Woolly tokens/s | ratio to llama.cpp |", "| --- | --- | --- |"]
    lines += [f"| {row.what} | {number(row.ours)} | {ratio_text(row)} |" for row in rows(data)]
    return "\n".join(lines) + "\n"


def readme(text: str, data: dict[str, Any]) -> str:
    """The README with the table of one model."""
    before, _, rest = text.partition(BEGIN)
    _, _, after = rest.partition(END)
    machine = data["machine"]
    words = wrapped(
        "Beside llama.cpp in one run, in alternating slices, the better of its two settings; SmolLM2 135M Q4_1, "
        f"{machine['threads']} threads, {machine['processor']} ({machine['isa']}); medians with quartiles"
        f"{', * where the machine was disturbed' if '*' in table(data) else ''}:"
    )
    command = wrapped(
        f"`{data['command']}`; [docs/speed.md](docs/speed.md) has other models, types and instruction sets."
    )
    return "\n".join((before + BEGIN, words, "", table(data), command, "", END)) + after


def page(sets: dict[str, Measured]) -> str:
    versions = sorted({data["peer"]["version"] for models in sets.values() for data in models.values()})
    out = [
        "# How fast, and what is the limit",
        "",
        "<!-- tools/speed.py write makes this page of what tools/speed.py measure has put into docs/speed. -->",
        "",
        wrapped(
            f"The peer is {', '.join(versions)}, built natively on the same machine. Each ratio is the median over "
            "alternating slices of one run, with its quartiles; llama.cpp is run with repacking on and off, and the "
            "better setting is the peer. SmolLM2 is the real file, the others are random models of that shape. Near "
            "and far are the two states of such a machine: both cores on one core complex, or on two. A star marks a "
            "test that others disturbed. The machines differ: compare within a table, not between two."
        ),
        "",
        wrapped(
            "No engine can decode faster than the machine reads the weights. The bars are how many times as long a "
            "token really takes."
        ),
        "",
    ]
    for isa, models in sets.items():
        out += section(isa, models)
    return "\n".join(out)


def section(isa: str, models: Measured) -> list[str]:
    """One instruction set: its chart, its table, and how each model was measured."""
    machine = next(iter(models.values()))["machine"]
    out = [
        f"## {isa}: {machine['processor']}, {machine['threads']} threads",
        "",
        f"![{isa}: time of a token over the time of reading its weights once](speed/{isa}/chart.svg)",
        "",
        f"| {isa} | | Woolly tokens/s | llama.cpp tokens/s | its setting | ratio | of a plain read | state |",
        "| --- | --- | --- | --- | --- | --- | --- | --- |",
    ]
    for data in models.values():
        for row in rows(data):
            share = f"{100 * row.share:.0f} %" if row.share is not None else ""
            out.append(
                f"| {label(data['model'])} | {row.what} | {number(row.ours)} | {number(row.theirs)} | {row.setting} "
                f"| {ratio_text(row)} | {share} | {row.state} |"
            )
    out.append("")
    for data in models.values():
        state = data["machine"]
        words = (
            f"- {label(data['model'])}: `{data['command']}`; read {state['read_gb_s']:.1f} GB/s, barrier "
            f"{state['barrier_ns']:.0f} ns ({state['state']}); loaded {data['file_mb']:,.0f} MB in "
            f"{data['load_s']:.2f} s, first touch {state['touch_gb_s']:.1f} GB/s; peak memory "
            f"{data['peak_rss_mb']:,.0f} MB; others used {100 * state['foreign_share']:.0f} % of the processors."
        )
        out.append(wrapped(words, "  "))
    if (MEASURED / isa / "kernels.txt").exists():
        out.append(
            f"- What each kernel reaches there (`woolly bench kernels`): [kernels.txt](speed/{isa}/kernels.txt)."
        )
    return [*out, ""]


def chart(models: Measured) -> str:
    """Bars: the time of a token over the time of reading its weights once, ours and theirs."""
    bars = []  # model, who, times the limit, milliseconds
    for data in models.values():
        decode = next(test for test in data["tests"] if "share_of_read" in test)
        ours, ms = 1 / decode["share_of_read"], 1e3 / decode["tokens_per_s"]["median"]
        ratio = data["ratios"][decode["test"]]["median"]
        bars.append((label(data["model"]), "Woolly", ours, ms))
        bars.append(("", "llama.cpp", ours * ratio, ms * ratio))
    left, right, thick, width = 210, 120, 16, 760
    unit = (width - left - right) / max(times for _, _, times, _ in bars)
    tops = [30 + i * thick + i // 2 * thick for i in range(len(bars))]
    limit, height = left + unit, tops[-1] + 2 * thick
    out = [
        f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {width} {height}" font-family="sans-serif" '
        'font-size="12">',
        "<style>text{fill:#333}.Woolly{fill:#2a7f62}.llama{fill:#b8b8b8}line{stroke:#c0392b;stroke-dasharray:4 3}"
        "@media(prefers-color-scheme:dark){text{fill:#ddd}.llama{fill:#777}}</style>",
    ]
    for top, (model, who, times, ms) in zip(tops, bars, strict=True):
        length = unit * times
        if model:
            out.append(f'<text x="{left - 8}" y="{top + thick + 3}" text-anchor="end">{model}</text>')
        kind = who.partition(".")[0]
        out.append(f'<rect class="{kind}" x="{left}" y="{top}" width="{length:.1f}" height="{thick - 2}"/>')
        out.append(f'<text x="{left + length + 6:.1f}" y="{top + thick - 5}">{who} {ms:.1f} ms</text>')
    out.append(f'<line x1="{limit:.1f}" x2="{limit:.1f}" y1="22" y2="{height - 8}"/>')
    out.append(f'<text x="{limit:.1f}" y="16" text-anchor="middle">the limit: the weights read once</text>')
    return "\n".join([*out, "</svg>\n"])


def label(model: str) -> str:
    return model.removesuffix(".gguf").replace("SmolLM2-135M-Instruct.", "SmolLM2 135M ").replace(":", " ")


def main() -> int:
    what, names = (sys.argv[1:] or [""])[0], sys.argv[2:]
    if what not in ("measure", "write", "check") or not set(names) <= set(MODELS):
        print(__doc__, file=sys.stderr)
        return 2
    if what == "measure":
        measure(names or list(MODELS))
        return 0
    sets = measured()
    charts = {MEASURED / isa / "chart.svg": chart(models) for isa, models in sets.items()}
    pages = {PAGE: page(sets), README: readme(README.read_text(), sets["avx2"]["smollm2"]), **charts}
    for path, text in pages.items():
        if what == "write":
            path.write_text(text)
        elif not path.exists() or path.read_text() != text:
            print(f"{path.relative_to(ROOT)} does not say what docs/speed says: tools/speed.py write", file=sys.stderr)
            return 1
    return 0


if __name__ == "__main__":
    sys.exit(main())
