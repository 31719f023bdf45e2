"""woolly bench, as a user starts it."""

from __future__ import annotations

import json
import subprocess
import sys

import pytest

from tests.cli.conftest import Woolly

QUICK = ("-p", "8", "-n", "2", "-r", "1", "--batch", "1,2")


def test_a_model_is_measured_and_told_as_one_json_object(woolly: Woolly) -> None:
    done = woolly("bench", "tiny-talker", *QUICK, "-t", "2", "--profile", "--json")
    assert (done.returncode, done.stderr) == (0, "")
    data = json.loads(done.stdout)
    assert data["model"] == "tiny-talker.gguf"
    assert [test["test"] for test in data["tests"]] == ["pp8", "tg2", "tg2x2"]
    assert list(data["profile"]) == ["pp8", "tg2"]


def test_a_model_is_measured_and_told_in_lines(woolly: Woolly) -> None:
    done = woolly("bench", "tiny-talker", *QUICK, "--kv", "q8", "--depth", "5")
    assert done.returncode == 0
    assert done.stdout.startswith("tiny-talker.gguf: llama, ")
    assert "tg2x2@d5" in done.stdout


def test_an_exact_model_is_measured_as_one(woolly: Woolly) -> None:
    done = woolly("bench", "tiny-talker", *QUICK, "--exact")
    assert done.returncode == 0
    assert done.stdout.partition("\n")[0].endswith(" threads, cache f32, exact")
    data = json.loads(woolly("bench", "tiny-talker", *QUICK, "--json", WOOLLY_EXACT="1").stdout)
    assert (data["exact"], data["kv"]) == (True, "f32")


@pytest.mark.parametrize(
    ("words", "expected"),
    [
        (("--shape", "gpt-9:Q4_0"), "the shapes are smollm2-135m"),
        (("--shape", "qwen3-0.6b"), "the mixes are"),
        (("tiny-talker", "--shape", "qwen3-0.6b:Q8_0"), "leave the MODEL out"),
        (("tiny-talker", "--batch", "1,x"), "--batch"),
        (("tiny-talker", "--batch", "0"), "--batch"),
        (("tiny-talker", "--batch", ""), "--batch"),
        (("tiny-talker", "-p", "0", "-n", "0"), "nothing to measure"),
        (("tiny-talker", "-p", "-1"), "--prompt"),
        (("tiny-talker", "-r", "0"), "--repetitions"),
        (("tiny-talker", "-t", "0"), "--threads"),
        (("tiny-talker", "--seconds", "nan"), "--seconds"),
        (("tiny-talker", "--depth", "99999999"), "--depth"),
    ],
)
def test_wrong_words_are_one_line_and_exit_2(woolly: Woolly, words: tuple[str, ...], expected: str) -> None:
    done = woolly("bench", *words)
    assert (done.returncode, done.stdout) == (2, "")
    assert expected in done.stderr
    assert done.stderr.count("\n") == 1


def test_a_missing_peer_is_exit_3_with_the_way_to_install_it(woolly: Woolly) -> None:
    done = woolly("bench", "tiny-talker", *QUICK, "--against", "llama.cpp", WOOLLY_PEER_PYTHON="./no-python")
    assert done.returncode == 3
    assert "pip install --no-binary llama-cpp-python" in done.stderr


def test_the_help_imports_nothing_heavy() -> None:
    code = (
        "import sys; from woolly.cli.main import main; main(['bench', '--help']); "
        "print(sorted(set(sys.modules) & {'numpy', 'tokenizers', 'woolly._core', 'woolly.bench'}))"
    )
    output = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True).stdout
    assert "--against" in output
    assert output.splitlines()[-1] == "[]"


def test_a_model_that_is_not_there_is_exit_3(woolly: Woolly) -> None:
    assert woolly("bench", "tiny-walker").returncode == 3
