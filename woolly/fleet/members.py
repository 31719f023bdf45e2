"""The fleet of a gateway: which replicas there are, which models each offers, and how busy it is.

Replicas report each second; one that has been silent for LEASE_S is gone. Replicas serve a model together if they have
one version of it: the same file, to the digest, and the same way of computing, so that each can continue an answer that
another began. The version that most replicas have serves; the other replicas are told that theirs is not used.

A gateway loads no weights. It asks a replica for the header of the model's file and keeps that in a folder of its own:
templates, tokenizer and the list of models need no more. Owned by the event loop.
"""

from __future__ import annotations

import asyncio
import os
import re
import tempfile
import time
from collections import Counter
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Protocol, TypeAlias
from urllib.parse import quote

from woolly import store
from woolly.config import Config
from woolly.errors import BusyError, DownloadError, RequestError, WoollyError, printable
from woolly.fleet.http import Address, ask, check_private, read_address
from woolly.fleet.reports import NAME, JoinReply, ModelInfo, ModelLoad, ModelReport, ReplicaReport
from woolly.fleet.routing import ReplicaLoad
from woolly.fleet.wire import HEADER
from woolly.limits import LIMITS
from woolly.server.http.guard import FLEET_SECRET
from woolly.server.http.log import Log
from woolly.server.models.lifecycle import Models

LEASE_S = 3.0
TICK_S = 0.25
HEADER_S = 60.0  # for the header of a model's files
HEADERS = 2  # that are fetched at a time, of up to LIMITS.header bytes each
HAND_OVER_S = 10.0  # from a replica's notice that it leaves until its answers are moved

ModelVersion: TypeAlias = tuple[str, str]  # the digest of the file, and the id of the arithmetic


class RemoteWork(Protocol):
    """What a replica computes for this gateway."""

    request_id: str

    def suspect(self, replica: FleetReplica) -> None:
        """The replica does not report any more."""

    def hand_over(self) -> None:
        """The replica leaves: continue at another one, if there is any."""


@dataclass(eq=False, slots=True)
class OfferedModel:
    """A model of a replica: what it is, what its last report said, and how busy the replica is by now."""

    info: ModelInfo
    reported: ModelLoad
    load: ReplicaLoad

    @property
    def version(self) -> ModelVersion:
        return self.info.digest, self.info.numerics_id


@dataclass(eq=False, slots=True)
class FleetReplica:
    """A replica, as the gateway knows it."""

    id: str
    address: Address
    number: int  # the number of its last report
    seen_s: float
    models: dict[str, OfferedModel] = field(default_factory=dict)  # by the name that the gateway gives each
    leaves_s: float | None = None  # if it leaves: when its answers continue at other replicas
    absent: bool = False  # a connection to it broke, and it has not reported since
    answers: set[RemoteWork] = field(default_factory=set)  # answers and embeddings that it computes for this gateway

    @property
    def known_pages(self) -> int:
        """How many pages of its caches the gateway knows."""
        return sum(len(model.load.pages) for model in self.models.values())

    @property
    def state(self) -> str:
        return "leaving" if self.leaves_s is not None else "absent" if self.absent else "here"

    @property
    def here(self) -> bool:
        """Whether the replica takes requests."""
        return not self.absent and self.leaves_s is None


