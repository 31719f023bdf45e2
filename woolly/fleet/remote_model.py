"""A model whose answers come from a fleet: to the server what an `LLM` is, without the weights.

It renders, tokenises and checks as an `LLM` does, from the header of the file, and draws a seed where a request has
none. A `RemoteAnswer` (remote_answer.py) then puts the events of replicas into a stream, as the engine would.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from contextlib import suppress
from pathlib import Path
from typing import Any

import msgspec

from woolly import gguf, model, store, text
from woolly.config import Config
from woolly.engine import Adapters, Figures, Stream, page_names
from woolly.engine.tally import Tally
from woolly.errors import BusyError, RequestError
from woolly.examine import read_card, read_text
from woolly.fleet.choosing import ModelReplicas
from woolly.fleet.members import Fleet, no_replica
from woolly.fleet.remote_answer import RemoteAnswer
from woolly.fleet.remote_encoder import RemotePool
from woolly.fleet.reports import NAME, ModelInfo
from woolly.fleet.routing import Prompt as RoutedPrompt
from woolly.fleet.routing import keys_of
from woolly.fleet.wire import remote_request_of
from woolly.llm.encoder import Encoder
from woolly.llm.loading import Info
from woolly.llm.prompter import NONE, Prepared, Prompter, drawn_seed
from woolly.request import NOBODY, Request, Scalar, SubmitOptions, request_of
from woolly.request.messages import Message


class RemoteModel:
    """One model of a gateway. Its public methods may be called from any thread."""

    broken = None  # a replica that is broken reports so itself

    def __init__(self, fleet: Fleet, name: str, path: Path, info: ModelInfo, config: Config) -> None:
        self.fleet = fleet
        self.name = name
        self._remote = info
        self.numerics_id = info.numerics_id
        try:
            self.info = msgspec.convert(info.info, Info)
        except msgspec.ValidationError:
            raise RequestError("a replica of another version reports facts that this one does not know") from None
        with gguf.open(path) as file:
            self.card = read_card(file, name)
            if "tokenizer.chat_template" in file.meta:
                text.start_renderer()
            words, template = read_text(file, model.build(file, self.info.context))
        self._replicas = ModelReplicas(fleet, name, info, self.card.vocab)
        self.prompter = Prompter(
            self.card,
            self.info.context,
            words,
            template,
            thinking=config.engine.thinking,
            variables=config.engine.chat_template_kwargs,
        )
        loaded = [model.Adapter(one.name, {}, one.digest, one.file) for one in info.adapters]
        self.adapters = Adapters(loaded, [one.scale for one in info.adapters])
        self.encoder = Encoder(
            engine=RemotePool(self._replicas),
            tokenizer=words,
            adapters=self.adapters,
            name=self.card.name,
            gives=self.card.gives,
            width=info.width,
            per_token=info.per_token,
            labels=self.card.labels,
            context=self.info.context,
            vocab=self.card.vocab,
            most=2 * self.info.sequences,
        )
        self._answers: set[RemoteAnswer] = set()
        self._closed = False

    def prepare(self, request: Request) -> Prepared:
        self.encoder.need("logits")
        return self.prompter.prepare(request)

    def submit(self, request: Request | Prepared, options: SubmitOptions = NOBODY) -> Stream:
        """Begin to answer a request, as `LLM.submit` does."""
        prepared = request if isinstance(request, Prepared) else self.prepare(request)
        if self._closed:
            raise BusyError("the model is closed", suggestion="load it again")
        request = prepared.request
        seed = drawn_seed() if request.sampling.seed is None else request.sampling.seed
        scales = self.adapters.chosen(request.lora)
        remote = remote_request_of(
            prepared,
            seed,
            prompter=self.prompter,
            model=self._remote.name,
            digest=self._remote.digest,
            numerics_id=self._remote.numerics_id,
            lora=[] if scales is None else scales.tolist(),
            salt=options.salt,
            key=options.key,
            protect_s=options.protect_s,
        )
        salted = self.adapters.salt(options.salt, scales)
        names = [name[:NAME] for name in page_names(salted, prepared.ids, self._remote.page)]
        prompt = RoutedPrompt(*keys_of(request, options.salt), len(prepared.ids), self._remote.page, names)
        answer = RemoteAnswer(self._replicas, remote, prompt, len(prepared.ids))
        stream = Stream(answer.cancel, answer.resume, self.prompter.reader(prepared))
        stream.most, stream.owner, stream.notes = options.unread, self, prepared.notes
        answer.stream = stream
        self.fleet.loop.call_soon_threadsafe(self._begin, answer)
        return stream

    def _begin(self, answer: RemoteAnswer) -> None:
        self._answers.add(answer)
        answer.start().add_done_callback(lambda _: self._answers.discard(answer))

    def render(
        self,
        messages: Iterable[Message],
        *,
        tools: Iterable[Mapping[str, Any]] = (),
        chat_template_kwargs: Mapping[str, Scalar] = NONE,
        add_generation_prompt: bool = True,
    ) -> str:
        request = request_of({"tools": tools, "chat_template_kwargs": chat_template_kwargs}, messages=messages)
        return self.prompter.render(request, add_generation_prompt=add_generation_prompt)

    def tokenize(self, text: str, *, special: bool = True, bos: bool | None = None) -> list[int]:
        return self.prompter.encode(text, special=special, bos=bos)

    def detokenize(self, ids: Iterable[int]) -> str:
        return self.prompter.decode(ids)

    def figures(self) -> Figures:
        """What the replicas have reported, all together."""
        reports = [offered.reported for offered in self._replicas.offers()]
        return Figures(
            tally=Tally(steps=sum(report.steps for report in reports)),
            running=sum(report.running for report in reports),
            waiting=sum(report.waiting for report in reports),
            pages=sum(report.pages for report in reports),
            pool_bytes=sum(report.pool_bytes for report in reports),
            free=sum(report.free for report in reports),
            idle=sum(report.idle for report in reports),
            evictions=sum(report.evictions for report in reports),
            missing=sum(report.missing for report in reports),
            prompt_rate=sum(report.prompt_rate for report in reports),
        )

    def close(self) -> None:
        self._closed = True
        with suppress(RuntimeError):  # the loop has ended, and everything with it
            self.fleet.loop.call_soon_threadsafe(self._end)

    def _end(self) -> None:
        for answer in list(self._answers):
            answer.cancel()


def load(fleet: Fleet, path: Path, config: Config) -> RemoteModel:
    """The model of a header that the fleet has fetched."""
    name = store.identity(path)
    for _, offered in fleet.offers(name, fleet.versions[name]):
        return RemoteModel(fleet, name, path, offered.info, config)
    raise no_replica(name)
