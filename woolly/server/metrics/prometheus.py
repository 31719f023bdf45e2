"""Figures in Prometheus' text format, under the names that vLLM gave them, so that its dashboards read them.

Everything is read from counters when somebody asks; nothing here runs beside an answer.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from itertools import accumulate
from typing import TYPE_CHECKING, Any

from woolly import system
from woolly.server.metrics import llamacpp
from woolly.server.models.counts import Counts, Histogram, ModelCounts
from woolly.server.models.lifecycle import Models
from woolly.server.services import ServerState
from woolly.version import __version__

if TYPE_CHECKING:
    from prometheus_client.core import Metric
    from prometheus_client.metrics_core import HistogramMetricFamily


MEDIA_TYPE = "text/plain; version=0.0.4; charset=utf-8"
MODEL = ("model_name",)


def prepare() -> None:
    """Import what writes the text. In a thread, because it takes a while the first time."""
    import prometheus_client  # noqa: F401


@dataclass(frozen=True, slots=True)
class Metering:
    """Where the figures of a server come from. more: metrics of the server's part in a fleet."""

    state: ServerState
    models: Models
    counts: Counts
    more: Callable[[], Iterable[Metric]] = tuple


def text(metering: Metering) -> bytes:
    """All metrics as one page of text; about a millisecond. On the event loop, which owns the counters."""
    from prometheus_client import CollectorRegistry, generate_latest

    registry = CollectorRegistry(auto_describe=False)
    registry.register(_Collector(metering))
    return generate_latest(registry)


class _Collector:
    def __init__(self, metering: Metering) -> None:
        self.metering = metering

    def describe(self) -> list[Metric]:
        return []

    def collect(self) -> Iterator[Metric]:
        models, counts = self.metering.models, self.metering.counts
        yield from _loaded(models)
        yield from _answers(counts)
        yield from _engines(models)
        yield from _disk(models)
        yield from _process(counts, self.metering.state)
        yield from llamacpp.metrics(models, counts)
        yield from self.metering.more()


def _loaded(models: Models) -> Iterator[Metric]:
    """What the loaded models do at this moment."""
    from prometheus_client.core import GaugeMetricFamily as Gauge

    running = Gauge("woolly:num_requests_running", "Requests that are with the engine.", labels=MODEL)
    waiting = Gauge("woolly:num_requests_waiting", "Requests that wait in line.", labels=MODEL)
    queued = Gauge("woolly:queued_seconds", "To compute the prompts that wait, at the measured rate.", labels=MODEL)
    usage = Gauge("woolly:kv_cache_usage_perc", "Share of the cache's pages that answers hold, 0 to 1.", labels=MODEL)
    pages = Gauge("woolly:kv_cache_pages", "Pages of the cache, which all answers share.", labels=MODEL)
    pool = Gauge("woolly:kv_cache_bytes", "Bytes of these pages.", labels=MODEL)
    largest = Gauge("woolly:max_batch_size", "The most answers that one step has computed.", labels=MODEL)
    exact = Gauge("woolly:exact", "1 where activations have 16 bits everywhere, else 0.", labels=MODEL)
    left = Gauge(
        "woolly:unloaded_in_seconds", "Until the model is unloaded if nobody uses it; -1: never.", labels=MODEL
    )
    for loaded in models.loaded:
        figures, left_s = loaded.model.figures(), loaded.left_s()
        left.add_metric([loaded.id], -1 if left_s is None else left_s)
        exact.add_metric([loaded.id], loaded.model.info.exact)
        pages.add_metric([loaded.id], figures.pages)
        pool.add_metric([loaded.id], figures.pool_bytes)
        largest.add_metric([loaded.id], figures.tally.most_sequences)
        running.add_metric([loaded.id], loaded.admission.busy)
        waiting.add_metric([loaded.id], loaded.admission.waiting)
        usage.add_metric([loaded.id], 1 - (figures.free + figures.idle) / max(figures.pages, 1))
        queued.add_metric([loaded.id], figures.queued_s)
    yield from (running, waiting, queued, usage, pages, pool, largest, exact, left)


def _answers(counts: Counts) -> Iterator[Metric]:
    """The answers since the start, their tokens and their times."""
    from prometheus_client.core import CounterMetricFamily as Counter

    success = Counter("woolly:request_success", "Answers that came to their end.", labels=(*MODEL, "finished_reason"))
    for name, of_model in counts.models.items():
        for reason, count in of_model.reasons.items():
            success.add_metric([name, reason], count)
    yield success
    for metric, field, what in (
        ("prompt_tokens", "prompt_tokens", "Tokens of prompts."),
        ("generation_tokens", "completion_tokens", "Tokens of answers."),
        ("prefix_cache_queries", "prompt_tokens", "Tokens of prompts that were looked for in the prefix cache."),
        ("prefix_cache_hits", "cached_tokens", "Tokens of prompts that were found there."),
    ):
        family = Counter(f"woolly:{metric}", what, labels=MODEL)
        for name, of_model in counts.models.items():
            family.add_metric([name], getattr(of_model, field))
        yield family
    yield _histogram("time_to_first_token_seconds", "From the request to the first text.", counts.models, "first_text")
    yield _histogram("e2e_request_latency_seconds", "From the request to the end.", counts.models, "end_to_end")
    yield _histogram("request_queue_time_seconds", "In the engine's queue.", counts.models, "queue")


