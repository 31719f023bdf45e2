"""woolly plan: graph, passes and program, readable."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from tests.cli.conftest import Woolly
from tests.tiny import FAMILIES, tiny
from woolly import gguf, plan
from woolly.device.cpu import TARGET
from woolly.model import build


@pytest.mark.parametrize("family", FAMILIES)
def test_json_is_what_the_plan_holds(
    family: str, tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    from woolly.cli.main import main

    monkeypatch.setenv("WOOLLY_MODELS_DIR", str(tmp_path))
    path = tiny(tmp_path / "model.gguf", family)
    assert main(["plan", str(path), "--json", "--context", "128", "--kv", "q8"]) == 0
    report = json.loads(capsys.readouterr().out)
    with gguf.open(path) as file:
        graph = build(file)
    program = plan.plan(graph, TARGET, plan.bounds(graph, 128), kv="q8")
    assert [node["name"] for node in report["graph"]] == [node.name for node in graph.nodes]
    assert [row["op"] for row in report["program"]] == [program.ops[int(row["op"])].name for row in program.code]
    assert [row["barrier"] for row in report["program"]] == [bool(row["barrier"]) for row in program.code]
    assert report["memory"]["weights"] == program.weight_bytes
    assert [row["name"] for row in report["passes"]] == ["quantize_inputs", *plan.PASSES]


def test_an_exact_plan_has_records_of_16_bits_alone(woolly: Woolly) -> None:
    for words, records in (((), {"q8", "q16"}), (("--exact",), {"q16"})):
        report = json.loads(woolly("plan", "tiny-talker", "--json", *words).stdout)
        assert {row["dtype"] for row in report["program"] if "quantize" in row["op"]} == records


def test_layers_that_are_alike_are_printed_once(woolly: Woolly) -> None:
    done = woolly("plan", "tiny-talker")
    assert (done.returncode, done.stderr) == (0, "")
    for word in ("graph: ", "passes: ", "program: ", "memory: ", "barriers a step", "fuse_quantize", "weights  "):
        assert word in done.stdout
    kinds = [line for line in done.stdout.splitlines() if line.startswith("  layer")]
    assert kinds == ["  layers 0-1:", "  layer 0:", "  layer 1:"]  # in the program the last one has fewer rows
    layers = woolly("plan", "tiny-talker", "--layers", "all").stdout
    assert len([line for line in layers.splitlines() if line.startswith("  layer ")]) == 4
    assert "  layer 1:" in woolly("plan", "tiny-talker", "--layers", "1").stdout


@pytest.mark.parametrize(
    ("words", "expected"),
    [
        (["--layers", "first"], "--layers is 'first'"),
        (["--layers", "2"], "the model has 0 to 1"),
        (["--context", "0"], "--context is '0'"),
    ],
)
def test_wrong_words_are_one_line_and_exit_2(woolly: Woolly, words: list[str], expected: str) -> None:
    done = woolly("plan", "tiny-talker", *words)
    assert (done.returncode, done.stdout) == (2, "")
    assert expected in done.stderr and done.stderr.count("\n") == 1
