"""A report on a file: what it is, for people and programs, and what it will cost to run."""

from __future__ import annotations

from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import Any

from woolly import gguf, plan, system, text
from woolly.device import DEFAULT_DEVICE
from woolly.errors import BusyError, printable
from woolly.examine.abilities import abilities
from woolly.examine.card import Card
from woolly.examine.verdict import check

CONTEXTS = (512, 2_048, 8_192, 32_768, 131_072)  # contexts whose cost is reported, and the model's own
NO_LIMIT = 1 << 62


@dataclass(frozen=True, slots=True)
class TokenizerSummary:
    """The tokenizer. begin, ends: texts of tokens; begin is "" where none is put in front."""

    model: str
    pre: str
    tokens: int
    control: int
    begin: str
    ends: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class Need:
    """Bytes that a model takes with a context of `context` tokens."""

    context: int
    weights: int
    cache: int
    work: int
    total: int


@dataclass(frozen=True, slots=True)
class ModelReport:
    """A file that passed its checks. Sizes are bytes. `quick`: the weights were not read, so they may be wrong."""

    card: Card
    tokenizer: TokenizerSummary
    memory: tuple[Need, ...]
    token_bytes: int  # of the weights that a token reads: of experts those it chooses
    free: int  # memory that this process may still take
    largest: int  # the largest context that fits into `free`, with a tenth to spare; 0 where not even 1,024 does
    pool: int  # of the cache pages that all answers share, by default; 0 where they do not fit
    warnings: tuple[str, ...]
    quick: bool
    kv: str  # the cache type that memory was computed for
    exact: bool  # whether memory was computed for 16-bit activations


def report(
    path: Path, *, name: str = "", quick: bool = False, render: bool | None = None, kv: str = "f16", exact: bool = False
) -> ModelReport:
    """Everything there is to tell about a file; the error of `check` if it is not right.

    name: that the model goes by.
    quick: the weights are not read, nor is the template rendered unless `render` says so.
    kv, exact: how it would be loaded, for the memory that it takes.
    """
    with gguf.open(path) as file:
        checked = check(file, name=name, weights=not quick)
        card = checked.card
        if checked.template is not None and (render or not quick):
            card = replace(card, template=abilities(checked.template))
        programs = [
            plan.plan(checked.graph, DEFAULT_DEVICE.target, plan.bounds(checked.graph, context), kv=kv, exact=exact)
            for context in _contexts(card.context)
        ]
        free = system.memory()
        return ModelReport(
            card=card,
            tokenizer=_words(checked.tokenizer, file),
            memory=tuple(map(_need, programs)),
            token_bytes=programs[-1].token_bytes,
            free=free,
            largest=_largest(programs[-1], free),
            pool=_pool(programs[-1], free),
            warnings=tuple(_warnings(file, card.vocab)),
            quick=quick,
            kv=kv,
            exact=exact,
        )


def report_data(report: ModelReport) -> dict[str, Any]:
    """A report for JSON: the card's facts and the others side by side."""
    data = asdict(report)
    return {**data.pop("card"), "path": str(report.card.path), **data}


def _contexts(largest: int) -> list[int]:
    return [*(context for context in CONTEXTS if context < largest), largest]


def _need(program: plan.Program) -> Need:
    budget = plan.fit(program, NO_LIMIT, asked=True)
    return Need(budget.context, budget.weights, budget.cache, budget.work, budget.total)


def _largest(program: plan.Program, free: int) -> int:
    """The largest context that fits into `free` bytes: the model's own, or the one that its refusal names."""
    try:
        return plan.fit(program, free, asked=True).context
    except BusyError as error:
        largest = error.facts["largest_context"]
        assert isinstance(largest, int)
        return largest


def _pool(program: plan.Program, free: int) -> int:
    try:
        return plan.fit(program, free, asked=False).pool
    except BusyError:
        return 0


def _words(words: text.Tokenizer, file: gguf.GgufFile) -> TokenizerSummary:
    begins = words.add_bos and words.bos is not None
    return TokenizerSummary(
        model=words.model,
        pre=printable(file.meta.get("tokenizer.ggml.pre", "")),
        tokens=words.vocab,
        control=len(words.control),
        begin=printable(words.text_of(words.bos)) if begins and words.bos is not None else "",
        ends=tuple(printable(words.text_of(token)) for token in sorted(words.ends)),
    )


def _warnings(file: gguf.GgufFile, vocab: int) -> list[str]:
    """What is odd about a file and changes no answer."""
    warnings = []
    padding = file.meta.get("tokenizer.ggml.padding_token_id")
    if isinstance(padding, int) and padding != 2**32 - 1 and not 0 <= padding < vocab:
        warnings.append(
            f"tokenizer.ggml.padding_token_id is {padding}, but there are {vocab:,} tokens; it is never used"
        )
    return warnings
