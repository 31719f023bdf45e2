"""A chat at a real pseudo-terminal, with a model that talks nonsense for a long time."""

from __future__ import annotations

import json
import re
import signal
import stat
from pathlib import Path

import pytest

from tests.cli.chat.terminal import REDRAWN, Terminal, visible
from tests.tiny import tiny

CTRL_C, CTRL_D, ALT_ENTER = b"\x03", b"\x04", b"\x1b\r"
ENDLESS = ("--temperature", "0")  # this model then repeats itself to the end of its context
SHORT = (*ENDLESS, "--max-tokens", "8")
WILD = ("--temperature", "1", "--top-k", "0", "--top-p", "1", "--seed", "1", "--max-tokens", "400")
CUT = "the answer was cut at max_tokens"


@pytest.fixture
def environ(environ: dict[str, str], tmp_path: Path) -> dict[str, str]:
    return environ | {"XDG_STATE_HOME": str(tmp_path / "state")}


def test_a_message_is_answered_and_ctrl_d_leaves(environ: dict[str, str]) -> None:
    with Terminal("run", "tiny-talker", *SHORT, environ=environ) as person:
        assert "/help" in person.prompt()
        assert CUT in person.say("hello there")
        person.type(CTRL_D)
        assert person.leave() == 0
        assert person.echoes()


def test_the_answer_is_streamed_and_f13_ctrl_c_stops_it_and_not_the_program(environ: dict[str, str]) -> None:
    with Terminal("run", "tiny-talker", *ENDLESS, environ=environ) as person:
        person.prompt()
        person.ask("hello")
        first = len(person.seen)
        while len(person.seen) < first + 2000:  # it would go on for sixty thousand tokens
            person.until(REDRAWN)  # the open block is drawn again and again
        assert b"stopped" not in person.seen
        person.type("xyzzy")  # is not drawn into the answer
        person.until(REDRAWN)
        person.until(REDRAWN)
        assert b"xyzzy" not in person.seen
        person.type(CTRL_C)
        person.until("stopped; Ctrl-C again leaves")
        person.prompt()
        assert "1, " in person.say("/stats")
        person.type("/quit\r")
        assert person.leave() == 0
        assert person.echoes()


def test_f13_ctrl_c_twice_leaves_with_130_and_the_terminal_as_it_was(environ: dict[str, str]) -> None:
    with Terminal("run", "tiny-talker", *ENDLESS, environ=environ) as person:
        person.prompt()
        person.ask("hello")
        person.until(REDRAWN)
        person.type(CTRL_C)
        person.prompt()
        person.type(CTRL_C)
        assert person.leave() == 130
        assert person.echoes()


def test_ctrl_c_at_the_prompt_drops_what_was_typed_then_warns_then_leaves(environ: dict[str, str]) -> None:
    with Terminal("run", "tiny-talker", *SHORT, environ=environ) as person:
        person.prompt()
        person.type("half a thought")
        person.until("thought")
        person.type(CTRL_C + b"/stats\r")
        assert "nothing has been answered yet" in person.prompt()
        person.type(CTRL_C)
        assert "Ctrl-C again, or Ctrl-D, leaves" in person.prompt()
        person.type(CTRL_C)
        assert person.leave() == 130


def test_sigterm_ends_it_with_143_and_the_terminal_as_it_was(environ: dict[str, str]) -> None:
    with Terminal("run", "tiny-talker", *SHORT, environ=environ) as person:
        person.prompt()
        person.type("half")
        person.until("half")
        person.signal(signal.SIGTERM)
        assert person.leave() == 143
        assert person.echoes()


def test_a_message_can_have_several_lines(environ: dict[str, str], tmp_path: Path) -> None:
    with Terminal("run", "tiny-talker", *SHORT, environ=environ) as person:
        person.prompt()
        person.type(b"one" + ALT_ENTER + b"two\r")
        person.prompt()
        person.say("three\\\rfour")
        person.say('"""five\r\rsix"""')
        person.type(b"\x1b[200~seven\reight\x1b[201~\r")  # pasted
        person.prompt()
        person.say(f"/save {tmp_path}/lines.json")
        person.type("/quit\r")
        assert person.leave() == 0
    messages = [
        m["content"] for m in json.loads((tmp_path / "lines.json").read_text())["messages"] if m["role"] == "user"
    ]
    assert messages == ["one\ntwo", "three\nfour", "five\n\nsix", "seven\neight"]


def test_tab_completes_commands_and_the_paths_of_files(environ: dict[str, str], tmp_path: Path) -> None:
    (tmp_path / "notes-of-mine.txt").write_text("wool")
    with Terminal("run", "tiny-talker", *SHORT, environ=environ, size=(24, 400)) as person:
        person.prompt()
        person.type("/und\t\r")
        assert "nothing has been said yet" in person.prompt()
        person.type(f"read @{tmp_path}/notes-o\t")
        person.until("f-mine.txt")
        person.type("\r")
        assert f"with {tmp_path}/notes-of-mine.txt" in person.prompt()
        person.type(CTRL_D)
        assert person.leave() == 0


