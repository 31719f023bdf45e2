"""The fleet of a gate: which replicas there are, what each offers, and how it stands.

Replicas report each second; one that has been silent for LEASE_S is gone. Of a model that several offer, those count
that are of one sort: the same file, to the digest, and the same way of computing, so that any of them can go on with an
answer that another began. The sort that most replicas have serves; the others are told that they do not.

A gate takes no model from a disk. It asks a replica for the header of the file and keeps that in a folder of its own:
all that templates, tokenizer and page of models need. Owned by the event loop.
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
from typing import TYPE_CHECKING, TypeAlias
from urllib.parse import quote

from woolly import store
from woolly.config import Config
from woolly.errors import BusyError, DownloadError, RequestError, WoollyError, printable
from woolly.limits import LIMITS
from woolly.server.outgoing import Address, ask, check_private, read_address
from woolly.server.reports import Facts, Heard, Load, Offer, Report
from woolly.server.routing import Standing
from woolly.server.wire import HEADER

if TYPE_CHECKING:
    from woolly.server.app import App
    from woolly.server.fleet_answer import Answer
    from woolly.server.fleet_model import FleetModel
    from woolly.server.fleet_pool import Reading

LEASE_S = 3.0
TICK_S = 0.25
HAND_OVER_S = 10.0  # after which answers of a replica that leaves go on elsewhere
SECRET = "x-woolly-fleet"  # the header of the shared secret
NAME = 8  # bytes of a page's digest that are told

Sort: TypeAlias = tuple[str, str]  # digest and kind


@dataclass(eq=False, slots=True)
class Offered:
    """A model of a replica."""

    facts: Facts
    load: Load
    standing: Standing

    @property
    def sort(self) -> Sort:
        return self.facts.digest, self.facts.kind


@dataclass(eq=False, slots=True)
class Member:
    """A replica, as the gate knows it."""

    id: str
    address: Address
    number: int  # of its last report
    seen_s: float
    models: dict[str, Offered] = field(default_factory=dict)  # by the gate's name for each
    leaves_s: float | None = None  # when its answers go on elsewhere, if it leaves
    absent: bool = False  # a connection to it broke, and it has not reported since
    answers: set[Answer | Reading] = field(default_factory=set)  # that it computes for this gate

    @property
    def state(self) -> str:
        return "leaving" if self.leaves_s is not None else "absent" if self.absent else "here"

    @property
    def here(self) -> bool:
        """Whether it takes orders."""
        return not self.absent and self.leaves_s is None


class Fleet:
    """The replicas of a gate.

    key: the secret that they share with it; without one, only those of this machine may join. insecure: ways that are
    not encrypted may lead through any network.
    """

    def __init__(self, key: str, *, insecure: bool = False) -> None:
        self.key = key
        self.insecure = insecure
        self.members: dict[str, Member] = {}
        self.sorts: dict[str, Sort] = {}  # that serves, by the name of the model
        self._names: dict[str, tuple[str, ...]] = {}  # others that mean it, by the name of the model
        self.replays = 0  # answers that went on at another replica
        self.failed = 0  # answers that could not
        self.moving: set[Answer] = set()  # answers that have lost their replica, until another goes on with them
        self.changed = asyncio.Event()  # a replica came; made anew each time
        self._folder = tempfile.TemporaryDirectory(prefix="woolly-gate-")
        self._learning: dict[str, asyncio.Task[None]] = {}
        self._app: App | None = None
        self._loop: asyncio.AbstractEventLoop | None = None
        self._watch: asyncio.Task[None] | None = None

    # The life of a gate

    def start(self, app: App) -> None:
        self._app, self._loop = app, asyncio.get_running_loop()
        self._watch = asyncio.create_task(self._watching())

    @property
    def loop(self) -> asyncio.AbstractEventLoop:
        assert self._loop is not None, "a gate listens before it answers"
        return self._loop

    async def close(self) -> None:
        tasks = [*self._learning.values(), *([self._watch] if self._watch is not None else [])]
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

    def load(self, path: Path, _config: Config) -> FleetModel:
        """The model of a header. In a thread."""
        from woolly.server.fleet_model import FleetModel  # NumPy comes with it

        name = store.identity(path)
        for _, offered in self.offers(name, self.sorts[name]):
            return FleetModel(self, name, path, offered.facts)
        raise nobody(name)

    # Who is there

    def is_moving(self, request_id: str) -> bool:
        """Whether an answer to this request waits for another replica to go on."""
        return any(answer.request_id == request_id for answer in self.moving)

    def offers(self, name: str, sort: Sort) -> Iterator[tuple[Member, Offered]]:
        """The replicas that can answer for a model of this sort."""
        for member in list(self.members.values()):
            offered = member.models.get(name)
            if offered is not None and offered.sort == sort:
                yield member, offered

    def states(self) -> Counter[str]:
        """How many are in which."""
        return Counter({"here": 0, "absent": 0, "leaving": 0} | Counter(one.state for one in self.members.values()))

    async def hear(self, report: Report, peer: str) -> Heard:
        """A replica has reported."""
        member = self.members.get(report.id)
        if member is None:
            if len(self.members) >= LIMITS.fleet:
                raise BusyError(f"this gate has {len(self.members):,} replicas already")
            address = read_address(report.url.replace("://:", f"://{f'[{peer}]' if ':' in peer else peer}:"), "url")
            if not self.insecure:
                await check_private(address)
            member = self.members.setdefault(report.id, Member(report.id, address, report.number, 0.0))
        elif report.number <= member.number:
            raise RequestError("an older report came after a newer one", param="number")
        news, back = member.seen_s == 0.0, member.absent
        whole = any(not offer.whole for offer in report.offers) and (news or report.number != member.number + 1)
        member.seen_s, member.number, member.absent = time.monotonic(), report.number, False
        known, member.models = member.models, {}
        for offer in report.offers:
            name = _safe(offer.facts.name)
            member.models[name] = _heard(offer, known.get(name))
        if report.leaving and member.leaves_s is None:
            member.leaves_s = time.monotonic() + HAND_OVER_S
        self._elect()
        if news:
            self._log("replica joined", member)
        if back or member.models.keys() - known.keys():
            self.changed.set()
            self.changed = asyncio.Event()
        return Heard(whole, dict(self._refused(member)))

    def lose(self, member: Member, why: str) -> None:
        """A replica is gone; it may come again."""
        if self.members.get(member.id) is member:
            del self.members[member.id]
            self._log("replica gone", member, why=why)
            self._elect()

    async def _watching(self) -> None:
        """Notice who is silent, and who has had time enough to leave."""
        while True:
            await asyncio.sleep(TICK_S)
            now = time.monotonic()
            for member in list(self.members.values()):
                if now - member.seen_s > LEASE_S:
                    self.lose(member, "it is silent")
                    for answer in list(member.answers):
                        answer.suspect(member)
                elif member.leaves_s is not None and now > member.leaves_s:
                    for answer in list(member.answers):
                        answer.hand_over()

    # What serves

    def _elect(self) -> None:
        """See that of each model the sort serves that most replicas have; the one that serves stays where it is one of
        these."""
        names = {name for member in self.members.values() for name in member.models}
        for name in names:
            counts = Counter(
                member.models[name].sort
                for member in self.members.values()
                if name in member.models and member.leaves_s is None
            )
            current = self.sorts.get(name)
            if counts and (current is None or counts[current] < max(counts.values())):
                self.sorts[name] = counts.most_common(1)[0][0]
                self._learn(name)
        self._resize()

    def _resize(self) -> None:
        """As many places in line as the replicas have slots."""
        for loaded in self._app.models.loaded if self._app is not None else ():
            slots = sum(one.facts.slots for _, one in self.offers(loaded.id, self.sorts.get(loaded.id, ("", ""))))
            if slots:
                loaded.line.resize(slots)

    def _learn(self, name: str) -> None:
        """Fetch the header of what serves under a name, and load it."""
        if (old := self._learning.pop(name, None)) is not None:
            old.cancel()
        self._learning[name] = asyncio.create_task(self._learned(name, self.sorts[name]))

    async def _learned(self, name: str, sort: Sort) -> None:
        assert self._app is not None
        while self.sorts.get(name) == sort:
            for member, offered in list(self.offers(name, sort)):
                try:
                    await self._fetch(name, member, offered.facts)
                    await self._app.models.load(name)
                    self._resize()
                    return
                except (WoollyError, OSError) as error:
                    self._app.log.line("error", "no header", model=name, replica=str(member.address), why=str(error))
            await asyncio.sleep(1.0)

    async def _fetch(self, name: str, member: Member, facts: Facts) -> None:
        """Keep the headers of a model's files, each in a file of its true size whose rest is nowhere."""
        if sum(part.header for part in facts.parts) > LIMITS.header:
            raise DownloadError(f"the header of {name} is larger than {LIMITS.header:,} bytes")
        folder = Path(self._folder.name, name)
        headers = []
        for index, part in enumerate(facts.parts):
            path = f"{HEADER}?model={quote(facts.name)}&part={index}"
            status, data = await ask(
                member.address, "GET", path, b"", {SECRET: self.key}, most=part.header, timeout_s=60.0
            )
            if status != 200 or len(data) != part.header:
                raise DownloadError(f"the replica gave status {status} for the header of {name}")
            headers.append((data, part.size))
        await asyncio.to_thread(_keep, folder, name, headers)
        self._names[name] = tuple(facts.names)

    def _refused(self, member: Member) -> Iterator[tuple[str, str]]:
        for name, offered in member.models.items():
            digest, kind = self.sorts.get(name, offered.sort)
            if offered.facts.digest != digest:
                yield offered.facts.name, f"it is another file than the one that most replicas have: {digest}"
            elif offered.facts.kind != kind:
                yield offered.facts.name, f"it computes in another way than most replicas do: {kind}"

    def _log(self, what: str, member: Member, **facts: object) -> None:
        if self._app is not None:
            self._app.log.line("info", what, id=member.id, url=str(member.address), **facts)


def nobody(name: str) -> BusyError:
    return BusyError(
        f"there is no replica for {printable(name)} now", suggestion="try again in a moment", code="overloaded"
    )


def _safe(name: str) -> str:
    """The gate's own name for a model: one that a file can have."""
    return re.sub(r"[^A-Za-z0-9._-]", "-", name).lstrip(".-") or "model"


def _heard(offer: Offer, known: Offered | None) -> Offered:
    """What a report says of a model."""
    load, facts = offer.load, offer.facts
    pages = set() if offer.whole or known is None else known.standing.pages
    pages -= set(_names(offer.dropped))
    pages |= set(_names(offer.added))
    standing = Standing(
        slots=facts.slots,
        prompt_rate=load.prompt_rate,
        answer_rate=load.answer_rate,
        running=load.running + load.waiting,
        queued=load.missing,
        pages=pages,
    )
    return Offered(facts, load, standing)


def _names(data: bytes) -> Iterator[bytes]:
    if len(data) % NAME:
        raise RequestError(f"digests of pages have {NAME} bytes each", param="added")
    return (data[at : at + NAME] for at in range(0, len(data), NAME))


def _keep(folder: Path, name: str, headers: list[tuple[bytes, int]]) -> None:
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
