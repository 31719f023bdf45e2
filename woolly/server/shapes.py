"""The shapes of what the server answers, as types: the description at /openapi.json is made from them.

Answers are built as plain objects where they come about; a test asks every route and holds its answers against these.
A field that may be missing has the type UnsetType; one that may be null says so.
"""

from __future__ import annotations

from typing import Annotated, Any, Literal

from msgspec import UNSET, Meta, Struct, UnsetType

Count = Annotated[int, Meta(ge=0)]
Number = Annotated[float, Meta(ge=0)]
Share = Annotated[float, Meta(ge=0, le=1)]
Reason = Literal["stop", "length"]


class Shape(Struct, forbid_unknown_fields=True, kw_only=True):
    """All shapes are closed: a field that is not described is a mistake."""


# Health


class Alive(Shape):
    status: Literal["alive"]
    service: str
    version: str
    timestamp: str
    uptime_seconds: Count


class Health(Shape):
    status: Literal["ok"]
    service: str
    version: str
    timestamp: str
    uptime_seconds: Count
    uptime: Count
    model: str | None
    requests_served: Count
    insecure: bool | UnsetType = UNSET


class Check(Shape):
    status: Literal["ok", "error"]
    message: str


class Checks(Shape):
    inference_engine: Check
    mcp: Check


class Ready(Shape):
    status: Literal["ready", "not_ready"]
    service: str
    version: str
    timestamp: str
    checks: Checks


# Models


class ModelFeatures(Shape):
    chat: bool
    mcp: bool
    vision: bool
    function_calling: bool


class ModelMetadata(Shape):
    format: str
    modified: int
    vocab_size: int | None
    hidden_size: int | None
    num_layers: int | None
    num_heads: int | None
    num_kv_heads: int | None


class ModelRecord(Shape):
    id: str
    name: str
    object: Literal["model"]
    created: int
    owned_by: str
    provider: str
    description: str | None
    path: str | None
    loaded: bool
    size: Count
    size_bytes: Count
    parameters: Count
    architecture: str
    quantization: str
    context_length: Count
    capabilities: list[str]
    features: ModelFeatures
    metadata: ModelMetadata


class WrappedModels(Shape):
    """The list as Ole reads it."""

    success: Literal[True]
    object: Literal["list"]
    data: list[ModelRecord]


class OpenAIModel(Shape):
    id: str
    object: Literal["model"]
    created: int
    owned_by: str


class OpenAIModels(Shape):
    object: Literal["list"]
    data: list[OpenAIModel]


class Loaded(Shape):
    success: Literal[True]
    message: str
    load_time_ms: Count
    model_info: ModelRecord


class Unloaded(Shape):
    success: Literal[True]
    message: str


# Generation


class CachedTokens(Shape):
    cached_tokens: Count


class Usage(Shape):
    prompt_tokens: Count
    completion_tokens: Count
    total_tokens: Count
    prompt_tokens_details: CachedTokens


class AssistantMessage(Shape):
    role: Literal["assistant"]
    content: str


class Timings(Shape):
    prompt_ms: Number
    predicted_ms: Number
    ttft_ms: Number
    tokens_per_second: Number


class WoollyTextChoice(Shape):
    index: Count
    text: str
    message: None
    finish_reason: Reason
    logprobs: None


class WoollyCompletion(Shape):
    id: str
    object: Literal["text_completion"]
    created: int
    model: str
    choices: list[WoollyTextChoice]
    usage: Usage
    timings: Timings
    seed: Count
    tokens: list[Count] | UnsetType = UNSET
    notes: list[str] | UnsetType = UNSET


class WoollyChatChoice(Shape):
    index: Count
    text: None
    message: AssistantMessage
    finish_reason: Reason
    logprobs: None


class WoollyChat(Shape):
    id: str
    object: Literal["chat.completion"]
    created: int
    model: str
    choices: list[WoollyChatChoice]
    usage: Usage
    timings: Timings
    seed: Count
    notes: list[str] | UnsetType = UNSET


class WoollyBatch(Shape):
    object: Literal["list"]
    batch_size: Count
    data: list[WoollyCompletion]
    usage: Usage


class OpenAIMessage(Shape):
    role: Literal["assistant"]
    content: str
    refusal: None


class Likely(Shape):
    token: str
    logprob: float
    bytes: list[Count]


class TokenLikely(Shape):
    token: str
    logprob: float
    bytes: list[Count]
    top_logprobs: list[Likely]


