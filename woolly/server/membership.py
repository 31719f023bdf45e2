"""A replica's side of a fleet: it tells each of its gates about itself, once a second, and when it leaves.

Owned by the event loop. What a gate does not hear it is told again: reports count, and a gate that has missed one asks
for all pages anew.
"""

from __future__ import annotations

import asyncio
import dataclasses
import hmac
import secrets
import time
from collections.abc import Iterable
from typing import TYPE_CHECKING

import msgspec

from woolly import __version__, store
from woolly.errors import RequestError, WoollyError, printable
from woolly.server.fleet import NAME, SECRET
from woolly.server.outgoing import Address, ask, check_private, read_address
from woolly.server.reports import JOIN, AdapterFacts, Facts, Heard, Load, Offer, PartFacts, Report
from woolly.server.settings import is_loopback

if TYPE_CHECKING:
    from woolly.config import Settings
    from woolly.llm import LLM
    from woolly.server.app import App
    from woolly.server.door import Call
    from woolly.server.models import LoadedModel

EVERY_S = 1.0
ANSWER_S = 2.0  # for a gate to answer a report

_encode = msgspec.json.Encoder().encode
_heard = msgspec.json.Decoder(Heard).decode


def admit(app: App, call: Call) -> None:
    """Refuse who does not know the secret of the fleet; without one, who is not of this machine."""
    key = app.settings.fleet_key
    if key and hmac.compare_digest(call.headers.get(SECRET, "").encode(), key.encode()):
        return
    if not key and is_loopback(call.peer):
        return
    raise RequestError(
        "this is for members of the fleet, which know its secret",
        suggestion="set WOOLLY_FLEET_KEY to the same value at the gate and at every replica",
        code="authentication_failed",
    )


def check_join(settings: Settings) -> None:
    """Refuse to be a replica that no gate could use, before anything is loaded."""
    if not settings.join:
        return
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
    """A replica in the fleets of some gates. url: where gates reach it; its host may be left to them."""

    def __init__(self, app: App, gates: Iterable[Address], url: str) -> None:
        self._app = app
        self._gates = tuple(gates)
        self._url = url
        self._id = secrets.token_hex(8)
        self._facts: dict[LoadedModel, Facts] = {}
        self._leaving = asyncio.Event()
        self._tasks: list[asyncio.Task[None]] = []

    def start(self) -> None:
        self._tasks = [asyncio.create_task(self._report_to(gate)) for gate in self._gates]

    def leave(self) -> None:
        """Tell the gates, at once, that others are to go on."""
        self._leaving.set()

    async def close(self) -> None:
        for task in self._tasks:
            task.cancel()
        await asyncio.gather(*self._tasks, return_exceptions=True)

    async def _report_to(self, gate: Address) -> None:
        """Reports to one gate, as long as there is something to tell."""
        told: dict[str, set[bytes]] = {}  # pages that it knows of, by model
        whole, number, well, refused = True, 0, True, dict[str, str]()
        while True:
            begun, number, leaving = time.monotonic(), number + 1, self._leaving.is_set()
            try:
                offers = [await self._offer(one, told, whole=whole) for one in self._app.models.loaded if _serves(one)]
                report = Report(
                    id=self._id, url=self._url, version=__version__, number=number, offers=offers, leaving=leaving
                )
                heard = await self._send(gate, report)
                if heard.refused != refused:
                    refused = heard.refused
                    for name, why in refused.items():
                        self._app.log.line("warning", "not used", gate=str(gate), model=printable(name), why=why)
                whole, well = heard.whole, True
            except (WoollyError, OSError, msgspec.MsgspecError) as error:
                if well:
                    self._app.log.line("warning", "the gate does not hear", gate=str(gate), why=printable(error, 300))
                whole, well = True, False
            if leaving:
                return
            left = max(begun + EVERY_S - time.monotonic(), 0.0)
            try:
                async with asyncio.timeout(left):
                    await self._leaving.wait()
            except TimeoutError:
                pass

    async def _send(self, gate: Address, report: Report) -> Heard:
        if not self._app.settings.insecure_fleet:
            await check_private(gate)
        headers = {SECRET: self._app.settings.fleet_key}
        status, body = await ask(gate, "POST", JOIN, _encode(report), headers, most=1 << 20, timeout_s=ANSWER_S)
        if status != 200:
            raise RequestError(f"it answers with status {status}: {printable(body, 200)}")
        return _heard(body)

    async def _offer(self, loaded: LoadedModel, told: dict[str, set[bytes]], *, whole: bool) -> Offer:
        """What is to be told of a model, of its pages only what has changed since."""
        if loaded not in self._facts:
            self._facts = {one: facts for one, facts in self._facts.items() if not one.leaving}
            self._facts[loaded] = await self._read_facts(loaded)
        model: LLM = loaded.model  # type: ignore[assignment]
        figures, counts = model.figures(), self._app.counts.of(loaded.id)
        tally = figures.tally
        pages = {name[:NAME] for name in model.engine.remembered()}
        before = set[bytes]() if whole else told.get(loaded.id, set())
        told[loaded.id] = pages
        return Offer(
            facts=self._facts[loaded],
            load=Load(
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
            whole=whole,
            added=b"".join(pages - before),
            dropped=b"".join(before - pages),
        )

    async def _read_facts(self, loaded: LoadedModel) -> Facts:
        digest = await self._app.models.digest(loaded)
        if digest is None:
            raise RequestError(f"the file of {loaded.id} is another one by now")
        model: LLM = loaded.model  # type: ignore[assignment]
        adapters = model.adapters
        return Facts(
            name=loaded.id,
            names=await asyncio.to_thread(_names, self._app, loaded),
            digest=digest,
            kind=model.kind,
            parts=await asyncio.to_thread(_parts, loaded),
            info=dataclasses.asdict(model.info),
            adapters=[
                AdapterFacts(name, adapters.digests[name], adapters.files[name], adapters.scales[name])
                for name in adapters.files
            ],
            context=model.info.context,
            width=model.encoder.width,
            every=model.encoder.every,
            page=model.engine.pages.size,
            slots=model.info.sequences,
        )


def _serves(loaded: LoadedModel) -> bool:
    """Whether a model can be offered."""
    return not loaded.leaving


def _names(app: App, loaded: LoadedModel) -> list[str]:
    """What else a request may call a model here."""
    found = app.models.registry.find(loaded.id)
    aliases = [name for name, meant in app.settings.aliases.items() if meant.lower() == loaded.id.lower()]
    return list(dict.fromkeys(name.lower() for name in (loaded.id, found.name, *found.also, *aliases)))[:64]


def _parts(loaded: LoadedModel) -> list[PartFacts]:
    from woolly import gguf  # NumPy comes with it

    with gguf.open(store.parts_of(loaded.path)[0]) as file:
        return [PartFacts(part.header.start, part.size) for part in file.parts]
