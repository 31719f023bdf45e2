"""woolly run: an answer streamed to whoever reads it, and gone when nobody does."""

from __future__ import annotations

import json
import os
import pty
import re
import signal
import subprocess
from pathlib import Path

import pytest

from tests.cli.conftest import Woolly, command
from tests.lora import adapter
from tests.tiny import CHATML, tiny

LONG = ("--max-tokens", "60000", "--temperature", "1", "--top-k", "0", "--top-p", "1", "--seed", "1")


def test_the_answer_is_on_standard_output_and_the_figures_beside_it(started: Woolly, model: Path) -> None:
    done = started("run", str(model), "hello there", "--max-tokens", "8", "--seed", "1")
    assert done.returncode == 0
    assert done.stdout.endswith("\n")
    assert len(done.stdout) > 1
    figures = (
        r"prompt (\d+) tokens at [\d,.]+ tokens/s, answer (\d+) tokens( \(cut at its limit\))? at [\d,.]+ tokens/s, "
        r"first token after [\d.]+ s, peak memory [\d,]+ MB\n"
    )
    match = re.fullmatch(figures, done.stderr)
    assert match, done.stderr
    assert int(match[1]) > 5
    assert 1 <= int(match[2]) <= 8


def test_quiet_is_the_answer_alone_and_a_seed_repeats_it(woolly: Woolly) -> None:
    first, second = (woolly("run", "tiny-talker", "hi", "-q", "--max-tokens", "8", "--seed", "7") for _ in range(2))
    assert (first.returncode, first.stderr) == (0, "")
    assert first.stdout == second.stdout


def test_json_has_the_answer_and_its_figures(woolly: Woolly) -> None:
    options = ("--seed", "3", "--max-tokens", "5")
    plain = woolly("run", "tiny-talker", "hello", *options, "--quiet")
    done = woolly("run", "tiny-talker", "hello", *options, "--json")
    assert (done.returncode, done.stderr, done.stdout.count("\n")) == (0, "", 1)
    data = json.loads(done.stdout)
    (result,) = data["results"]
    assert result["response"].strip() == plain.stdout.strip()
    assert (result["prompt"], result["finish_reason"], result["tokens_generated"]) == ("hello", "length", 5)
    assert result["time_ms"] >= result["time_to_first_token_ms"] > 0 and result["seed"] == 3
    assert data["summary"]["peak_memory_bytes"] > 1e6


def test_the_samplers_are_options(woolly: Woolly) -> None:
    asked = ("run", "tiny-talker", "hi", "-q", "--max-tokens", "8", "--seed", "7", "--temperature", "20")
    plain = woolly(*asked).stdout
    for option in (("--mirostat", "2", "--mirostat-ent", "0.5"), ("--logit-bias", "q=100", "--logit-bias", "z=1")):
        done = woolly(*asked, *option)
        assert (done.returncode, done.stderr) == (0, "") and done.stdout != plain
    assert done.stdout.strip() == "q" * 8
    dry = woolly(
        *asked, "--logit-bias", "q=9", "--dry-multiplier", "99", "--dry-sequence-breaker", "x", "--typical", "0.9"
    )
    assert dry.returncode == 0 and "qqqq" not in dry.stdout
    assert woolly(*asked, "--logit-bias", "q").returncode == 2


def test_an_adapter_is_an_option(woolly: Woolly, model: Path, tmp_path: Path) -> None:
    asked = ("run", "tiny-talker", "hi", "-q", "--max-tokens", "8", "--temperature", "0")
    path = adapter(tmp_path / "pirate.gguf", model, size=4.0)
    plain, with_it, off = (woolly(*asked, *more) for more in ((), ("--lora", str(path)), (f"--lora={path}=0",)))
    assert plain.stdout == off.stdout != with_it.stdout
    assert (with_it.returncode, with_it.stderr) == (0, "")
    done = woolly(*asked, "--lora", str(model))
    assert done.returncode == 4 and "no adapter" in done.stderr


def test_json_without_a_prompt_is_exit_2(woolly: Woolly) -> None:
    done = woolly("run", "tiny-talker", "--json")
    assert (done.returncode, done.stdout) == (2, "")


def test_a_pipe_is_the_prompt_or_goes_with_it(woolly: Woolly, started: Woolly) -> None:
    options = ("-q", "--max-tokens", "8", "--temperature", "0")
    alone = started("run", "tiny-talker", *options, stdin="Sum this up:\n\nOne, two.")
    both = woolly("run", "tiny-talker", "Sum this up:", *options, stdin="One, two.")
    assert alone.returncode == both.returncode == 0
    assert alone.stdout == both.stdout
    assert alone.stdout != woolly("run", "tiny-talker", "Sum this up:", *options).stdout


def test_the_system_message_is_part_of_the_prompt(woolly: Woolly) -> None:
    def tokens(*words: str) -> int:
        match = re.match(r"prompt (\d+) tokens", woolly("run", "tiny-talker", "hi", "--max-tokens", "1", *words).stderr)
        assert match
        return int(match[1])

    assert tokens("--system", "Answer briefly.") > tokens() + 5


