"""From the file of a model to what an engine computes with: packed weights, vocabulary, template; and their sizes."""

from __future__ import annotations

import os
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from hashlib import blake2b
from pathlib import Path

from woolly import gguf, model, plan, store, system, text
from woolly.device import cpu
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
    runner: cpu.Runner
    tokenizer: text.Tokenizer | None
    template: text.ChatTemplate | None
    card: Card
    info: Info
    adapters: Adapters
    files: tuple[tuple[Path, os.stat_result], ...]  # as they were when they were opened
    states: bytes  # what the state of equal tokens depends on other than the files
    numerics_id: str  # names the arithmetic: equal requests to equal files have equal answers where it is equal
    per_token: bool  # the model gives an embedding for each token, because its file names no pooling


def load(
    path: Path,
    context: int | None,
    threads: int,
    *,
    kv: str,
    exact: bool,
    batch: int,
    sequences: int,
    cache: int | None,
    lora: tuple[store.AdapterFile, ...],
    tokenizer: bool,
    progress: Progress | None = None,
) -> Loaded:
    """From a file to a runner, by the checks of `examine.check` in the same order.

    What does not fit is refused before anything is allocated. Leaving the `with` block checks that the file is still
    the one that was opened.
    """
    with gguf.open(path) as file:
        graph, card = model.build(file, context), read_card(file, store.name_of(path))
        adapters = [read_adapter(each, graph, file) for each in lora]
        largest = plan.bounds(graph, context or graph.meta.context, rows=batch, sequences=sequences)
        program = plan.plan(graph, plan.CPU, largest, kv=kv, exact=exact, adapters=adapters)
        budget = plan.fit(program, system.memory(), asked=context is not None, cache=cache)
        if budget.context != largest.context:
            graph = model.build(file, budget.context)
            largest = plan.bounds(graph, budget.context, rows=batch, sequences=sequences)
            program = plan.plan(graph, plan.CPU, largest, kv=kv, exact=exact, adapters=adapters)
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
            runner = cpu.Runner(
                program,
                file,
                threads=threads,
                pages=budget.pages,
                slots=budget.slots,
                snapshots=budget.snapshots,
                progress=progress,
            )
            words, template = reading.result() if reading is not None else (None, None)
        info = Info(
            context=budget.context,
            threads=threads,
            isa=cpu.ISA,
            kv=kv if graph.meta.causal else "f32",
            exact=exact,
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
        files = tuple((part.path, part.source.facts) for part in file.parts)
    tables = [place.table for place in program.tables]
    way = (model.NUMERICS_VERSION, kv, exact, program.target.page, program.groups, program.slot_bytes, tables)
    scales, per_token = [each.scale for each in lora], graph.meta.pooling() == "none"
    states = repr(way).encode()
    numerics_id = _numerics_id(states, adapters)
    return Loaded(
        runner, words, template, card, info, Adapters(adapters, scales), files, states, numerics_id, per_token
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


def check_draft(path: Path, target: Path) -> None:
    """Refuse a model that cannot guess for another one."""
    with gguf.open(target) as file, gguf.open(path) as other:
        card, draft = read_card(file, store.name_of(target)), read_card(other, store.name_of(path))
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


def load_draft(path: Path, target: Loaded) -> cpu.Runner:
    """The runner of a model that guesses for one that is loaded already, with pages for one whole context."""
    if target.runner.slots:
        raise _cannot_go_back(target.card, "load it without a draft")
    info = target.info
    with gguf.open(path) as file:
        context = min(info.context, read_card(file).context)
    draft = load(
        path,
        context,
        info.threads,
        kv=info.kv,
        exact=info.exact,
        batch=plan.ROWS,
        sequences=1,
        cache=None,
        lora=(),
        tokenizer=False,
    )
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