class Fleet:
    """The replicas of a gateway.

    key: the secret that replicas share with the gateway; without one, only those of this machine may join. insecure:
    connections that are not encrypted may lead through any network.
    """

    def __init__(self, key: str, *, insecure: bool = False) -> None:
        self.key = key
        self.insecure = insecure
        self.replicas: dict[str, FleetReplica] = {}
        self.versions: dict[str, ModelVersion] = {}  # the version that serves, by the name of the model
        self._names: dict[str, tuple[str, ...]] = {}  # other names of a model, by its name
        self.replays = 0  # times that an answer continued at another replica
        self.failed = 0  # answers that lost too many replicas
        self.moving: set[RemoteWork] = set()  # answers that lost their replica, until another continues
        self.changed = asyncio.Event()  # set when requests may find more replicas, then replaced
        self._folder = tempfile.TemporaryDirectory(prefix="woolly-gate-")
        self._loading: dict[str, asyncio.Task[None]] = {}  # by the name of the model
        self._fetching = asyncio.Semaphore(HEADERS)
        self._models: Models | None = None
        self._log: Log | None = None
        self._loop: asyncio.AbstractEventLoop | None = None
        self._watch: asyncio.Task[None] | None = None

    # Begin and end

    def begin(self, models: Models, log: Log) -> None:
        self._models, self._log, self._loop = models, log, asyncio.get_running_loop()
        self._watch = asyncio.create_task(self._watching())

    @property
    def loop(self) -> asyncio.AbstractEventLoop:
        assert self._loop is not None, "a gateway listens before it answers"
        return self._loop

    async def close(self) -> None:
        tasks = [*self._loading.values(), *([self._watch] if self._watch is not None else [])]
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)
        await asyncio.to_thread(self._folder.cleanup)

    def installed(self, _config: Config, _named: Iterable[store.Model] = ()) -> list[store.Model]:
        """The models that a request may name: those whose headers are here."""
        paths = sorted(Path(self._folder.name).glob("*/*.gguf"))
        return [
            store.model_at(path, also=self._names.get(path.parent.name, ()))
            for path in paths
            if path == store.parts_of(path)[0]
        ]

    # Replicas

    def is_moving(self, request_id: str) -> bool:
        """Whether an answer to this request waits for another replica to go on."""
        return any(answer.request_id == request_id for answer in self.moving)

    def offers(self, name: str, version: ModelVersion) -> Iterator[tuple[FleetReplica, OfferedModel]]:
        """The replicas that have this version of a model."""
        for replica in list(self.replicas.values()):
            offered = replica.models.get(name)
            if offered is not None and offered.version == version:
                yield replica, offered

    def states(self) -> Counter[str]:
        """How many replicas are in which state."""
        return Counter({"here": 0, "absent": 0, "leaving": 0} | Counter(one.state for one in self.replicas.values()))

    async def receive(self, report: ReplicaReport, peer: str) -> JoinReply:
        """Handle the report of a replica. peer: the address that the report came from."""
        self._check_names(report)
        replica = self.replicas.get(report.id)
        if replica is None:
            address = read_address(report.url.replace("://:", f"://{f'[{peer}]' if ':' in peer else peer}:"), "url")
            if not self.insecure:
                address = await check_private(address)
            if len(self.replicas) >= LIMITS.fleet:
                raise BusyError(f"this gate has {len(self.replicas):,} replicas already")
            replica = self.replicas.setdefault(report.id, FleetReplica(report.id, address, report.number, 0.0))
        elif report.number <= replica.number:
            raise RequestError("an older report came after a newer one", param="number")
        is_new, is_back = replica.seen_s == 0.0, replica.absent
        missed = is_new or report.number != replica.number + 1
        wants_all_pages = missed and any(not offer.full for offer in report.offers)
        replica.seen_s, replica.number, replica.absent = time.monotonic(), report.number, False
        known, replica.models = replica.models, {}
        room = min(LIMITS.fleet_pages - sum(one.known_pages for one in self.replicas.values()), LIMITS.replica_pages)
        for offer in report.offers:
            name = _file_safe(offer.facts.name)
            replica.models[name] = offered = _offered(offer, known.get(name), room)
            room -= len(offered.load.pages)
        if report.leaving and replica.leaves_s is None:
            replica.leaves_s = time.monotonic() + HAND_OVER_S
        self._elect()
        if is_new:
            self._log_replica("replica joined", replica)
        if is_back or replica.models.keys() - known.keys():
            self.changed.set()
            self.changed = asyncio.Event()
        return JoinReply(wants_all_pages, dict(self._refused(replica)))

    def _check_names(self, report: ReplicaReport) -> None:
        """Refuse a report with models that would be too many; those that were loaded stay known."""
        if len({*self.versions, *(_file_safe(offer.facts.name) for offer in report.offers)}) > LIMITS.fleet_models:
            raise BusyError(f"this gate has {len(self.versions):,} models, and {LIMITS.fleet_models:,} at most")

    def remove(self, replica: FleetReplica, why: str) -> None:
        """Forget a replica that is gone; it may come again."""
        if self.replicas.get(replica.id) is replica:
            del self.replicas[replica.id]
            self._log_replica("replica gone", replica, why=why)
            self._elect()

    async def _watching(self) -> None:
        """Remove replicas that are silent, and move the answers of those that have been leaving for HAND_OVER_S."""
        while True:
            await asyncio.sleep(TICK_S)
            now = time.monotonic()
            for replica in list(self.replicas.values()):
                if now - replica.seen_s > LEASE_S:
                    self.remove(replica, "it is silent")
                    for answer in list(replica.answers):
                        answer.suspect(replica)
                elif replica.leaves_s is not None and now > replica.leaves_s:
                    for answer in list(replica.answers):
                        answer.hand_over()

    # Models

    def _elect(self) -> None:
        """Choose for each model the version that most replicas have; of several such, the one that serves already."""
        names = {name for replica in self.replicas.values() for name in replica.models}
        for name in names:
            counts = Counter(
                replica.models[name].version
                for replica in self.replicas.values()
                if name in replica.models and replica.leaves_s is None
            )
            current = self.versions.get(name)
            if counts and (current is None or counts[current] < max(counts.values())):
                self.versions[name] = counts.most_common(1)[0][0]
                self._begin_loading(name)
        for name in self.versions.keys() - names - self._names.keys():  # never loaded, and nobody has it any more
            del self.versions[name]
            self._loading.pop(name).cancel()
        self._resize()

    def _resize(self) -> None:
        """Give each model as many permits as its replicas have slots."""
        for loaded in self._models.loaded if self._models is not None else ():
            slots = sum(one.info.slots for _, one in self.offers(loaded.id, self.versions.get(loaded.id, ("", ""))))
            if slots:
                loaded.admission.resize(slots)

    def _begin_loading(self, name: str) -> None:
        """Begin to load the version of a model that serves now."""
        if (old := self._loading.pop(name, None)) is not None:
            old.cancel()
        self._loading[name] = asyncio.create_task(self._load_version(name, self.versions[name]))

    async def _load_version(self, name: str, version: ModelVersion) -> None:
        """Fetch the header of a model and load it, unless another version serves by then."""
        assert self._models is not None and self._log is not None
        while self.versions.get(name) == version:
            for replica, offered in list(self.offers(name, version)):
                try:
                    async with self._fetching, asyncio.timeout(HEADER_S):
                        await self._fetch_header(name, replica, offered.info)
                    await self._models.load(name)
                    self._resize()
                    return
                except (WoollyError, OSError, TimeoutError) as error:
                    why = str(error) or f"it takes longer than {HEADER_S:.0f} s"
                    self._log.line("error", "no header", model=name, replica=str(replica.address), why=why)
            await asyncio.sleep(1.0)

    async def _fetch_header(self, name: str, replica: FleetReplica, info: ModelInfo) -> None:
        """Keep the headers of a model's files, each in a sparse file of the true size."""
        if sum(part.header for part in info.parts) > LIMITS.header:
            raise DownloadError(f"the header of {name} is larger than {LIMITS.header:,} bytes")
        folder = Path(self._folder.name, name)
        headers = []
        for index, part in enumerate(info.parts):
            path = f"{HEADER}?model={quote(info.name)}&part={index}"
            status, data = await ask(
                replica.address, "GET", path, b"", {FLEET_SECRET: self.key}, most=part.header, timeout_s=HEADER_S
            )
            if status != 200 or len(data) != part.header:
                raise DownloadError(f"the replica gave status {status} for the header of {name}")
            headers.append((data, part.size))
        await asyncio.to_thread(_write_headers, folder, name, headers)
        self._names[name] = tuple(info.names)

    def _refused(self, replica: FleetReplica) -> Iterator[tuple[str, str]]:
        """The models of a replica that do not serve, each with the reason."""
        for name, offered in replica.models.items():
            digest, numerics_id = self.versions.get(name, offered.version)
            if offered.info.digest != digest:
                yield offered.info.name, f"it is another file than the one that most replicas have: {digest}"
            elif offered.info.numerics_id != numerics_id:
                yield offered.info.name, f"it computes in another way than most replicas do: {numerics_id}"

    def _log_replica(self, what: str, replica: FleetReplica, **facts: object) -> None:
        if self._log is not None:
            self._log.line("info", what, id=replica.id, url=str(replica.address), **facts)


