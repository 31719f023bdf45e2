"""From the file of a model to what an engine computes with: packed weights, vocabulary, template; and their sizes."""

from __future__ import annotations

import os
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, replace
from hashlib import blake2b
from pathlib import Path

from woolly import gguf, model, plan, store, system, text
from woolly.config import EngineOptions
from woolly.device import Device, Runner
from woolly.engine import Adapters
from woolly.errors import RequestError
from woolly.examine import Card, read_card, read_text
from woolly.store import Progress
from woolly.version import __version__

WORDS = 4096  # bytes for each word of a vocabulary while it is read, at the most
FLOATS = frozenset(("plain", "f32", "f16", "bf16"))  # layouts; formats have these names in capitals


@dataclass(frozen=True, slots=True)
class Info:
    """How a model was loaded. Sizes are bytes."""

    context: int  # the most tokens of prompt and answer together
    threads: int
    isa: str
    kv: str
    exact: bool
    batch: int  # the most tokens of one step
    sequences: int  # the most sequences of one step
    weights: int
    cache: int  # of a sequence that fills the context
    pool: int  # of the cache pages that all sequences share
    work: int
    kv_bytes_per_token: int
    read_bytes_per_token: int  # of the weights
    dequantized: int  # of the weights, those that are quantised in the file and floats in memory


@dataclass(frozen=True, slots=True)
class Loaded:
    runner: Runner
    tokenizer: text.Tokenizer | None
    template: text.ChatTemplate | None
    card: Card
    info: Info
    adapters: Adapters
    files: tuple[tuple[Path, os.stat_result], ...]  # as they were when they were opened
    states: bytes  # what the state of equal tokens depends on other than the files
    numerics_id: str  # names the arithmetic: equal requests to equal files have equal answers where it is equal
    per_token: bool  # the model gives an embedding for each token, because its file names no pooling
    draft: Runner | None = None  # of a model that guesses for it


def load(
    path: Path,
    options: EngineOptions,
    lora: tuple[store.AdapterFile, ...] = (),
    *,
    device: Device,
    draft: Path | None = None,
    progress: Progress | None = None,
) -> Loaded:
    """From a file to a runner; with a draft, from two files to two. Each is opened once.

    Leaving the `with` blocks checks that the files are still those that were opened.
    """
    with gguf.open(path) as file:
        if draft is None:
            return _load(file, options, lora, device, progress)
        with gguf.open(draft) as other:
            _check_draft(other, file)
            loaded = _load(file, options, lora, device, progress)
            try:
                return replace(loaded, draft=_load_draft(other, loaded, device))
            except BaseException:
                loaded.runner.close()
                raise


def _load(
    file: gguf.GgufFile,
    options: EngineOptions,
    lora: tuple[store.AdapterFile, ...],
    device: Device,
    progress: Progress | None,
) -> Loaded:
    """By the checks of `examine.check` in the same order. What does not fit is refused before anything is allocated."""
    graph, card = model.build(file, options.context), read_card(file, store.name_of(file.path))
    adapters = [read_adapter(each, graph, file) for each in lora]
    graph, program, budget = _plan(file, graph, options, adapters, device)
    threads, tokenizer = system.threads(options.threads), options.tokenizer
    if tokenizer and "tokenizer.chat_template" in file.meta:
        text.start_renderer()  # it takes a while to come up, and the weights take longer
    # Reading the vocabulary and packing the weights each take a while, and do not need each other. Where memory is
    # short they follow each other: the vocabulary looks for its room, and would not find it where weights take it.
    room = budget.weights + budget.pool + budget.work + WORDS * graph.meta.vocab
    system.check_thread()
    with ThreadPoolExecutor(1) as executor:
        reading = executor.submit(read_text, file, graph) if tokenizer else None
        if reading is not None and not system.has_room(room):
            reading.result()
        runner = device.runner(
            program,
            file,
            threads=threads,
            pages=budget.pages,
            slots=budget.slots,
            snapshots=budget.snapshots,
            progress=progress,
        )
        words, template = reading.result() if reading is not None else (None, None)
    tables = [place.table for place in program.tables]
    way = (
        model.NUMERICS_VERSION,
        options.kv,
        options.exact,
        program.target.page,
        program.groups,
        program.slot_bytes,
        tables,
    )
    states = repr(way).encode()
    return Loaded(
        runner=runner,
        tokenizer=words,
        template=template,
        card=card,
        info=_info(file, graph, options, program, budget, runner, threads),
        adapters=Adapters(adapters, [each.scale for each in lora]),
        files=tuple((part.path, part.source.facts) for part in file.parts),
        states=states,
        numerics_id=_numerics_id(states, adapters),
        per_token=graph.meta.pooling() == "none",
    )


