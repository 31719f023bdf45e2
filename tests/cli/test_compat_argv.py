"""cli.compat_argv: command lines of other programs work, or are answered with what to type instead."""

from __future__ import annotations

import argparse

import pytest

from tests.cli.conftest import Woolly
from woolly.cli import compat_argv
from woolly.cli.commands import COMMANDS, load
from woolly.errors import RequestError


@pytest.mark.parametrize(
    ("typed", "expected"),
    [
        # Ollama
        ("ls", "list"),
        ("run llama3.2 hello", "run llama3.2 hello"),
        ("run m hi --keepalive 5m", "run m hi"),
        ("run m --verbose hi", "run m hi"),
        ("run m --think=false hi", "run m --no-think hi"),
        ("run m --think=true hi", "run m --think hi"),
        ("rm m", "rm m"),
        ("rm -f m", "rm --yes m"),
        ("show m --license", "show m"),
        # llama.cpp
        ("-m f.gguf -p hello", "run f.gguf hello"),
        ("-p hello", "run smollm2 hello"),
        ("run f.gguf -p hello", "run f.gguf hello"),
        ("-hf org/repo:Q8_0 -p hello", "run hf:org/repo:Q8_0 hello"),
        ("-m f.gguf", "run f.gguf"),
        (
            "-m f.gguf -p hi -n 32 -c 4096 -t 4 --temp 0.2",
            "run f.gguf hi --max-tokens 32 --context 4096 -t 4 --temperature 0.2",
        ),
        ("-m f.gguf -p hi -n -1 -c 0", "run f.gguf hi"),
        ("-m f.gguf -p hi --ctx-size=512", "run f.gguf hi --context 512"),
        ("-m f.gguf -p hi -ngl 99 -fa", "run f.gguf hi"),
        ("-m f.gguf -fa on -p hi -b 512 --no-mmap", "run f.gguf hi"),
        ("-m f.gguf -p hi -s 42", "run f.gguf hi --seed 42"),
        ("-m f.gguf -p hi -s brief", "run f.gguf hi --system brief"),
        ("-m f.gguf -p hi -ctk q8_0 -r stop", "run f.gguf hi --kv q8 --stop stop"),
        ("llama-cli -m f.gguf -no-cnv -p hi", "run f.gguf hi"),
        ("llama-server -m f.gguf --port 9000 -c 2048", "serve --model f.gguf --port 9000 --context 2048"),
        ("-m f.gguf --host 127.0.0.1 --port 1", "serve --model f.gguf --host 127.0.0.1 --port 1"),
        ("serve -hf org/repo -ngl 99 -np 4", "serve --model hf:org/repo --sequences 4"),
        ("serve m --max-model-len 4096", "serve m --context 4096"),
        ("serve -c server.toml -b 127.0.0.1:1", "serve -c server.toml -b 127.0.0.1:1"),
        ("llama-bench -m f.gguf -p 512 -n 128 -r 3 -ngl 0", "bench f.gguf -p 512 -n 128 -r 3"),
        ("llama-perplexity -m f.gguf -f text.txt -c 512", "perplexity f.gguf text.txt -c 512"),
        ("perplexity --yes f.gguf -f text.txt", "perplexity f.gguf text.txt --yes"),
        ("llama-tokenize -m f.gguf -p hi", "tokenize f.gguf hi"),
        ("tokenize -t hi", "tokenize smollm2 hi"),
        ("pull -hf org/repo", "pull hf:org/repo"),
        # others, and our own documents
        ("info -m f.gguf", "show f.gguf"),
        ("info", "doctor"),
        ("info --json", "doctor --json"),
        ("info --json -m f.gguf", "show f.gguf --json"),
        ("benchmark machine", "bench machine"),
        ("--json list", "list --json"),
        ("-q ls", "list -q"),
        ("delete m", "rm m"),
        ("download smollm2", "pull smollm2"),
        # ours stay as they are
        ("run m hi --stop -- --temp", "run m hi --stop -- --temp"),
        ("bench m -p 512", "bench m -p 512"),
        ("run m hi --seed -1", "run m hi --seed -1"),
        ("tokenize m -", "tokenize m -"),
    ],
)
def test_what_is_typed_out_of_habit_becomes_our_words(typed: str, expected: str) -> None:
    assert compat_argv.translate(typed.split(), COMMANDS) == expected.split()


