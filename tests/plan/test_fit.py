"""What a model needs is known before anything is allocated."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.native.sketch import Sketch
from tests.tiny import tiny
from woolly import gguf
from woolly.device.cpu import TARGET
from woolly.errors import BusyError, RequestError
from woolly.model import build
from woolly.plan import Bounds, Program, fit, plan


def program(tmp_path: Path, context: int) -> Program:
    with gguf.open(tiny(tmp_path / "model.gguf")) as file:
        return plan(build(file), TARGET, Bounds(64, 8, 1, context))


def test_a_model_that_fits_keeps_its_context(tmp_path: Path) -> None:
    p = program(tmp_path, 2048)
    budget = fit(p, 1 << 30, asked=False)
    assert budget.context == 2048 and budget.weights == p.weight_bytes and budget.cache == 32 * p.page_bytes
    assert budget.total == budget.weights + budget.cache + budget.work


def test_a_context_that_was_asked_for_is_refused_with_both_numbers(tmp_path: Path) -> None:
    p = program(tmp_path, 1 << 20)
    need = int(fit(p, 1 << 40, asked=True).total * 1.1)
    with pytest.raises(BusyError, match=r"not enough memory.* 1,048,576 .*GiB.*GiB are free") as caught:
        fit(p, need - 1, asked=True)
    error = caught.value
    assert error.code == "not_enough_memory"
    assert error.facts["needed"] == need and error.facts["available"] == need - 1
    assert 0 < error.facts["largest_context"] < 1 << 20


def test_the_largest_context_named_would_really_fit(tmp_path: Path) -> None:
    p = program(tmp_path, 1 << 20)
    available = p.weight_bytes * 40
    with pytest.raises(BusyError) as caught:
        fit(p, available, asked=True)
    largest = caught.value.facts["largest_context"]
    assert fit(program(tmp_path, largest), available, asked=True).context == largest
    with pytest.raises(BusyError):
        fit(program(tmp_path, largest + 1024), available, asked=True)


def test_a_default_context_is_lowered_to_half_of_what_is_free(tmp_path: Path) -> None:
    p = program(tmp_path, 1 << 20)
    available = 64 << 20
    budget = fit(p, available, asked=False)
    free = available / 1.1 - p.weight_bytes - p.work_bytes
    assert budget.context % 1024 == 0 and budget.context < 1 << 20
    assert budget.total - p.weight_bytes - p.work_bytes <= free / 2


def test_a_model_without_room_for_any_context_is_refused(tmp_path: Path) -> None:
    p = program(tmp_path, 2048)
    with pytest.raises(BusyError, match="use a smaller model"):
        fit(p, p.weight_bytes, asked=False)


def test_experts_count_whole_in_memory_and_by_choice_in_what_a_token_reads() -> None:
    def planned(experts: int) -> Program:
        s = Sketch(96)
        return plan(s.graph(s.expert_layer(256, 256, "Q4_K", experts=experts, count=3)), TARGET, Bounds(64, 8, 1, 2048))

    matrices, routers = 3 * 256 * 144, 256 * 4  # bytes of an expert's matrices, and of its row of the router
    few, more = planned(4), planned(64)
    assert more.weight_bytes - few.weight_bytes == 60 * matrices + 48 * routers  # panels of 16 rows
    assert more.token_bytes - few.token_bytes == 48 * routers
    with pytest.raises(BusyError, match=r"the model needs .* GiB, .* GiB are free") as caught:
        fit(more, more.weight_bytes, asked=True)
    assert caught.value.facts["available"] == more.weight_bytes < caught.value.facts["needed"]


def test_a_token_reads_the_biases_and_factors_of_its_experts() -> None:
    s = Sketch(96)
    x, ids = s.rows(40), s.node("top_experts", s.rows(10), count=2, groups=1, groups_used=1)
    x = s.node("expert_bias", x, s.vector(10 * 20), ids)
    x = s.node("expert_scale", x, s.vector(10), ids)
    program = plan(s.graph(x), TARGET, Bounds(64, 8, 1, 2048))
    head = 96 * 40 * 4
    assert program.token_bytes == 2 * 20 * 4 + 2 * 4 + head


def many(tmp_path: Path, context: int, sequences: int) -> Program:
    with gguf.open(tiny(tmp_path / "model.gguf")) as file:
        return plan(build(file), TARGET, Bounds(64, 16, sequences, context))


def test_the_pool_holds_a_context_for_each_sequence_where_there_is_room(tmp_path: Path) -> None:
    p = many(tmp_path, 1024, 16)
    budget = fit(p, 1 << 40, asked=True)
    [pages] = budget.pages
    assert pages == 16 * 1024 // TARGET.page and budget.pool == pages * p.page_bytes == 16 * budget.cache


def test_beyond_one_context_the_pool_takes_a_quarter_of_what_is_free(tmp_path: Path) -> None:
    p = many(tmp_path, 1024, 16)
    least = fit(p, 1 << 40, asked=True)
    available = int((least.weights + p.work_bytes + 20 * least.cache) * 1.1)
    assert least.cache <= fit(p, available, asked=True).pool <= 5 * least.cache
    tight = int(least.total * 1.1) + 64
    assert fit(p, tight, asked=True).pool == least.cache


def carrying(sequences: int, *, pages: bool) -> Program:
    s = Sketch(64)
    x = s.node("conv", s.rows(64), s.vector(3 * 64), "", s.carry(2, 64), "spans")
    if pages:
        state = s.state(1, 64, "f16")
        s.node("store", x, x, state, "spans")
    return plan(s.graph(x), TARGET, Bounds(64, 8, sequences, 1024))


@pytest.mark.parametrize("pages", [True, False])
def test_what_a_sequence_carries_is_part_of_its_cache_and_has_snapshots_beside(pages: bool) -> None:
    p = carrying(4, pages=pages)
    budget = fit(p, 1 << 40, asked=True)
    assert p.slot_bytes == 2 * 64 * 4
    assert budget.cache == 16 * p.page_bytes + p.slot_bytes
    assert (budget.slots, budget.snapshots) == (4, 4)
    assert budget.work == p.work_bytes + p.table_bytes + 4 * p.slot_bytes
    assert budget.pool <= 4 * budget.cache and budget.total == budget.weights + budget.cache + budget.work


def test_where_memory_is_short_fewer_sequences_have_a_slot() -> None:
    p = carrying(16, pages=False)
    full = fit(p, 1 << 40, asked=True)
    tight = fit(p, int((full.weights + full.work + 21 * p.slot_bytes) * 1.1) + 1, asked=True)
    assert 1 <= tight.slots < full.slots == 16 and tight.context == 1024


def test_a_pool_of_so_many_bytes_is_taken_as_it_is(tmp_path: Path) -> None:
    p = many(tmp_path, 1024, 16)
    budget = fit(p, 1 << 40, asked=True, cache=40 * p.page_bytes + 1)
    assert budget.pages == (40,) and budget.pool == 40 * p.page_bytes and budget.context == 1024


def test_a_pool_that_cannot_hold_the_context_lowers_it_or_is_refused(tmp_path: Path) -> None:
    p = many(tmp_path, 1024, 16)
    assert fit(p, 1 << 40, asked=False, cache=4 * p.page_bytes).context == 4 * TARGET.page
    with pytest.raises(RequestError, match=r"holds 256 tokens, but a context of 1,024 takes [\d,]+"):
        fit(p, 1 << 40, asked=True, cache=4 * p.page_bytes)
    with pytest.raises(RequestError, match="holds 0 tokens"):
        fit(p, 1 << 40, asked=False, cache=p.page_bytes - 1)
    with pytest.raises(BusyError, match="not enough memory"):
        fit(p, 1 << 24, asked=False, cache=1 << 30)
