"""The library: a model you can talk to.

    from woolly import LLM

    with LLM("smollm2") as llm:
        print(llm.generate("Once upon a time", max_tokens=20).text)
        for event in llm.chat_stream([{"role": "user", "content": "Hi"}]): ...

Callers' threads render, tokenise and check; the engine thread computes. An LLM may be used from several threads.
"""

from __future__ import annotations

import logging
import os
import weakref
from collections.abc import Iterable, Mapping
from contextlib import suppress
from dataclasses import replace
from functools import partial
from threading import Thread
from types import TracebackType
from typing import Any, Self, Unpack

import numpy as np
from numpy.typing import NDArray

from woolly import gguf, store, text
from woolly.config import EngineArguments, EngineOptions, engine_options, read_config
from woolly.device import DEFAULT_DEVICE
from woolly.engine import (
    DiskStore,
    Engine,
    Figures,
    ModelDiskStore,
    Scores,
    Sequence,
    Stream,
    name_of,
)
from woolly.errors import ContextError, NativeError, RequestError
from woolly.examine import beyond_training
from woolly.llm.encoder import Encoder, Pooled, text_output
from woolly.llm.loading import Loaded, load
from woolly.llm.prompter import NONE, Prepared, Prompter
from woolly.request import (
    NOBODY,
    Completion,
    Options,
    Request,
    Scalar,
    SubmitOptions,
    complete,
    read_variables,
    request_of,
)
from woolly.request.messages import Message
from woolly.store import Progress
from woolly.system import user_path

_log = logging.getLogger("woolly")
OPEN_S = (
    0.2  # to wait for the disk store: enough where the digest of the file is known; else a thread makes it meanwhile
)
DRAFTS = ("text", "off")  # values of `draft` that name no model


