"""What was measured: statistics, the state of the engine, benchmarks."""

from __future__ import annotations

from msgspec import UNSET, UnsetType

from woolly.server.dialects.shapes import Count, Number, Shape, Share


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


class LoadedModel(Shape):
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
    loaded_model: LoadedModel | None
    limits: dict[str, float] | UnsetType = UNSET


class BenchmarkResult(Shape):
    test_type: str
    iterations: Count
    total_time_ms: Number
    average_time_ms: Number
    tokens_per_second: Number
    speedup_vs_baseline: Number | None
    baseline: str | None


class Benchmarks(Shape):
    test_types: list[str]
    running: bool
    results: dict[str, BenchmarkResult]
