"""cli.compat_argv: command lines of other programs work, or are answered with what to type instead."""

from __future__ import annotations

import argparse
from pathlib import Path

import pytest

from tests.cli.conftest import Woolly
from tests.cli.llama_server_options import LIST, Option, ours, page
from woolly.cli import compat_argv, llama_argv
from woolly.cli.commands import COMMANDS, load
from woolly.cli.parser import Parser
from woolly.errors import RequestError

PAGE = Path(__file__).resolve().parents[2] / "docs" / "coming-from.md"
KV = ("-ctk", "--cache-type-k", "-ctv", "--cache-type-v")  # whose value q8_0 is our q8
OLD = {"--log-format"}  # of earlier versions of llama.cpp


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
        ("serve -hf org/repo:Q8_0 -hff x.gguf", "serve --model hf:org/repo:x.gguf"),
        ("serve --hf-file=x.gguf -hf org/repo", "serve --model hf:org/repo:x.gguf"),
        ("run -hf org/repo -hff x.gguf hello", "run hf:org/repo:x.gguf hello"),
        ("serve m -n -1 -s -1 --seed -1 -t -1 -c 0 -np -1", "serve m"),
        ("serve m --top-k -1 --temp 0.2", "serve m --top-k 0 --temperature 0.2"),
        ("serve m --api-key one,two --api-key=three", "serve m --api-key one --api-key two --api-key three"),
        ("serve m --draft 16 -md d.gguf", "serve m --draft d.gguf"),
        ("serve m --draft d.gguf", "serve m --draft d.gguf"),
        ("serve m --reasoning auto", "serve m --thinking on"),
        ("serve m --reasoning-budget 0", "serve m --thinking off"),
        ("serve m --reasoning-budget=-1", "serve m"),
        ("serve m --reasoning-format deepseek --log-colors --spec-replace a b -fa", "serve m"),
        ("-m f.gguf --no-webui --port 1", "serve --model f.gguf --port 1"),
        ("--no-slots -m f.gguf", "serve --model f.gguf"),
        ("-m f.gguf -nkvo -ot exps=CPU -p hi", "run f.gguf hi"),
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


@pytest.mark.parametrize("option", LIST, ids=lambda option: option.names[0])
def test_every_option_of_llama_server_is_taken_noted_or_refused(
    option: Option, capsys: pytest.CaptureFixture[str]
) -> None:
    for name in option.names:
        if option.fate == "refused":
            with pytest.raises(RequestError, match=f"`woolly serve` has no {name}") as caught:
                ours(option, name)
            assert caught.value.suggestion
            continue
        words = ours(option, name)
        note = capsys.readouterr().err
        assert (f"note: {name} means nothing here: " in note) == (option.fate == "noted"), name
        parser = Parser("serve", None)
        load("serve").arguments(parser)
        parsed = parser.parse(words[1:])
        assert (words == ours(LIST[0], "-m")[:3]) == (option.fate == "noted"), name
        assert all(value in str(parsed) for value in option.values if option.fate == "taken" and name not in KV), name


def test_no_option_of_llama_server_stands_in_the_list_twice() -> None:
    names = [name for option in LIST for name in option.names]
    assert len(names) == len(set(names)) > 250


def test_every_word_of_the_tables_stands_in_the_list() -> None:
    """So that the page, which is made from the list, shows all of them."""
    tables = (llama_argv.SERVER, llama_argv.NOTED, llama_argv.NOTED_BY_SERVER, llama_argv.REFUSED)
    words = {word.partition("=")[0] for table in (*tables, llama_argv.REFUSED_BY_SERVER) for word in table}
    assert words - {name for option in LIST for name in option.names} == OLD


def test_the_page_shows_what_becomes_of_each_option() -> None:
    assert page() in PAGE.read_text("utf-8"), "python -m tests.cli.llama_server_options prints the tables"


def test_a_file_of_the_hub_needs_its_repo() -> None:
    with pytest.raises(RequestError, match="-hff names a file in a repo of the hub; name the repo with -hf"):
        compat_argv.translate(["serve", "-hff", "x.gguf"], COMMANDS)


def test_a_value_that_would_change_the_answer_is_refused_with_its_flag() -> None:
    with pytest.raises(RequestError, match="has no --reasoning-format=none; thoughts are always told apart"):
        compat_argv.translate(["serve", "m", "--reasoning-format", "none"], COMMANDS)


def test_flags_of_one_reason_are_one_note(capsys: pytest.CaptureFixture[str]) -> None:
    compat_argv.translate(["serve", "m", "-ngl", "99", "-ot", "a=b", "--no-webui", "-ngl", "1"], COMMANDS)
    assert capsys.readouterr().err == (
        "woolly: note: -ngl, -ot mean nothing here: Woolly computes on the processor\n"
        "woolly: note: --no-webui means nothing here: the page costs nothing while nobody opens it\n"
    )


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
