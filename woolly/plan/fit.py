"""What a model needs, from the header alone: before anything is allocated, a model that does not fit is refused.

The largest step is decided here too: how many tokens, sequences and wanted outputs it may have.
"""

from __future__ import annotations

from dataclasses import dataclass, replace

from woolly.errors import BusyError, RequestError
from woolly.model import Graph
from woolly.plan.program import Bounds, Program

SHORT = 16  # tokens of a short text: a step of an encoder may hold as many short texts as fit into its rows
ROWS = 512  # the most tokens of one step, unless another number is asked for
SEQUENCES = 16  # that can be computed in one step, unless another number is asked for
LOGITS_BYTES = 16 << 20  # the room for wanted logits; longer texts are scored in chunks
STEP = 1024  # a default context is a multiple of it
SPARE = 1.1  # a tenth more than computed must be free
SNAPSHOT_BYTES = 512 << 20  # the room for snapshots of what sequences carry: two at least, at most one for each


@dataclass(frozen=True, slots=True)
class Budget:
    """Bytes a model will take with a context of `context` positions."""

    context: int
    weights: int
    cache: int  # of one sequence that fills the context: its pages, and what it carries
    work: int  # the work area of a step, the tables by position, and snapshots of what sequences carry
    pages: tuple[int, ...]  # of the pool, which all sequences share, by page group
    slots: int  # for what sequences carry
    snapshots: int  # slots for snapshots of what sequences carry
    pool: int  # bytes of these pages, and of the sequences' slots

    @property
    def total(self) -> int:
        """What the model takes with one sequence that fills the context."""
        return self.weights + self.cache + self.work


