"""A replica's side of a fleet: it reports to each of its gateways, once a second, and when it leaves.

Owned by the event loop. Reports are numbered, and tell only of pages that came or went since the one before: a gateway
that has missed a report asks for all pages.
"""

from __future__ import annotations

import asyncio
import dataclasses
import secrets
import time
from collections.abc import Iterable
from typing import TYPE_CHECKING

import msgspec

from woolly import store
from woolly.config import Settings
from woolly.errors import RequestError, WoollyError, printable
from woolly.fleet.access import check_secret
from woolly.fleet.http import Address, ask, check_private, read_address
from woolly.fleet.reports import (
    JOIN,
    NAME,
    AdapterInfo,
    JoinReply,
    ModelInfo,
    ModelLoad,
    ModelReport,
    PartInfo,
    ReplicaReport,
)
from woolly.server.http.guard import FLEET_SECRET
from woolly.server.http.log import Log
from woolly.server.models.counts import Counts
from woolly.server.models.lifecycle import Models
from woolly.server.models.loaded import LoadedModel
from woolly.server.settings import is_loopback
from woolly.version import __version__

if TYPE_CHECKING:
    from woolly.llm.llm import LLM

INTERVAL_S = 1.0
ANSWER_S = 2.0  # how long a gateway may take to answer a report

_encode = msgspec.json.Encoder().encode
_join_reply = msgspec.json.Decoder(JoinReply).decode


def check_join(settings: Settings) -> None:
    """Refuse to be a replica that no gateway could use, before anything is loaded."""
    if not settings.join:
        return
    check_secret(settings)
    if not settings.models and not settings.preload:
        raise RequestError("--join needs a MODEL to offer", suggestion="name one before it", param="--join")
    for url in settings.join:
        if not is_loopback(read_address(url, "--join").host) and not settings.fleet_key:
            raise RequestError(
                f"the gate at {printable(url)} is another machine, and there is no secret to know each other by",
                suggestion="set WOOLLY_FLEET_KEY to the same value there and here",
                param="--join",
            )
    if settings.advertise:
        read_address(settings.advertise, "--advertise")


