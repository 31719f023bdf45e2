"""Figures in Prometheus' text format, under the names that vLLM gave them, so that its dashboards read them.

Everything is read from counters when somebody asks; nothing here runs beside an answer.
"""

from __future__ import annotations

import time
from collections.abc import Iterator, Sequence
from itertools import accumulate
from typing import TYPE_CHECKING, Any

from woolly import __version__, system
from woolly.server.counts import Histogram, ModelCounts

if TYPE_CHECKING:
    from prometheus_client.core import Metric
    from prometheus_client.metrics_core import HistogramMetricFamily

    from woolly.server.app import App
    from woolly.server.fleet import Fleet

MEDIA_TYPE = "text/plain; version=0.0.4; charset=utf-8"
MODEL = ("model_name",)


def prepare() -> None:
    """Import what writes the text. In a thread, because it takes a while the first time."""
    import prometheus_client  # noqa: F401


def text(app: App) -> bytes:
    """All metrics as one page of text; about a millisecond. On the event loop, which owns the counters."""
    from prometheus_client import CollectorRegistry, generate_latest

    registry = CollectorRegistry(auto_describe=False)
    registry.register(_Collector(app))
    return generate_latest(registry)


class _Collector:
    def __init__(self, app: App) -> None:
        self.app = app

    def describe(self) -> list[Metric]:
        return []

    def collect(self) -> Iterator[Metric]:
        yield from _loaded(self.app)
        yield from _answers(self.app)
        yield from _engines(self.app)
        yield from _disk(self.app)
        yield from _process(self.app)
        if self.app.fleet is not None:
            yield from _fleet(self.app.fleet)


def _loaded(app: App) -> Iterator[Metric]:
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
    for loaded in app.models.loaded:
        figures, left_s = loaded.model.figures(), loaded.left_s()
        left.add_metric([loaded.id], -1 if left_s is None else left_s)
        exact.add_metric([loaded.id], loaded.model.info.exact)
        pages.add_metric([loaded.id], figures.pages)
        pool.add_metric([loaded.id], figures.pool_bytes)
        largest.add_metric([loaded.id], figures.tally.most_sequences)
        running.add_metric([loaded.id], loaded.line.busy)
        waiting.add_metric([loaded.id], loaded.line.waiting)
        usage.add_metric([loaded.id], 1 - (figures.free + figures.idle) / max(figures.pages, 1))
        queued.add_metric([loaded.id], figures.queued_s)
    yield from (running, waiting, queued, usage, pages, pool, largest, exact, left)


def _answers(app: App) -> Iterator[Metric]:
    """What answers have come to since the start."""
    from prometheus_client.core import CounterMetricFamily as Counter

    success = Counter("woolly:request_success", "Answers that came to their end.", labels=(*MODEL, "finished_reason"))
    for name, counts in app.counts.models.items():
        for reason, count in counts.reasons.items():
            success.add_metric([name, reason], count)
    yield success
    for metric, field, what in (
        ("prompt_tokens", "prompt_tokens", "Tokens of prompts."),
        ("generation_tokens", "completion_tokens", "Tokens of answers."),
        ("prefix_cache_queries", "prompt_tokens", "Tokens of prompts that were looked for in the prefix cache."),
        ("prefix_cache_hits", "cached_tokens", "Tokens of prompts that were found there."),
    ):
        family = Counter(f"woolly:{metric}", what, labels=MODEL)
        for name, counts in app.counts.models.items():
            family.add_metric([name], getattr(counts, field))
        yield family
    yield _histogram("time_to_first_token_seconds", "From the request to the first text.", app.counts.models, "first")
    yield _histogram("e2e_request_latency_seconds", "From the request to the end.", app.counts.models, "whole")
    yield _histogram("request_queue_time_seconds", "In the engine's queue.", app.counts.models, "queue")


def _engines(app: App) -> Iterator[Metric]:
    """What the engines have tallied; those of unloaded models are not forgotten."""
    from prometheus_client.core import CounterMetricFamily as Counter
    from prometheus_client.metrics_core import HistogramMetricFamily

    tallies = app.models.tallies()
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
    for loaded in app.models.loaded:
        evictions.add_metric([loaded.id], loaded.model.figures().evictions)
    yield from (gaps, steps, seconds, drafted, accepted, evictions)


def _disk(app: App) -> Iterator[Metric]:
    """The prefix cache on disk, since each model was loaded."""
    from prometheus_client.core import CounterMetricFamily as Counter
    from prometheus_client.core import GaugeMetricFamily as Gauge

    shelves = [(loaded.id, loaded.model.figures().shelf) for loaded in app.models.loaded]
    for field, what in (
        ("hits", "Pages that were read."),
        ("misses", "Pages that were gone when they were to be read."),
        ("written", "Pages that were written."),
        ("removed", "Pages that were removed for others."),
        ("rejected", "Pages whose digest was wrong, so that they were removed and computed again."),
    ):
        family = Counter(f"woolly:prefix_cache_disk_{field}", what, labels=MODEL)
        for name, counts in shelves:
            if counts is not None:
                family.add_metric([name], getattr(counts, field))
        yield family
    nbytes = Gauge("woolly:prefix_cache_disk_bytes", "Bytes of the folder, which all models share.", labels=MODEL)
    for name, counts in shelves:
        if counts is not None:
            nbytes.add_metric([name], counts.nbytes)
    yield nbytes


def _process(app: App) -> Iterator[Metric]:
    from prometheus_client.core import CounterMetricFamily as Counter
    from prometheus_client.core import GaugeMetricFamily as Gauge

    responses = Counter("woolly:http_responses", "Responses; 499 is a client that went away.", labels=("status",))
    for status, count in sorted(app.counts.statuses.items()):
        responses.add_metric([str(status)], count)
    yield responses
    build = Gauge("woolly:build_info", "The version that runs.", labels=("version",))
    build.add_metric([__version__], 1)
    yield build
    yield Gauge("process_resident_memory_bytes", "Resident set.", value=system.usage().current)
    yield Gauge(
        "process_start_time_seconds", "Start, since 1970.", value=time.time() - time.monotonic() + app.started_s
    )


def _fleet(fleet: Fleet) -> Iterator[Metric]:
    """Of a gate."""
    from prometheus_client.core import CounterMetricFamily as Counter
    from prometheus_client.core import GaugeMetricFamily as Gauge

    replicas = Gauge("woolly:fleet_replicas", "Replicas that report, by whether they take work.", labels=("state",))
    for state, count in fleet.states().items():
        replicas.add_metric([state], count)
    replays = Counter("woolly:fleet_replays", "Times that an answer went on at another replica.")
    replays.add_metric([], fleet.replays)
    lost = Counter("woolly:fleet_lost", "Answers that were lost too often.")
    lost.add_metric([], fleet.failed)
    yield from (replicas, replays, lost)


def _histogram(metric: str, what: str, models: dict[str, ModelCounts], field: str) -> HistogramMetricFamily:
    from prometheus_client.metrics_core import HistogramMetricFamily

    family = HistogramMetricFamily(f"woolly:{metric}", what, labels=MODEL)
    for name, counts in models.items():
        one: Histogram = getattr(counts, field)
        _add(family, name, one.borders, one.counts, one.total)
    return family


def _add(family: Any, name: str, borders: Sequence[float], counts: Sequence[int], total: float) -> None:
    """One model's row: Prometheus counts everything up to a border, not what lies between two."""
    bounds = [*(str(border) for border in borders), "+Inf"]
    family.add_metric([name], list(zip(bounds, accumulate(counts), strict=True)), total)
