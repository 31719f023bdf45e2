"""inference_speed: how soon the first token comes and how fast the others, by the client's own clock."""

from __future__ import annotations

from dataclasses import asdict, dataclass
from functools import partial
from random import Random
from statistics import median
from typing import Any

from woolly.device import cpu as native
from woolly.errors import BusyError
from woolly.validate.categories.result import CategoryResult, percentile, percentiles_ms, run_concurrently
from woolly.validate.client import Answer
from woolly.validate.gates import Finding, Measurement, NotMeasured
from woolly.validate.honesty import least_cpu_s, tokens_of
from woolly.validate.prompts import fresh_text
from woolly.validate.subject import Subject

SHORT, LONG = 16, 128  # tokens of prompts
LARGE = 0.5  # billions of weights: a model of fewer is timed with the LONG prompt, others with the SHORT one
TICK_S = 0.01  # resolution of the system's processor time
MOST_TIMES = 2  # a restless machine gets at most this multiple of the slices of the settings
SLICE_SEED = 26  # one seed for the prompts and answers of all slices
CALM = 0.10  # share of the processors that other processes may use during a slice
ROOM = 64  # tokens of the context kept free for the answer to a prompt
CLASSES = ((15, "excellent"), (5, "good"), (1, "acceptable"), (0.1, "slow"))


@dataclass(frozen=True, slots=True)
class Slice:
    """One short measurement with the speed of the machine at that moment; saved runs are compared slice by slice."""

    tokens_per_s: float
    prompt_per_s: float
    memory_s: float  # seconds of the yardstick's read
    clock_ghz: float
    state: str
    read_gb_s: float
    foreign: float  # share of the processors that other processes used during the slice


def measure(subject: Subject) -> CategoryResult:
    settings = subject.settings.tests.inference_speed
    subject.say("the first answer")
    timed_answer(subject, SHORT, 8)
    sustained = [
        timed_answer(subject, SHORT, settings.max_tokens, f"answer {i + 1} of {settings.rounds}")
        for i in range(settings.rounds)
    ]
    rates = tuple(answer.rate(tokens_of(subject.file, answer)) for answer, _ in sustained)
    gaps = [gap for answer, _ in sustained for gap in answer.gaps_s]
    firsts = _first_token_ms(subject)
    slices = _slices(subject)
    hi = [
        _require_ok(subject.client.complete("Hi", max_tokens=1, temperature=0)).seconds * 1e3
        for _ in range(settings.rounds)
    ]
    findings = _speed_findings(subject, rates) | {
        "token_time": Measurement(
            tuple(percentile(a.gaps_s, 95) * 1e3 for a, _ in sustained), percentile(gaps, 95) * 1e3
        ),
        "smoke": Measurement(tuple(hi)),
        "honest_stream": Measurement(tuple(answer.silence for answer, _ in sustained)),
        "honest_work": _work_share(subject, sustained),
        **_first_findings(subject, firsts),
    }
    rate = median(rates)
    name = next((word for least, word in CLASSES if rate >= least), "very_slow")
    details = {
        "single_token_latency": {"inter_token_ms": percentiles_ms(gaps), "first_token_ms": firsts},
        "sustained_throughput": {
            "tokens_per_second": list(rates),
            "tokens": settings.max_tokens,
            "prompt_tokens": SHORT,
        },
        "timeout_analysis": {"longest_answer_s": max(answer.seconds for answer, _ in sustained)},
        "performance_summary": {"tokens_per_second": rate, "class": name, "meets_target_15tps": rate >= 15}
        | _memory_roof(subject),
        "detailed_measurements": {"gaps_ms": [gap * 1e3 for gap in sustained[0][0].gaps_s]},
        "batch": _batches(subject),
        "slices": [asdict(one) for one in slices],
    }
    return CategoryResult(details, findings)


def timed_answer(subject: Subject, prompt: int, tokens: int, what: str = "") -> tuple[Answer, float | None]:
    """A greedy answer of so many tokens to a new prompt, and the processor time of the server."""
    if what:
        subject.say(what)
    text, before = subject.fresh_prompt(prompt), subject.usage()
    answer = _require_ok(
        subject.client.complete(text, max_tokens=tokens, temperature=0, logit_bias=subject.no_end_bias())
    )
    after = subject.usage()
    return answer, after.cpu_s - before.cpu_s if after and before else None


def slice_of(subject: Subject) -> Slice:
    """One slice: a new prompt, and an answer that is the same in every slice of every run, beside the yardstick.

    The answer is drawn by one seed and not greedy: a greedy one begins to repeat itself, and then its speed is how well
    it can be guessed.
    """
    tokens, yardstick = subject.settings.tests.inference_speed.slice_tokens, subject.yardstick
    slice_prompt = fresh_text(subject.file.tokenizer, SHORT, Random(SLICE_SEED))
    bias = subject.no_end_bias()
    before, watch = yardstick.state(), subject.watch()
    prompt = _require_ok(
        subject.client.complete(subject.fresh_prompt(LONG), max_tokens=2, temperature=0, logit_bias=bias)
    )
    memory = yardstick.memory_s()
    answer = _require_ok(
        subject.client.complete(slice_prompt, max_tokens=tokens, temperature=1, seed=SLICE_SEED, logit_bias=bias)
    )
    memory = (memory + yardstick.memory_s()) / 2
    foreign, after = watch.foreign(), yardstick.state()
    return Slice(
        tokens_per_s=answer.rate(tokens_of(subject.file, answer)),
        prompt_per_s=LONG / prompt.first_s,
        memory_s=memory,
        clock_ghz=native.clock_hz() / 1e9,
        state=before.state if before.state == after.state else "changing",
        read_gb_s=(before.read_gb_s + after.read_gb_s) / 2,
        foreign=foreign,
    )