@pytest.mark.parametrize("name", compat_argv.ANSWERS)
def test_a_command_that_we_do_not_have_is_answered(name: str) -> None:
    with pytest.raises(RequestError, match=f"there is no `woolly {name}`") as caught:
        compat_argv.translate([name, "-f", "Modelfile"], COMMANDS)
    assert caught.value.suggestion == compat_argv.ANSWERS[name]


@pytest.mark.parametrize(
    ("name", "flag"), [(name, flag) for name, table in compat_argv.REFUSED.items() for flag in table]
)
def test_a_flag_that_would_change_the_answer_is_refused_with_our_word(name: str, flag: str) -> None:
    with pytest.raises(RequestError, match=f"has no {flag}") as caught:
        compat_argv.translate([name, "m", flag, "x"], COMMANDS)
    assert caught.value.suggestion == compat_argv.REFUSED[name][flag]


def test_a_flag_that_means_nothing_is_noted_once(capsys: pytest.CaptureFixture[str]) -> None:
    compat_argv.translate(["run", "m", "hi", "-ngl", "99", "-ngl", "1"], COMMANDS)
    assert capsys.readouterr().err == "woolly: note: -ngl means nothing here: Woolly computes on the processor\n"
    compat_argv.translate(["run", "m", "hi", "-ngl", "99", "--quiet"], COMMANDS)
    assert capsys.readouterr().err == ""


@pytest.mark.parametrize("words", [["-m"], ["run", "-n"], ["serve", "-m"], ["run", "m", "--ctx-size"]])
def test_a_flag_without_its_value_is_wrong_usage(words: list[str]) -> None:
    with pytest.raises(RequestError, match="needs a value"):
        compat_argv.translate(words, COMMANDS)


def test_no_word_of_another_hides_one_of_ours() -> None:
    assert not set(compat_argv.COMMANDS) & set(COMMANDS)
    assert not set(compat_argv.ANSWERS) & (set(COMMANDS) | set(compat_argv.COMMANDS))


@pytest.mark.parametrize("name", [name for name in COMMANDS if name != "chat"])
def test_the_tables_name_flags_that_the_command_has_and_take_none_away(name: str) -> None:
    parser = argparse.ArgumentParser(add_help=False)
    load(name).arguments(parser)
    flags = set(parser._option_string_actions)
    assert set(compat_argv.SAME.get(name, {}).values()) <= flags
    taken = {**compat_argv.SAME.get(name, {}), **compat_argv.DROPPED.get(name, {}), **compat_argv.REFUSED.get(name, {})}
    assert not set(taken) & flags
    assert not set(compat_argv.PLACED.get(name, {})) & flags


def test_every_flag_without_a_value_is_known_where_a_word_may_follow_it() -> None:
    alone = set()
    for name in (name for name, places in compat_argv.PLACED.items() if 1 in places.values()):
        parser = argparse.ArgumentParser(add_help=False)
        load(name).arguments(parser)
        alone |= {flag for flag, action in parser._option_string_actions.items() if action.nargs == 0}
    assert alone == compat_argv.ALONE


def test_a_line_of_llama_cpp_answers(woolly: Woolly) -> None:
    done = woolly("-m", "tiny-talker", "-p", "hello", "-n", "3", "-ngl", "99", "--temp", "0")
    assert done.returncode == 0, done.stderr
    assert "woolly: note: -ngl" in done.stderr and "answer 3 tokens" in done.stderr


def test_a_command_of_ollama_is_one_line_and_exit_2(woolly: Woolly) -> None:
    done = woolly("ps")
    assert (done.returncode, done.stdout) == (2, "")
    assert done.stderr.startswith("woolly: error: there is no `woolly ps`; ") and done.stderr.count("\n") == 1
    assert woolly("-v").stdout.startswith("woolly ")
