"""The routes that measure: what the server has done, as counted and timed; never an estimate and never a constant."""

from __future__ import annotations

import dataclasses
import time
from typing import TYPE_CHECKING, Any

from woolly import system
from woolly.server.door import Call, Reply
from woolly.server.metrics import MEDIA_TYPE, prepare, text
from woolly.server.models import Held

if TYPE_CHECKING:
    from collections.abc import Iterable

    from woolly.server.app import App


async def stats(app: App, _call: Call) -> Reply:
    """Rates are null until there is something to divide."""
    counts, current = app.counts, app.models.current
    card, info = (current.model.card, current.model.info) if current else (None, None)
    tallies = app.models.tallies()
    decode_s = sum(tally.decode_s for tally in tallies.values())
    own = tallies[current.id] if current else None
    body: dict[str, Any] = {
        "model_type": card.architecture if card else None,
        "average_tokens_per_second": sum(t.decode_tokens for t in tallies.values()) / decode_s if decode_s else None,
        "memory_usage_mb": memory_mb(),
        "cache_hit_rate": counts.cached_tokens / counts.prompt_tokens if counts.prompt_tokens else None,
        "optimizations_enabled": [f"kernels:{info.isa}", f"threads:{info.threads}", f"kv:{info.kv}"] if info else [],
        "requests": {
            "active": counts.active,
            "queued": sum(held.line.waiting for held in app.models.held),
            "done": counts.done,
            "failed": counts.failed,
        },
        "ttft_ms": spread(counts.firsts),
        "inter_token_ms": spread(gap for tally in tallies.values() for gap in tally.recent),
        "prefix_cache": {"hit_tokens": counts.cached_tokens, "prompt_tokens": counts.prompt_tokens} | _pages(current),
        "kv_bytes_per_token": info.kv_bytes_per_token if info else None,
        "weights": _weights(card, info) if card else None,
        "bandwidth_gb_s": info.read_bytes_per_token * own.decode_steps / own.decode_s / 1e9
        if info and own and own.decode_s
        else None,
        "threads": info.threads if info else None,
        "instruction_set": info.isa if info else None,
        "uptime_seconds": int(time.monotonic() - app.started_s),
    }
    return Reply(body)


def _pages(current: Held | None) -> dict[str, int | None]:
    """Pages of the current model's cache: those that hold something, all, and how often one was forgotten."""
    if current is None:
        return dict.fromkeys(("pages_used", "pages_total", "evictions"))
    pages = current.model.engine.pages
    return {"pages_used": pages.count - len(pages.free), "pages_total": pages.count, "evictions": pages.evictions}


def _weights(card: Any, info: Any) -> dict[str, int]:
    return {"file_bytes": card.size, "packed_bytes": info.weights, "dequantized_bytes": info.dequantized}


async def prometheus(app: App, call: Call) -> Reply:
    """Figures in Prometheus' text format; in JSON for who asks for that alone."""
    if _wants(call, "application/json") and not _wants(call, "text/plain"):
        return await as_json(app, call)
    await app.in_thread(prepare)
    return Reply(text(app), media_type=MEDIA_TYPE, headers={"vary": "Accept, Origin"})


async def metrics(app: App, call: Call) -> Reply:
    """Figures in JSON; in Prometheus' text format for who asks for text."""
    if _wants(call, "text/plain") and not _wants(call, "application/json"):
        return await prometheus(app, call)
    return await as_json(app, call)


def _wants(call: Call, kind: str) -> bool:
    return kind in call.headers.get("accept", "")


async def as_json(app: App, call: Call) -> Reply:
    uptime = time.monotonic() - app.started_s
    totals = app.counts.totals
    figures = {
        "requests_per_second": app.counts.done / uptime if uptime > 0 else 0.0,
        "average_latency_ms": sum(totals) / len(totals) * 1e3 if totals else 0.0,
        "active_sessions": 0,  # there are no sessions yet
    }
    said = (await stats(app, call)).body
    assert isinstance(said, dict)
    return Reply(said | figures, headers={"vary": "Accept, Origin"})


async def engine(app: App, _call: Call) -> Reply:
    """What is loaded, for whoever looks for a fault."""
    current = app.models.current
    body: dict[str, Any] = {
        "models_dir": app.config.folders[0].name,
        "models_dir_exists": app.config.folders[0].is_dir(),
        "has_model": current is not None,
        "model_filename": current.path.name if current else None,
        "loaded_model": None,
        "limits": dataclasses.asdict(app.settings.limits),
    }
    if current is not None:
        record = await app.models.record(current.id)
        about = record["metadata"]
        body["loaded_model"] = {
            "name": current.id,
            "type": record["architecture"],
            "vocab_size": about["vocab_size"],
            "context_length": record["context_length"],
            "hidden_size": about["hidden_size"],
            "num_layers": about["num_layers"],
            "num_heads": about["num_heads"],
        }
    return Reply(body)


def memory_mb() -> float:
    return round(system.usage().current / 1e6, 1)


def spread(values: Iterable[float]) -> dict[str, float | None]:
    """The middle and the 95th of a hundred, in milliseconds."""
    rows = sorted(values)
    if not rows:
        return {"p50": None, "p95": None}
    return {
        "p50": round(rows[len(rows) // 2] * 1e3, 3),
        "p95": round(rows[min(len(rows) * 95 // 100, len(rows) - 1)] * 1e3, 3),
    }
