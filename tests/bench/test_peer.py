"""bench.peer: the other side in a process of its own, here a stand-in that only claims to compute."""

from __future__ import annotations

import json
import sys
from contextlib import closing
from pathlib import Path

import pytest

from tests.tiny import tiny
from woolly.bench import BenchPlan, bench_model, figures, find_peer, report_lines
from woolly.bench.model import SpeedTest
from woolly.bench.peer import LlamaBenchPeer, LlamaCppPeer, PeerOptions, slice_seconds
from woolly.errors import NativeError, NotFoundError

# A Python that seems to have llama_cpp: repacked it takes 2 ms for each token, otherwise 1 ms.
STAND_IN = f"""#!{sys.executable}
import json, sys
if "-c" in sys.argv:
    sys.exit(0)
options = json.loads(sys.argv[-1])
if options["model"].endswith("broken.gguf"):
    sys.exit("this file is broken")
print(json.dumps({{"load_s": 0.5, "version": "0.0"}}), flush=True)
for line in sys.stdin:
    order = json.loads(line)
    if order["kind"] == "die":
        sys.exit("no such thing")
    seconds = order.get("count", 0) * order["sequences"] * (0.002 if options["repack"] else 0.001)
    print(json.dumps({{"seconds": seconds}}), flush=True)
"""
LLAMA_BENCH = """#!/bin/sh
echo '[{"avg_ns": 3000000, "n_prompt": 8}]'
"""


@pytest.fixture
def python(tmp_path: Path) -> str:
    path = tmp_path / "python"
    path.write_text(STAND_IN)
    path.chmod(0o755)
    return str(path)


def options(model: str = "model.gguf", *, repack: bool = True) -> PeerOptions:
    return PeerOptions(model, 2, 64, 2, "f16", repack)


def test_both_settings_are_told_and_the_better_one_is_the_peer(tmp_path: Path, python: str) -> None:
    path = tiny(tmp_path / "small.gguf")
    bench_plan = BenchPlan(8, 2, 1, 1, (1, 2), depth=3, against="llama.cpp", python=python, seconds=0.1)
    report = bench_model(path, "small", bench_plan)
    data = json.loads(json.dumps(figures(report)))
    assert data["peer"] == {"version": "llama-cpp-python 0.0", "load_s": {"repack": 0.5, "no repack": 0.5}}
    assert list(data["ratios"]) == ["pp8@d3", "tg2@d3", "tg2x2@d3"]
    for ratio in data["ratios"].values():
        assert ratio["quartiles"][0] <= ratio["median"] <= ratio["quartiles"][1]
        assert ratio["count"] >= 3
        assert {"median", "quartiles"} <= ratio["noise"].keys()
        slow, fast = ratio["settings"]["repack"], ratio["settings"]["no repack"]
        assert fast["theirs_tokens_per_s"] == {"median": 1000, "best": 1000}
        assert slow["theirs_tokens_per_s"] == {"median": 500, "best": 500}
        assert fast["ours_tokens_per_s"]["best"] == pytest.approx(1000 * fast["best"], rel=0.01)
        assert len(fast["slices"]) == fast["count"]
        assert ratio["median"] == min(slow["median"], fast["median"])
    text = "\n".join(report_lines(report))
    assert "<- the peer" in text
    assert "the noise" in text


def test_a_peer_that_cannot_load_says_why(python: str) -> None:
    with pytest.raises(NativeError, match="this file is broken"):
        LlamaCppPeer(python, options("broken.gguf"))


def test_a_peer_that_ends_is_told_with_its_last_words(python: str) -> None:
    with closing(LlamaCppPeer(python, options())) as peer, pytest.raises(NativeError, match="no such thing"):
        peer._ask(kind="die", sequences=1)


def test_a_missing_peer_is_told_with_the_way_to_install_it(tmp_path: Path) -> None:
    with pytest.raises(NotFoundError, match="pip install --no-binary llama-cpp-python"):
        find_peer("llama.cpp", str(tmp_path / "no-python"))
    with pytest.raises(NotFoundError, match="llama-bench"):
        find_peer(str(tmp_path / "llama-bench"), "")


def test_a_missing_peer_is_told_before_anything_is_measured(tmp_path: Path) -> None:
    with pytest.raises(NotFoundError):
        bench_model(
            tmp_path / "not even a model", "x", BenchPlan(against="llama.cpp", python=str(tmp_path / "nothing"))
        )


def test_a_llama_bench_program_is_run_slice_by_slice(tmp_path: Path) -> None:
    program = tmp_path / "llama-bench"
    program.write_text(LLAMA_BENCH)
    program.chmod(0o755)
    path = tiny(tmp_path / "small.gguf")
    report = bench_model(path, "small", BenchPlan(8, 2, 1, 1, (1, 2), against=str(program), seconds=0.01))
    assert report.ratios is not None
    assert list(report.ratios) == ["pp8", "tg2"]  # it has no steps of several sequences
    slices = [row for one in report.ratios.values() for row in one.settings["repack"].slices]
    assert {row.theirs_s for row in slices} == {(0.003, 0.003)}


def test_the_words_for_llama_bench_say_the_same_test() -> None:
    peer = LlamaBenchPeer("bench", options(repack=False))
    words = peer.command(SpeedTest("tokens", 64, depth=100), 5)
    flags = dict(zip(words[1::2], words[2::2], strict=True))
    assert (flags["-p"], flags["-n"], flags["-d"], flags["-t"], flags["--repack"]) == ("0", "5", "100", "2", "0")
    assert not peer.supports(SpeedTest("tokens", 64, sequences=2))


@pytest.mark.parametrize("text", ["", "[]", "{}", '[{"avg_ts": 3}]', "[1]"])
def test_an_answer_of_llama_bench_that_is_none_is_refused(text: str) -> None:
    with pytest.raises(NativeError, match="not understood"):
        slice_seconds(text)
