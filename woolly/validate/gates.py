"""The gates: one table of thresholds, and the verdict on each gate by what was measured.

G1 to G24 are the figures that were promised; H1 to H4 ask whether the figures of this server can be believed. A gate
holds, fails, was not measured, or does not apply to this model, machine or server; the last two say why.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from statistics import median, quantiles
from typing import Literal, TypeAlias

State = Literal["pass", "fail", "not measured", "does not apply"]


@dataclass(frozen=True, slots=True)
class Gate:
    """phase: the first phase, 1 to 5, in which it must hold; how: what is measured, in words."""

    id: str
    name: str
    category: str
    phase: int
    sense: Literal[">=", "<="]
    threshold: float
    unit: str
    how: str


@dataclass(frozen=True, slots=True)
class Measurement:
    """The figure of a gate, run by run. value: None for the median of the runs. threshold: in place of the table's."""

    runs: tuple[float, ...]
    value: float | None = None
    threshold: float | None = None
    note: str = ""


@dataclass(frozen=True, slots=True)
class NotMeasured:
    """Why there is no figure; applies: whether there should have been one."""

    why: str
    applies: bool = True


Finding: TypeAlias = Measurement | NotMeasured


@dataclass(frozen=True, slots=True)
class Verdict:
    """One gate of a report. spread: the quartiles of the runs."""

    id: str
    name: str
    category: str
    phase: int
    value: float | None
    sense: str
    threshold: float
    unit: str
    state: State
    how: str
    runs: int
    spread: tuple[float, float] | None
    why: str


PHASES = {"phase1": 0.1, "phase2": 1.0, "phase3": 5.0, "phase4": 15.0, "phase5": 30.0}  # tokens a second