def test_a_second_turn_reuses_the_first(environ: dict[str, str]) -> None:
    with Terminal("run", "tiny-talker", *SHORT, environ=environ) as person:
        person.prompt()
        person.say("a question that is longer than a page of the cache, which has sixty-four places: " + "word " * 20)
        assert " 0 of them reused" in person.say("/stats")
        person.say("and a second one")
        shown = re.search(r"last prompt +(\d+) tokens, (\d+) reused", person.say("/stats"))
        assert shown
        assert int(shown[2]) >= 128
        assert int(shown[1]) - int(shown[2]) < 64 + 64  # what is left is the answer, the question, and half a page
        person.type("/quit\r")
        assert person.leave() == 0


def test_a_saved_chat_goes_on_in_another_process_and_nobody_else_can_read_it(
    environ: dict[str, str], tmp_path: Path
) -> None:
    with Terminal("run", "tiny-talker", *SHORT, "--system", "Be brief.", environ=environ) as person:
        person.prompt()
        person.say("remember me")
        assert "saved 2 messages" in person.say("/save plans")
        person.type("/quit\r")
        assert person.leave() == 0
    path = tmp_path / "state" / "woolly" / "chats" / "plans.json"
    assert stat.S_IMODE(path.stat().st_mode) == 0o600
    assert stat.S_IMODE(path.parent.stat().st_mode) == 0o700
    with Terminal("run", "tiny-talker", environ=environ) as person:
        person.prompt()
        assert "plans" in person.say("/load")
        assert "loaded 2 messages" in person.say("/load plans")
        assert "Be brief." in person.say("/system")
        assert re.search(r"max_tokens +8 ", person.say("/set"))
        assert CUT in person.say("/retry")
        person.type("/quit\r")
        assert person.leave() == 0


def test_what_was_typed_comes_back_in_the_next_chat(environ: dict[str, str], tmp_path: Path) -> None:
    for keys in ("first words\r", b"\x1b[A again\r"):  # the second time, after the arrow up
        with Terminal("run", "tiny-talker", *SHORT, environ=environ) as person:
            person.prompt()
            person.type(keys)
            assert CUT in person.prompt()
            person.type(" /quit\r")
            assert person.leave() == 0
    path = tmp_path / "state" / "woolly" / "history"
    assert stat.S_IMODE(path.stat().st_mode) == 0o600
    assert [json.loads(line) for line in path.read_text().splitlines()] == [
        "first words",
        "first words again",
    ]  # and not what a space hides


def test_a_resize_while_the_model_answers_and_at_the_prompt(environ: dict[str, str]) -> None:
    """After the terminal became narrow no line of an answer is wider than it."""
    with Terminal("run", "tiny-talker", *ENDLESS, environ=environ) as person:
        person.prompt()
        person.ask("hello")
        person.until(REDRAWN)
        person.resize(20, 40)
        person.until(REDRAWN)  # one drawing may have begun before
        person.until(REDRAWN)
        narrow = [person.until(REDRAWN) for _ in range(3)]
        person.resize(24, 100)
        person.until(REDRAWN)
        person.type(CTRL_C)
        person.prompt()
        person.resize(24, 60)
        person.type("/stats\r")
        person.until("answers")
        person.prompt()
        person.type("/quit\r")
        assert person.leave() == 0
    lines = [line for drawing in narrow for line in drawing.split("\n")]
    assert max(map(len, lines)) <= 40
    assert max(map(len, lines)) > 20


def test_t13_an_answer_cannot_act_on_the_terminal(environ: dict[str, str]) -> None:
    """The model draws from all bytes. Nothing but our own sequences reaches the terminal."""
    with Terminal("run", "tiny-talker", *WILD, environ=environ) as person:
        person.prompt()
        shown = person.say("hello")
        assert "\\x" in shown
        person.type("/quit\r")
        assert person.leave() == 0
        acting = set(range(0x20)) - {0x09, 0x0A}
        assert not acting & set(visible(person.seen).encode())


@pytest.mark.parametrize("case", [{"TERM": "dumb"}, {"NO_COLOR": "1"}])
def test_without_colours_or_on_a_dumb_terminal_nothing_is_dimmed(environ: dict[str, str], case: dict[str, str]) -> None:
    term = case.get("TERM", "xterm")
    with Terminal("run", "tiny-talker", *SHORT, environ=environ | case, term=term) as person:
        if term == "dumb":
            person.until(">>> ")
            person.type("hello\r")
            person.until(CUT)
            person.until(">>> ")
            person.type('"""one\r')
            person.until("... ")
            person.type('two"""\r')
            person.until(CUT)
            person.until(">>> ")
        else:
            person.prompt()
            person.say("hello")
        person.type(CTRL_D)
        assert person.leave() == 0
        assert b"\x1b[2m" not in person.seen
        assert re.search(rb"\x1b\[[0-9;]*3[0-9]", person.seen) is None
        assert term != "dumb" or b"\x1b" not in person.seen


def test_chat_is_the_same_command_and_quiet_is_the_answer_alone(environ: dict[str, str]) -> None:
    with Terminal("chat", "tiny-talker", "-q", *SHORT, environ=environ) as person:
        assert person.prompt().strip() == ""
        person.say("hello")
        assert b"tokens/s" not in person.seen
        person.type(CTRL_D)
        assert person.leave() == 0


def test_a_model_that_cannot_talk_is_refused_before_anything_is_typed(environ: dict[str, str], tmp_path: Path) -> None:
    path = tiny(tmp_path / "plain.gguf", meta={"tokenizer.chat_template": None})
    with Terminal("run", str(path), environ=environ) as person:
        assert person.leave() == 4
        assert b"no chat template" in person.seen
