"""Tools of MCP servers in a chat: shown, allowed, called, and given back to the model."""

from __future__ import annotations

import io
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from tests.cli.chat.test_session import GREEDY, typist
from tests.tiny import tiny
from woolly.cli.chat.commands import run_command
from woolly.cli.chat.loop import handle
from woolly.cli.chat.screen import Appearance, Screen
from woolly.cli.chat.session import Session
from woolly.cli.chat.tools import Tools
from woolly.config.rows import McpServer
from woolly.limits import LIMITS
from woolly.llm.llm import LLM
from woolly.mcp import Client, Toolbox
from woolly.request import Call

ROOT = Path(__file__).resolve().parents[3]
Begin = Callable[..., tuple[Session, io.StringIO]]


@pytest.fixture(scope="module")
def model(tmp_path_factory: pytest.TempPathFactory) -> Path:
    path = tmp_path_factory.mktemp("models") / "talker.gguf"
    tiny(path, context=4096)
    return path


@pytest.fixture
def begin(model: Path, tmp_path: Path) -> Iterator[Begin]:
    """A chat with the tools of a small server, in which each question begins with a call."""
    to_close: list[Any] = []

    def start(*typed: str, allow: tuple[str, ...] = (), fault: str = "", choice: str = "add") -> Any:
        command = (sys.executable, "-m", "tests.mcp.server", *([fault] if fault else []))
        server = McpServer(command, env={"PYTHONPATH": str(ROOT)}, allow=allow)
        box = Toolbox([Client("small", server, 20.0)])
        read, out = typist(*typed), io.StringIO()
        session = Session(
            Screen(out, Appearance(), {}),
            lambda _: model,
            lambda path: LLM(path, threads=1),
            "talker",
            options=GREEDY | {"max_tokens": 120},
            folder=tmp_path,
            tools=Tools(box, lambda _question: read()),
            tool_choice=choice,
        )
        to_close.extend([session, box])
        return session, out

    yield start
    for one in to_close:
        one.close()


def roles(session: Session) -> list[str]:
    return [turn.role for turn in session.conversation.turns]


def test_a_call_that_the_user_allows_is_made_and_its_result_given_back(begin: Begin) -> None:
    session, out = begin("y")
    handle(session, "what is it?")
    assert roles(session) == ["user", "assistant", "tool", "assistant"]
    _, called, result, _ = session.conversation.turns
    assert (called.calls[0].name, result.call) == ("add", called.calls[0].id)
    assert f"calls add {called.calls[0].arguments}" in out.getvalue()
    assert result.content.lstrip("-").isdigit()
    assert result.content in out.getvalue()


@pytest.mark.parametrize("typed", [("n",), (), ("^C",), ("what?",)])
def test_s25_a_call_that_the_user_does_not_allow_is_not_made_and_the_model_is_told(
    begin: Begin, typed: tuple[str, ...]
) -> None:
    session, _ = begin(*typed)
    handle(session, "what is it?")
    assert session.conversation.turns[2].content == "the user did not allow this call"


def test_always_counts_for_the_rest_of_the_chat_and_the_settings_for_every_chat(begin: Begin) -> None:
    session, out = begin("a")
    handle(session, "one")
    handle(session, "two")
    assert out.getvalue().count("error") == 0
    settled, _ = begin(allow=("add",))
    handle(settled, "one")
    assert settled.conversation.turns[2].content.lstrip("-").isdigit()
    run_command(settled, "tools", "")
    assert "asks first" in settled.tools  # echo
    assert "asks first" not in settled.tools.split("\n")[0]  # add


@pytest.mark.parametrize("fault", ["dies", "no_json", "wrong_id", "huge_result"])
def test_a_server_that_misbehaves_costs_one_line_and_the_chat_goes_on(begin: Begin, fault: str) -> None:
    session, out = begin(allow=("*",), fault=fault)
    handle(session, "one")
    assert [line.startswith("  error: ") for line in out.getvalue().split("\n")].count(True) == 1
    assert roles(session)[-1] == "assistant"


def test_a_chat_with_calls_is_saved_and_loaded_whole(begin: Begin) -> None:
    session, _ = begin(allow=("*",))
    handle(session, "one")
    run_command(session, "save", "tools")
    before = session.conversation
    session.conversation = type(before)()
    run_command(session, "load", "tools")
    assert session.conversation == before
    handle(session, "two")
    assert roles(session)[-1] == "assistant"


def test_a_model_that_never_stops_calling_is_made_to_answer(begin: Begin, monkeypatch: pytest.MonkeyPatch) -> None:
    session, _ = begin(allow=("*",))
    asked: list[str] = []
    original = session._complete

    def calls(conversation: Any, choice: str) -> Any:
        asked.append(choice)
        return original(conversation, choice if choice == "none" else "add")

    monkeypatch.setattr(session, "_complete", calls)
    handle(session, "one")
    assert asked == ["add", *["auto"] * (LIMITS.mcp_rounds - 1), "none"]
    assert roles(session).count("tool") == LIMITS.mcp_rounds


def test_what_a_tool_says_is_shown_without_its_control_characters(begin: Begin) -> None:
    session, _ = begin()
    assert session._tools is not None
    out, call = io.StringIO(), Call("1", "echo", '{"text": "\\u001b[31mred"}')
    list(Tools(session._tools.box, lambda _: "y").use([call], Screen(out, Appearance(), {})))
    assert "\x1b" not in out.getvalue()
    assert "red" in out.getvalue()