class LLM:
    """A model, loaded and ready.

    llm = LLM("smollm2")                  # a name, or the path of a .gguf file
    llm.generate("Once", max_tokens=20).text
    llm.close()                           # or use it in a `with`

    context: the most tokens of prompt and answer; None is the model's own, or as much of it as memory allows.
    threads: None is what this process may really use; more than can run at the same time are not started.
    kv: type of the keys and values kept: "f32", "f16" or "q8"; None is f16, with `exact` f32.
    exact: products with quantised weights take integers of 16 bits in place of 8, so that answers are those of the
    file's own numbers; it takes longer.
    batch: the most tokens of one step. sequences: the most answers that are computed in one step.
    cache: bytes of the cache pages that all answers share; None is a whole context for each sequence, as far as a
    quarter of the free memory goes. cache_dir: a folder that keeps what was computed for the beginnings of prompts, at
    most `disk_bytes` of it, so that it is not computed again after a restart; None keeps nothing. None of these, nor
    threads, changes any result.
    lora: adapters to load beside it, each a path, or "FILE=SCALE" (1 without one); a mapping gives them names, else
    those of their files. Answers have them by these scales, and `lora=` of a request by others: {"pirate": 0.5}, or {}.
    draft: what guesses the next tokens of answers, so that some steps bring several: a smaller model of the same
    vocabulary, by its name or path, "text" for what the text itself says again, or "off". No answer changes.
    thinking: whether a model whose template has a switch for it thinks first in chats that do not say: "on", "off", or
    "template", as the template has it. chat_template_kwargs: other variables of its template, for the same chats.
    tokenizer: False loads a model whose tokenizer is unknown, for token ids alone.
    options: all of these as one value, as the settings have them; what is given beside it counts instead.
    progress: called with the bytes of weights that are loaded and those of all, every now and then.
    """

    def __init__(
        self,
        name_or_path: str | os.PathLike[str],
        *,
        options: EngineOptions | None = None,
        progress: Progress | None = None,
        **arguments: Unpack[EngineArguments],
    ) -> None:
        options = engine_options(arguments, options)
        variables = read_variables(options.chat_template_kwargs)
        config = read_config()
        path = store.resolve(name_or_path, config=config)
        draft = None if options.draft in DRAFTS else store.resolve(options.draft, config=config)
        loaded = load(
            path, options, store.adapter_files(options.lora), device=DEFAULT_DEVICE, draft=draft, progress=progress
        )
        if warning := beyond_training(loaded.card, loaded.info.context):
            _log.warning("woolly: %s", warning)
        self.adapters = loaded.adapters
        self.card, self.info = loaded.card, loaded.info
        self.numerics_id = loaded.numerics_id
        self.prompter = Prompter(
            self.card,
            self.info.context,
            loaded.tokenizer,
            loaded.template,
            thinking=options.thinking,
            variables=variables,
        )
        disk_store = _disk_store(options)
        drafts = options.draft != "off"
        self._engine = Engine(loaded.runner, disk_store=disk_store, drafts=drafts, draft_runner=loaded.draft)
        self.encoder = _encoder(loaded, self._engine)
        self._engine.start()
        self._end = weakref.finalize(self, self._engine.close)  # also when the LLM is collected, or Python ends
        if disk_store is not None:
            opening = Thread(target=_open_disk_store, args=(disk_store, loaded), name="woolly-disk-open", daemon=True)
            opening.start()
            opening.join(OPEN_S)

    def generate(self, prompt: str | Iterable[int], **options: Unpack[Options]) -> Completion:
        """Continue a text, or token ids as they are.

        llm.generate("2 + 2 =", max_tokens=3, temperature=0).text
        """
        return complete(self.stream(prompt, **options))

    def stream(self, prompt: str | Iterable[int], **options: Unpack[Options]) -> Stream:
        """As `generate`, but as events while they happen; leaving the loop ends the work.

        for event in llm.stream("Once"):
            if isinstance(event, Text): print(event.text, end="")
        """
        if isinstance(prompt, str):
            return self.submit(_request(options, prompt=prompt))
        return self.submit(_request(options, tokens=_ids(prompt)))

    def chat(self, messages: Iterable[Message], **options: Unpack[Options]) -> Completion:
        """Answer a conversation by the model's chat template.

        llm.chat([{"role": "user", "content": "What is wool?"}]).text
        """
        return complete(self.chat_stream(messages, **options))

    def chat_stream(self, messages: Iterable[Message], **options: Unpack[Options]) -> Stream:
        """As `chat`, but as events while they happen; leaving the loop ends the work."""
        return self.submit(_request(options, messages=messages))

    def render(
        self,
        messages: Iterable[Message],
        *,
        tools: Iterable[Mapping[str, Any]] = (),
        think: bool | None = None,
        chat_template_kwargs: Mapping[str, Scalar] = NONE,
        add_generation_prompt: bool = True,
    ) -> str:
        """The prompt that the chat template writes for a conversation, as text. add_generation_prompt: with the
        beginning of an answer.

        print(llm.render([{"role": "user", "content": "Hello"}]))
        """
        options: Options = {"think": think, "tools": tools, "chat_template_kwargs": chat_template_kwargs}
        request = _request(options, messages=messages)
        return self.prompter.render(request, add_generation_prompt=add_generation_prompt)

    def prepare(self, request: Request) -> Prepared:
        """Render, tokenise and check the prompt of a request: once, however many answers to it are wanted."""
        self.encoder.need("logits")
        return self.prompter.prepare(request)

    def submit(self, request: Request | Prepared, options: SubmitOptions = NOBODY) -> Stream:
        """Begin to answer a request. What cannot be answered is refused here, before any work.

        In a chat the model's thoughts and its answer are told apart.
        """
        prepared = request if isinstance(request, Prepared) else self.prepare(request)
        answer, lora = self.prompter.answer_options(prepared), self.adapters.chosen(prepared.request.lora)
        sequence = Sequence(
            prepared.ids,
            limit=len(prepared.ids) + prepared.max_tokens,
            answer=answer,
            options=replace(options, salt=self.adapters.salt(options.salt, lora)),
            lora=lora,
        )
        stream = self._engine.add(sequence, self.prompter.reader(prepared))
        stream.owner, stream.notes = self, prepared.notes
        return stream

    def embed(
        self,
        inputs: str | Iterable[str | Iterable[int]],
        *,
        normalize: bool = True,
        dimensions: int | None = None,
        truncate: bool = False,
    ) -> NDArray[np.float32] | list[NDArray[np.float32]]:
        """The embeddings of texts, or of token ids as they are, in their order: float32 [inputs, width]; a list of
        [tokens, width] where the model's file names no pooling.

        llm.embed(["A cat sits.", "A dog runs."]) @ llm.embed("cats")[0]      # how near each is

        normalize: each row has length 1. dimensions: only so many of the first numbers, for models made for that.
        truncate: a text that is longer than the context is cut, not refused.
        """
        texts = self.encoder.texts(inputs, truncate=truncate)
        self.encoder.check_dimensions(dimensions)
        shaped = partial(self.encoder.shaped, normalize=normalize, dimensions=dimensions)
        rows = [shaped(pooled) for pooled in self.encoder.all(texts)]
        if self.encoder.per_token:
            return rows
        return np.concatenate([shaped(np.empty((0, self.encoder.width), np.float32)), *rows])

    def rerank(self, query: str, documents: Iterable[str], *, truncate: bool = False) -> NDArray[np.float32]:
        """How well each document answers the query, by a model made for that: float32 [documents], from 0 to 1.

        llm.rerank("What is a panda?", ["A bear of China.", "A colour."]).argsort()[::-1]      # the best first
        """
        pairs = self.encoder.pairs(query, documents, truncate=truncate)
        return np.array([self.encoder.relevance(rows) for rows in self.encoder.all(pairs)], np.float32)

    def logits(self, ids: Iterable[int], *, lora: Mapping[str | int, float] | None = None) -> NDArray[np.float32]:
        """The logits after each token, float32 [tokens, vocab]; lora: the adapters that count.

        llm.logits(llm.tokenize("Once upon a")).argmax(-1)      # what the model would say at each place
        """
        self.encoder.need("logits")
        request = _request({"lora": lora}, tokens=_ids(ids))
        tokens, scales = request.tokens or (), self.adapters.chosen(request.lora)
        self.prompter.check(tokens)
        scores = np.empty((len(tokens), self.card.vocab), np.float32)
        if not tokens:
            return scores
        if len(tokens) > self.info.context:
            raise ContextError(len(tokens), self.info.context)
        options = SubmitOptions(self.adapters.salt(b"", scales))
        sequence = Sequence(tokens, limit=len(tokens), options=options, lora=scales, scores=Scores(scores))
        return Pooled(scores, self._engine.add(sequence)).wait()

    def tokenize(self, text: str, *, special: bool = True, bos: bool | None = None) -> list[int]:
        """The ids of a text. special: texts of control tokens become these tokens. bos: None is the file's rule."""
        return self.prompter.encode(text, special=special, bos=bos)

    def detokenize(self, ids: Iterable[int]) -> str:
        """The text of ids; control tokens have none, except for the marks of thoughts."""
        return self.prompter.decode(ids)

    def figures(self) -> Figures:
        """What the engine has counted and timed, and what it is doing now."""
        return self._engine.figures()

    @property
    def broken(self) -> NativeError | None:
        """Why the model answers nothing more, once its steps have failed or hung; None while all is well."""
        return self._engine.broken

    @property
    def engine(self) -> Engine:
        """The engine of this model, for measurements: its tally, its pages, its runner between steps."""
        return self._engine

    def close(self) -> None:
        """Stop what is running and give the memory back. Safe to call twice."""
        self._end()

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()

    def __repr__(self) -> str:
        card, i = self.card, self.info
        mode = ", exact" if i.exact else ""
        return f"<LLM {card.name}: {card.architecture}, context {i.context:,}, {i.threads} threads, {i.isa}{mode}>"