def bounds(graph: Graph, context: int, *, rows: int = ROWS, sequences: int = SEQUENCES) -> Bounds:
    """The largest step of a model with this context: every sequence in it can have the logits of its last token. A
    sequence that needs a single step fits into it; embeddings are small, so a step can give one for each row."""
    rows = max(rows, context) if graph.single_step else min(rows, context)
    if "logits" not in graph.outputs:
        return Bounds(rows, rows, max(sequences, rows // SHORT), context)
    wants = min(rows, max(sequences, LOGITS_BYTES // (4 * graph.meta.vocab)))
    return Bounds(rows, wants, sequences, context)


def fit(program: Program, available: int, *, asked: bool, cache: int | None = None) -> Budget:
    """The budget of a program on a machine that has `available` bytes.

    A context that was asked for fits or is refused with both numbers. A default one (`asked` is false) is lowered to
    the largest multiple of 1,024 whose cache takes at most half of what is free after the weights; where there is none,
    it is refused with the numbers of a context of 1,024.

    cache: bytes of the page pool. None: a whole context for each sequence, but beyond the first one at most a quarter
    of what is free.
    """
    budget = _budget(program, program.bounds.context)
    if cache is not None:
        return _with_pool(program, budget, available, cache, asked=asked)
    carried = program.slot_bytes * (1 + budget.snapshots)  # the same for every context
    free = available / SPARE - budget.weights - program.work_bytes - carried
    if budget.total * SPARE <= available:
        return _with_default_pool(program, budget, int(free))
    each = _budget(program, STEP).cache - program.slot_bytes + _table_bytes(program, STEP)
    largest = int(free / each) * STEP if free > 0 and each else 0
    if not asked:
        context = min(int(free / 2 / each) * STEP, budget.context) if free > 0 and each else 0
        if context >= STEP:
            return _with_default_pool(program, _budget(program, context), int(free))
        budget = _budget(program, min(STEP, budget.context))  # for the numbers of the refusal
    raise _too_large(budget, budget.total, available, largest)


def _with_default_pool(program: Program, budget: Budget, free: int) -> Budget:
    """A pool for all sequences of a step, as long as it takes no more than a quarter of what is free. Where a sequence
    needs a single step: for the rows of a step, and one page more for each sequence, as its last may not be full."""
    sequences = program.bounds.sequences
    if program.single_step:
        pages = -(-program.bounds.rows // program.target.page) + sequences
        return _pooled(program, budget, max(budget.cache, pages * program.page_bytes))
    most = min(sequences * budget.cache, free // 4)
    return _pooled(program, budget, max(budget.cache, most))


def _pooled(program: Program, budget: Budget, nbytes: int) -> Budget:
    """The budget with a pool of at most so many bytes, shared by the groups as one whole context is. Of the bytes
    beyond one context slots may take half, or all where there are no pages."""
    slots = _slots(program, budget, nbytes)
    context_bytes = budget.cache - program.slot_bytes  # of the pages of one context
    room = nbytes - slots * program.slot_bytes
    pages = tuple(count * room // context_bytes for count in budget.pages) if context_bytes else budget.pages
    pool = sum(count * group.page_bytes for count, group in zip(pages, program.groups, strict=True))
    return replace(budget, pages=pages, slots=slots, pool=pool + slots * program.slot_bytes)


def _slots(program: Program, budget: Budget, nbytes: int) -> int:
    if not program.slot_bytes:
        return 0
    more = (nbytes - budget.cache) // (2 if program.groups else 1)
    return min(program.bounds.sequences, 1 + max(more, 0) // program.slot_bytes)


def _room(program: Program, cache: int) -> int:
    """The most positions of one sequence that a pool of `cache` bytes holds."""
    cache -= program.slot_bytes
    windowed = sum(
        _group_pages(program, group.window, program.bounds.context) * group.page_bytes
        for group in program.groups
        if group.window
    )
    each = sum(group.page_bytes for group in program.groups if not group.window)
    if not each:
        return program.bounds.context if cache >= windowed else 0  # no state grows with the context
    return max(cache - windowed, 0) // each * program.target.page


def _with_pool(program: Program, budget: Budget, available: int, cache: int, *, asked: bool) -> Budget:
    """The budget with a pool of `cache` bytes; a default context is lowered to what the pool holds."""
    room = _room(program, cache)
    if room < 1 or (asked and room < budget.context):
        raise RequestError(
            f"a cache of {cache:,} bytes holds {room:,} tokens, "
            f"but a context of {budget.context:,} takes {budget.cache:,} bytes",
            suggestion="give a larger cache or a smaller context",
            param="cache",
        )
    if room < budget.context:
        budget = _budget(program, room)
    budget = _pooled(program, budget, max(cache, budget.cache))
    needed = budget.weights + budget.pool + budget.work
    if needed * SPARE > available:
        raise _too_large(budget, needed, available, 0)
    return budget


def _too_large(budget: Budget, needed: int, available: int, largest: int) -> BusyError:
    context_help = f"; a context of {largest:,} would fit" if largest >= STEP else ""
    return BusyError(
        f"not enough memory: with a context of {budget.context:,} the model needs {gib(needed * SPARE)}, "
        f"{gib(available)} are free",
        suggestion="free some memory, or use a smaller model or context" + context_help,
        code="not_enough_memory",
        needed=int(needed * SPARE),
        available=available,
        largest_context=largest,
    )


def _budget(program: Program, context: int) -> Budget:
    """The budget with a pool for one sequence."""
    pages = tuple(_group_pages(program, group.window, context) for group in program.groups)
    cache = sum(count * group.page_bytes for count, group in zip(pages, program.groups, strict=True))
    cache += program.slot_bytes
    slots, snapshots = (1, _snapshots(program)) if program.slot_bytes else (0, 0)
    work = program.work_bytes + _table_bytes(program, context) + snapshots * program.slot_bytes
    return Budget(context, program.weight_bytes, cache, work, pages, slots, snapshots, cache)


def _snapshots(program: Program) -> int:
    return min(max(SNAPSHOT_BYTES // program.slot_bytes, 2), max(program.bounds.sequences, 2))


def _group_pages(program: Program, window: int, context: int) -> int:
    """Pages that one sequence needs: with a window for it and a step's rows, and one as it may begin inside a page."""
    full = -(-context // program.target.page)
    if not window:
        return full
    return min(full, -(-(window + program.bounds.rows) // program.target.page) + 1)


def _table_bytes(program: Program, context: int) -> int:
    return sum(4 * context * place.table.width for place in program.tables)


def gib(nbytes: float) -> str:
    return f"{nbytes / 2**30:,.2f} GiB"
