"""Two thousand mutated files in every run of the tests; `make fuzz N=...` reads as many as there is time for."""

from __future__ import annotations

import pytest

from tests.fuzz.mutate import FAMILIES, base, fields, mutation
from tests.fuzz.run import fuzz
from woolly import gguf
from woolly.examine import report

SEED = 1

pytestmark = pytest.mark.native


def told(what: str, count: int) -> dict[str, int]:
    outcome = fuzz(what, SEED, count)
    print(f"\nfuzz: {what}, seed {SEED}, {count:,} files: {dict(outcome.counts)}")
    assert outcome.failures == [], "python -m tests.fuzz.run --keep FOLDER writes these files"
    return outcome.counts


def test_two_thousand_mutated_files_are_refused_or_right_and_nothing_dies(capfd: pytest.CaptureFixture[str]) -> None:
    with capfd.disabled():
        counts = told("reader", 2000)
    assert counts["refused"] > 1000 and counts["loaded"] > 100


def test_what_passes_the_checks_loads_and_computes_finite_logits_or_says_why(
    capfd: pytest.CaptureFixture[str],
) -> None:
    with capfd.disabled():
        counts = told("model", 200)
    assert counts["loaded"] > 10


def test_a_seed_gives_the_same_files_again_and_the_bases_are_right(tmp_path) -> None:
    assert [mutation(7, i) for i in range(20)] == [mutation(7, i) for i in range(20)]
    assert mutation(7, 0) != mutation(8, 0)
    path = tmp_path / "base.gguf"
    for family in ("", *FAMILIES):
        path.write_bytes(b"".join(data for _, data in fields(base(family))))
        report(path)
        with gguf.open(path) as file:
            types = {info.format for info in file.tensors.values()}
        assert family or types >= {"Q4_0", "Q8_0", "Q5_1", "Q6_K", "F16", "F32"}


def test_a_child_that_dies_or_hangs_is_noticed_and_the_rest_is_read(monkeypatch: pytest.MonkeyPatch) -> None:
    from tests.fuzz import run

    monkeypatch.setattr(run, "HANG_S", 1.0)
    code = (
        "import os, sys, time\n"
        "for i in range(int(sys.argv[4]), int(sys.argv[5])):\n"
        "    print(i, flush=True)\n"
        "    if i == 2: os.abort()\n"
        "    if i == 4: time.sleep(60)\n"
        "    print(i, 'refused' if i != 5 else 'IndexError', flush=True)\n"
    )
    popen = run.subprocess.Popen
    monkeypatch.setattr(
        run.subprocess, "Popen", lambda words, **more: popen([words[0], "-c", code, *words[3:]], **more)
    )
    outcome = fuzz("reader", 3, 7)
    assert outcome.counts == {"refused": 4, "failed": 3}
    assert [(number, what.split(":")[0]) for _, number, what in outcome.failures] == [
        (2, "the process died"),
        (4, "it hung"),
        (5, "IndexError"),
    ]
