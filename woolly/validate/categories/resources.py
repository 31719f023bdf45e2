"""resource_utilization: memory and processors over the whole run, and the gain by kernels, threads and fusion."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import Any

import numpy as np

from woolly import bench, plan, system
from woolly.bench.subject import Subject as BenchSubject
from woolly.device import cpu
from woolly.gguf.tensor_types import FORMATS
from woolly.validate.categories.result import CategoryResult, percentile
from woolly.validate.gates import Finding, Measurement, NotMeasured
from woolly.validate.honesty import tokens_of
from woolly.validate.process import ProcessUsage, woolly_server
from woolly.validate.subject import Subject

LARGE = 7.0  # billions of weights
BLOCKS = {"Q4_K": (65_536, 14.5), "Q6_K": (204_800, 34.4)}  # of a type: blocks, and the milliseconds for them
WANTED = {"product": 3.0, "RMSNorm": 2.0, "SwiGLU": 3.0}  # the speed wanted, in multiples of the scalar kernels
ROUNDS, TOKENS = 5, 64
NOT_OURS = NotMeasured("the server was not started here, so what it is made of cannot be measured", applies=False)


def measure(subject: Subject) -> CategoryResult:
    findings: dict[str, Finding] = {"step_allocations": _allocations(subject)}
    details: dict[str, Any] = {}
    inside = {
        "kernel_speedup": _kernels,
        "thread_speedup": _threads,
        "fusion_speedup": _fusion,
        "block_products": _blocks,
    }
    for name, work in inside.items():
        if subject.started is None:
            findings[name] = NOT_OURS
            continue
        subject.say(name.replace("_", " "))
        findings[name], details[name] = work(subject)
    return CategoryResult(details, findings | _memory(subject))


def usage_summary(usages: Sequence[ProcessUsage]) -> dict[str, Any]:
    """Peak and steady resident set, processors, and the curve of memory."""
    if len(usages) < 2:
        return {"memory": []}
    seconds = usages[-1].at_s - usages[0].at_s
    step = max(1, len(usages) // 400)
    return {
        "peak_rss": max(usage.rss for usage in usages),
        "steady_rss": percentile([usage.rss for usage in usages], 50),
        "cpu_share": (usages[-1].cpu_s - usages[0].cpu_s) / seconds / system.cores() if seconds else 0.0,
        "threads": max(usage.threads for usage in usages),
        "files": max(usage.files for usage in usages),
        "memory": [{"at_s": usage.at_s - usages[0].at_s, "rss": usage.rss} for usage in usages[::step]],
    }


def _memory(subject: Subject) -> dict[str, Finding]:
    if not subject.usages:
        unseen = NotMeasured("the server's process is not on this machine, or not ours to see", applies=False)
        return {"peak_memory": unseen, "memory_beyond_weights": unseen}
    peak, file = max(usage.rss for usage in subject.usages) / 1e9, subject.file
    allowed = 4.0 if file.card.size < 3e9 else 8.0
    findings: dict[str, Finding] = {"peak_memory": Measurement((peak,), threshold=allowed)}
    if file.card.size > 7e9:
        findings["peak_memory"] = NotMeasured(f"the file alone has {file.card.size / 1e9:.1f} GB", applies=False)
    beyond: Finding = Measurement((peak - file.card.size / 1e9,))
    if file.billions < LARGE:
        beyond = NotMeasured(
            f"{peak - file.card.size / 1e9:.2f} GB; the gate is for seven billion weights", applies=False
        )
    return findings | {"memory_beyond_weights": beyond}


def _allocations(subject: Subject) -> Finding:
    count = subject.stats().get("step_allocations")
    if not isinstance(count, int):
        return NotMeasured("the server does not count its allocations", applies=False)
    return Measurement((float(count),))


def _kernels(subject: Subject) -> tuple[Finding, list[dict[str, Any]]]:
    """Time each operation with the best instruction set and with the scalar one."""
    if cpu.ISA == "scalar":
        return NotMeasured("this machine has no other kernels than the scalar ones", applies=False), []
    rows: list[dict[str, Any]] = []
    for case in bench.cases(subject.yardstick.threads, rounds=ROUNDS):
        wanted = next((times for word, times in WANTED.items() if case.case.startswith(word)), None)
        times = case.times_scalar[cpu.ISA]
        rows.append({"case": case.case, "times_scalar": times, "wanted": wanted})
    least = min(row["times_scalar"] / row["wanted"] for row in rows if row["wanted"])
    return Measurement((least,)), rows


def _blocks(subject: Subject) -> tuple[Finding, list[dict[str, Any]]]:
    """Time the product of one row with matrices of so many blocks, by type."""
    rows: list[dict[str, Any]] = []
    for form, (blocks, allowed_ms) in BLOCKS.items():
        stream = blocks * FORMATS[form].row_bytes(FORMATS[form].block)
        products = bench.products(
            subject.yardstick.threads, cpu.clock_hz() / 1e9, rounds=ROUNDS, forms=(form,), stream=stream, many=16
        )
        one = next(row for row in products if row.isa == cpu.ISA and row.rows == 1)
        rows.append({"type": form, "blocks": blocks, "ms": one.us / 1e3, "allowed_ms": allowed_ms, "gb_s": one.gb_s})
    return Measurement((max(row["ms"] / row["allowed_ms"] for row in rows),)), rows


def _threads(subject: Subject) -> tuple[Finding, dict[str, Any]]:
    """A server with one thread beside the one that is measured, in turn; the text must be the same."""
    all_threads = subject.yardstick.threads
    if all_threads < 2:
        return NotMeasured("this machine has one core", applies=False), {}
    rates: dict[str, list[float]] = {"one": [], "all": []}
    texts = set()
    prompt = subject.fresh_prompt(16)
    with woolly_server(subject.file.path, "--threads", "1") as (url, _):
        clients = {"one": replace(subject.client, url=url), "all": subject.client}
        for number in range(ROUNDS + 1):
            for name, client in clients.items():
                answer = client.complete(prompt, max_tokens=TOKENS, temperature=0, logit_bias=subject.no_end_bias())
                texts.add(answer.text)
                if number and answer.ok:  # the first warms up
                    rates[name].append(answer.rate(tokens_of(subject.file, answer)))
    if len(texts) != 1:
        return NotMeasured("the text depends on the number of threads"), rates
    gain = subject.yardstick.read_gb_s(all_threads) / subject.yardstick.read_gb_s(1)
    runs = tuple(a / b for a, b in zip(rates["all"], rates["one"], strict=True))
    return Measurement(runs, threshold=min(1.5, 0.9 * gain), note=f"reading gains {gain:.2f}"), rates


def _fusion(subject: Subject) -> tuple[Finding, dict[str, Any]]:
    """A token with every pass and without any, in turn; the logits must be the same to the bit."""
    loaded = {
        name: BenchSubject(subject.file.path, threads=subject.yardstick.threads, positions=256, skip=skip)
        for name, skip in (("fused", ()), ("plain", tuple(plan.PASSES)))
    }
    try:
        logits = {name: _logits(one) for name, one in loaded.items()}
        seconds = [(loaded["fused"].tokens(16, 32), loaded["plain"].tokens(16, 32)) for _ in range(2 * ROUNDS + 1)][1:]
    finally:
        for one in loaded.values():
            one.close()
    if not np.array_equal(logits["fused"], logits["plain"]):
        return NotMeasured("fusion changes the logits"), {}
    return Measurement(tuple(plain / fused for fused, plain in seconds)), {"seconds_of_16": seconds}


def _logits(loaded: BenchSubject) -> Any:
    loaded.fill(32)
    out = loaded.runner.run(loaded.runner.batch.put(loaded.step(32)))
    assert out is not None
    return np.array(out["logits"])
