"""inference_speed: how soon the first token comes and how fast the others, by the client's own clock."""

from __future__ import annotations

from dataclasses import asdict, dataclass
from functools import partial
from random import Random
from statistics import median
from typing import Any

from woolly import native
from woolly.errors import BusyError
from woolly.validate.client import Answer
from woolly.validate.found import Found, percentile, percentiles_ms, together
from woolly.validate.gates import Finding, Measure, Missing
from woolly.validate.honesty import least_cpu_s, tokens_of
from woolly.validate.prompts import fresh_text
from woolly.validate.subject import Subject

SHORT, LONG = 16, 128  # tokens of prompts
LARGE = 0.5  # billions of weights from which on a model counts as one of a billion
TICK_S = 0.01  # of the system's clock of processor time: less cannot be told from nothing
PATIENCE = 2  # times as many slices as are wished for, at the most
SAME = 26  # the seed of the text that all slices go on with
CALM = 0.10  # of the processors that others may use during a slice
ROOM = 64  # tokens that an answer to the longest prompt may take
CLASSES = ((15, "excellent"), (5, "good"), (1, "acceptable"), (0.1, "slow"))


@dataclass(frozen=True, slots=True)
class Slice:
    """One short measurement beside what the machine gives at that moment: what saved runs are compared by."""

    tokens_per_s: float
    prompt_per_s: float
    memory_s: float  # of the yardstick
    clock_ghz: float
    state: str
    read_gb_s: float
    foreign: float  # of the processors, what others used meanwhile


def measure(subject: Subject) -> Found:
    wishes = subject.settings.tests.inference_speed
    subject.say("the first answer")
    ask(subject, SHORT, 8)
    sustained = [
        ask(subject, SHORT, wishes.max_tokens, f"answer {i + 1} of {wishes.rounds}") for i in range(wishes.rounds)
    ]
    rates = tuple(answer.rate(tokens_of(subject.file, answer)) for answer, _ in sustained)
    gaps = [gap for answer, _ in sustained for gap in answer.gaps_s]
    firsts = _firsts(subject)
    slices = _slices(subject)
    hi = [_good(subject.client.complete("Hi", max_tokens=1, temperature=0)).seconds * 1e3 for _ in range(wishes.rounds)]
    findings = _speed_findings(subject, rates) | {
        "token_time": Measure(tuple(percentile(a.gaps_s, 95) * 1e3 for a, _ in sustained), percentile(gaps, 95) * 1e3),
        "smoke": Measure(tuple(hi)),
        "honest_stream": Measure(tuple(answer.silence for answer, _ in sustained)),
        "honest_work": _work(subject, sustained),
        **_first_findings(subject, firsts),
    }
    rate = median(rates)
    name = next((word for least, word in CLASSES if rate >= least), "very_slow")
    details = {
        "single_token_latency": {"inter_token_ms": percentiles_ms(gaps), "first_token_ms": firsts},
        "sustained_throughput": {"tokens_per_second": list(rates), "tokens": wishes.max_tokens, "prompt_tokens": SHORT},
        "timeout_analysis": {"longest_answer_s": max(answer.seconds for answer, _ in sustained)},
        "performance_summary": {"tokens_per_second": rate, "class": name, "meets_target_15tps": rate >= 15}
        | _roof(subject),
        "detailed_measurements": {"gaps_ms": [gap * 1e3 for gap in sustained[0][0].gaps_s]},
        "batch": _batches(subject),
        "slices": [asdict(one) for one in slices],
    }
    return Found(details, findings)


def ask(subject: Subject, prompt: int, tokens: int, what: str = "") -> tuple[Answer, float | None]:
    """A greedy answer of so many tokens to a new prompt, and the processor time of the server."""
    if what:
        subject.say(what)
    text, before = subject.fresh(prompt), subject.use()
    answer = _good(subject.client.complete(text, max_tokens=tokens, temperature=0, logit_bias=subject.no_end()))
    after = subject.use()
    return answer, after.cpu_s - before.cpu_s if after and before else None


def slice_of(subject: Subject) -> Slice:
    """One slice: a new prompt, and an answer that is the same in every slice of every run, beside the yardstick.

    The answer is drawn by one seed and not greedy: a greedy one begins to repeat itself, and then its speed is how well
    it can be guessed.
    """
    tokens, yardstick = subject.settings.tests.inference_speed.slice_tokens, subject.yardstick
    same = fresh_text(subject.file.tokenizer, SHORT, Random(SAME))
    bias = subject.no_end()
    before, watch = yardstick.state(), subject.watch()
    prompt = _good(subject.client.complete(subject.fresh(LONG), max_tokens=2, temperature=0, logit_bias=bias))
    memory = yardstick.memory_s()
    answer = _good(subject.client.complete(same, max_tokens=tokens, temperature=1, seed=SAME, logit_bias=bias))
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


