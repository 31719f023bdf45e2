"""A chat without a terminal: a small model, a list of lines that are typed, and what is shown."""

from __future__ import annotations

import io
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from tests.tiny import CHATML, tiny
from woolly import gguf
from woolly.cli.chat.loop import run_chat
from woolly.cli.chat.screen import Appearance, Screen
from woolly.cli.chat.session import Session
from woolly.cli.terminal import escape_controls
from woolly.errors import NativeError, RequestError, UnsupportedError
from woolly.llm.llm import LLM
from woolly.request import End, Failed, Start, Text
from woolly.store import resolve

THINKER = CHATML.replace("assistant\n' }}", "assistant\n' + ('' if enable_thinking == false else '<think>\n') }}")
OPENING, CLOSING = 286, 287  # the last two words of a tiny model, of which `marked` makes the marks of thoughts
GREEDY = {"temperature": 0.0, "max_tokens": 8}


@pytest.fixture(scope="module")
def models(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("models")
    tiny(folder / "talker.gguf", context=256)
    tiny(folder / "other.gguf", context=512, seed=2, meta={"general.sampling.temp": 0.25})
    tiny(folder / "thinker.gguf", context=2048, meta={"tokenizer.chat_template": THINKER})
    with gguf.open(folder / "talker.gguf") as file:
        tokens, kinds = list(file.meta["tokenizer.ggml.tokens"]), list(file.meta["tokenizer.ggml.token_type"])
    tokens[OPENING], tokens[CLOSING] = "<think>", "</think>"
    kinds[OPENING] = kinds[CLOSING] = 3  # control
    words = {"tokenizer.ggml.tokens": tokens, "tokenizer.ggml.token_type": np.array(kinds, np.int32)}
    tiny(folder / "marked.gguf", context=256, meta=words)
    tiny(folder / "mute.gguf", context=256, meta={"tokenizer.chat_template": None})
    return folder


Chat = Callable[..., tuple[Session, io.StringIO]]


@pytest.fixture
def chat(models: Path, tmp_path: Path) -> Iterator[Chat]:
    """Begin a session and type lines into it."""
    begun: list[Session] = []

    def find(name: str) -> Path:
        return resolve(str(models / f"{name}.gguf"))

    def load(path: Path) -> LLM:
        return LLM(path, threads=1)

    def begin(*lines: str, model: str = "talker", **how: Any) -> tuple[Session, io.StringIO]:
        out = io.StringIO()
        options = how.pop("options", GREEDY)
        session = Session(Screen(out, Appearance(), {}), find, load, model, options=options, folder=tmp_path, **how)
        begun.append(session)
        run_chat(session, typist(*lines))
        return session, out

    yield begin
    for session in begun:
        session.close()


def typist(*lines: str) -> Callable[[], str]:
    left = iter(lines)

    def read() -> str:
        for line in left:
            if line == "^C":
                raise KeyboardInterrupt
            return line
        raise EOFError

    return read


def test_questions_and_answers_become_the_conversation(chat: Chat) -> None:
    session, out = chat("hello", "  ", "and?")
    assert [turn.role for turn in session.conversation.turns] == ["user", "assistant"] * 2
    assert escape_controls(session.conversation.turns[1].content) in out.getvalue()
    assert session.tally.answers == 2


def test_a_question_that_does_not_fit_says_so_and_what_can_be_done(chat: Chat) -> None:
    session, out = chat("word " * 300, "hello", options={"temperature": 0.0})
    output = out.getvalue()
    assert "the context holds 256" in output
    assert "/undo" in output
    assert "/clear" in output
    assert [turn.content for turn in session.conversation.turns][:1] == ["hello"]
    assert "the context of 256 tokens is full" in output  # the second answer fills it
    assert session.tally.last is not None
    assert session.tally.last.usage.total_tokens == 256


def test_what_is_wanted_for_the_answer_counts_too(chat: Chat) -> None:
    _, out = chat("hello", options={"max_tokens": 250})
    assert "250 more are wanted for the answer" in out.getvalue()


def test_the_system_message_is_set_shown_and_taken_away(chat: Chat) -> None:
    session, out = chat("/system", "/system Answer in one word.", "/system", '/system ""')
    assert "(no system message)" in out.getvalue()
    assert "  Answer in one word." in out.getvalue()
    assert session.conversation.system == ""
    assert chat("/system Be kind.", "/clear")[0].conversation.system == "Be kind."


def test_retry_answers_again_and_undo_takes_back(chat: Chat) -> None:
    session, _ = chat("one", "two", options=GREEDY | {"temperature": 1.0, "top_k": 0, "top_p": 1.0})
    before = session.conversation
    run_chat(session, typist("/retry"))
    assert [turn.content for turn in session.conversation.turns[:3]] == [turn.content for turn in before.turns[:3]]
    assert len(session.conversation.turns) == 4
    assert session.conversation.turns[3] != before.turns[3]
    run_chat(session, typist("/undo"))
    assert session.conversation.turns == before.turns[:2]
    run_chat(session, typist("/undo"))
    _, out = chat("/undo", "/retry")
    assert "nothing has been said yet" in out.getvalue()
    assert "nothing has been asked yet" in out.getvalue()


def test_an_unknown_slash_word_offers_the_nearest(chat: Chat) -> None:
    _, out = chat("/stat", "/xyz", "/set temprature 1", "/set top_p", "/save", "/load nothing", "/load ../x")
    output = out.getvalue()
    assert "there is no /stat; did you mean /stats?" in output
    assert "there is no /xyz; /help lists them" in output
    assert "did you mean 'temperature'?" in output
    assert output.count("error: ") == 7


@pytest.mark.parametrize("word", ["/bye", "/exit", "/quit", "/QUIT"])
def test_what_people_type_to_leave_leaves(chat: Chat, word: str) -> None:
    session, _ = chat(word, "hello")
    assert session.conversation.turns == ()


def test_every_command_of_the_help_is_there(chat: Chat) -> None:
    from woolly.cli.chat.commands import ALIASES, COMMANDS

    _, out = chat("/help")
    assert all(f"/{name}" in out.getvalue() for name in COMMANDS)
    assert set(ALIASES.values()) <= set(COMMANDS)


def test_another_model_goes_on_with_the_conversation(chat: Chat) -> None:
    session, out = chat("hello", "/model other", "and?", "/model", "/set")
    assert session.llm.info.context == 512
    assert len(session.conversation.turns) == 4
    assert "other.gguf" in out.getvalue()
    assert session.llm.card.sampling == {"temperature": 0.25}


@pytest.mark.parametrize("name", ["nothing", "mute"])
def test_a_model_that_cannot_be_had_leaves_the_one_we_had(chat: Chat, name: str) -> None:
    session, out = chat("hello", f"/model {name}", "and?")
    assert "error: " in out.getvalue()
    assert session.model == "talker"
    assert len(session.conversation.turns) == 4


def test_a_model_that_cannot_talk_is_refused(chat: Chat) -> None:
    with pytest.raises(UnsupportedError, match="no chat template"):
        chat(model="mute")


def test_thoughts_are_shown_apart_and_not_given_back(chat: Chat) -> None:
    session, out = chat("hello", model="thinker")
    thought = session.conversation.turns[1]
    assert thought.content == ""
    assert thought.thoughts
    assert "(thinks)\n" in out.getvalue()
    session, out = chat("hello", model="thinker", hide=True)
    assert session.conversation.turns[1].thoughts not in out.getvalue()
    assert "thinking …" in out.getvalue()


def test_thoughts_between_control_tokens_are_told_from_words_too(chat: Chat) -> None:
    session, out = chat("hello", model="marked", options=GREEDY | {"logit_bias": {OPENING: 100.0}})
    turn = session.conversation.turns[1]
    assert (turn.content, turn.thoughts) == ("", "")  # a mark that comes again before any thought means nothing
    once = {"logit_bias": {OPENING: 100.0, CLOSING: 60.0}, "presence_penalty": 100.0}  # the two marks, then words
    session, out = chat("hello", model="marked", options=GREEDY | once)
    turn = session.conversation.turns[1]
    assert (bool(turn.content), turn.thoughts) == (True, "")
    assert "think>" not in out.getvalue()


def test_think_off_reaches_the_template(chat: Chat) -> None:
    session, _ = chat("hello", "/set think on", "again", model="thinker", options=GREEDY | {"think": False})
    first, second = session.conversation.turns[1], session.conversation.turns[3]
    assert first.content
    assert not first.thoughts
    assert second.thoughts


def test_a_template_without_a_switch_refuses_think(chat: Chat) -> None:
    with pytest.raises(RequestError, match="no switch for thinking"):
        chat(options={"think": False})
    session, out = chat("/set think off", "hello")
    assert "no switch for thinking" in out.getvalue()
    assert len(session.conversation.turns) == 2


def test_a_saved_chat_of_a_thinker_goes_on_with_a_model_that_is_none(chat: Chat) -> None:
    chat("hello", "/save thoughts", model="thinker", options=GREEDY | {"think": False})
    session, out = chat("/load thoughts", "and?")
    assert "no switch for thinking" in out.getvalue()
    assert "it was with thinker; /model thinker" in out.getvalue()
    assert session.options == GREEDY
    assert len(session.conversation.turns) == 4


def test_save_writes_over_a_chat_and_over_nothing_else(chat: Chat, tmp_path: Path) -> None:
    (tmp_path / "notes.txt").write_text("mine")
    _, out = chat("/save plans", f"/save {tmp_path}/notes.txt", "hello", "/save plans", "/load plans")
    assert (tmp_path / "notes.txt").read_text() == "mine"
    assert "there is such a file already" in out.getvalue()
    assert "loaded 2 messages" in out.getvalue()


def test_a_message_that_is_not_utf_8_is_refused_with_its_place(chat: Chat) -> None:
    session, out = chat("good \udcff")
    assert "the message is not UTF-8 at byte 5" in out.getvalue()
    assert session.conversation.turns == ()


def test_ctrl_c_at_an_empty_prompt_warns_and_the_second_leaves(chat: Chat) -> None:
    session, out = chat("^C", "hello", "^C")
    assert out.getvalue().count("Ctrl-C again") == 2
    assert run_chat(session, typist("^C", "^C", "hello")) == 130
    assert len(session.conversation.turns) == 2


def test_an_answer_that_fails_is_a_line_and_the_chat_goes_on(chat: Chat, monkeypatch: pytest.MonkeyPatch) -> None:
    session, out = chat("hello")
    with monkeypatch.context() as patched:
        events = [Start(3, 0), Text("half", (1,)), Failed(NativeError("the step failed"))]
        patched.setattr(session.llm, "chat_stream", lambda *_, **__: Events(events))
        run_chat(session, typist("again"))
    assert "half\nerror: the step failed\n" in out.getvalue()
    assert len(session.conversation.turns) == 2
    run_chat(session, typist("again"))
    assert len(session.conversation.turns) == 4


def test_what_was_stopped_before_its_first_word_is_not_kept(chat: Chat, monkeypatch: pytest.MonkeyPatch) -> None:
    session, out = chat("hello")
    assert session.tally.last is not None
    cancelled = End("cancelled", session.tally.last.usage, session.tally.last.timings, 0)
    for events, count in (([Start(3, 0), cancelled], 2), ([Start(3, 0), Text("half", (1,)), cancelled], 4)):
        with monkeypatch.context() as patched:
            patched.setattr(session.llm, "chat_stream", lambda *_, events=events, **__: Events(events))
            run_chat(session, typist("again"))
        assert len(session.conversation.turns) == count
    assert "the question was not kept" in out.getvalue()


class Events:
    def __init__(self, events: list[Any]) -> None:
        self._events = events

    def __iter__(self) -> Iterator[Any]:
        return iter(self._events)

    def cancel(self) -> None:
        pass


def test_a_kept_chat_is_saved_after_each_answer_and_goes_on_the_next_time(chat: Chat) -> None:
    first, _ = chat()
    first.save_as("plans")
    run_chat(first, typist("one"))
    second, out = chat()
    second.save_as("plans")
    assert second.conversation == first.conversation
    assert "loaded" in out.getvalue()
    run_chat(second, typist("two"))
    third, _ = chat()
    third.save_as("plans")
    assert [turn.content for turn in third.conversation.turns if turn.role == "user"] == ["one", "two"]
