"""The runner's promises besides its results: refusals, stopping, allocation."""

from __future__ import annotations

import multiprocessing
import os
import shutil
import subprocess
import sys
import threading
from pathlib import Path

import numpy as np
import pytest

import woolly._core as _core
from tests.native.stepping import computed
from tests.tiny import tiny
from woolly import gguf
from woolly.device import Batch
from woolly.device.cpu import TARGET, Runner, machine
from woolly.device.cpu.machine import chosen_set
from woolly.errors import FileError, NativeError, UnsupportedError
from woolly.model import build
from woolly.plan import COUNTS, Bounds, Program, plan

pytestmark = pytest.mark.native

BOUNDS = Bounds(16, 4, 2, 128)


@pytest.fixture
def loaded(tmp_path: Path) -> tuple[Program, Runner]:
    with gguf.open(tiny(tmp_path / "model.gguf")) as file:
        program = plan(build(file), TARGET, BOUNDS)
        return program, Runner(program, file, threads=2, pages=[4])


def batch(*arrays: object) -> Batch:
    """A batch of tokens, spans, pages, wanted rows and, optionally, copies."""
    return Batch(*(np.array(x, np.int32) for x in arrays))


GOOD = ([1, 2, 3], [[0, 2, 0], [2, 1, 0]], [[0, 1], [2, 3]], [1, 2])


def test_a_sound_batch_runs(loaded: tuple[Program, Runner]) -> None:
    logits = computed(loaded[1], batch(*GOOD))
    assert logits is not None and logits.shape == (2, loaded[0].vocab) and np.isfinite(logits).all()


@pytest.mark.parametrize(
    ("broken", "why"),
    [
        (([1, 2, -1], *GOOD[1:]), "not in the vocabulary"),
        (([1, 2, 10**9], *GOOD[1:]), "not in the vocabulary"),
        (([1, 2, 3], [[0, 2, 0], [1, 1, 0]], *GOOD[2:]), "do not follow"),
        (([1, 2, 3], [[0, 2, 0], [2, 0, 0]], *GOOD[2:]), "do not follow"),
        (([1, 2, 3], [[0, 2, 0]], [[0, 1]], [1]), "without a span"),
        (([1, 2, 3], [[0, 2, -1], [2, 1, 0]], *GOOD[2:]), "beyond the context"),
        (([1, 2, 3], [[0, 2, 127], [2, 1, 0]], *GOOD[2:]), "beyond the context"),
        (([1, 2, 3], [[0, 2, 0], [2, 1, 2**31 - 1]], *GOOD[2:]), "beyond the context"),
        (([1, 2, 3], GOOD[1], [[4, 1], [2, 3]], [1]), "page does not exist"),
        (([1, 2, 3], GOOD[1], [[0, 1], [-1, 3]], [1]), "page does not exist"),
        (([1, 2, 3], [[0, 2, 0, 0, 0], [2, 1, 0, -1, 0]], *GOOD[2:]), "slot does not exist"),
        (([1, 2, 3], [[0, 2, 0, -1, 1], [2, 1, 0, -1, 0]], *GOOD[2:]), "adapter does not exist"),
        ((*GOOD, [[0, 0, 4]]), "does not exist"),
        ((*GOOD, [[0, -1, 0]]), "does not exist"),
        ((*GOOD, [[-1, 0, 0]]), "does not exist"),
        ((*GOOD, [[1, 0, 0]]), "of no group"),
        ((*GOOD, [[0, 0, 0]] * 5), "too large"),
        ((*GOOD[:3], [3]), "wanted row does not exist"),
        ((*GOOD[:3], [-1]), "wanted row does not exist"),
        (([1] * 17, [[0, 17, 0]], [[0, 1]], [0]), "too large"),
        (([], np.zeros((0, 3)), np.zeros((0, 2)), []), "too many rows"),
    ],
)
def test_an_unsound_batch_is_refused(loaded: tuple[Program, Runner], broken: tuple[object, ...], why: str) -> None:
    runner = loaded[1]
    with pytest.raises(NativeError, match=why):
        computed(runner, batch(*broken))  # type: ignore[arg-type]
    assert computed(runner, batch(*GOOD)) is not None


REGIONS = ("weight_bytes", "work_bytes", "per_thread_bytes", "table_bytes", "slot_bytes")


