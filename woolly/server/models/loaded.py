"""A model that is loaded: what the server asks of it, and who uses it."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any, Protocol

from woolly import store
from woolly.config import Config
from woolly.errors import NativeError
from woolly.request import Request, Scalar, SubmitOptions
from woolly.request.messages import Message
from woolly.server.models.admission import AdmissionQueue
from woolly.server.models.registry import Fingerprint

if TYPE_CHECKING:  # NumPy comes with them
    from woolly.engine import Adapters, Figures, Stream
    from woolly.examine import Card
    from woolly.llm.encoder import Encoder
    from woolly.llm.loading import Info
    from woolly.llm.prompter import Prepared, Prompter


class ServedModel(Protocol):
    """A model that answers, as the server knows it: an `LLM`, or whatever else can do the same."""

    @property
    def card(self) -> Card: ...
    @property
    def info(self) -> Info: ...
    @property
    def adapters(self) -> Adapters: ...
    @property
    def encoder(self) -> Encoder: ...
    @property
    def prompter(self) -> Prompter: ...
    @property
    def numerics_id(self) -> str: ...
    @property
    def broken(self) -> NativeError | None: ...
    def prepare(self, request: Request) -> Prepared: ...
    def submit(self, request: Request | Prepared, options: SubmitOptions = ...) -> Stream: ...
    def render(
        self,
        messages: Iterable[Message],
        *,
        tools: Iterable[Mapping[str, Any]] = (),
        chat_template_kwargs: Mapping[str, Scalar] = ...,
        add_generation_prompt: bool = True,
    ) -> str: ...
    def tokenize(self, text: str, *, special: bool = True, bos: bool | None = None) -> list[int]: ...
    def detokenize(self, ids: Iterable[int]) -> str: ...
    def figures(self) -> Figures: ...
    def close(self) -> None: ...


LoadModel = Callable[[Path, Config], ServedModel]


def load_llm(path: Path, config: Config) -> ServedModel:
    from woolly.llm.llm import LLM  # NumPy and the native core: not before a model is wanted

    return LLM(path, options=config.engine, cache_dir=config.engine.cache_dir or config.caches / "prefix")


@dataclass(eq=False, slots=True)
class LoadedModel:
    """A loaded model."""

    file: store.Model
    fingerprint: Fingerprint  # of the file as it was loaded
    model: ServedModel
    admission: AdmissionQueue
    keep_s: float  # how long it stays when nobody uses it; -1 is for ever
    used_s: float = 0.0  # when it was last used
    timer: asyncio.TimerHandle | None = None  # unloads it; there is one while nobody uses it
    leases: int = 0
    leaving: bool = False  # takes no new leases
    freed: bool = False

    @property
    def id(self) -> str:
        return self.file.name

    @property
    def path(self) -> Path:
        return self.file.path

    def left_s(self) -> float | None:
        """Seconds until it is unloaded if nobody uses it from now on; None: it stays."""
        if self.keep_s < 0:
            return None
        idle_s = 0.0 if self.leases else time.monotonic() - self.used_s
        return max(self.keep_s - idle_s, 0.0)
