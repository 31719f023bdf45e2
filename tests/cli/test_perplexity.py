"""woolly perplexity: figures that can be compared, and the engine's own error."""

from __future__ import annotations

import argparse
import json
from pathlib import Path

import pytest

from tests.cli.conftest import Woolly
from tests.golden import DATA
from woolly.cli import perplexity
from woolly.errors import RequestError

TEXT = "The quick brown fox jumps over the lazy dog, and then it sleeps. " * 8
EXACT = 22.2303  # of SmolLM2 over long.txt in chunks of 512, by float32 products over the decoded weights
KL = 0.0029  # the bound of the engine's error on a text
EXACT_KL = 1e-6  # with --exact


def test_it_tells_the_figure_and_what_was_counted(woolly: Woolly, tmp_path: Path) -> None:
    path = tmp_path / "text.txt"
    path.write_text(TEXT)
    done = woolly("perplexity", "tiny-talker", str(path), "--context", "64")
    assert (done.returncode, done.stderr) == (0, "")
    assert done.stdout.startswith("perplexity ") and "chunks of 64" in done.stdout
    result = json.loads(
        woolly("perplexity", "tiny-talker", "-", "-c", "64", "--json", "--chunks", "2", stdin=TEXT).stdout
    )
    assert (result["chunks"], result["tokens"], len(result["by_chunk"])) == (2, 62, 2)
    assert result["perplexity"] > 1


def test_kl_tells_how_long_it_will_take_and_how_far_the_engine_is_from_the_truth(woolly: Woolly) -> None:
    words = ("perplexity", "tiny-talker", "-", "-c", "64", "--chunks", "2", "--kl")
    done = woolly(*words, stdin=TEXT)
    assert done.returncode == 0
    assert done.stderr.startswith("woolly: the exact logits will take about ")
    assert "KL " in done.stdout and "same top token" in done.stdout
    done = woolly(*words, "--json", "--quiet", stdin=TEXT)
    result = json.loads(done.stdout)
    assert done.stderr == ""
    assert result["perplexity"] == pytest.approx(result["exact_perplexity"], rel=0.02)
    assert 0 <= result["kl"]["mean"] <= result["kl"]["worst"] < 0.1 and result["kl"]["tokens"] == 62


def test_what_takes_more_than_a_minute_is_asked_for(capsys: pytest.CaptureFixture[str]) -> None:
    args = argparse.Namespace(yes=False, quiet=False)
    with pytest.raises(RequestError, match=r"about 61 s.*--yes"):
        perplexity._confirm_duration(61, args, 9)
    perplexity._confirm_duration(61, argparse.Namespace(yes=True, quiet=False), 9)
    assert "about 61 s" in capsys.readouterr().err


@pytest.mark.parametrize(
    ("words", "expected", "code"),
    [
        (["tiny-talker", "-", "--context", "513"], "--context is 513", 2),
        (["tiny-talker", "-", "--chunks", "-1"], "--chunks", 2),
        (["tiny-talker", "-", "--context", "4096"], "a chunk 4,096", 2),
        (["tiny-talker", "/nothing/there.txt"], "there is no file", 3),
        (["tiny-talker", "/"], "cannot be read", 4),
    ],
)
def test_what_cannot_be_counted_is_one_line(woolly: Woolly, words: list[str], expected: str, code: int) -> None:
    done = woolly("perplexity", *words, stdin=TEXT)
    assert (done.returncode, done.stdout) == (code, "")
    assert expected in done.stderr and done.stderr.count("\n") == 1


def test_bytes_that_are_no_text_are_refused_or_replaced(woolly: Woolly, tmp_path: Path) -> None:
    path = tmp_path / "text.txt"
    path.write_bytes(b"abc\xff" + TEXT.encode())
    done = woolly("perplexity", "tiny-talker", str(path), "-c", "64")
    assert done.returncode == 2 and "not UTF-8 at byte 3" in done.stderr
    assert woolly("perplexity", "tiny-talker", str(path), "-c", "64", "--lossy").returncode == 0


def test_the_default_model_is_as_perplexed_as_exact_arithmetic(woolly: Woolly, smollm2: Path) -> None:
    result = json.loads(woolly("perplexity", str(smollm2), str(DATA / "smollm2" / "long.txt"), "--json").stdout)
    assert (result["context"], result["chunks"], result["tokens"]) == (512, 4, 1020)
    assert result["perplexity"] == pytest.approx(EXACT, rel=0.015)


def test_the_default_model_is_close_to_the_truth_of_its_file(started: Woolly, smollm2: Path) -> None:
    words = ("perplexity", str(smollm2), str(DATA / "smollm2" / "long.txt"), "-c", "128")
    result = json.loads(started(*words, "--chunks", "2", "--kl", "--yes", "--json").stdout)
    assert result["kl"]["mean"] <= KL
    assert result["kl"]["same_top"] >= 0.93
    result = json.loads(started(*words, "--chunks", "1", "--exact", "--kl", "--yes", "--json").stdout)
    assert result["kl"]["mean"] <= EXACT_KL
    assert result["kl"]["same_top"] >= 0.99
