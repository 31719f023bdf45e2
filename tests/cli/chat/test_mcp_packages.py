"""Servers of the Model Context Protocol as their makers ship them: used in a chat at a terminal, by required calls."""

from __future__ import annotations

import json
import os
import shutil
import sys
from pathlib import Path
from typing import Any

import pytest

from tests.cli.chat.terminal import Terminal

CHAT = ("--temperature", "0", "--max-tokens", "200")


def program(name: str, package: str) -> str:
    places = os.pathsep.join([str(Path(sys.executable).parent), os.environ.get("PATH", "")])
    path = shutil.which(name, path=places)
    if path is None:
        pytest.skip(f"{name} is not installed; it is in the package {package}")
    return path


def settle(home: Path, name: str, command: list[str], more: str = "") -> None:
    file = home / ".config" / "woolly" / "config.toml"
    file.parent.mkdir(parents=True)
    file.write_text(f"[mcp.servers.{name}]\ncommand = {json.dumps(command)}\n{more}\n")


def saved(person: Terminal, home: Path) -> list[dict[str, Any]]:
    """The messages of the chat, as the model has them before it."""
    person.say("/save kept")
    messages: list[dict[str, Any]] = json.loads((home / ".local/state/woolly/chats/kept.json").read_text())["messages"]
    return messages


def test_the_time_is_asked_for_shown_and_told_to_the_model(
    smollm2: Path, environ: dict[str, str], tmp_path: Path
) -> None:
    server = program("mcp-server-time", "mcp-server-time of PyPI")
    settle(tmp_path, "time", [server, "--local-timezone=UTC"], 'allow = ["get_current_time"]')
    with Terminal("chat", str(smollm2), "--tool-choice", "get_current_time", *CHAT, environ=environ) as person:
        assert "tools: get_current_time, convert_time; /tools tells more" in person.prompt()
        assert "convert_time                time            asks first; " in person.say("/tools")
        shown = person.say("What time is it in Europe/Oslo?")
        asked, called, result, answered = saved(person, tmp_path)
        person.type("\x04")
        assert person.leave() == 0
    assert asked["role"] == "user"
    assert json.loads(called["calls"][0]["arguments"]) == {"timezone": "Europe/Oslo"}
    assert (result["role"], json.loads(result["content"])["timezone"]) == ("tool", "Europe/Oslo")
    assert answered["role"] == "assistant"
    assert '  calls get_current_time {"timezone":"Europe/Oslo"}' in shown
    assert all(f"  {line}" in shown for line in result["content"].split("\n"))
    assert "may it be called?" not in shown


@pytest.mark.parametrize("word", ["y", "n"])
def test_folders_are_listed_if_the_user_allows_it(
    smollm2: Path, environ: dict[str, str], tmp_path: Path, word: str
) -> None:
    server = program("mcp-server-filesystem", "@modelcontextprotocol/server-filesystem of npm")
    notes = tmp_path / "notes"
    notes.mkdir()
    settle(tmp_path, "files", [server, str(notes)])
    with Terminal("chat", str(smollm2), "--tool-choice", "list_allowed_directories", *CHAT, environ=environ) as person:
        person.prompt()
        person.type("Which folders may you read?\r")
        assert "  calls list_allowed_directories {}" in person.until("may it be called? ")
        person.type(f"{word}\r")
        person.prompt()
        result = saved(person, tmp_path)[2]
    assert result["role"] == "tool"
    assert (str(notes) in result["content"]) is (word == "y")
    assert (result["content"] == "the user did not allow this call") is (word == "n")


def test_a_tool_that_no_server_has_is_refused_before_the_chat_begins(
    environ: dict[str, str], tmp_path: Path, model: Path
) -> None:
    root = Path(__file__).resolve().parents[3]
    settle(tmp_path, "small", [sys.executable, "-m", "tests.mcp.server"], f'env = {{ PYTHONPATH = "{root}" }}')
    with Terminal("chat", str(model), "--tool-choice", "subtract", environ=environ) as person:
        assert person.leave() == 2
        assert b"tool_choice is 'subtract'; expected one of auto, none, required, add, echo" in person.seen