class Membership:
    """A replica in the fleets of some gateways. url: where gateways reach the replica; without a host, at the
    address that its reports come from."""

    def __init__(
        self, settings: Settings, models: Models, counts: Counts, log: Log, gateways: Iterable[Address], url: str
    ) -> None:
        self._settings, self._models, self._counts, self._log = settings, models, counts, log
        self._gateways = tuple(gateways)
        self._url = url
        self._id = secrets.token_hex(8)
        self._infos: dict[LoadedModel, ModelInfo] = {}
        self._leaving = asyncio.Event()
        self._tasks: list[asyncio.Task[None]] = []

    def start(self) -> None:
        self._tasks = [asyncio.create_task(self._report_to(gateway)) for gateway in self._gateways]

    def leave(self) -> None:
        """Tell the gateways, at once, that other replicas are to continue its answers."""
        self._leaving.set()

    async def close(self) -> None:
        for task in self._tasks:
            task.cancel()
        await asyncio.gather(*self._tasks, return_exceptions=True)

    async def _report_to(self, gateway: Address) -> None:
        """Report to one gateway each second, and a last time when this replica leaves."""
        known_pages: dict[str, set[bytes]] = {}  # pages that the gateway knows of, by model
        all_pages, number, well, refused = True, 0, True, dict[str, str]()
        while True:
            begun, number, leaving = time.monotonic(), number + 1, self._leaving.is_set()
            try:
                models = [
                    await self._report_model(one, known_pages, all_pages=all_pages)
                    for one in self._models.loaded
                    if _serves(one)
                ]
                report = ReplicaReport(
                    id=self._id, url=self._url, version=__version__, number=number, offers=models, leaving=leaving
                )
                reply = await self._send(gateway, report)
                if reply.refused != refused:
                    refused = reply.refused
                    for name, why in refused.items():
                        self._log.line("warning", "not used", gateway=str(gateway), model=printable(name), why=why)
                all_pages, well = reply.full, True
            except (WoollyError, OSError, msgspec.MsgspecError) as error:
                if well:
                    self._log.line("warning", "report failed", gateway=str(gateway), why=printable(error, 300))
                all_pages, well = True, False
            if leaving:
                return
            left = max(begun + INTERVAL_S - time.monotonic(), 0.0)
            try:
                async with asyncio.timeout(left):
                    await self._leaving.wait()
            except TimeoutError:
                pass

    async def _send(self, gateway: Address, report: ReplicaReport) -> JoinReply:
        if not self._settings.insecure_fleet:
            gateway = await check_private(gateway)
        headers = {FLEET_SECRET: self._settings.fleet_key}
        status, body = await ask(gateway, "POST", JOIN, _encode(report), headers, most=1 << 20, timeout_s=ANSWER_S)
        if status != 200:
            raise RequestError(f"it answers with status {status}: {printable(body, 200)}")
        return _join_reply(body)

    async def _report_model(
        self, loaded: LoadedModel, known_pages: dict[str, set[bytes]], *, all_pages: bool
    ) -> ModelReport:
        """The report of a model. all_pages: report every page, not only those that came or went."""
        if loaded not in self._infos:
            self._infos = {one: info for one, info in self._infos.items() if not one.leaving}
            self._infos[loaded] = await self._read_info(loaded)
        model: LLM = loaded.model  # type: ignore[assignment]
        figures, counts = model.figures(), self._counts.of(loaded.id)
        tally = figures.tally
        pages = {name[:NAME] for name in model.engine.remembered()}
        before = set[bytes]() if all_pages else known_pages.get(loaded.id, set())
        known_pages[loaded.id] = pages
        return ModelReport(
            facts=self._infos[loaded],
            load=ModelLoad(
                running=figures.running,
                waiting=figures.waiting,
                missing=figures.missing,
                prompt_rate=figures.prompt_rate,
                answer_rate=tally.decode_tokens / tally.decode_s if tally.decode_s else 0.0,
                pages=figures.pages,
                free=figures.free,
                idle=figures.idle,
                pool_bytes=figures.pool_bytes,
                evictions=figures.evictions,
                steps=tally.steps,
                tokens=tally.decode_tokens,
                prompt_tokens=counts.prompt_tokens,
                cached_tokens=counts.cached_tokens,
            ),
            full=all_pages,
            added=b"".join(pages - before),
            dropped=b"".join(before - pages),
        )

    async def _read_info(self, loaded: LoadedModel) -> ModelInfo:
        digest = await self._models.digest(loaded)
        if digest is None:
            raise RequestError(f"the file of {loaded.id} is another one by now")
        model: LLM = loaded.model  # type: ignore[assignment]
        adapters = model.adapters
        return ModelInfo(
            name=loaded.id,
            names=await asyncio.to_thread(_names, self._models, loaded),
            digest=digest,
            numerics_id=model.numerics_id,
            parts=await asyncio.to_thread(_parts, loaded),
            info=dataclasses.asdict(model.info),
            adapters=[
                AdapterInfo(name, adapters.digests[name], adapters.files[name], adapters.scales[name])
                for name in adapters.files
            ],
            context=model.info.context,
            width=model.encoder.width,
            per_token=model.encoder.per_token,
            page=model.engine.pages.size,
            slots=model.info.sequences,
        )


def _serves(loaded: LoadedModel) -> bool:
    """Whether a model takes requests."""
    return not loaded.leaving


def _names(models: Models, loaded: LoadedModel) -> list[str]:
    """The names by which a request may mean a model here."""
    names = (loaded.id, store.identity(loaded.path), *loaded.file.also, *models.registry.aliases_of(loaded.file))
    return list(dict.fromkeys(name.lower() for name in names))[:64]


def _parts(loaded: LoadedModel) -> list[PartInfo]:
    from woolly import gguf  # late, because it imports NumPy

    with gguf.open(store.parts_of(loaded.path)[0]) as file:
        return [PartInfo(part.header.start, part.size) for part in file.parts]