def _plan(
    file: gguf.GgufFile, graph: model.Graph, options: EngineOptions, adapters: list[model.Adapter], device: Device
) -> tuple[model.Graph, plan.Program, plan.Budget]:
    """What is computed, and the memory that it takes; once more where the context had to be lowered."""

    def planned(graph: model.Graph, context: int) -> tuple[plan.Bounds, plan.Program]:
        largest = plan.bounds(graph, context, rows=options.batch, sequences=options.sequences)
        return largest, plan.plan(graph, device.target, largest, kv=options.kv, exact=options.exact, adapters=adapters)

    largest, program = planned(graph, options.context or graph.meta.context)
    budget = plan.fit(program, device.memory(), asked=options.context is not None, cache=options.cache)
    if budget.context != largest.context:
        graph = model.build(file, budget.context)
        _, program = planned(graph, budget.context)
    return graph, program, budget


def _info(
    file: gguf.GgufFile,
    graph: model.Graph,
    options: EngineOptions,
    program: plan.Program,
    budget: plan.Budget,
    runner: Runner,
    threads: int,
) -> Info:
    return Info(
        context=budget.context,
        threads=threads,
        isa=runner.isa,
        kv=options.kv if graph.meta.causal else "f32",
        exact=options.exact,
        batch=runner.rows,
        sequences=runner.sequences,
        weights=budget.weights,
        cache=budget.cache,
        pool=budget.pool,
        work=budget.work,
        kv_bytes_per_token=program.page_bytes // program.target.page,
        read_bytes_per_token=program.token_bytes,
        dequantized=_dequantized(program, file),
    )


def read_adapter(adapter: store.AdapterFile, graph: model.Graph, base: gguf.GgufFile) -> model.Adapter:
    with gguf.open(adapter.path) as file:
        return model.read_adapter(file, adapter.name, graph, base)


def _numerics_id(states: bytes, adapters: list[model.Adapter]) -> str:
    """Names everything but the files that an answer depends on: processes with one id can resume each other's answers.

    The version of Woolly is part of it: how tokens become text is decided outside of the numerics.
    """
    digest = blake2b(states + repr([(each.name, each.digest) for each in adapters]).encode(), digest_size=8)
    return f"{__version__}-{model.NUMERICS_VERSION}-{digest.hexdigest()}"


def _check_draft(other: gguf.GgufFile, file: gguf.GgufFile) -> None:
    """Refuse a model that cannot guess for another one."""
    card, draft = read_card(file, store.name_of(file.path)), read_card(other, store.name_of(other.path))
    meta = model.build(other, None).meta
    if draft.gives != "logits":
        raise RequestError(
            f"{draft.name} does not continue texts, so it cannot guess what {card.name} will say",
            suggestion="name a smaller model of the same family as draft",
            param="draft",
        )
    tokens = "tokenizer.ggml.tokens"
    if meta.vocab != card.vocab or file.meta.get(tokens) != other.meta.get(tokens):
        raise RequestError(
            f"{draft.name} has another vocabulary than {card.name}, so it cannot guess what that will say",
            suggestion="name a smaller model of the same family as draft",
            param="draft",
        )


def _load_draft(other: gguf.GgufFile, target: Loaded, device: Device) -> Runner:
    """The runner of a model that guesses for one that is loaded already, with pages for one whole context."""
    if target.runner.slots:
        raise _cannot_go_back(target.card, "load it without a draft")
    info = target.info
    context = min(info.context, read_card(other).context)
    options = EngineOptions(
        context=context, threads=info.threads, kv=info.kv, exact=info.exact, sequences=1, tokenizer=False
    )
    draft = _load(other, options, (), device, None)
    if draft.runner.slots:
        draft.runner.close()
        raise _cannot_go_back(draft.card, "name another model as draft")
    return draft.runner


def _cannot_go_back(card: Card, suggestion: str) -> RequestError:
    return RequestError(
        f"{card.name} carries a state that cannot go back behind a wrong guess", suggestion=suggestion, param="draft"
    )


def _dequantized(program: plan.Program, file: gguf.GgufFile) -> int:
    """Bytes of weights that are quantised in the file and floats in memory."""
    return sum(
        order.nbytes
        for order in program.packs
        if order.layout in FLOATS
        and order.weight not in program.matrices
        and not {file.tensors[part.tensor].format.lower() for part in order.parts} <= FLOATS
    )