def _require_ok(answer: Answer) -> Answer:
    if not answer.ok:
        raise BusyError(f"an answer could not be measured: {answer.error or 'it is empty or has no end'}")
    return answer


def _slices(subject: Subject) -> list[Slice]:
    """As many slices as the settings want; on a restless machine more, until so many of them are calm."""
    count = subject.settings.tests.inference_speed.slices
    slices: list[Slice] = []
    while sum(one.foreign <= CALM for one in slices) < count and len(slices) < MOST_TIMES * count:
        subject.say(f"slice {len(slices) + 1} of {count}")
        slices.append(slice_of(subject))
    return slices


def _memory_roof(subject: Subject) -> dict[str, float]:
    """The most that memory allows: a token reads its weights once, unless several are computed in one step."""
    read = subject.yardstick.read_gb_s(subject.yardstick.threads)
    return {"read_gb_s": read, "roof_tokens_per_second": read * 1e9 / subject.file.token_bytes}


def _speed_findings(subject: Subject, rates: tuple[float, ...]) -> dict[str, Finding]:
    """G1, G2, G7 and G9 by one figure; a gate above what this machine's memory allows does not apply."""
    roof = _memory_roof(subject)["roof_tokens_per_second"]
    findings: dict[str, Finding] = {}
    for name, least in (("sustained_speed", 15.0), ("expected_speed", 20.0), ("minimum_speed", 5.0)):
        findings[name] = Measurement(rates)
        if roof < least and median(rates) < least:
            findings[name] = NotMeasured(
                f"memory allows {roof:.1f} tokens/s of this model here; {median(rates):.1f} were reached", applies=False
            )
    return findings | {"phase_speed": Measurement(rates)}


def _first_findings(subject: Subject, firsts: dict[str, Any]) -> dict[str, Finding]:
    length = LONG if subject.file.billions < LARGE else SHORT
    findings: dict[str, Finding] = {}
    for name, tokens in (("first_token", length), ("first_token_short", SHORT)):
        row = firsts.get(str(tokens))
        findings[name] = (
            Measurement(tuple(row["cold_ms"])) if row else NotMeasured(f"no prompt of {tokens} tokens was asked")
        )
    return findings


def _first_token_ms(subject: Subject) -> dict[str, Any]:
    """Milliseconds to the first text by the tokens of the prompt: new to the server, and sent once more."""
    settings = subject.settings.tests.inference_speed
    rows = {}
    for length in settings.prompt_lengths:
        if length + ROOM > subject.file.card.context:
            continue
        subject.say(f"first token after {length} tokens")
        cold: list[float] = []
        warm: list[float] = []
        for _ in range(settings.rounds):
            text = subject.fresh_prompt(length)
            for times in (cold, warm):
                times.append(_require_ok(subject.client.complete(text, max_tokens=2, temperature=0)).first_s * 1e3)
        rows[str(length)] = {"cold_ms": cold, "warm_ms": warm}
    return rows


def _work_share(subject: Subject, sustained: list[tuple[Answer, float | None]]) -> Finding:
    """The least processor time over what was used, over all answers, since one answer takes few ticks of the system."""
    used = [cpu for _, cpu in sustained if cpu is not None]
    if not used:
        return NotMeasured("the server's process is not on this machine, or not ours to see", applies=False)
    tokens = sum(tokens_of(subject.file, answer) for answer, _ in sustained)
    share = least_cpu_s(subject.file, tokens) / max(sum(used), TICK_S)
    traffic = median(a.rate(tokens_of(subject.file, a)) for a, _ in sustained) * subject.file.token_bytes / 1e9
    read = subject.yardstick.read_gb_s(subject.yardstick.threads)
    note = (
        f"{sum(used) / tokens * 1e3:.2f} ms of processor time a token, {traffic:.1f} GB/s of weights; "
        f"memory was read at {read:.1f} GB/s"
    )
    return Measurement((share,), note=note)


def _batches(subject: Subject) -> list[dict[str, Any]]:
    """Several answers to one prompt at once: their tokens a second, and whether each equals the answer given alone."""
    settings, rows = subject.settings.tests.inference_speed, []
    text = subject.fresh_prompt(SHORT)
    fields = {"max_tokens": settings.slice_tokens, "temperature": 0, "logit_bias": subject.no_end_bias()}
    alone = _require_ok(subject.client.complete(text, **fields)).text
    for size in settings.batch_sizes:
        subject.say(f"{size} answers at once")
        answers = run_concurrently(partial(subject.client.complete, text, **fields) for _ in range(size))
        good = [answer for answer in answers if answer.ok]
        seconds = max(answer.seconds for answer in answers)
        total = sum(tokens_of(subject.file, answer) for answer in good)
        slice_prompt = sum(answer.text == alone for answer in answers)
        rows.append({"size": size, "tokens_per_second": total / seconds, "same_as_alone": slice_prompt / size})
    return rows
