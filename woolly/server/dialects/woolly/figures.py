"""The routes that measure: what the server has done, as counted and timed; never an estimate and never a constant."""

from __future__ import annotations

import dataclasses
from typing import TYPE_CHECKING, Any

from woolly import system
from woolly.config import Config
from woolly.config.serving import Serving
from woolly.server.dialects.base.shapes import Count, Number, Shape, Share
from woolly.server.http.reply import Reply
from woolly.server.metrics.prometheus import MEDIA_TYPE, Metering, prepare, text
from woolly.server.models.lifecycle import Models
from woolly.server.routes import Call, Query
from woolly.server.sessions.sessions import Sessions
from woolly.server.workers import Workers

if TYPE_CHECKING:
    from collections.abc import Iterable

    from woolly.llm.loading import Info


class Requests(Shape):
    active: Count
    queued: Count
    done: Count
    failed: Count


class Spread(Shape):
    p50: Number | None
    p95: Number | None


class PrefixCache(Shape):
    hit_tokens: Count
    prompt_tokens: Count
    pages_used: Count | None
    pages_total: Count | None
    evictions: Count | None


class Weights(Shape):
    file_bytes: Count
    packed_bytes: Count
    dequantized_bytes: Count


class Stats(Shape):
    """Everything measured; null until there is something to measure."""

    model_type: str | None
    average_tokens_per_second: Number | None
    memory_usage_mb: Number
    cache_hit_rate: Share | None
    optimizations_enabled: list[str]
    requests: Requests
    ttft_ms: Spread
    inter_token_ms: Spread
    prefix_cache: PrefixCache
    kv_bytes_per_token: Count | None
    weights: Weights | None
    bandwidth_gb_s: Number | None
    threads: Count | None
    instruction_set: str | None
    uptime_seconds: Count


class Metrics(Stats):
    requests_per_second: Number
    average_latency_ms: Number
    active_sessions: Count


class EngineModel(Shape):
    name: str
    type: str
    vocab_size: int | None
    context_length: Count
    hidden_size: int | None
    num_layers: int | None
    num_heads: int | None


class EngineState(Shape):
    models_dir: str
    models_dir_exists: bool
    has_model: bool
    model_filename: str | None
    loaded_model: EngineModel | None
    limits: dict[str, float]


async def stats(metering: Metering, _call: Call) -> Stats:
    """What the server has done, measured."""
    return measured(metering)


def measured(metering: Metering) -> Stats:
    return Stats(**_stats(metering))


def _stats(metering: Metering) -> dict[str, Any]:
    """Rates are null until there is something to divide."""
    counts, models = metering.counts, metering.models
    current = models.current
    card, info = (current.model.card, current.model.info) if current else (None, None)
    tallies = models.tallies()
    decode_s = sum(tally.decode_s for tally in tallies.values())
    own = tallies[current.id] if current else None
    engine = current.model.figures() if current else None
    return {
        "model_type": card.architecture if card else None,
        "average_tokens_per_second": sum(t.decode_tokens for t in tallies.values()) / decode_s if decode_s else None,
        "memory_usage_mb": round(system.usage().current / 1e6, 1),
        "cache_hit_rate": counts.cached_tokens / counts.prompt_tokens if counts.prompt_tokens else None,
        "optimizations_enabled": _loaded_with(info) if info else [],
        "requests": Requests(
            active=counts.active,
            queued=sum(loaded.admission.waiting for loaded in models.loaded),
            done=counts.done,
            failed=counts.failed,
        ),
        "ttft_ms": spread(counts.firsts),
        "inter_token_ms": spread(gap for tally in tallies.values() for gap in tally.recent),
        "prefix_cache": PrefixCache(
            hit_tokens=counts.cached_tokens,
            prompt_tokens=counts.prompt_tokens,
            pages_used=engine.pages - engine.free if engine else None,
            pages_total=engine.pages if engine else None,
            evictions=engine.evictions if engine else None,
        ),
        "kv_bytes_per_token": info.kv_bytes_per_token if info else None,
        "weights": Weights(file_bytes=card.size, packed_bytes=info.weights, dequantized_bytes=info.dequantized)
        if card and info
        else None,
        "bandwidth_gb_s": info.read_bytes_per_token * own.decode_steps / own.decode_s / 1e9
        if info and own and own.decode_s
        else None,
        "threads": info.threads if info else None,
        "instruction_set": info.isa if info else None,
        "uptime_seconds": int(metering.state.uptime_s),
    }


