"""The loader: which models are loaded, and for how long each stays.

Owned by the event loop; models are loaded in threads. Every request for a model awaits the one task that loads it, so
model A serves while B loads, and B loads once. A model that is replaced or unloaded gets no new leases and is freed
when its last lease ends. A model that nobody uses is unloaded after its `keep_alive`, and before that where another one
needs its room. A model whose steps fail is loaded again, once; if it breaks again it fails every request until it is
loaded by hand. A model whose step hangs fails them until the process is started again.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING

from woolly import store
from woolly.config import Config, Settings
from woolly.config.rows import ModelConfig
from woolly.errors import BusyError, shortage
from woolly.server.models.admission import AdmissionQueue
from woolly.server.models.loaded import LoadedModel, LoadModel, ServedModel
from woolly.server.models.registry import Registry, fingerprint, loading
from woolly.server.models.threads import FileThreads

if TYPE_CHECKING:  # NumPy comes with it
    from woolly.engine.tally import Tally


class Loader:
    """changed: called when a model has been loaded, which may be the one that a name means now."""

    def __init__(
        self,
        settings: Settings,
        config: Config,
        registry: Registry,
        load: LoadModel,
        threads: FileThreads,
        changed: Callable[[], None],
    ) -> None:
        self.loaded: dict[str, LoadedModel] = {}  # by id
        self._reloaded: set[str] = set()  # ids that broke and were loaded again
        self._settings, self._config, self._registry = settings, config, registry
        self._load_model = load
        self._threads = threads
        self._changed = changed
        self._tasks: dict[str, asyncio.Task[LoadedModel]] = {}
        self._leaving: set[LoadedModel] = set()
        self._loading_lock = asyncio.Lock()  # two loads at once would both count the same free memory
        self._unloads: set[asyncio.Task[None]] = set()  # of models that were idle for their time
        self._past_tallies: dict[str, Tally] = {}  # what the engines of unloaded models have tallied, by id

    @property
    def busy(self) -> bool:
        return bool(self._tasks)

    @asynccontextmanager
    async def lease(self, loaded: LoadedModel, keep_s: float | None) -> AsyncIterator[LoadedModel]:
        """Use a model, which stays until the last lease ends. keep_s: how long it stays from then on."""
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

    async def load_idle(self, model: store.Model) -> LoadedModel:
        """Load a model that nobody uses yet, so that its time begins; one that is broken, once more."""
        self._reloaded.discard(model.name)
        loaded = await self.ensure(model)
        self._arm_idle_timer(loaded)
        return loaded

    async def unload(self, loaded: LoadedModel) -> None:
        """Free a model; those that use it still are refused."""
        self._reloaded.discard(loaded.id)
        await self._free(self._detach(loaded))

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
        del self.loaded[loaded.id]
        loaded.leaving = True
        return loaded

    def can_reload(self, loaded: LoadedModel) -> bool:
        """Whether a model is broken and loading it again may help. It does not where a step hangs, which holds the
        threads that all models share, nor a second time."""
        broken = loaded.model.broken
        return broken is not None and "hangs" not in broken.facts and loaded.id not in self._reloaded

    async def ensure(self, model: store.Model) -> LoadedModel:
        """The loaded model of a file as it is now."""
        id_ = model.name
        loaded = self.loaded.get(id_)
        if loaded is not None and self.can_reload(loaded):
            loaded = None
        if loaded is not None and await self._threads.run(fingerprint, model.path) == loaded.fingerprint:
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
            opened = await self._threads.run(fingerprint, path)
            config = await self._threads.run(self._config_of, path)
            model = await self._open_evicting(id_, path, config)
            admission = AdmissionQueue(config.engine.sequences, self._settings.limits)
            loaded = LoadedModel(file, opened, model, admission, self._settings.keep_alive)
            old = self.loaded.get(id_)
            self.loaded[id_] = loaded
            self._changed()
            if old is not None and self.can_reload(old):
                self._reloaded.add(id_)
            if old is not None:
                old.leaving = True
                self._leaving.add(old)
                if old.leases == 0:
                    await self._free(old)
            return loaded

    async def _open_evicting(self, id_: str, path: Path, config: Config) -> ServedModel:
        """The model of a file. Where there is no room for it, models that nobody uses are unloaded."""
        most = self._settings.max_loaded
        while most and len(self.loaded.keys() | {id_}) > most:
            if not await self._evict_one(id_):
                raise BusyError(
                    f"models.max_loaded is {most}, and each of the {most} that are loaded is in use",
                    suggestion="ask again when one of them is free",
                    code="busy",
                    available_models=sorted(self.loaded),
                )
        while True:
            try:
                return await self._threads.run(self._open, path, config)
            except BusyError as error:
                if error.code != "not_enough_memory" or not await self._evict_one(id_):
                    raise

    async def _evict_one(self, id_: str) -> bool:
        """Unload the model that was used longest ago, of those that nobody uses; False where there is none."""
        idle = [loaded for loaded in self.loaded.values() if not loaded.leases and loaded.id != id_]
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

    def _config_of(self, path: Path) -> Config:
        """The settings with those that a row of `models.configs` has for this file. Adapters are made for one model:
        those of `engine.lora` for the first that the server was started with, or else the default one."""
        row = next((row for row in self._settings.configs if row.path == path), ModelConfig("", path))
        engine = self._config.engine
        context, sequences, lora = row.context or engine.context, row.sequences or engine.sequences, row.lora
        if engine.lora and path == (next(iter(self._settings.models), None) or self._registry.find("").path):
            lora = (*engine.lora, *row.lora)
        return replace(self._config, engine=replace(engine, context=context, sequences=sequences, lora=lora))

    async def _free(self, loaded: LoadedModel) -> None:
        if loaded.freed:  # by force, and again by its last lease
            return
        loaded.leaving = loaded.freed = True
        self._arm_idle_timer(loaded)
        self._leaving.add(loaded)
        loaded.admission.close()
        await self._threads.run(loaded.model.close)
        self._leaving.discard(loaded)
        tally, past = loaded.model.figures().tally, self._past_tallies.get(loaded.id)
        self._past_tallies[loaded.id] = tally if past is None else past + tally

    def tallies(self) -> dict[str, Tally]:
        """What the engines have counted since the start, by the model's id; those of unloaded models too."""
        tallies = dict(self._past_tallies)
        for loaded in (*self._leaving, *self.loaded.values()):
            tally = loaded.model.figures().tally
            tallies[loaded.id] = tallies[loaded.id] + tally if loaded.id in tallies else tally
        return tallies

    async def close(self) -> None:
        """Free everything."""
        for task in list(self._tasks.values()):
            task.cancel()
        for loaded in [*self.loaded.values(), *self._leaving]:
            await self._free(loaded)
        self.loaded.clear()