def _engines(models: Models) -> Iterator[Metric]:
    """The tallies of the engines, also of unloaded models."""
    from prometheus_client.core import CounterMetricFamily as Counter
    from prometheus_client.metrics_core import HistogramMetricFamily

    tallies = models.tallies()
    gaps = HistogramMetricFamily("woolly:inter_token_latency_seconds", "Between two tokens of an answer.", labels=MODEL)
    steps = Counter("woolly:decode_steps", "Steps that had answers alone, none of them at its prompt.", labels=MODEL)
    seconds = Counter("woolly:decode_seconds", "Seconds of these steps.", labels=MODEL)
    drafted = Counter("woolly:spec_decode_num_draft_tokens", "Tokens of answers that were guessed ahead.", labels=MODEL)
    accepted = Counter("woolly:spec_decode_num_accepted_tokens", "Those of them that were right.", labels=MODEL)
    for name, tally in tallies.items():
        from woolly.engine.tally import GAPS_S

        _add(gaps, name, GAPS_S, tally.gaps, tally.gap_s)
        steps.add_metric([name], tally.decode_steps)
        seconds.add_metric([name], tally.decode_s)
        drafted.add_metric([name], tally.drafted)
        accepted.add_metric([name], tally.accepted)
    evictions = Counter("woolly:prefix_cache_evictions", "Pages forgotten since the model was loaded.", labels=MODEL)
    for loaded in models.loaded:
        evictions.add_metric([loaded.id], loaded.model.figures().evictions)
    yield from (gaps, steps, seconds, drafted, accepted, evictions)


def _disk(models: Models) -> Iterator[Metric]:
    """The prefix cache on disk, since each model was loaded."""
    from prometheus_client.core import CounterMetricFamily as Counter
    from prometheus_client.core import GaugeMetricFamily as Gauge

    disks = [(loaded.id, loaded.model.figures().disk) for loaded in models.loaded]
    for field, what in (
        ("hits", "Pages that were read."),
        ("misses", "Pages that were gone when they were to be read."),
        ("written", "Pages that were written."),
        ("removed", "Pages that were removed for others."),
        ("rejected", "Pages whose digest was wrong, so that they were removed and computed again."),
    ):
        family = Counter(f"woolly:prefix_cache_disk_{field}", what, labels=MODEL)
        for name, counts in disks:
            if counts is not None:
                family.add_metric([name], getattr(counts, field))
        yield family
    nbytes = Gauge("woolly:prefix_cache_disk_bytes", "Bytes of the folder, which all models share.", labels=MODEL)
    for name, counts in disks:
        if counts is not None:
            nbytes.add_metric([name], counts.nbytes)
    yield nbytes


def _process(counts: Counts, state: ServerState) -> Iterator[Metric]:
    from prometheus_client.core import CounterMetricFamily as Counter
    from prometheus_client.core import GaugeMetricFamily as Gauge

    responses = Counter("woolly:http_responses", "Responses; 499 is a client that went away.", labels=("status",))
    for status, count in sorted(counts.statuses.items()):
        responses.add_metric([str(status)], count)
    yield responses
    build = Gauge("woolly:build_info", "The version that runs.", labels=("version",))
    build.add_metric([__version__], 1)
    yield build
    yield Gauge("process_resident_memory_bytes", "Resident set.", value=system.usage().current)
    yield Gauge(
        "process_start_time_seconds", "Start, since 1970.", value=time.time() - time.monotonic() + state.started_s
    )


def _histogram(metric: str, what: str, models: dict[str, ModelCounts], field: str) -> HistogramMetricFamily:
    from prometheus_client.metrics_core import HistogramMetricFamily

    family = HistogramMetricFamily(f"woolly:{metric}", what, labels=MODEL)
    for name, counts in models.items():
        one: Histogram = getattr(counts, field)
        _add(family, name, one.borders, one.counts, one.total)
    return family


def _add(family: Any, name: str, borders: Sequence[float], counts: Sequence[int], total: float) -> None:
    """One model's row: Prometheus counts all values up to a border, not those between two borders."""
    bounds = [*(str(border) for border in borders), "+Inf"]
    family.add_metric([name], list(zip(bounds, accumulate(counts), strict=True)), total)