@pytest.mark.parametrize(
    ("option", "value"), [("--top-p", "2"), ("--temperature", "-1"), ("--max-tokens", "0"), ("--threads", "0")]
)
def test_a_value_out_of_range_is_exit_2(woolly: Woolly, option: str, value: str) -> None:
    done = woolly("run", "tiny-talker", "hi", option, value)
    assert done.returncode == 2
    assert done.stderr.count("\n") == 1


def test_a_prompt_longer_than_the_context_is_exit_2_with_both_numbers(woolly: Woolly) -> None:
    done = woolly("run", "tiny-talker", "--context", "64", stdin="word " * 500)
    assert done.returncode == 2
    assert "64" in done.stderr
    assert done.stdout == ""


def test_an_empty_pipe_is_no_prompt(woolly: Woolly) -> None:
    done = woolly("run", "tiny-talker", stdin="")
    assert done.returncode == 2
    assert "there is no prompt" in done.stderr


def test_t05_a_prompt_that_is_not_utf_8_is_refused_with_its_place(woolly: Woolly) -> None:
    done = woolly("run", "tiny-talker", stdin=b"good \xff")
    assert done.returncode == 2
    assert "byte 5" in done.stderr
    done = woolly("run", "tiny-talker", os.fsdecode(b"good \xff"))
    assert done.returncode == 2
    assert "byte 5" in done.stderr


def test_endless_input_is_refused(woolly: Woolly) -> None:
    done = woolly("run", "tiny-talker", stdin=b"x" * (11 << 20))
    assert done.returncode == 2
    assert "more than" in done.stderr


def test_a_model_without_a_chat_template_continues_the_text(woolly: Woolly, tmp_path: Path) -> None:
    path = str(tiny(tmp_path / "plain.gguf", meta={"tokenizer.chat_template": None}))
    done = woolly("run", path, "the", "--max-tokens", "4", "--temperature", "0")
    assert done.returncode == 0
    assert done.stderr.startswith("prompt 2 tokens")
    done = woolly("run", path, "the", "--system", "Be brief.")
    assert done.returncode == 2
    assert "no chat template" in done.stderr


def test_what_the_file_recommends_counts_until_the_user_says_otherwise(woolly: Woolly, tmp_path: Path) -> None:
    path = str(tiny(tmp_path / "calm.gguf", meta={"general.sampling.temp": 0.0}))

    def answers(*options: str) -> set[str]:
        return {woolly("run", path, "hi", "-q", "--max-tokens", "8", "--seed", s, *options).stdout for s in "123"}

    assert len(answers()) == 1
    assert len(answers("--temperature", "2", "--top-k", "0", "--top-p", "1")) > 1


def test_a_chat_template_that_fails_is_exit_4(woolly: Woolly, tmp_path: Path) -> None:
    path = tiny(tmp_path / "odd.gguf", meta={"tokenizer.chat_template": "{{ 1 / 0 }}"})
    done = woolly("run", str(path), "hi")
    assert done.returncode == 4
    assert "the chat template failed" in done.stderr and done.stderr.count("\n") == 1


def test_a_file_that_recommends_nonsense_is_exit_4(woolly: Woolly, tmp_path: Path) -> None:
    path = tiny(tmp_path / "odd.gguf", meta={"general.sampling.top_p": "much"})
    done = woolly("run", str(path), "hi")
    assert done.returncode == 4
    assert "top_p" in done.stderr


def talking(environ: dict[str, str]) -> subprocess.Popen[bytes]:
    """A command in the middle of a long answer."""
    process = subprocess.Popen(
        command("run", "tiny-talker", "hi", *LONG),
        env=environ,
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
    )
    assert process.stdout is not None
    assert process.stdout.read(8)
    return process


def test_f14_a_reader_that_goes_away_ends_it_quietly_with_141(environ: dict[str, str]) -> None:
    process = talking(environ)
    assert process.stdout is not None
    assert process.stderr is not None
    process.stdout.close()
    assert process.wait(60) == 141
    assert process.stderr.read() == b""
    process.stderr.close()


def test_f13_ctrl_c_stops_the_answer_at_once_with_130(environ: dict[str, str]) -> None:
    process = talking(environ)
    process.send_signal(signal.SIGINT)
    rest, errors = process.communicate(timeout=60)
    assert process.returncode == 130
    assert rest.endswith(b"\n")
    assert errors == b""


def test_t13_on_a_terminal_the_answer_cannot_act_unless_raw_is_asked_for(environ: dict[str, str]) -> None:
    """A model that draws from all bytes writes control characters soon."""
    shown = on_a_terminal(command("run", "tiny-talker", "hi", "-q", *LONG, "--max-tokens", "300"), environ)
    acting = set(range(0x20)) - {0x09, 0x0A, 0x0D}  # the terminal itself writes \r before \n
    assert b"\\x" in shown
    assert not acting & set(shown)
    raw = on_a_terminal(command("run", "tiny-talker", "hi", "-q", "--raw", *LONG, "--max-tokens", "300"), environ)
    assert acting & set(raw)