def core_runner(program: Program, **changes: object) -> _core.Runner:
    arguments: dict[str, object] = {
        "ops": [(op.name, op.operands, list(op.attrs)) for op in program.ops],
        "layouts": list(program.layouts),
        "code": program.code.copy().view(np.uint8),
        "small_step": program.small_step.copy().view(np.uint8),
        "adapted": program.adapted.view(np.uint8),
        "adapted_small_step": program.adapted_small_step.view(np.uint8),
        "groups": [(group.window, group.page_bytes, 4) for group in program.groups],
        "outputs": [(output.place, COUNTS.index(output.rows), output.width) for output in program.outputs],
        "vocab": program.vocab,
        "isa": "scalar",
    }
    names = (
        "page",
        "panel",
        "rows",
        "small_step_rows",
        "wants",
        "sequences",
        "context",
        "slots",
        "adapters",
        "threads",
    )
    bounds = dict(zip(names, (64, 16, 16, 8, 4, 2, 128, 0, 0, 1), strict=True))
    regions = {name: getattr(program, name) for name in REGIONS}
    return _core.Runner(**(arguments | bounds | regions | changes))  # type: ignore[arg-type]


def test_a_broken_program_is_refused(loaded: tuple[Program, Runner]) -> None:
    program = loaded[0]
    core_runner(program)
    ops = [(op.name, op.operands, list(op.attrs)) for op in program.ops]
    bad: list[dict[str, object]] = [
        {"ops": [("unheard", 1, []), *ops[1:]]},
        {"ops": [(ops[0][0], 5, []), *ops[1:]]},
        {"ops": [*ops[:-1], (ops[-1][0], ops[-1][1], ["other"])]},
        {"layouts": ["iq9", *program.layouts[1:]]},
        {"code": program.code.copy().view(np.uint8)[:-1]},
        {"code": program.small_step.copy().view(np.uint8)},
        {"small_step": program.small_step[:-1].copy().view(np.uint8)},
        {"outputs": [(-64, 1, program.vocab)]},
        {"outputs": [(program.work_bytes, 1, program.vocab)]},
        {"outputs": [(0, 0, program.vocab)]},
        {"outputs": [(0, 3, program.vocab)]},
        {"outputs": [(0, 2, program.vocab)]},
        {"outputs": []},
        {"groups": []},
        {"groups": [(0, program.page_bytes, 0)]},
        {"groups": [(-1, program.page_bytes, 4)]},
        {"groups": [(64, program.page_bytes, 4)]},
        {"groups": [(0, 1 << 45, 1 << 20)]},
        {"slots": -1},
        {"adapters": -1},
        {"adapters": 1},  # the program has no instructions for adapters
        {"threads": 0},
        {"isa": "abacus"},
        {"page": 32},
        {"panel": 8},
        *({name: 0} for name in ("rows", "wants", "sequences", "context", "vocab")),
        {"small_step_rows": 9},
        {"small_step_rows": -1},
        {"vocab": program.vocab * 2},
        {"rows": 1600},
        *(
            {name: getattr(program, name) - max(64, getattr(program, name) // 2)}
            for name in REGIONS
            if name != "slot_bytes"
        ),
    ]
    for changes in bad:
        with pytest.raises(_core.CoreError):
            core_runner(program, **changes)


def test_no_change_of_one_operand_reaches_outside_its_region(loaded: tuple[Program, Runner]) -> None:
    """A number of an operand, made too large or negative, is refused or still inside its region: then the step runs."""
    program = loaded[0]
    rng = np.random.default_rng(1)
    refused = 0
    for _ in range(300):
        which = rng.choice(["code", "small_step"])
        code = {"code": program.code, "small_step": program.small_step}[which].copy()
        row = code[rng.integers(len(code))]
        operand = row["out"] if rng.random() < 0.3 else row["inputs"][rng.integers(2)]
        operand[rng.choice(["place", "stride", "width", "height", "nbytes", "layout", "kind", "group"])] = rng.choice(
            [-1, 0, 1, 2**31, 2**40, 2**62, -(2**62), 63, 64, 10**6]
        )
        try:
            core = core_runner(program, **{which: code.view(np.uint8)})
        except _core.CoreError:
            refused += 1
            continue
        core.spans[0] = (0, 1, 0, -1, 0)
        core.run(1, 1, 1, 0)
    assert refused > 100


def test_a_page_is_copied_before_the_step_begins(loaded: tuple[Program, Runner]) -> None:
    """A page and its copy give the same logits, and writing to one does not change the other."""
    runner = loaded[1]
    assert computed(runner, batch([5, 6, 7], [[0, 3, 0]], [[0, 1]], [2])) is not None
    following = computed(runner, batch([8], [[0, 1, 3]], [[0, 1]], [0]))
    assert following is not None
    expected = following.copy()
    other = computed(runner, batch([9], [[0, 1, 3]], [[2, 1]], [0], [[0, 0, 2]]))
    assert other is not None and not np.array_equal(other, expected)
    again = computed(runner, batch([8], [[0, 1, 3]], [[3, 1]], [0], [[0, 2, 3]]))
    assert again is not None and np.array_equal(again, expected)


def test_a_page_is_read_and_written_between_steps(loaded: tuple[Program, Runner]) -> None:
    """Another page that is given the bytes of the first gives the same logits."""
    program, runner = loaded
    assert computed(runner, batch([5, 6, 7], [[0, 3, 0]], [[0, 1]], [2])) is not None
    state = runner.read_page(0, 0)
    assert len(state) == program.groups[0].page_bytes
    following = computed(runner, batch([8], [[0, 1, 3]], [[0, 1]], [0]))
    assert following is not None
    expected = following.copy()
    assert runner.read_page(0, 0) != state  # the step wrote to the page, not to the bytes read before
    runner.write_page(0, 3, memoryview(state))
    again = computed(runner, batch([8], [[0, 1, 3]], [[3, 1]], [0]))
    assert again is not None and np.array_equal(again, expected)


@pytest.mark.parametrize(("group", "page"), [(0, 4), (0, -1), (1, 0), (-2, 0), (-1, 0)])
def test_a_page_that_does_not_exist_is_neither_read_nor_written(
    loaded: tuple[Program, Runner], group: int, page: int
) -> None:
    with pytest.raises(NativeError, match=r"of no group|does not exist"):
        loaded[1].read_page(group, page)
    with pytest.raises(NativeError, match=r"of no group|does not exist"):
        loaded[1].write_page(group, page, b"")


def test_a_state_of_another_size_is_refused(loaded: tuple[Program, Runner]) -> None:
    program, runner = loaded
    before = runner.read_page(0, 1)
    for nbytes in (0, 1, program.page_bytes - 1, program.page_bytes + 1):
        with pytest.raises(NativeError, match=f"{program.page_bytes:,} bytes, but {nbytes:,}"):
            runner.write_page(0, 1, bytes(nbytes))
    assert runner.read_page(0, 1) == before


def test_a_slot_is_read_and_written(loaded: tuple[Program, Runner]) -> None:
    program, runner = loaded
    with pytest.raises(NativeError, match="does not exist"):
        runner.read_slot(0)  # this model has no carried state
    core = core_runner(program, slot_bytes=192, slots=2)
    core.state(-1, 1)[:] = 7
    assert core.state(-1, 0).tobytes() == bytes(192) and core.state(-1, 1).tobytes() == b"\7" * 192
    with pytest.raises(_core.CoreError):
        core.state(-1, 2)


def test_a_stopped_step_returns_nothing_and_the_next_one_runs(loaded: tuple[Program, Runner]) -> None:
    runner = loaded[1]
    before = computed(runner, batch(*GOOD))
    assert before is not None
    before = before.copy()
    runner.stop()
    assert computed(runner, batch(*GOOD)) is None
    after = computed(runner, batch(*GOOD))
    assert after is not None and np.array_equal(after, before)


def test_stop_from_another_thread_ends_a_step(loaded: tuple[Program, Runner]) -> None:
    runner = loaded[1]
    stopped = threading.Event()

    def keep_stopping() -> None:
        while not stopped.is_set():
            runner.stop()

    helper = threading.Thread(target=keep_stopping)
    helper.start()
    try:
        assert any(computed(runner, batch(*GOOD)) is None for _ in range(1000))
    finally:
        stopped.set()
        helper.join()


@pytest.mark.parametrize("format", ["Q4_0", "Q4_K", "Q6_K", "F16", "F32"])
def test_a_weight_that_is_no_number_is_refused_by_name(format: str, tmp_path: Path) -> None:
    path = tiny(tmp_path / "model.gguf", format=format)
    with gguf.open(path) as file:
        info = file.tensors["blk.1.ffn_down.weight"]
    raw = bytearray(path.read_bytes())
    at = {"Q6_K": 208}.get(format, 0)  # where the scale of the first block lies
    raw[info.offset + at : info.offset + at + 4] = b"\x00\x7e\x00\x7e" if format != "F32" else b"\x00\x00\xc0\x7f"
    path.write_bytes(raw)
    with gguf.open(path) as file, pytest.raises(FileError, match=r"blk\.1\.ffn_down\.weight.*not finite"):
        Runner(plan(build(file), TARGET, BOUNDS), file, threads=2, pages=[4])


def test_progress_is_told_up_to_the_end(tmp_path: Path) -> None:
    seen: list[tuple[int, int]] = []
    with gguf.open(tiny(tmp_path / "model.gguf")) as file:
        program = plan(build(file), TARGET, BOUNDS)
        Runner(program, file, threads=2, pages=[4], progress=lambda done, total: seen.append((done, total)))
    total = sum(order.nbytes for order in program.packs)
    assert seen == sorted(seen) and len(seen) == len(program.packs)
    assert seen[0][0] > 0 and seen[-1] == (total, total)


def test_the_set_is_chosen_by_the_environment() -> None:
    assert chosen_set({}) == machine()["sets"][-1]
    assert chosen_set({"WOOLLY_DISABLE_SIMD": "1"}) == "scalar"
    assert chosen_set({"WOOLLY_DISABLE_SIMD": "0"}) == machine()["sets"][-1]
    assert chosen_set({"WOOLLY_ISA": "scalar"}) == "scalar"
    with pytest.raises(UnsupportedError, match="abacus"):
        chosen_set({"WOOLLY_ISA": "abacus"})


def test_a_set_that_was_not_compiled_is_refused_by_name(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(_core, "sets_of_machine", lambda: ["scalar", "avx9000"])
    with pytest.raises(UnsupportedError, match=r"avx9000', which was not compiled.*make dev"):
        chosen_set({"WOOLLY_ISA": "avx9000"})


def _logits_in_child(path: str, answers: multiprocessing.SimpleQueue[bytes], runner: Runner) -> None:
    logits = computed(runner, batch(*GOOD))
    answers.put(b"" if logits is None else logits.tobytes())


def test_a_forked_child_computes_the_same_bits(loaded: tuple[Program, Runner]) -> None:
    runner = loaded[1]
    mine = computed(runner, batch(*GOOD))
    assert mine is not None
    context = multiprocessing.get_context("fork")
    answers = context.SimpleQueue()
    child = context.Process(target=_logits_in_child, args=("", answers, runner))
    child.start()
    theirs = answers.get()
    child.join(20)
    assert child.exitcode == 0 and theirs == mine.tobytes()


COUNTER = r"""
#include <atomic>
#include <cstddef>
extern "C" {
void* __libc_malloc(size_t);
void* __libc_calloc(size_t, size_t);
void* __libc_realloc(void*, size_t);
void* __libc_memalign(size_t, size_t);
static std::atomic<long> calls{0};
long allocations() { return calls.load(); }
void* malloc(size_t n) { calls++; return __libc_malloc(n); }
void* calloc(size_t n, size_t m) { calls++; return __libc_calloc(n, m); }
void* realloc(void* p, size_t n) { calls++; return __libc_realloc(p, n); }
void* aligned_alloc(size_t a, size_t n) { calls++; return __libc_memalign(a, n); }
int posix_memalign(void** p, size_t a, size_t n) { calls++; *p = __libc_memalign(a, n); return 0; }
}
"""

COUNTED = """
import ctypes, sys, gc
import numpy as np
from woolly import gguf
from woolly.model import build
from woolly.device.cpu import TARGET, Runner
from woolly.plan import Bounds, plan
count = ctypes.CDLL(None).allocations
count.restype = ctypes.c_long
with gguf.open(sys.argv[1]) as file:
    core = Runner(plan(build(file), TARGET, Bounds(32, 32, 32, 128)), file, threads=2, pages=[64])._core
many = int(sys.argv[2])
core.tokens[:many] = 7
for row in range(many):
    core.spans[row] = (row, 1, 0, -1, 0)
    core.pages[0, row] = (2 * row, 2 * row + 1)
    core.want[row] = row
core.run(many, many, many, 0)
gc.disable()
def allocations_of(steps):
    before = count()
    for _ in range(steps):
        core.run(many, many, many, 0)
    return count() - before
allocations_of(1)
print(allocations_of(200) - allocations_of(0), count() > 1000)
"""


@pytest.mark.skipif(sys.platform != "linux" or not shutil.which("g++"), reason="needs Linux and g++ to count")
@pytest.mark.parametrize("sequences", [1, 32])
def test_a_decode_step_allocates_nothing(tmp_path: Path, sequences: int) -> None:
    if "libasan" in os.environ.get("LD_PRELOAD", ""):
        pytest.skip("the sanitizer has its own allocator")
    (tmp_path / "count.cpp").write_text(COUNTER)
    library = tmp_path / "count.so"
    subprocess.run(["g++", "-O1", "-shared", "-fPIC", "-o", library, tmp_path / "count.cpp"], check=True)
    path = tiny(tmp_path / "model.gguf")
    environment = {**os.environ, "LD_PRELOAD": str(library), "PYTHONMALLOC": "malloc"}
    done = subprocess.run(
        [sys.executable, "-c", COUNTED, path, str(sequences)],
        env=environment,
        capture_output=True,
        text=True,
        check=True,
    )
    assert done.stdout.split() == ["0", "True"]
