"""What a model needs, from the header alone: before anything is allocated, a model that does not fit is refused."""

from __future__ import annotations

from dataclasses import dataclass

from woolly.errors import BusyError
from woolly.plan.program import Program

STEP = 1024  # a default context is a multiple of it
SPARE = 1.1  # a tenth more than computed must be free


@dataclass(frozen=True, slots=True)
class Budget:
    """Bytes a model will take with a context of so many positions."""

    context: int
    weights: int
    cache: int  # of one sequence that fills the context
    work: int  # the work area of a step, and the tables by position

    @property
    def total(self) -> int:
        return self.weights + self.cache + self.work


def fit(program: Program, available: int, *, asked: bool) -> Budget:
    """The budget of a program on a machine that has so many bytes.

    A context that was asked for fits or is refused with both numbers. A default one (`asked` is false) is lowered to
    the largest multiple of 1,024 whose cache takes at most half of what is free after the weights; where there is none,
    the numbers are those of a context of 1,024.
    """
    budget = _budget(program, program.bounds.context)
    if budget.total * SPARE <= available:
        return budget
    free = available / SPARE - budget.weights - program.work_bytes
    each = _budget(program, STEP).cache + _table_bytes(program, STEP)
    largest = int(free / each) * STEP if free > 0 else 0
    if not asked:
        context = min(int(free / 2 / each) * STEP, budget.context) if free > 0 else 0
        if context >= STEP:
            return _budget(program, context)
        budget = _budget(program, min(STEP, budget.context))  # the least that would do
    context_help = f"; a context of {largest:,} would fit" if largest >= STEP else ""
    raise BusyError(
        f"not enough memory: with a context of {budget.context:,} the model needs {_gib(budget.total * SPARE)}, "
        f"{_gib(available)} are free",
        suggestion="free some memory, or use a smaller model or context" + context_help,
        code="not_enough_memory",
        needed=int(budget.total * SPARE),
        available=available,
        largest_context=largest,
    )


def _budget(program: Program, context: int) -> Budget:
    pages = -(-context // program.target.page)
    work = program.work_bytes + _table_bytes(program, context)
    return Budget(context, program.weight_bytes, pages * program.page_bytes, work)


def _table_bytes(program: Program, context: int) -> int:
    return sum(4 * context * place.table.width for place in program.tables)


def _gib(nbytes: float) -> str:
    return f"{nbytes / 2**30:,.2f} GiB"
