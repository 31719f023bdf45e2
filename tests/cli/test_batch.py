"""`woolly batch`: each row once and in order, and a job that was killed gives the bytes of one that was not."""

from __future__ import annotations

import json
import random
import signal
import subprocess
import time
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from tests.cli.conftest import Woolly, command
from tests.end.test_embed import bert_model
from tests.server.batch.lines import HELLO, every_kind, read, row, write
from woolly import LLM


@pytest.fixture
def source(tmp_path: Path) -> Path:
    return write(tmp_path / "in.jsonl", every_kind(60))


def written(paths: list[Path]) -> int:
    return sum(path.read_bytes().count(b"\n") for path in paths if path.exists())


def killed(words: list[str], environ: dict[str, str], paths: list[Path], rows: int, after_s: float) -> int:
    """Start a job and kill it once its files have so many rows, and a moment later; how many they have then."""
    process = subprocess.Popen(command(*words), env=environ, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
    try:
        while written(paths) < rows and process.poll() is None:
            time.sleep(0.002)
        time.sleep(after_s)
    finally:
        process.kill()
        process.wait()
    assert process.returncode in (-signal.SIGKILL, 1)  # 1: it came to its end, where some rows fail
    return written(paths)


def survive(woolly: Woolly, environ: dict[str, str], folder: Path, rows: int, kills: int, seed: int) -> None:
    """Kill a job at random moments, let it end, and compare with one that nobody disturbed."""
    draw = random.Random(seed)
    source = write(folder / "rows.jsonl", every_kind(rows))
    names = [[folder / f"{name}-{which}.jsonl" for name in ("out", "err")] for which in ("alone", "killed")]
    jobs = [["batch", str(source), str(out), "--errors", str(err), "--model", "tiny-talker"] for out, err in names]
    assert woolly(*jobs[0]).returncode == 1  # some rows fail, as they should
    done = killings = 0
    while killings < kills:
        more = 0 if draw.random() < 0.1 else draw.randint(1, rows // (kills + 2))  # some while it is loading
        done = killed(jobs[1], environ, names[1], done + more, draw.random() * (0.02 if more else 1.0))
        killings += 1
        if done == rows:  # where we look too late because the machine is busy: all begins anew
            done = killings = 0
            for path in names[1]:
                path.unlink()
    last = woolly(*jobs[1])
    assert last.stderr == f"woolly: {done:,} of {rows:,} rows are there already\n"
    for alone, again in zip(*names, strict=True):
        assert again.read_bytes() == alone.read_bytes()
    answered, failed = map(read, names[1])
    ids = [each["custom_id"] for each in (*answered, *failed)]
    assert len(ids) == rows and set(ids) == {f"row-{number}" for number in range(rows)}
    for each in (answered, failed):
        order = [int(one["custom_id"].removeprefix("row-")) for one in each]
        assert order == sorted(order)


def test_a_job_that_is_killed_again_and_again_gives_the_same_bytes(
    woolly: Woolly, environ: dict[str, str], tmp_path: Path
) -> None:
    survive(woolly, environ, tmp_path, rows=240, kills=3, seed=1)


@pytest.mark.soak
def test_twenty_kills_over_two_thousand_rows_change_no_byte(
    woolly: Woolly, environ: dict[str, str], tmp_path: Path
) -> None:
    survive(woolly, environ, tmp_path, rows=2000, kills=20, seed=2)


def test_rows_of_every_kind_are_answered_as_openai_writes_them(woolly: Woolly, source: Path, tmp_path: Path) -> None:
    output, errors = tmp_path / "out.jsonl", tmp_path / "err.jsonl"
    done = woolly("batch", str(source), str(output), "--errors", str(errors), "--model", "tiny-talker")
    assert done.returncode == 1 and done.stderr == ""
    assert done.stdout.startswith("60 rows, 10 of them failed; this run 60 in ")
    kinds: dict[str, Any] = {}
    for each in read(output):
        assert each.keys() == {"id", "custom_id", "response", "error"} and each["error"] is None
        assert each["response"]["status_code"] == 200 and each["id"].startswith("batch_req_")
        kinds.setdefault(each["response"]["body"]["object"], each["response"]["body"])
    assert set(kinds) == {"chat.completion", "text_completion", "response"}
    assert kinds["chat.completion"]["id"].startswith("chatcmpl-") and kinds["chat.completion"]["created"] == 0
    assert len(kinds["text_completion"]["choices"]) == 2
    calls = [each for each in read(output) if '"tool_calls": [' in json.dumps(each)]
    assert calls and calls[0]["response"]["body"]["choices"][0]["message"]["tool_calls"][0]["id"].startswith("call_")
    for each in read(errors):
        assert (each["response"]["status_code"], each["error"]) == (400, None)
        assert each["response"]["body"]["error"]["param"] == "temperature"
    again = woolly("batch", str(source), str(output), "--errors", str(errors), "--model", "tiny-talker")
    assert again.returncode == 1 and again.stdout == "60 rows, 10 of them failed\n"
    assert again.stderr == "woolly: 60 of 60 rows are there already\n"


def test_without_an_errors_file_failed_rows_have_their_place_in_the_output(woolly: Woolly, tmp_path: Path) -> None:
    source = write(tmp_path / "in.jsonl", [row("a"), row("b", messages=HELLO, temperature=-1), row("c")])
    done = woolly("batch", str(source), str(tmp_path / "out.jsonl"), "-q", "--model", "tiny-talker")
    assert done.returncode == 1
    statuses = [(each["custom_id"], each["response"]["status_code"]) for each in read(tmp_path / "out.jsonl")]
    assert statuses == [("a", 200), ("b", 400), ("c", 200)]
    again = woolly("batch", str(source), str(tmp_path / "out.jsonl"), "-q", "--model", "tiny-talker")
    assert (again.returncode, again.stdout) == (1, "3 rows, 1 of them failed\n")  # also one that failed before


def test_rows_name_their_models_where_the_command_does_not(woolly: Woolly, tmp_path: Path) -> None:
    rows = [row("a", messages=HELLO, model="tiny-talker", max_tokens=2), row("b", messages=HELLO, model="nobody")]
    source = write(tmp_path / "in.jsonl", rows)
    assert woolly("batch", str(source), str(tmp_path / "out.jsonl")).returncode == 1
    responses = [each["response"] for each in read(tmp_path / "out.jsonl")]
    assert [each["status_code"] for each in responses] == [200, 404]
    assert responses[1]["body"]["error"]["code"] == "model_not_found"


def test_an_answer_does_not_depend_on_the_rows_beside_it(woolly: Woolly, tmp_path: Path) -> None:
    rows = every_kind(12)
    write(tmp_path / "in.jsonl", rows)
    write(tmp_path / "one.jsonl", rows[3:4])
    for name in ("in", "one"):
        woolly("batch", str(tmp_path / f"{name}.jsonl"), str(tmp_path / f"{name}.out"), "--model", "tiny-talker")
    assert (tmp_path / "one.out").read_bytes() == (tmp_path / "in.out").read_bytes().splitlines(keepends=True)[3]


@pytest.mark.parametrize(
    ("words", "expected"),
    [
        (["in.jsonl", "in.jsonl"], "in.jsonl is named twice"),
        (["nothing.jsonl", "out.jsonl"], "there is no file nothing.jsonl"),
        (["wrong.jsonl", "out.jsonl"], "wrong.jsonl, line 2: the row is not JSON"),
        (["in.jsonl", "out.jsonl", "--seed", "-1"], "--seed is a number"),
        (["in.jsonl", "/dev/null"], "/dev/null is no ordinary file"),
    ],
)
def test_what_is_wrong_is_told_in_one_line_before_a_model_is_loaded(
    woolly: Woolly, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, words: list[str], expected: str
) -> None:
    monkeypatch.chdir(tmp_path)
    write(tmp_path / "in.jsonl", [row("a")])
    write(tmp_path / "wrong.jsonl", [row("a"), "{oh"])
    done = woolly("batch", *words)
    assert done.returncode in (2, 3, 4) and done.stdout == ""
    assert done.stderr.startswith(f"woolly: error: {expected}") and done.stderr.count("\n") == 1


def test_embeddings_in_a_batch_are_those_of_the_library(woolly: Woolly, tmp_path: Path) -> None:
    encoder = bert_model("bert", tmp_path / "encoder.gguf")
    texts = ["hello", "hello world", "ab ! hello"]
    rows = [row(text, "/v1/embeddings", input=[text, "world"], model="any") for text in texts]
    source, output = write(tmp_path / "in.jsonl", rows), tmp_path / "out.jsonl"
    done = woolly("batch", str(source), str(output), "--model", str(encoder))
    assert done.returncode == 0, done.stderr
    with LLM(encoder) as llm:
        for text, answered in zip(texts, read(output), strict=True):
            body = answered["response"]["body"]
            assert [each["index"] for each in body["data"]] == [0, 1]
            vectors = np.array([each["embedding"] for each in body["data"]], np.float32)
            assert answered["custom_id"] == text and np.array_equal(vectors, llm.embed([text, "world"]))
