"""A model whose answers come from a fleet: to the server what an `LLM` is, without the weights.

It renders, tokenises and checks as an `LLM` does, from the header of the file, and fixes everything that is chance. An
`Answer` (fleet_answer.py) then puts the events of replicas into a stream, as the engine would.
"""

from __future__ import annotations

import asyncio
import random
from collections.abc import Collection, Iterable, Mapping
from contextlib import suppress
from pathlib import Path
from typing import Any

from woolly import gguf, model, text
from woolly.encoder import Encoder
from woolly.engine import Adapters, Figures, Stream, page_names
from woolly.engine.tally import Tally
from woolly.errors import BusyError, RequestError
from woolly.examine import read_card, read_text
from woolly.loading import Info
from woolly.messages import Message
from woolly.prompter import Prepared, Prompter, drawn_seed
from woolly.request import Request, request_of
from woolly.server.fleet import NAME, Fleet, Member, Offered, nobody
from woolly.server.fleet_answer import Answer
from woolly.server.fleet_pool import FleetPool
from woolly.server.reports import Facts
from woolly.server.routing import Prompt as Routed
from woolly.server.routing import candidates, cost_s, keys_of
from woolly.server.wire import order_of

WAIT_S = 10.0  # for a replica, where there is none


class FleetModel:
    """One model of a gate. For any thread but where it says otherwise."""

    broken = None  # of its replicas, each tells of itself

    def __init__(self, fleet: Fleet, name: str, path: Path, facts: Facts) -> None:
        self.fleet = fleet
        self.name = name
        self.facts = facts
        self.kind = facts.kind
        self.sort = facts.digest, facts.kind
        try:
            self.info = Info(**facts.info)
        except TypeError:
            raise RequestError("a replica of another version reports facts that this one does not know") from None
        with gguf.open(path) as file:
            self.card = read_card(file)
            if "tokenizer.chat_template" in file.meta:
                text.start_renderer()
            words, template = read_text(file, model.build(file, self.info.context))
        self.prompter = Prompter(self.card, self.info.context, words, template)
        loaded = [model.Adapter(one.name, {}, one.digest, one.file) for one in facts.adapters]
        self.adapters = Adapters(loaded, [one.scale for one in facts.adapters])
        self.encoder = Encoder(
            engine=FleetPool(self),
            tokenizer=words,
            adapters=self.adapters,
            name=self.card.name,
            gives=self.card.gives,
            width=facts.width,
            every=facts.every,
            labels=self.card.labels,
            context=self.info.context,
            vocab=self.card.vocab,
            most=2 * self.info.sequences,
        )
        self._answers: set[Answer] = set()
        self._closed = False

    def prepare(self, request: Request) -> Prepared:
        self.encoder.need("logits")
        return self.prompter.prepare(request)

    def submit(
        self,
        request: Request | Prepared,
        *,
        salt: bytes = b"",
        key: str = "",
        unread: int | None = None,
        protect_s: float = 0.0,
    ) -> Stream:
        """Begin to answer a request, as `LLM.submit` does."""
        prepared = request if isinstance(request, Prepared) else self.prepare(request)
        if self._closed:
            raise BusyError("the model is closed", suggestion="load it again")
        request = prepared.request
        seed = drawn_seed() if request.sampling.seed is None else request.sampling.seed
        scales = self.adapters.chosen(request.lora)
        order = order_of(
            prepared,
            seed,
            prompter=self.prompter,
            model=self.facts.name,
            digest=self.facts.digest,
            kind=self.facts.kind,
            lora=[] if scales is None else scales.tolist(),
            salt=salt,
            key=key,
            protect_s=protect_s,
        )
        salted = self.adapters.salt(salt, scales)
        names = [name[:NAME] for name in page_names(salted, prepared.ids, self.facts.page)]
        routed = Routed(*keys_of(request, salt), len(prepared.ids), self.facts.page, names)
        answer = Answer(self, order, routed, len(prepared.ids))
        stream = Stream(answer.cancel, answer.resume, self.prompter.reader(prepared))
        stream.most, stream.owner, stream.notes = unread, self, prepared.notes
        answer.stream = stream
        self.fleet.loop.call_soon_threadsafe(self._begin, answer)
        return stream

    def _begin(self, answer: Answer) -> None:
        self._answers.add(answer)
        answer.start().add_done_callback(lambda _: self._answers.discard(answer))

    def others(self, need: int, busy: Collection[str] = ()) -> list[tuple[Member, Offered]]:
        """The replicas that may be asked for something of so many tokens; not the busy ones."""
        return [
            (member, offered)
            for member, offered in self.fleet.offers(self.name, self.sort)
            if member.here and member.id not in busy and offered.facts.context >= need
        ]

    async def choose(self, prompt: Routed, need: int, busy: Collection[str]) -> tuple[Member, Offered]:
        """The replica that would answer soonest; waited for where there is none. On the event loop."""
        try:
            async with asyncio.timeout(WAIT_S):
                while not (found := self.others(need, busy)):
                    await self.fleet.changed.wait()
        except TimeoutError:
            raise nobody(self.name) from None
        by_id = {member.id: (member, offered) for member, offered in found}
        ids = candidates(by_id, prompt, random.choice)
        return by_id[min(ids, key=lambda id_: cost_s(by_id[id_][1].standing, prompt))]

    def render(
        self, messages: Iterable[Message], *, tools: Iterable[Mapping[str, Any]] = (), think: bool | None = None
    ) -> str:
        return self.prompter.render(request_of({"think": think, "tools": tools}, messages=messages))

    def tokenize(self, text: str, *, special: bool = True, bos: bool | None = None) -> list[int]:
        return self.prompter.encode(text, special=special, bos=bos)

    def detokenize(self, ids: Iterable[int]) -> str:
        return self.prompter.decode(ids)

    def figures(self) -> Figures:
        """What the replicas have reported, all together."""
        loads = [offered.load for _, offered in self.fleet.offers(self.name, self.sort)]
        return Figures(
            tally=Tally(steps=sum(load.steps for load in loads)),
            running=sum(load.running for load in loads),
            waiting=sum(load.waiting for load in loads),
            pages=sum(load.pages for load in loads),
            pool_bytes=sum(load.pool_bytes for load in loads),
            free=sum(load.free for load in loads),
            idle=sum(load.idle for load in loads),
            evictions=sum(load.evictions for load in loads),
            missing=sum(load.missing for load in loads),
            prompt_rate=sum(load.prompt_rate for load in loads),
        )

    def close(self) -> None:
        self._closed = True
        with suppress(RuntimeError):  # the loop has ended, and everything with it
            self.fleet.loop.call_soon_threadsafe(self._end)

    def _end(self) -> None:
        for answer in list(self._answers):
            answer.cancel()