class Tokenizer:
    """The tokenizer of a model, without the model; files that hold nothing else work too.

    Tokenizer("smollm2").encode("Hello")
    """

    def __init__(self, name_or_path: str | os.PathLike[str]) -> None:
        with gguf.open(store.resolve(name_or_path)) as file:
            self._tokenizer = text.Tokenizer(file.meta)

    def encode(self, text: str, *, special: bool = False, bos: bool | None = False) -> list[int]:
        """The ids of a text. special: texts of control tokens become these tokens. bos: None is the file's rule."""
        return self._tokenizer.encode(text, special=special, bos=bos)

    def decode(self, ids: Iterable[int]) -> str:
        """The text of ids; control tokens have none, except for the marks of thoughts."""
        return self._tokenizer.decode(ids)


def _encoder(loaded: Loaded, engine: Engine) -> Encoder:
    card, info = loaded.card, loaded.info
    return Encoder(
        engine=engine,
        adapters=loaded.adapters,
        tokenizer=loaded.tokenizer,
        name=card.name,
        gives=card.gives,
        width=loaded.runner.widths[text_output(card.gives)],
        per_token=loaded.per_token,
        labels=card.labels,
        context=info.context,
        vocab=card.vocab,
        most=2 * info.sequences,
    )


def _disk_store(options: EngineOptions) -> ModelDiskStore | None:
    if options.cache_dir is None or not options.disk_bytes:
        return None
    return ModelDiskStore(DiskStore(user_path(options.cache_dir), options.disk_bytes))


def _open_disk_store(disk_store: ModelDiskStore, loaded: Loaded) -> None:
    """Open the folder, and find the digest of the model, whose pages alone may be used. In a thread."""
    with suppress(OSError):  # a file of the model is gone; the disk store logs what is wrong with its own folder
        if disk_store.disk_store.open():
            digest = store.cached_digest(loaded.files, disk_store.disk_store, lambda: not disk_store.closed)
            if digest is not None:
                disk_store.open(name_of(digest, loaded.states))


def _ids(ids: Iterable[int]) -> tuple[int, ...]:
    if isinstance(ids, bytes | Mapping) or not isinstance(ids, Iterable):
        raise RequestError(f"a prompt is text or token ids, not {type(ids).__name__}", param="prompt")
    return tuple(ids)


def _request(options: Options, **what: Any) -> Request:
    """A request from keyword arguments; an unknown name is a TypeError, as of any function."""
    unknown = options.keys() - Options.__annotations__.keys()
    if unknown:
        raise TypeError(f"unknown option '{min(unknown)}'; known are {', '.join(Options.__annotations__)}")
    return request_of(options, **what)