def on_a_terminal(words: list[str], environ: dict[str, str]) -> bytes:
    """What a command writes to a terminal of its own."""
    leader, follower = pty.openpty()
    process = subprocess.Popen(words, env=environ, stdin=follower, stdout=follower, stderr=follower)
    os.close(follower)
    seen = b""
    while True:
        try:
            chunk = os.read(leader, 4096)
        except OSError:  # the last writer is gone
            break
        if not chunk:
            break
        seen += chunk
    os.close(leader)
    assert process.wait(60) == 0
    return seen


def test_thoughts_can_be_switched_off_and_hidden(woolly: Woolly, tmp_path: Path) -> None:
    template = CHATML.replace("assistant\n' }}", "assistant\n' + ('' if enable_thinking == false else '<think>\n') }}")
    path = str(tiny(tmp_path / "thinker.gguf", meta={"tokenizer.chat_template": template}))
    options = ("hi", "-q", "--temperature", "0", "--max-tokens", "8")
    assert len(woolly("run", path, *options).stdout) > 1  # a pipe gets all that the model wrote
    assert woolly("run", path, *options, "--hide-thinking").stdout == ""
    assert len(woolly("run", path, *options, "--hide-thinking", "--no-think").stdout) > 1


def test_think_on_a_model_that_has_no_switch_for_it_is_exit_2(woolly: Woolly) -> None:
    done = woolly("run", "tiny-talker", "hi", "--no-think")
    assert done.returncode == 2
    assert "no switch for thinking" in done.stderr


PERSON = {"type": "object", "properties": {"name": {"enum": ["Ann", "Bob"]}}, "required": ["name"]}


def test_an_answer_has_the_form_that_a_file_or_a_word_describes(woolly: Woolly, tmp_path: Path) -> None:
    schema, grammar = tmp_path / "person.json", tmp_path / "wool.gbnf"
    schema.write_text(json.dumps(PERSON))  # which names no other properties, so that there are none
    grammar.write_text('root ::= "wool" | "hair"')
    asked = ("run", "tiny-talker", "hi", "-q", "--max-tokens", "60")
    assert json.loads(woolly(*asked, "--json-schema", str(schema)).stdout) in ({"name": "Ann"}, {"name": "Bob"})
    assert json.loads(woolly(*asked, "-j", '{"enum": ["Ann"]}').stdout) == "Ann"
    assert woolly(*asked, "--grammar", str(grammar)).stdout in ("wool\n", "hair\n")
    assert woolly(*asked, "--grammar-file", str(grammar), "--temperature", "0").stdout in ("wool\n", "hair\n")
    assert woolly(*asked, "--grammar", 'start: "baah"\n').stdout == "baah\n"
    done = woolly(*asked[:3], "--json-schema", str(schema), "--json", "--max-tokens", "60")
    assert json.loads(json.loads(done.stdout)["results"][0]["response"])["name"] in ("Ann", "Bob")


@pytest.mark.parametrize(
    ("words", "expected"),
    [
        (("--json-schema", '{"not": {}}'), "'not'"),
        (("--json-schema", "{"), "no JSON: Expecting property name enclosed in double quotes at line 1, column 2"),
        (("--json-schema", "nowhere.json"), "nowhere.json"),
        (("--grammar", 'root ::= "a'), "line 1"),
        (("--grammar", 'root ::= "a"', "--json-schema", "{}"), "one form"),
    ],
)
def test_a_form_that_cannot_be_kept_to_is_refused(woolly: Woolly, words: tuple[str, ...], expected: str) -> None:
    done = woolly("run", "tiny-talker", "hi", *words)
    assert done.returncode != 0 and expected in done.stderr and done.stdout == ""


WEATHER = {
    "name": "weather",
    "parameters": {"type": "object", "properties": {"city": {"enum": ["Bonn", "Ulm"]}}, "required": ["city"]},
}


def test_calls_are_lines_of_json(woolly: Woolly, tmp_path: Path) -> None:
    tools = tmp_path / "tools.json"
    tools.write_text(json.dumps([WEATHER, {"type": "function", "function": {"name": "now"}}]))
    asked = ("run", "tiny-talker", "hi", "-q", "--max-tokens", "90", "--tools", str(tools), "--tool-choice", "weather")
    call = json.loads(woolly(*asked).stdout)
    assert (call["name"], call["id"][:5]) == ("weather", "call_")
    assert call["arguments"]["city"] in ("Bonn", "Ulm")
    (result,) = json.loads(woolly(*asked, "--json").stdout)["results"]
    assert result["finish_reason"] == "calls"
    assert [one["name"] for one in result["calls"]] == ["weather"]


@pytest.mark.parametrize(
    ("words", "expected"),
    [
        (("--tools", "{"), "no JSON"),
        (("--tools", "nowhere.json"), "nowhere.json"),
        (("--tools", '{"name": "two words"}'), "two words"),
        (("--tools", json.dumps(WEATHER), "--tool-choice", "fly"), "fly"),
    ],
)
def test_tools_that_cannot_be_read_are_refused(woolly: Woolly, words: tuple[str, ...], expected: str) -> None:
    done = woolly("run", "tiny-talker", "hi", *words)
    assert done.returncode != 0 and expected in done.stderr and done.stdout == ""
