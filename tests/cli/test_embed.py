"""`woolly embed`: lines of JSON, NumPy files, refusals."""

from __future__ import annotations

import json
from pathlib import Path

import numpy as np
import pytest

from tests.end.test_embed import bert_model


@pytest.fixture
def encoder(tmp_path: Path) -> str:
    return str(bert_model("bert", tmp_path / "encoder.gguf"))


def test_a_text_is_a_line_of_json_and_a_line_of_input_a_text(woolly, encoder: str) -> None:
    done = woolly("embed", encoder, "hello world", "a")
    assert done.returncode == 0, done.stderr
    lines = [json.loads(line) for line in done.stdout.splitlines()]
    assert [line["index"] for line in lines] == [0, 1]
    assert abs(np.square(lines[0]["embedding"]).sum() - 1) < 1e-6
    piped = woolly("embed", encoder, stdin="hello world\n\na\n")
    assert piped.stdout == done.stdout


def test_a_numpy_file_holds_all_rows(woolly, encoder: str, tmp_path: Path) -> None:
    out = tmp_path / "all.npy"
    assert woolly("embed", encoder, "hello", "a", "--output", str(out), "--dimensions", "8").returncode == 0
    assert np.load(out).shape == (2, 8)
    assert woolly("embed", encoder, "hello", "--output", str(tmp_path / "none" / "x.npy")).returncode == 4


def test_what_cannot_be_embedded_is_told_in_one_line(woolly, encoder: str) -> None:
    for words, expected in (
        (["hello " * 70], "the prompt has 72 tokens, which exceeds the available context size of 64"),
        (["hello", "--dimensions", "33"], "dimensions is 33"),
        (["hello", "--output", "x.json"], "is no .npy file"),
        ([], "there is no text"),
    ):
        done = woolly("embed", encoder, *words)
        assert done.returncode == 2 and expected in done.stderr and done.stderr.count("\n") <= 2, done.stderr


def test_an_encoder_asked_to_answer_is_refused(woolly, encoder: str) -> None:
    done = woolly("run", encoder, "hello")
    assert done.returncode == 4 and "makes embeddings of texts; it cannot generate or chat" in done.stderr
