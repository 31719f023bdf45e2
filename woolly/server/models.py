"""The models of a server: what is there, what is loaded, who uses it.

Owned by the event loop; files are read and models loaded in threads. Who asks for a model awaits the one task that
loads it, so model A serves while B loads, and B loads once. A lease keeps a model: one that is replaced or unloaded
takes no new leases and is freed when its last lease ends.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import AsyncIterator, Callable, Iterable
from concurrent.futures import ThreadPoolExecutor
from contextlib import asynccontextmanager
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any, Protocol, TypeAlias

from msgspec import structs

from woolly import store
from woolly.config import Config, Settings
from woolly.errors import BusyError, NotFoundError, RequestError, WoollyError, printable
from woolly.request import Request
from woolly.server.digest import digest
from woolly.server.line import Line
from woolly.server.records import ModelRecord, read_record
from woolly.settings import ModelConfig

if TYPE_CHECKING:  # NumPy comes with them
    from woolly.engine import Figures, Stream
    from woolly.engine.tally import Tally
    from woolly.examine import Card
    from woolly.llm import Info, Prepared

ANY = ("", "default", "loaded", "current", "woolly-model")  # names that leave the choice to us
NAMES, NAMES_S = 1024, 5.0  # names whose meaning is remembered, and for how long: a folder may get a better file


class Replica(Protocol):
    """A model that answers, as the server knows it: an `LLM`, or whatever else can do the same."""

    @property
    def card(self) -> Card: ...
    @property
    def info(self) -> Info: ...
    def prepare(self, request: Request) -> Prepared: ...
    def submit(self, request: Request | Prepared, *, salt: bytes = b"", unread: int | None = None) -> Stream: ...
    def tokenize(self, text: str, *, special: bool = True, bos: bool | None = None) -> list[int]: ...
    def detokenize(self, ids: Iterable[int]) -> str: ...
    def figures(self) -> Figures: ...
    def close(self) -> None: ...


Load = Callable[[Path, Config], Replica]
Fingerprint: TypeAlias = tuple[int, ...]  # tells one content of a file from another without reading it


def load_llm(path: Path, config: Config) -> Replica:
    from woolly.llm import LLM  # NumPy and the native core: not before a model is wanted

    return LLM(
        path,
        context=config.context,
        threads=config.threads,
        kv=config.kv,
        sequences=config.sequences,
        cache=config.cache,
    )


@dataclass(eq=False, slots=True)
class Held:
    """A loaded model."""

    id: str
    path: Path
    fingerprint: Fingerprint  # of the file as it was loaded
    model: Replica
    line: Line
    leases: int = 0
    leaving: bool = False  # takes no new leases
    freed: bool = False


class Models:
    def __init__(self, settings: Settings, config: Config, load: Load = load_llm) -> None:
        self.settings = settings
        self.config = config
        self._load = load
        self._held: dict[str, Held] = {}  # by id; the last is the current one
        self._tasks: dict[str, asyncio.Task[Held]] = {}
        self._leaving: set[Held] = set()
        self._one = asyncio.Lock()  # two loads at once would both count the same free memory
        self._twice: dict[str, list[str]] = {}  # stems of several files, in lower case, with their names
        self._records: dict[Path, tuple[Fingerprint, ModelRecord]] = {}
        self._digests: dict[tuple[Path, Fingerprint], asyncio.Task[str | None]] = {}
        self._names: dict[str, tuple[str, float]] = {}  # which id a name means, and until when that is believed
        self.past: dict[str, Tally] = {}  # what the engines of unloaded models have tallied, by id
        self._threads = ThreadPoolExecutor(2, thread_name_prefix="woolly-models")

    @property
    def current(self) -> Held | None:
        return next(reversed(self._held.values()), None)

    @property
    def held(self) -> list[Held]:
        return list(self._held.values())

    def tallies(self) -> dict[str, Tally]:
        """What the engines have counted since the start, by the model's id; those of unloaded models too."""
        made = dict(self.past)
        for held in (*self._leaving, *self._held.values()):
            own = held.model.figures().tally
            made[held.id] = made[held.id] + own if held.id in made else own
        return made

    @property
    def loading(self) -> bool:
        return bool(self._tasks)

    # What is there

    async def records(self) -> list[ModelRecord]:
        """A record of each model that a request may name; the current or default one first."""
        found = await self._in_thread(self._scan)
        current = self.current
        first = current.id if current else self._default(found)
        rows = [self._row(name, record) for name, (_, record) in found.items()]
        return sorted(rows, key=lambda row: (row.id != first, not row.loaded, row.id))

    async def record(self, name: str) -> ModelRecord:
        found = await self._in_thread(self._scan)
        id_ = self._choose(name, found)
        return self._row(id_, found[id_][1])

    # Use

    @asynccontextmanager
    async def lease(self, name: str) -> AsyncIterator[Held]:
        """A model to answer with, loaded if need be."""
        held = self._known(name) or await self.load(name)
        held.leases += 1
        try:
            yield held
        finally:
            held.leases -= 1
            if held.leaving and held.leases == 0:
                await asyncio.shield(self._free(held))

    def _known(self, name: str) -> Held | None:
        """The loaded model that a name means, where that needs no walk over the stores."""
        if name in ANY:
            return self.current
        id_, until = self._names.get(name, ("", 0.0))
        return self._held.get(name) or (self._held.get(id_) if time.monotonic() < until else None)

    async def load(self, name: str) -> Held:
        found = await self._in_thread(self._scan)
        id_ = self._choose(name, found)
        if len(self._names) >= NAMES:
            self._names.clear()
        self._names[name] = (id_, time.monotonic() + NAMES_S)
        return await self._loaded(id_, found[id_][0])

    async def load_file(self, text: str) -> Held:
        """Load by a path, which must lie in a model folder."""
        if len(text) > 4096 or "\0" in text:
            raise _unknown(text, [])
        found = await self._in_thread(self._scan)
        wanted = Path(text)
        for id_, (path, _) in found.items():
            if path.resolve() == wanted.resolve():
                return await self._loaded(id_, path)
        if wanted.is_absolute() or ".." in wanted.parts:
            raise RequestError(
                "the path lies outside the model folders", suggestion="give the model's name", code="access_denied"
            )
        id_ = self._choose(wanted.name, found)
        return await self._loaded(id_, found[id_][0])

    async def digest(self, held: Held) -> str | None:
        """The digest of a loaded model's file, made when it is first asked for; None if the file is another by now."""
        key = (held.path, held.fingerprint)
        if key not in self._digests:
            self._digests[key] = asyncio.create_task(self._digest(held))
        return await asyncio.shield(self._digests[key])  # whoever goes away does not take it from others

    async def _digest(self, held: Held) -> str | None:
        try:
            made = await asyncio.to_thread(digest, held.path, lambda: not held.leaving)
            return made if await self._in_thread(_fingerprint, held.path) == held.fingerprint else None
        except (WoollyError, OSError):
            return None

    async def unload(self, name: str, *, force: bool = False) -> str:
        """Free a model; returns its id when its memory has been given back."""
        if name in ANY and self.current is not None:
            held: Held | None = self.current
        else:
            plain = _plain(self.settings.aliases.get(name.lower(), name))
            held = next((h for h in self._held.values() if h.id.lower() == plain), None)
        if held is None:
            raise NotFoundError(
                f"the model '{printable(name)}' is not loaded",
                code="model_not_found",
                available_models=sorted(self._held),
            )
        if held.leases and not force:
            raise BusyError(
                f"{held.id} is answering {held.leases} requests",
                suggestion='wait, or send {"force": true}',
                code="conflict",
            )
        del self._held[held.id]
        held.leaving = True
        await self._free(held)
        return held.id

    async def close(self) -> None:
        """Free everything."""
        for task in list(self._tasks.values()):
            task.cancel()
        for held in [*self._held.values(), *self._leaving]:
            await self._free(held)
        self._held.clear()
        self._threads.shutdown(wait=False)

    # Inside

    async def _loaded(self, id_: str, path: Path) -> Held:
        held = self._held.get(id_)
        if held is not None and await self._in_thread(_fingerprint, path) == held.fingerprint:
            self._held[id_] = self._held.pop(id_)  # the last one asked for is the current one
            return held
        task = self._tasks.get(id_)
        if task is None:
            task = asyncio.create_task(self._take(id_, path))
            self._tasks[id_] = task
            task.add_done_callback(lambda done: self._loading_done(id_, done))
        return await asyncio.shield(task)  # whoever goes away does not take it from those who wait too

    def _loading_done(self, id_: str, done: asyncio.Task[Held]) -> None:
        self._tasks.pop(id_, None)
        if not done.cancelled():
            done.exception()  # seen: nobody may be waiting any more

    async def _take(self, id_: str, path: Path) -> Held:
        async with self._one:
            fingerprint = await self._in_thread(_fingerprint, path)
            model = await self._in_thread(self._open, path)
            held = Held(id_, path, fingerprint, model, Line(self._config(path).sequences, self.settings.limits))
            old = self._held.pop(id_, None)
            self._held[id_] = held
            if old is not None:
                old.leaving = True
                self._leaving.add(old)
                if old.leases == 0:
                    await self._free(old)
            return held

    def _open(self, path: Path) -> Replica:
        try:
            return self._load(path, self._config(path))
        except MemoryError:
            raise BusyError(
                "there is not enough memory for the model",
                suggestion="unload another one, or give this one a smaller context",
                code="not_enough_memory",
            ) from None

    def _config(self, path: Path) -> Config:
        """The settings with those that a row of `models.configs` has for this file."""
        own = next((row for row in self.settings.configs if row.path == path), ModelConfig("", path))
        context, sequences = own.context or self.config.context, own.sequences or self.config.sequences
        return replace(self.config, context=context, sequences=sequences)

    async def _free(self, held: Held) -> None:
        if held.freed:  # by force, and again by its last lease
            return
        held.leaving = held.freed = True
        self._leaving.add(held)
        held.line.close()
        await self._in_thread(held.model.close)
        self._leaving.discard(held)
        own, past = held.model.figures().tally, self.past.get(held.id)
        self.past[held.id] = own if past is None else past + own

    async def _in_thread(self, function: Callable[..., Any], *args: Any) -> Any:
        return await asyncio.get_running_loop().run_in_executor(self._threads, function, *args)

    def _scan(self) -> dict[str, tuple[Path, ModelRecord]]:
        """Every model that may be named, by id. In a thread; the headers of unchanged files are not read again.

        A file that the settings name, or that the catalogue does, is meant before another of the same stem. Of two
        others none is: `_twice` has them.
        """
        found: dict[str, tuple[Path, ModelRecord]] = {}
        chosen = [(config.name, config.path) for config in self.settings.configs]
        chosen += [(store.identity(path), path) for path in self.settings.models]
        chosen += [(model.id, model.path) for model in store.installed(self.config) if not model.outside]
        sure = {id_.lower() for id_, _ in chosen[: len(self.settings.configs) + len(self.settings.models)]}
        sure |= {_plain(row.file) for row in store.CATALOGUE}
        first: dict[str, Path] = {}
        twice: dict[str, list[str]] = {}
        for id_, path in chosen:
            other = first.setdefault(id_.lower(), path)
            if other is not path:
                if id_.lower() not in sure and other.resolve() != path.resolve():
                    twice.setdefault(id_.lower(), [other.name]).append(path.name)
                continue
            try:
                fingerprint = _fingerprint(path)
                known = self._records.get(path)
                if known is None or known[0] != fingerprint:
                    known = self._records[path] = (fingerprint, read_record(path, id_))
                found[id_] = (path, known[1])
            except (WoollyError, OSError):
                continue  # a file that is no model is no row; loading it by name tells why
        self._twice = twice
        return {id_: row for id_, row in found.items() if id_.lower() not in twice}

    def _choose(self, name: str, found: dict[str, tuple[Path, ModelRecord]]) -> str:
        """The id that a name means: case, folders before it and the ending do not matter."""
        if name in ANY:
            current = self.current
            chosen = current.id if current else self._default(found)
            if chosen is None or chosen not in found:
                raise RequestError(
                    "there is no model here",
                    suggestion="put a .gguf file in the models folder, or name one when the server starts",
                    code="model_error",
                    error_code="MODEL_NOT_LOADED",
                )
            return chosen
        name = self.settings.aliases.get(name.lower(), name)
        if len(name) > self.settings.limits.model_name or not store.NAME.fullmatch(name) or ".." in name:
            raise _unknown(name, sorted(found))
        plain = (name.lower(), _plain(name))
        for id_ in found:
            if id_.lower() in plain:
                return id_
        for files in (self._twice[word] for word in plain if word in self._twice):
            raise RequestError(
                f"the name '{printable(name)}' fits {len(files)} files: {', '.join(map(printable, files))}",
                suggestion="rename one, or name its path when the server starts",
                code="model_error",
                param="model",
                error_code="AMBIGUOUS_MODEL",
            )
        entry = store.entry(name)
        for id_ in found:
            if entry is not None and id_.lower() == _plain(entry.file):
                return id_
        raise _unknown(name, sorted(found))

    def _default(self, found: dict[str, tuple[Path, ModelRecord]]) -> str | None:
        wanted = self.settings.default_model
        wanted = self.settings.aliases.get(wanted.lower(), wanted)
        if wanted:
            entry = store.entry(wanted)
            names = {_plain(wanted)} | ({_plain(entry.file)} if entry else set())
            return next((id_ for id_ in found if id_.lower() in names), None)
        return next(iter(found), None)

    def _row(self, id_: str, record: ModelRecord) -> ModelRecord:
        return structs.replace(record, loaded=id_ in self._held)


def _plain(name: str) -> str:
    return name.replace("\\", "/").rstrip("/").rsplit("/", 1)[-1].lower().removesuffix(".gguf")


def _fingerprint(path: Path) -> Fingerprint:
    try:
        stat = path.stat()
    except OSError:
        raise NotFoundError(f"the file of '{printable(path.stem)}' is gone", code="model_not_found") from None
    return stat.st_size, stat.st_mtime_ns, stat.st_ino


def _unknown(name: str, known: list[str]) -> NotFoundError:
    return NotFoundError(
        f"there is no model '{printable(name)}' here",
        suggestion="GET /v1/models lists the models",
        code="model_not_found",
        param="model",
        available_models=known,
    )
