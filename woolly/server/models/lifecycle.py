"""The models of a server: what is there, what is loaded, who uses it.

Owned by the event loop; files are read and models loaded in threads. Every request for a model awaits the one task that
loads it, so model A serves while B loads, and B loads once. A lease keeps a model: one that is replaced or unloaded
gets no new leases and is freed when its last lease ends. A model that nobody uses is unloaded after its `keep_alive`,
and before that where another one needs its room. A model whose steps fail is loaded again, once; if it breaks again it
fails every request until it is loaded by hand. A model whose step hangs fails them until the process is started again.
"""

from __future__ import annotations

import asyncio
import math
import time
from collections.abc import AsyncIterator, Callable, Iterable, Mapping
from concurrent.futures import ThreadPoolExecutor
from contextlib import asynccontextmanager, suppress
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any, Protocol, cast

from woolly import store
from woolly.config import Config, Settings
from woolly.config.rows import ModelConfig
from woolly.errors import BusyError, NativeError, NotFoundError, WoollyError, printable, shortage
from woolly.request import Request, Scalar
from woolly.request.messages import Message
from woolly.server.models.admission import AdmissionQueue
from woolly.server.models.records import ModelRecord, record
from woolly.server.models.registry import (
    ANY,
    Fingerprint,
    Installed,
    Registry,
    can_give,
    fingerprint,
    loading,
    read_meta,
)
from woolly.server.workers import begin_all

if TYPE_CHECKING:  # NumPy comes with them
    from woolly.engine import Adapters, Figures, Stream
    from woolly.engine.tally import Tally
    from woolly.examine import Card, OutputKind
    from woolly.llm.encoder import Encoder
    from woolly.llm.loading import Info
    from woolly.llm.prompter import Prepared, Prompter

THREADS = 2  # that load and look into folders
NAMES, NAMES_S = 1024, 5.0  # names whose meaning is remembered, and for how long: a folder may get a better file


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
    def submit(
        self,
        request: Request | Prepared,
        *,
        salt: bytes = b"",
        key: str = "",
        unread: int | None = None,
        protect_s: float = 0.0,
    ) -> Stream: ...
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

    return LLM(
        path,
        context=config.context,
        threads=config.threads,
        kv=config.kv,
        exact=config.exact,
        sequences=config.sequences,
        cache=config.cache,
        lora=config.lora,
        cache_dir=config.cache_dir or config.caches / "prefix",
        disk_bytes=config.disk_bytes,
        draft=config.draft,
        thinking=config.thinking,
        chat_template_kwargs=config.chat_template_kwargs,
    )


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