def _loaded_with(info: Info) -> list[str]:
    words = [f"kernels:{info.isa}", f"threads:{info.threads}", f"kv:{info.kv}"]
    return [*words, "exact"] if info.exact else words


async def prometheus(metering: Metering, sessions: Sessions, workers: Workers, call: Call) -> Reply[Metrics | bytes]:
    """Metrics in Prometheus' text format; in JSON for who asks for it."""
    as_json = _wants(call, "application/json") and not _wants(call, "text/plain")
    return _json(metering, sessions) if as_json else await _text(metering, workers, call)


async def metrics(metering: Metering, sessions: Sessions, workers: Workers, call: Call) -> Reply[Metrics | bytes]:
    """The same and three more; as Prometheus' text for who asks for text."""
    as_text = _wants(call, "text/plain") and not _wants(call, "application/json")
    return await _text(metering, workers, call) if as_text else _json(metering, sessions)


def _wants(call: Call, kind: str) -> bool:
    return kind in call.headers.get("accept", "")


async def _text(metering: Metering, workers: Workers, call: Call) -> Reply[bytes]:
    await workers.run(call.caller.name, prepare)
    return Reply(text(metering), media_type=MEDIA_TYPE, headers={"vary": "Accept, Origin"})


def _json(metering: Metering, sessions: Sessions) -> Reply[Metrics]:
    counts, uptime = metering.counts, metering.state.uptime_s
    totals = counts.totals
    body = Metrics(
        **_stats(metering),
        requests_per_second=counts.done / uptime if uptime > 0 else 0.0,
        average_latency_ms=sum(totals) / len(totals) * 1e3 if totals else 0.0,
        active_sessions=sessions.active,
    )
    return Reply(body, headers={"vary": "Accept, Origin"})


async def engine(config: Config, limits: Serving, models: Models, _call: Call) -> EngineState:
    """What is loaded, for whoever looks for a fault."""
    current, loaded = models.current, None
    if current is not None:
        record = await models.record(current.id)
        loaded = EngineModel(
            name=current.id,
            type=record.architecture,
            vocab_size=record.metadata.vocab_size,
            context_length=record.context_length,
            hidden_size=record.metadata.hidden_size,
            num_layers=record.metadata.num_layers,
            num_heads=record.metadata.num_heads,
        )
    return EngineState(
        models_dir=config.folders[0].name,
        models_dir_exists=config.folders[0].is_dir(),
        has_model=current is not None,
        model_filename=current.path.name if current else None,
        loaded_model=loaded,
        limits=dataclasses.asdict(limits),
    )


def spread(values: Iterable[float]) -> Spread:
    """The median and the 95th percentile, in milliseconds."""
    rows = sorted(values)
    if not rows:
        return Spread(p50=None, p95=None)
    high = rows[min(len(rows) * 95 // 100, len(rows) - 1)]
    return Spread(p50=round(rows[len(rows) // 2] * 1e3, 3), p95=round(high * 1e3, 3))


ROUTES = (
    Query("GET", "/api/v1/performance/stats", stats, "Figures"),
    Query("GET", "/api/v1/metrics", metrics, "Figures", texts=("text/plain",)),
    Query("GET", "/metrics", prometheus, "Figures", texts=("text/plain",)),
    Query("GET", "/api/v1/debug/engine", engine, "Figures", access="key"),
)
