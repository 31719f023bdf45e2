"""A whole answer over HTTP, with its status and headers."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Generic, TypeVar

T = TypeVar("T", covariant=True)


@dataclass(frozen=True, slots=True)
class Reply(Generic[T]):
    """A body with a status and headers of its own; bytes are sent as they are, all else becomes JSON."""

    body: T
    status: int = 200
    media_type: str = "application/json"
    headers: Mapping[str, str] = field(default_factory=dict)
