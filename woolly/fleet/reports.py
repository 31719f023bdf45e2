"""What a replica reports to its gateways each second, and what gateways answer. Neither side trusts the other."""

from __future__ import annotations

from typing import Annotated

from msgspec import Meta, Struct, field

from woolly.fleet.wire import Count, Digest, Name, NumericsId
from woolly.limits import LIMITS

JOIN = "/woolly/v1/join"
NAME = 8  # bytes of a page's digest that a report has
Rate = Annotated[float, Meta(ge=0, le=1e12)]


class PartInfo(Struct, forbid_unknown_fields=True):
    """One file of a model: the bytes of its header, and of all."""

    header: Count
    size: Count


class AdapterInfo(Struct, forbid_unknown_fields=True):
    name: Name
    digest: Annotated[bytes, Meta(max_length=64)]
    file: Name
    scale: float


class ModelInfo(Struct, forbid_unknown_fields=True, kw_only=True):
    """What does not change while a model is loaded. info: as `llm.Info`. page: positions of a cache page."""

    name: Name
    names: Annotated[list[Name], Meta(max_length=64)] = []  # all names that mean it, in lower case
    digest: Digest
    numerics_id: NumericsId = field(name="kind")
    parts: Annotated[list[PartInfo], Meta(min_length=1, max_length=LIMITS.parts)]
    info: Annotated[dict[Name, bool | int | Name], Meta(max_length=64)]
    adapters: Annotated[list[AdapterInfo], Meta(max_length=LIMITS.adapters)] = []
    context: Count
    width: Count  # numbers of an embedding or of a text's scores
    per_token: bool = field(name="every")  # the model has no pooling: each token has an embedding
    page: Annotated[int, Meta(ge=1, le=65_536)]
    slots: Annotated[int, Meta(ge=1, le=65_536)]


class ModelLoad(Struct, forbid_unknown_fields=True, kw_only=True):
    """What a model does now. missing: tokens of prompts that are still to be computed. Rates are tokens a second, 0
    where nothing was measured yet. The last four count since the start: steps, tokens of answers, tokens of prompts,
    and those of them that were remembered."""

    running: Count = 0
    waiting: Count = 0
    missing: Count = 0
    prompt_rate: Rate = 0.0
    answer_rate: Rate = 0.0
    pages: Count = 0
    free: Count = 0
    idle: Count = 0
    pool_bytes: Count = 0
    evictions: Count = 0
    steps: Count = 0
    tokens: Count = 0
    prompt_tokens: Count = 0
    cached_tokens: Count = 0


class ModelReport(Struct, forbid_unknown_fields=True, kw_only=True):
    """One model of a replica. Pages are told as differences: `added` and `dropped` since the report before, or, where
    `full`, all that there are; the first eight bytes of each digest."""

    facts: ModelInfo
    load: ModelLoad
    full: bool = field(default=False, name="whole")
    added: bytes = b""
    dropped: bytes = b""


class ReplicaReport(Struct, forbid_unknown_fields=True, kw_only=True):
    """A replica, each second. id: of this process. url: where it answers; without a host, where the report came from.
    number: counts reports. leaving: takes no new work; what runs there is soon to go on elsewhere."""

    id: Annotated[str, Meta(pattern=r"\A[0-9a-f]{16}\Z")]
    url: Annotated[str, Meta(max_length=512)]
    version: Annotated[str, Meta(max_length=64)]
    number: Count
    offers: Annotated[list[ModelReport], Meta(max_length=64)] = []
    leaving: bool = False


class JoinReply(Struct):
    """What a gateway answers to a report. full: the next report is to have all pages. refused: models that it does not
    use, and why."""

    full: bool = field(default=False, name="whole")
    refused: dict[str, str] = {}
