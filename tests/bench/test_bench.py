"""bench: what it tells and in which form, on small models. No test says how fast anything is."""

from __future__ import annotations

import json
from pathlib import Path

import numpy as np
import pytest

from tests.tiny import tiny
from woolly.bench import (
    BenchPlan,
    bench_model,
    cases,
    figures,
    kernels,
    measure_roofline,
    products,
    report_lines,
    roofline_lines,
)
from woolly.bench.model import SpeedTest, speed_tests
from woolly.bench.profile import PeakRates, profile, short
from woolly.bench.subject import Subject, forced
from woolly.device.cpu.machine import SETS
from woolly.errors import BusyError

SMALL = BenchPlan(prompt=8, tokens=3, threads=2, repetitions=2, batches=(1, 2))


@pytest.fixture(scope="module")
def path(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tiny(tmp_path_factory.mktemp("bench") / "small.gguf", context=4096)


def test_the_json_has_the_promised_shape(path: Path) -> None:
    data = json.loads(json.dumps(figures(bench_model(path, "small", SMALL))))
    assert {"read_gb_s", "barrier_ns", "isa", "threads"} <= data["machine"].keys()
    assert {"model", "load_s", "peak_rss_mb", "tests", "noisy"} <= data.keys()
    assert "ratios" not in data
    assert data["model"] == "small"
    assert data["machine"]["threads"] == 2
    assert [test["test"] for test in data["tests"]] == ["pp8", "tg3", "tg3x2"]
    for test in data["tests"]:
        rates = test["tokens_per_s"]
        assert len(rates["runs"]) == 2
        assert min(rates["runs"]) <= rates["median"] <= rates["best"] == max(rates["runs"])
        assert {"read_gb_s", "barrier_ns", "state"} == test["before"].keys() == test["after"].keys()
    assert [("share_of_read" in test) for test in data["tests"]] == [False, True, False]
    assert type(data["noisy"]) is bool


def test_the_text_has_a_line_for_every_test(path: Path) -> None:
    text = "\n".join(report_lines(bench_model(path, "small", BenchPlan(8, 2, 1, 1, (1,), depth=70, profile=True))))
    assert all(word in text for word in ("pp8@d70", "tg2@d70", "neither memory nor arithmetic", "Python", "of read"))


def test_tests_are_named_by_what_they_do() -> None:
    names = [test.name for test in speed_tests(512, 64, 0, (1, 8))]
    assert names == ["pp512", "tg64", "tg64x8"]
    assert [test.name for test in speed_tests(0, 4, 100, (2,))] == ["tg4x2@d100"]
    assert [test.name for test in speed_tests(5, 0, 0, (1, 2))] == ["pp5"]
    assert SpeedTest("tokens", 64, sequences=8).tokens == 512


@pytest.mark.parametrize("kv", ["f32", "f16", "q8"])
def test_a_subject_computes_what_the_tests_time(path: Path, kv: str) -> None:
    """A prompt in steps, and the same tokens one by one after a part of it, end in the same logits."""
    subject = Subject(path, threads=2, positions=700, sequences=2, kv=kv)
    subject.prompt(700)
    full = subject.runner._outputs["logits"][0].copy()
    subject.fill(600)
    subject.tokens(100, 600)
    assert np.array_equal(subject.runner._outputs["logits"][0], full)
    subject.fill(20, sequences=2)
    subject.tokens(2, 20, sequences=2)
    assert np.isfinite(subject.runner._outputs["logits"][:2]).all()
    subject.close()


def test_forced_tokens_are_words_of_the_vocabulary() -> None:
    tokens = forced(np.arange(10_000), 288)
    assert tokens.min() == 0
    assert tokens.max() == 287


def test_a_model_that_does_not_fit_the_memory_is_refused(path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("woolly.system.memory", lambda: 1000)
    with pytest.raises(BusyError, match="not enough memory"):
        Subject(path, threads=1, positions=64)


def test_a_token_reads_all_weights_but_an_embedding_of_its_own(tmp_path: Path) -> None:
    tied = Subject(tiny(tmp_path / "tied.gguf"), threads=1, positions=8).program
    own = Subject(tiny(tmp_path / "own.gguf", tied=False), threads=1, positions=8).program
    assert tied.token_bytes == own.token_bytes <= tied.weight_bytes < own.weight_bytes


def test_a_profile_accounts_for_every_instruction(path: Path) -> None:
    subject = Subject(path, threads=2, positions=64)
    batch = subject.step(40)
    profiled = profile(subject, batch, PeakRates(1e9, 2e9, 1e9), runs=2)
    assert len(profiled.instructions) == len(subject.program.small_step) == sum(row.count for row in profiled.kinds)
    assert profiled.ms == pytest.approx(sum(row.us for row in profiled.kinds) / 1e3)
    assert 0 <= profiled.neither_ms <= profiled.ms
    products = [row for row in profiled.instructions if row.macs and "attend" not in row.what]
    assert sum(row.bytes for row in products) <= subject.program.token_bytes
    for row in products:
        assert row.memory_us == pytest.approx(row.bytes / 1e3)
    attend = next(row for row in profiled.kinds if row.what == "store_attend")
    # two layers, 41 positions, keys and values of 2 heads of 16 in f16; 4 heads of 16 multiply each twice
    assert (attend.bytes, attend.macs) == (2 * 41 * 2 * 2 * 16 * 2, 2 * 41 * 2 * 4 * 16)


def test_a_weight_s_name_is_told_without_its_layer() -> None:
    assert short("blk.12.attn_q.weight+blk.12.attn_k.weight") == "attn_q+attn_k"


def test_the_limits_have_one_row_for_each_way() -> None:
    limits = measure_roofline(2, repetitions=2, nbytes=4 << 20)
    data = json.loads(json.dumps(figures(limits)))
    assert [(row["threads"], row["pages"]) for row in data["read"]] == [
        (1, "huge"), (2, "huge"), (1, "small"), (2, "small"),
    ]  # fmt: skip
    assert {row["isa"] for row in data["multiply"]} == set(SETS) - {"scalar"}
    assert all(len(row["gb_s"]["runs"]) == 2 for row in data["read"])
    assert any("barrier" in line for line in roofline_lines(limits))


@pytest.mark.parametrize("form", ["Q4_K", "Q8_0", "F16"])
def test_a_product_is_told_with_its_bytes_and_multiplications(form: str) -> None:
    measured = list(products(2, 3.0, rounds=1, forms=(form,), stream=1 << 16, many=20))
    assert [(row.isa, row.rows) for row in measured[: 4 * len(SETS)]] == [
        (isa, n) for isa in SETS for n in (1, 2, 4, 8)
    ]
    assert {(row.isa, row.rows) for row in measured[4 * len(SETS) :]} == {
        (isa, 16 if isa == "scalar" else 20) for isa in SETS
    }
    for row in measured:
        weights = row.gb_s * row.us * 1e3 * kernels.FORMATS[form].block / kernels.FORMATS[form].nbytes
        assert row.mac_per_cycle * row.us * 3e3 * 2 == pytest.approx(row.rows * weights)  # 2 threads of 3 GHz
    data = figures(measured[0])
    assert {"format", "isa", "rows", "gb_s", "share_of_read", "mac_per_cycle", "share_of_peak"} <= data.keys()


def test_a_case_is_told_for_every_set(monkeypatch: pytest.MonkeyPatch) -> None:
    light = {name: kernels.CASES[name] for name in kernels.CASES if "64 x 64" in name or "attention" in name}
    monkeypatch.setattr(kernels, "CASES", light)
    for case in cases(1, rounds=1):
        data = figures(case)
        assert list(data["us"]) == list(SETS)
        assert data["times_scalar"]["scalar"] == 1.0