def _good(answer: Answer) -> Answer:
    if not answer.ok:
        raise BusyError(f"an answer could not be measured: {answer.error or 'it is empty or has no end'}")
    return answer


def _slices(subject: Subject) -> list[Slice]:
    """As many as are wished for; on a restless machine more, until so many are calm."""
    count = subject.settings.tests.inference_speed.slices
    slices: list[Slice] = []
    while sum(one.foreign <= CALM for one in slices) < count and len(slices) < PATIENCE * count:
        subject.say(f"slice {len(slices) + 1} of {count}")
        slices.append(slice_of(subject))
    return slices


def _roof(subject: Subject) -> dict[str, float]:
    """What memory allows: a token reads its weights once, unless several are computed in one step."""
    read = subject.yardstick.read_gb_s(subject.yardstick.threads)
    return {"read_gb_s": read, "roof_tokens_per_second": read * 1e9 / subject.file.token_bytes}


def _speed_findings(subject: Subject, rates: tuple[float, ...]) -> dict[str, Finding]:
    """G1, G2, G7 and G9 by one figure; one that the memory of this machine does not allow does not apply."""
    roof = _roof(subject)["roof_tokens_per_second"]
    found: dict[str, Finding] = {}
    for name, least in (("sustained_speed", 15.0), ("expected_speed", 20.0), ("minimum_speed", 5.0)):
        found[name] = Measure(rates)
        if roof < least and median(rates) < least:
            found[name] = Missing(
                f"memory allows {roof:.1f} tokens/s of this model here; {median(rates):.1f} were reached", applies=False
            )
    return found | {"phase_speed": Measure(rates)}


def _first_findings(subject: Subject, firsts: dict[str, Any]) -> dict[str, Finding]:
    length = LONG if subject.file.billions < LARGE else SHORT
    found: dict[str, Finding] = {}
    for name, tokens in (("first_token", length), ("first_token_short", SHORT)):
        row = firsts.get(str(tokens))
        found[name] = Measure(tuple(row["cold_ms"])) if row else Missing(f"no prompt of {tokens} tokens was asked")
    return found


def _firsts(subject: Subject) -> dict[str, Any]:
    """Milliseconds to the first text by the tokens of the prompt: new to the server, and sent once more."""
    wishes = subject.settings.tests.inference_speed
    rows = {}
    for length in wishes.prompt_lengths:
        if length + ROOM > subject.file.card.context:
            continue
        subject.say(f"first token after {length} tokens")
        cold: list[float] = []
        warm: list[float] = []
        for _ in range(wishes.rounds):
            text = subject.fresh(length)
            for times in (cold, warm):
                times.append(_good(subject.client.complete(text, max_tokens=2, temperature=0)).first_s * 1e3)
        rows[str(length)] = {"cold_ms": cold, "warm_ms": warm}
    return rows


def _work(subject: Subject, sustained: list[tuple[Answer, float | None]]) -> Finding:
    """The least processor time over what was used, in all answers together: a tick of the system is long."""
    used = [cpu for _, cpu in sustained if cpu is not None]
    if not used:
        return Missing("the server's process is not on this machine, or not ours to see", applies=False)
    tokens = sum(tokens_of(subject.file, answer) for answer, _ in sustained)
    share = least_cpu_s(subject.file, tokens) / max(sum(used), TICK_S)
    traffic = median(a.rate(tokens_of(subject.file, a)) for a, _ in sustained) * subject.file.token_bytes / 1e9
    read = subject.yardstick.read_gb_s(subject.yardstick.threads)
    note = (
        f"{sum(used) / tokens * 1e3:.2f} ms of processor time a token, {traffic:.1f} GB/s of weights; "
        f"memory was read at {read:.1f} GB/s"
    )
    return Measure((share,), note=note)


def _batches(subject: Subject) -> list[dict[str, Any]]:
    """Several answers to one prompt at once: tokens a second of all, and whether each is what it is alone."""
    wishes, rows = subject.settings.tests.inference_speed, []
    text = subject.fresh(SHORT)
    fields = {"max_tokens": wishes.slice_tokens, "temperature": 0, "logit_bias": subject.no_end()}
    alone = _good(subject.client.complete(text, **fields)).text
    for size in wishes.batch_sizes:
        subject.say(f"{size} answers at once")
        answers = together(partial(subject.client.complete, text, **fields) for _ in range(size))
        good = [answer for answer in answers if answer.ok]
        seconds = max(answer.seconds for answer in answers)
        total = sum(tokens_of(subject.file, answer) for answer in good)
        same = sum(answer.text == alone for answer in answers)
        rows.append({"size": size, "tokens_per_second": total / seconds, "same_as_alone": same / size})
    return rows