GATES = (
    Gate("G1", "sustained_speed", "inference_speed", 4, ">=", 15, "tokens/s",
         "128 greedy tokens after a prompt of 16, streamed: (tokens - 1) / (last piece - first piece), median"),
    Gate("G2", "expected_speed", "inference_speed", 5, ">=", 20, "tokens/s", "the figure of G1"),
    Gate("G3", "token_time", "inference_speed", 4, "<=", 100, "ms", "P95 of the time between two pieces in G1"),
    Gate("G4", "first_token", "inference_speed", 4, "<=", 200, "ms",
         "request to first text, a prompt never sent before: 128 tokens, or 16 for models of a billion weights"),
    Gate("G5", "first_token_short", "inference_speed", 4, "<=", 100, "ms", "the same with a prompt of 16 tokens"),
    Gate("G6", "cache_hits", "ole", 4, ">=", 0.8, "share",
         "tokens of the prompt that were not computed again, in ten turns that resend their history"),
    Gate("G7", "minimum_speed", "inference_speed", 3, ">=", 5, "tokens/s", "the figure of G1"),
    Gate("G8", "smoke", "inference_speed", 1, "<=", 10_000, "ms", "the prompt Hi, one token, to the end of the answer"),
    Gate("G9", "phase_speed", "inference_speed", 1, ">=", PHASES["phase5"], "tokens/s",
         "the figure of G1 beside that of the phase"),
    Gate("G10", "speed_beside_peer", "comparative", 5, ">=", 1.0, "times",
         "speed over that of the peer with the same file, in slices A B B A, median; the lesser of prompt and decode"),
    Gate("G11", "step_allocations", "resource_utilization", 4, "<=", 0, "allocations",
         "heap allocations of a decode step, as the server counts them"),
    Gate("G12", "memory_beyond_weights", "resource_utilization", 4, "<=", 1.0, "GB",
         "peak of the resident set less the weights; for models of seven billion weights and more"),
    Gate("G13", "peak_memory", "resource_utilization", 3, "<=", 4.0, "GB",
         "peak of the resident set of the server and its children; 8 GB where the file has more than 3"),
    Gate("G14", "memory_growth", "reliability", 4, "<=", 10, "MB/h",
         "growth of the server's own resident set after warm-up, beyond 2 MB that allocators keep"),
    Gate("G15", "kernel_speedup", "resource_utilization", 5, ">=", 1.0, "of wanted",
         "best kernels over the scalar ones on the same data; wanted: products 3, RMSNorm 2, SwiGLU 3; the least"),
    Gate("G16", "thread_speedup", "resource_utilization", 5, ">=", 1.5, "times",
         "decode with all cores over decode with one; where memory is the limit, 0.9 of what reading gains"),
    Gate("G17", "fusion_speedup", "resource_utilization", 5, ">=", 1.0, "times",
         "a token with all passes over one without any fusion; the logits must be equal to the bit"),
    Gate("G18", "block_products", "resource_utilization", 5, "<=", 1.0, "of allowed",
         "a product over 65,536 blocks of Q4_K in 14.5 ms and 204,800 of Q6_K in 34.4 ms; the worse share of these"),
    Gate("G19", "clean_log", "reliability", 4, "<=", 0, "lines", "warnings and errors in the log of this run"),
    Gate("G20", "cold_start", "model_loading", 1, "<=", 2.0, "s",
         "a new process to its first answer; 30 s for models of seven billion weights, in proportion between"),
    Gate("G21", "error_rate", "load_testing", 3, "<=", 0.01, "share", "requests under load without a right answer"),
    Gate("G22", "regression", "regression", 5, ">=", 0.95, "times",
         "speed over that of the saved run, in units of what the machine gave; fails only beyond noise"),
    Gate("G23", "same_text", "quality_validation", 1, ">=", 1.0, "share",
         "greedy answers that are those of the NumPy reference, token by token; ties within 0.5 of a logit are free"),
    Gate("G24", "ole_connects", "ole", 2, ">=", 1.0, "share", "steps of Ole: health, list of models, chat, stream"),
    Gate("H1", "honest_counts", "quality_validation", 1, ">=", 1.0, "share",
         "answers whose token counts are those of the model's own tokenizer"),
    Gate("H2", "honest_stream", "inference_speed", 1, "<=", 0.5, "share",
         "the longest silence of a streamed answer, of its whole time, median; pauses of less than 50 ms are none"),
    Gate("H3", "honest_work", "inference_speed", 1, "<=", 1.0, "share",
         "the least processor time that the tokens need, by the peak of multiplications here, over what was used"),
    Gate("H4", "same_answer", "quality_validation", 1, ">=", 1.0, "share",
         "greedy and seeded answers that are the same again, alone and beside others"),
)  # fmt: skip
BY_NAME = {gate.name: gate for gate in GATES}


def judge(gate: Gate, finding: Finding) -> Verdict:
    """The verdict on one gate."""
    if isinstance(finding, NotMeasured):
        state: State = "not measured" if finding.applies else "does not apply"
        return _verdict(gate, None, gate.threshold, state, (), finding.why)
    value = median(finding.runs) if finding.value is None else finding.value
    threshold = gate.threshold if finding.threshold is None else finding.threshold
    holds = value >= threshold if gate.sense == ">=" else value <= threshold
    return _verdict(gate, value, threshold, "pass" if holds else "fail", finding.runs, finding.note)


def judge_all(findings: Mapping[str, Finding], categories: Sequence[str], phase: int) -> list[Verdict]:
    """The verdicts on all gates of these categories up to the phase; one without a finding is not measured."""
    asked = [gate for gate in GATES if gate.category in categories and gate.phase <= phase]
    return [judge(gate, findings.get(gate.name, NotMeasured("nothing was measured for it"))) for gate in asked]


def exit_code(states: Sequence[str]) -> int:
    """0 all gates hold, 1 one fails, 2 one could not be measured."""
    if "fail" in states:
        return 1
    return 2 if "not measured" in states or "pass" not in states else 0


def _verdict(
    gate: Gate, value: float | None, threshold: float, state: State, runs: tuple[float, ...], why: str
) -> Verdict:
    spread = None
    if len(runs) > 1:
        low, _, high = quantiles(runs, n=4, method="inclusive")
        spread = (low, high)
    return Verdict(
        gate.id, gate.name, gate.category, gate.phase, value, gate.sense, threshold, gate.unit, state, gate.how,
        len(runs), spread, why,
    )  # fmt: skip