def no_replica(name: str) -> BusyError:
    return BusyError(
        f"there is no replica for {printable(name)} now", suggestion="try again in a moment", code="overloaded"
    )


def _file_safe(name: str) -> str:
    """The gateway's own name for a model, which can also name a file."""
    return re.sub(r"[^A-Za-z0-9._-]", "-", name).lstrip(".-") or "model"


def _offered(report: ModelReport, known: OfferedModel | None, room: int) -> OfferedModel:
    """A model as a replica reports it. known: the same model by the report before. room: the most pages that are kept
    of it; the gateway does without the others, which it takes for pages to be computed."""
    info, reported = report.facts, report.load
    most = min(room, reported.pages or room)  # a model that carries its state has snapshots in place of pages
    pages = set[bytes]() if report.full or known is None else known.load.pages
    pages.difference_update(_page_names(report.dropped))
    for page in _page_names(report.added):
        if len(pages) >= most:
            break
        pages.add(page)
    load = ReplicaLoad(
        slots=info.slots,
        prompt_rate=reported.prompt_rate,
        answer_rate=reported.answer_rate,
        running=reported.running + reported.waiting,
        queued=reported.missing,
        pages=pages,
    )
    return OfferedModel(info, reported, load)


def _page_names(data: bytes) -> Iterator[bytes]:
    if len(data) % NAME:
        raise RequestError(f"digests of pages have {NAME} bytes each", param="added")
    return (data[at : at + NAME] for at in range(0, len(data), NAME))


def _write_headers(folder: Path, name: str, headers: list[tuple[bytes, int]]) -> None:
    folder.mkdir(exist_ok=True)
    count = len(headers)
    files = [f"{name}.gguf"] if count == 1 else [f"{name}-{n:05}-of-{count:05}.gguf" for n in range(1, count + 1)]
    for old in folder.iterdir():
        if old.name not in files:
            old.unlink()
    for file, (data, size) in zip(files, headers, strict=True):
        new = folder / f"{file}.new"
        new.write_bytes(data)
        os.truncate(new, max(size, len(data)))
        new.replace(folder / file)