class ChatLogprobs(Shape):
    content: list[TokenLikely]
    refusal: None


class OpenAIChatChoice(Shape):
    index: Count
    message: OpenAIMessage
    logprobs: ChatLogprobs | None
    finish_reason: Reason


class OpenAIChat(Shape):
    id: str
    object: Literal["chat.completion"]
    created: int
    model: str
    choices: list[OpenAIChatChoice]
    usage: Usage


class TextLogprobs(Shape):
    """Columns, a row for each token; a prompt's first token has no likelihood."""

    tokens: list[str]
    token_logprobs: list[float | None]
    top_logprobs: list[dict[str, float] | None]
    text_offset: list[Count]


class OpenAITextChoice(Shape):
    index: Count
    text: str
    logprobs: TextLogprobs | None
    finish_reason: Reason


class OpenAICompletion(Shape):
    id: str
    object: Literal["text_completion"]
    created: int
    model: str
    choices: list[OpenAITextChoice]
    usage: Usage


class ShortCompletion(Shape):
    text: str
    tokens_per_second: Number
    tokens_generated: Count
    generation_time_ms: Number
    finish_reason: Reason


class ShortChat(Shape):
    content: str
    role: Literal["assistant"]
    tokens_generated: Count
    generation_time_ms: Number
    finish_reason: Reason


# Events of a stream


class Delta(Shape):
    role: Literal["assistant"] | UnsetType = UNSET
    content: str | UnsetType = UNSET


class WoollyChatPiece(Shape):
    index: Count
    delta: Delta
    finish_reason: Reason | None


class WoollyChatChunk(Shape):
    id: str
    object: Literal["chat.completion.chunk"]
    created: int
    model: str
    choices: list[WoollyChatPiece]
    usage: Usage | UnsetType = UNSET


class WoollyTextPiece(Shape):
    index: Count
    delta: Delta
    text: str
    finish_reason: Reason | None


class WoollyTextChunk(Shape):
    id: str
    object: Literal["text_completion"]
    created: int
    model: str
    choices: list[WoollyTextPiece]
    usage: Usage | UnsetType = UNSET


class OpenAIChatPiece(Shape):
    index: Count
    delta: Delta
    logprobs: ChatLogprobs | None
    finish_reason: Reason | None


class OpenAIChatChunk(Shape):
    id: str
    object: Literal["chat.completion.chunk"]
    created: int
    model: str
    choices: list[OpenAIChatPiece]
    usage: Usage | UnsetType | None = UNSET


class OpenAITextPiece(Shape):
    index: Count
    text: str
    logprobs: TextLogprobs | None
    finish_reason: Reason | None


class OpenAITextChunk(Shape):
    id: str
    object: Literal["text_completion"]
    created: int
    model: str
    choices: list[OpenAITextPiece]
    usage: Usage | UnsetType | None = UNSET


class ShortToken(Shape):
    token: str
    id: Count


class ShortPiece(Shape):
    content: str


class Tokens(Shape):
    tokens: list[Count]
    count: Count


class DecodedText(Shape):
    text: str


# Figures


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


# Tokens that stand for a key


class AccessToken(Shape):
    token: str
    expires_in: Count
    token_type: Literal["Bearer"]


class TokenClaims(Shape):
    sub: str
    iat: int
    exp: int
    iss: str
    aud: str
    api_key_id: str | None


class TokenValid(Shape):
    valid: bool
    claims: TokenClaims | None
    expires_at: int | None


# Errors


class WoollyFault(Shape):
    type: str
    message: str
    code: Annotated[int, Meta(ge=400, le=599)]
    suggestion: str
    timestamp: Count
    request_id: str
    details: dict[str, Any]
    available_models: list[str] | UnsetType = UNSET


class WoollyError(Shape):
    error: WoollyFault


class OpenAIFault(Shape):
    message: str
    type: str
    param: str | None
    code: str


class OpenAIError(Shape):
    error: OpenAIFault


class ShortDetails(Shape):
    message: str
    error_code: str
    suggestion: str


class ShortFault(Shape):
    message: str
    code: str
    details: ShortDetails


class ShortError(Shape):
    error: ShortFault


class LoadFault(Shape):
    type: str
    message: str
    code: Annotated[int, Meta(ge=400, le=599)]
    suggestion: str


class LoadError(Shape):
    success: Literal[False]
    message: str
    model_info: None
    error: LoadFault
