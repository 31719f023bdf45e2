"""The models, as Woolly and Ole tell of them, and what comes of loading one."""

from __future__ import annotations

from typing import Literal

from woolly.server.dialects.shapes import Count, Shape, Status


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


class Loaded(Shape):
    success: Literal[True]
    message: str
    load_time_ms: Count
    model_info: ModelRecord


class Unloaded(Shape):
    success: Literal[True]
    message: str


class LoadFault(Shape):
    type: str
    message: str
    code: Status
    suggestion: str


class LoadError(Shape):
    success: Literal[False]
    message: str
    model_info: None
    error: LoadFault