class Models:
    def __init__(
        self, settings: Settings, config: Config, load: LoadModel = load_llm, installed: Installed = store.installed
    ) -> None:
        self.settings = settings
        self.config = config
        self.registry = Registry(settings, config, installed)
        self._load_model = load
        self._loaded: dict[str, LoadedModel] = {}  # by id
        self._defaults: dict[OutputKind | None, str] = {}  # the id of what answers where no model is named, by what
        self._by_hand: store.Model | None = None  # the last that somebody asked to be loaded
        self._tasks: dict[str, asyncio.Task[LoadedModel]] = {}
        self._preloads = 0  # models of the start that are not there yet, also while their files are looked for
        self._missing: dict[str, WoollyError] = {}  # why models of the start could not be loaded
        self._leaving: set[LoadedModel] = set()
        self._loading_lock = asyncio.Lock()  # two loads at once would both count the same free memory
        self._digests: dict[tuple[Path, Fingerprint], asyncio.Task[str | None]] = {}
        self._names: dict[str, tuple[str, float]] = {}  # which id a name means, or none, and until when it is believed
        self._reloaded: set[str] = set()  # ids that broke and were loaded again
        self._unloads: set[asyncio.Task[None]] = set()  # of models that were idle for their time
        self._past_tallies: dict[str, Tally] = {}  # what the engines of unloaded models have tallied, by id
        self._threads = ThreadPoolExecutor(THREADS, thread_name_prefix="woolly-models")

    def begin(self) -> None:
        begin_all(self._threads, THREADS)

    @property
    def current(self) -> LoadedModel | None:
        """The loaded model that answers where none is named; as long as nobody has asked so, the one loaded first."""
        asked: tuple[OutputKind | None, ...] = (None, "logits", "embedding", "rank")
        defaults = (self._loaded.get(self._defaults.get(wanted, "")) for wanted in asked)
        return next(filter(None, defaults), None) or next(iter(self._loaded.values()), None)

    @property
    def loaded(self) -> list[LoadedModel]:
        return list(self._loaded.values())

    def tallies(self) -> dict[str, Tally]:
        """What the engines have counted since the start, by the model's id; those of unloaded models too."""
        tallies = dict(self._past_tallies)
        for loaded in (*self._leaving, *self._loaded.values()):
            tally = loaded.model.figures().tally
            tallies[loaded.id] = tallies[loaded.id] + tally if loaded.id in tallies else tally
        return tallies

    @property
    def loading(self) -> bool:
        return bool(self._tasks) or self._preloads > 0

    # Records

    async def records(self) -> list[ModelRecord]:
        """A record of each model that a request may name; the current or default one first."""
        listed = await self._in_thread(self.registry.listed)
        current = self.current.id if self.current is not None else None
        return sorted((self._record(*row) for row in listed), key=lambda row: (row.id != current, not row.loaded))

    async def record(self, name: str) -> ModelRecord:
        model = await self._find(name)
        return self._record(model, await self._in_thread(self.registry.card, model))

    async def metadata(self, name: str) -> tuple[ModelRecord, Mapping[str, Any]]:
        """A record with all that the file says."""
        model = await self._find(name)
        card, meta = await self._in_thread(self.registry.card, model), await self._in_thread(read_meta, model.path)
        return self._record(model, card), meta

    async def remove(self, name: str) -> None:
        """Delete the file of a model that is ours; one that is loaded is unloaded first, unless it answers."""
        model = await self._find(name)
        store.check_owned(model)
        if model.name in self._loaded:
            await self.unload(model.name)
        await self._in_thread(store.remove, model, self.config)

    # Leases

    @asynccontextmanager
    async def lease(
        self, name: str, keep_s: float | None = None, *, wanted: OutputKind | None = None, any_name: bool = False
    ) -> AsyncIterator[LoadedModel]:
        """A model to answer with, loaded if need be. keep_s: how long it stays from now on when nobody uses it. wanted:
        what it must give, where the name leaves the choice to the server. any_name: a name that means no model does so,
        too, where the settings have a model for such names."""
        loaded = self._known(name, wanted, any_name) or await self._load_named(name, wanted, any_name)
        while loaded.leaving:  # it was unloaded while this request waited
            loaded = await self._load_named(name, wanted, any_name)
        if loaded.model.broken is not None:
            raise loaded.model.broken.with_traceback(None)
        loaded.leases += 1
        loaded.keep_s = loaded.keep_s if keep_s is None else keep_s
        self._arm_idle_timer(loaded)
        try:
            yield loaded
        finally:
            loaded.leases -= 1
            self._arm_idle_timer(loaded)
            if loaded.leaving and loaded.leases == 0:
                await asyncio.shield(self._free(loaded))

    def _arm_idle_timer(self, loaded: LoadedModel) -> None:
        """Note that a model was used now, and have it unloaded after its time if it has no lease."""
        loaded.used_s = time.monotonic()
        if loaded.timer is not None:
            loaded.timer.cancel()
            loaded.timer = None
        if loaded.keep_s >= 0 and not loaded.leases and not loaded.leaving:
            loaded.timer = asyncio.get_running_loop().call_later(loaded.keep_s, self._expire, loaded)

    def _expire(self, loaded: LoadedModel) -> None:
        task = asyncio.create_task(self._free(self._detach(loaded)))
        self._unloads.add(task)
        task.add_done_callback(self._unloads.discard)

    def _detach(self, loaded: LoadedModel) -> LoadedModel:
        """Take a model out of those that are loaded: it gets no new leases. Returns the same model."""
        del self._loaded[loaded.id]
        loaded.leaving = True
        return loaded

    def answering_name(self, name: str, loaded: LoadedModel) -> str:
        """The name that an answer has: the one that was asked for if it is one of the model's, else the model's id."""
        return name if name not in ANY and self.registry.is_meant(name, loaded.file) else loaded.id

    def _known(self, name: str, wanted: OutputKind | None, any_name: bool) -> LoadedModel | None:
        """The loaded model that a name means, where that needs no walk over the stores."""
        if name not in ANY:
            id_, until = self._names.get(name, ("", 0.0)) if name not in self._loaded else (name, math.inf)
            if time.monotonic() >= until:
                return None
            if not id_ and any_name:  # no model has this name
                return self._known(self.registry.stand_in or "", wanted, any_name=False)
        else:
            id_ = self._defaults.get(wanted, "")
        loaded = self._loaded.get(id_)
        return None if loaded is None or self._can_reload(loaded) else loaded

    def _can_reload(self, loaded: LoadedModel) -> bool:
        """Whether a model is broken and loading it again may help. It does not where a step hangs, which holds the
        threads that all models share, nor a second time."""
        broken = loaded.model.broken
        return broken is not None and "hangs" not in broken.facts and loaded.id not in self._reloaded

    async def load(self, name: str) -> LoadedModel:
        """Load a model for whoever will use it; one that is broken, once more."""
        return await self._load_idle(await self._find(name))

    async def load_by_hand(self, name: str) -> LoadedModel:
        """Load a model because somebody asks for it."""
        return await self._load_by_hand(await self._find(name))

    async def preload(self, name: str) -> LoadedModel:
        """Load a model that the server begins with: until it is there, or cannot be loaded, the server is not ready."""
        self._preloads += 1
        try:
            return await self.load(name)
        except WoollyError as error:
            self._missing[name] = error
            raise
        finally:
            self._preloads -= 1

    @property
    def missing(self) -> dict[str, WoollyError]:
        """The models that the server was to begin with and that could not be loaded, nor have been since, with why."""
        files = [loaded.file for loaded in self._loaded.values()]
        return {
            name: error
            for name, error in self._missing.items()
            if not any(self.registry.is_meant(name, file) for file in files)
        }

    async def _load_by_hand(self, model: store.Model) -> LoadedModel:
        """Load a model, which then answers where no model is named, unless the settings name those that do."""
        loaded = await self._load_idle(model)
        if not self.registry.is_named:
            self._by_hand = model
            self._defaults = {None: model.name}
        return loaded

    async def _load_idle(self, model: store.Model) -> LoadedModel:
        """Load a model that nobody uses yet, so that its time begins."""
        self._reloaded.discard(model.name)
        loaded = await self._ensure(model)
        self._arm_idle_timer(loaded)
        return loaded

    async def _load_named(self, name: str, wanted: OutputKind | None, any_name: bool) -> LoadedModel:
        try:
            model = await self._find(name, wanted)
        except NotFoundError:
            stand_in = self.registry.stand_in if any_name else None
            if stand_in is None:
                raise
            self._remember(name, "")
            return await self._load_named(stand_in, wanted, any_name=False)
        if name in ANY:
            self._defaults[wanted] = model.name
        else:
            self._remember(name, model.name)
        return await self._ensure(model)

    def _remember(self, name: str, id_: str) -> None:
        """Believe for a while that a name means this model; "": none."""
        if len(self._names) >= NAMES:
            self._names.clear()
        if len(name) <= self.settings.limits.model_name:
            self._names[name] = (id_, time.monotonic() + NAMES_S)

    async def load_file(self, text: str) -> LoadedModel:
        """Load by a path, which must lie in a model folder."""
        return await self._load_by_hand(await self._in_thread(self.registry.find_file, text))

    async def digest(self, loaded: LoadedModel) -> str | None:
        """The digest of a loaded model's file, made when it is first asked for; None if the file is another by now."""
        key = (loaded.path, loaded.fingerprint)
        if key not in self._digests:
            self._digests[key] = asyncio.create_task(self._digest(loaded))
        digest = await asyncio.shield(self._digests[key])  # whoever goes away does not take it from others
        if digest is None:
            self._digests.pop(key, None)
        return digest

    async def _digest(self, loaded: LoadedModel) -> str | None:
        try:
            parts = await self._in_thread(store.parts_of, loaded.path)
            digest = await asyncio.to_thread(store.file_digest, parts, lambda: not loaded.leaving)
            same = await self._in_thread(fingerprint, loaded.path) == loaded.fingerprint
            return "sha256:" + digest.hex() if digest is not None and same else None
        except (WoollyError, OSError):
            return None

    async def unload(self, name: str, *, force: bool = False) -> str:
        """Free a model; returns its id when its memory has been given back."""
        loaded = self.current if name in ANY else self._loaded_by_name(name)
        if loaded is None:
            raise NotFoundError(
                f"the model '{printable(name)}' is not loaded",
                code="model_not_found",
                model=printable(name),
                available_models=sorted(self._loaded),
            )
        if loaded.leases and not force:
            raise BusyError(
                f"{loaded.id} is answering {loaded.leases} requests",
                suggestion='wait, or send {"force": true}',
                code="conflict",
            )
        self._reloaded.discard(loaded.id)
        await self._free(self._detach(loaded))
        return loaded.id

    def _loaded_by_name(self, name: str) -> LoadedModel | None:
        """The loaded model that a name means, also where its file has gone meanwhile."""
        by_file = {loaded.file: loaded for loaded in self._loaded.values()}
        try:
            return by_file[self.registry.choose(name, list(by_file))]
        except NotFoundError:
            return None

    async def close(self) -> None:
        """Free everything."""
        for task in list(self._tasks.values()):
            task.cancel()
        for loaded in [*self._loaded.values(), *self._leaving]:
            await self._free(loaded)
        self._loaded.clear()
        self._threads.shutdown(wait=False)

    # Loading and freeing

    async def _ensure(self, model: store.Model) -> LoadedModel:
        id_ = model.name
        loaded = self._loaded.get(id_)
        if loaded is not None and self._can_reload(loaded):
            loaded = None
        if loaded is not None and await self._in_thread(fingerprint, model.path) == loaded.fingerprint:
            return loaded
        task = self._tasks.get(id_)
        if task is None:
            task = asyncio.create_task(self._load(model))
            self._tasks[id_] = task
            task.add_done_callback(lambda done: self._loading_done(id_, done))
        return await asyncio.shield(task)  # whoever goes away does not take it from those who wait too

    def _loading_done(self, id_: str, done: asyncio.Task[LoadedModel]) -> None:
        self._tasks.pop(id_, None)
        if not done.cancelled():
            done.exception()  # marks it as seen: perhaps nobody awaits it any more

    async def _load(self, file: store.Model) -> LoadedModel:
        id_, path = file.name, file.path
        async with self._loading_lock:
            opened = await self._in_thread(fingerprint, path)
            config = await self._in_thread(self._config, path)
            model = await self._open_evicting(id_, path, config)
            admission = AdmissionQueue(config.sequences, self.settings.limits)
            loaded = LoadedModel(file, opened, model, admission, self.settings.keep_alive)
            old = self._loaded.get(id_)
            self._loaded[id_] = loaded
            self._names = {name: meant for name, meant in self._names.items() if meant[0]}  # the others may mean it
            if old is not None and self._can_reload(old):
                self._reloaded.add(id_)
            if old is not None:
                old.leaving = True
                self._leaving.add(old)
                if old.leases == 0:
                    await self._free(old)
            return loaded

    async def _open_evicting(self, id_: str, path: Path, config: Config) -> ServedModel:
        """The model of a file. Where there is no room for it, models that nobody uses are unloaded."""
        most = self.settings.max_loaded
        while most and len(self._loaded.keys() | {id_}) > most:
            if not await self._evict_one(id_):
                raise BusyError(
                    f"models.max_loaded is {most}, and each of the {most} that are loaded is in use",
                    suggestion="ask again when one of them is free",
                    code="busy",
                    available_models=sorted(self._loaded),
                )
        while True:
            try:
                return cast(ServedModel, await self._in_thread(self._open, path, config))
            except BusyError as error:
                if error.code != "not_enough_memory" or not await self._evict_one(id_):
                    raise

    async def _evict_one(self, id_: str) -> bool:
        """Unload the model that was used longest ago, of those that nobody uses; False where there is none."""
        idle = [loaded for loaded in self._loaded.values() if not loaded.leases and loaded.id != id_]
        if idle:
            await self._free(self._detach(min(idle, key=lambda loaded: loaded.used_s)))
        return bool(idle)

    def _open(self, path: Path, config: Config) -> ServedModel:
        try:
            with loading():
                return self._load_model(path, config)
        except Exception as error:
            how = "unload another one, or give this one a smaller context"
            raise (shortage(error, "the model", suggestion=how) or error) from None

    def _config(self, path: Path) -> Config:
        """The settings with those that a row of `models.configs` has for this file. Adapters are made for one model:
        those of `engine.lora` for the first that the server was started with, or else the default one."""
        row = next((row for row in self.settings.configs if row.path == path), ModelConfig("", path))
        context, sequences = row.context or self.config.context, row.sequences or self.config.sequences
        lora = row.lora
        if self.config.lora and path == (next(iter(self.settings.models), None) or self.registry.find("").path):
            lora = (*self.config.lora, *row.lora)
        return replace(self.config, context=context, sequences=sequences, lora=lora)

    async def _free(self, loaded: LoadedModel) -> None:
        if loaded.freed:  # by force, and again by its last lease
            return
        loaded.leaving = loaded.freed = True
        self._arm_idle_timer(loaded)
        self._leaving.add(loaded)
        loaded.admission.close()
        await self._in_thread(loaded.model.close)
        self._leaving.discard(loaded)
        tally, past = loaded.model.figures().tally, self._past_tallies.get(loaded.id)
        self._past_tallies[loaded.id] = tally if past is None else past + tally

    async def _in_thread(self, function: Callable[..., Any], *args: Any) -> Any:
        return await asyncio.get_running_loop().run_in_executor(self._threads, function, *args)

    async def _find(self, name: str, wanted: OutputKind | None = None) -> store.Model:
        if name in ANY and (loaded := self._loaded.get(self._defaults.get(wanted, ""))) is not None:
            return loaded.file
        model: store.Model = await self._in_thread(self._find_file, name, wanted)
        return model

    def _find_file(self, name: str, wanted: OutputKind | None) -> store.Model:
        if name in ANY and self._by_hand is not None:
            with suppress(WoollyError, OSError):  # its file is gone
                if can_give(self.registry.card(self._by_hand), wanted):
                    return self._by_hand
        return self.registry.find(name, wanted)

    def _record(self, model: store.Model, card: Card) -> ModelRecord:
        return record(model, card, self.registry.aliases_of(model), loaded=model.name in self._loaded)
