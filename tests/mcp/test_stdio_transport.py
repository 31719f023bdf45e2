"""Servers that are commands: good ones, and every way in which one can misbehave."""

from __future__ import annotations

import os
import sys
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from tests.server.process import environ
from tests.server.stand_in import until
from tests.tiny import tiny
from woolly.config.rows import McpServer
from woolly.errors import DownloadError
from woolly.mcp import Client

ROOT = Path(__file__).resolve().parents[2]
Make = Callable[..., Client]


@pytest.fixture
def make() -> Iterator[Make]:
    """Clients of small servers, which end with the test."""
    clients: list[Client] = []

    def client(*words: str, timeout_s: float = 60.0) -> Client:
        command = (sys.executable, "-m", "tests.mcp.server", *words)
        clients.append(Client("small", McpServer(command, env={"PYTHONPATH": str(ROOT)}), timeout_s))
        return clients[-1]

    yield client
    for one in clients:
        one.close()


def test_the_tools_of_all_pages_are_listed_without_those_that_no_chat_could_offer(make: Make) -> None:
    tools = make().tools()
    assert [tool.name for tool in tools] == ["add", "echo", "fail"]
    assert (tools[0].description, tools[0].parameters["required"]) == ("Add two digits.", ["a", "b"])


def test_a_call_gives_the_text_of_its_result_and_says_whether_it_is_an_error(make: Make) -> None:
    client = make()
    assert client.call("add", {"a": 2, "b": 3}).text == "5"
    assert client.call("echo", {"text": "zwölf"}).text == "zwölf"
    failed = client.call("fail", {})
    assert (failed.text, failed.wrong) == ("it failed, as it always does", True)


def test_a_command_does_not_see_our_environment(make: Make, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("WOOLLY_API_KEY", "a secret")
    assert make().call("echo", {"variable": "WOOLLY_API_KEY"}).text == ""


def test_what_a_server_asks_itself_is_refused_and_its_answer_is_still_waited_for(make: Make) -> None:
    assert make("lasts").call("add", {}).text == "-32601 {}"


@pytest.mark.parametrize(
    ("fault", "says"),
    [
        ("dies", "has ended, and said last: the disk has gone"),
        ("hangs", "has not answered within"),
        ("floods", "bytes and no answer"),
        ("no_json", "sent what is no JSON: Traceback"),
        ("no_utf8", "sent what is no JSON"),
        ("no_message", "no message of JSON-RPC"),
        ("deep", "sent what is no JSON"),
        ("wrong_id", "answered a request that nobody made"),
        ("no_result", "answered without a result"),
        ("neither", "answered without a result"),
        ("huge_line", "a message of more than 4,194,304 bytes"),
        ("tells_error", r"says: no\\x1b\[31m\\nmore"),
    ],
)
def test_a_server_that_misbehaves_costs_one_line_and_is_asked_anew_the_next_time(
    make: Make, fault: str, says: str
) -> None:
    client = make(fault, timeout_s=0.5 if fault == "hangs" else 60.0)
    if fault == "hangs":
        client._timeout_s = 60.0  # a first start may take a while
        client.tools()
        client._timeout_s = 0.5
    for _ in range(2):
        with pytest.raises(DownloadError, match=says) as error:
            client.call("add", {"a": 1, "b": 2})
        assert "'small'" in str(error.value)
        assert "\n" not in str(error.value)
        assert client.tools()[0].name == "add"
        if fault == "hangs":
            break  # the second start would have half a second


def test_a_result_that_is_too_large_is_an_error_that_the_model_can_read(make: Make) -> None:
    result = make("huge_result").call("add", {})
    assert result.wrong
    assert result.text == "the result has 100,000 bytes; at most 65,536 are read"


def test_a_command_that_is_not_there_is_named() -> None:
    client = Client("gone", McpServer(("no-such-program-at-all",)), 5.0)
    with pytest.raises(DownloadError, match=r"'gone' cannot be reached: .*no-such-program-at-all"):
        client.tools()


def test_a_server_ends_with_its_client_and_takes_what_it_started_along(tmp_path: Path) -> None:
    script = "import pathlib, subprocess, sys, time\nchild = subprocess.Popen(['sleep', '60'])\n"
    script += f"pathlib.Path({str(tmp_path / 'pid')!r}).write_text(str(child.pid))\n"
    script += "print('no message', flush=True)\ntime.sleep(60)\n"
    client = Client("parent", McpServer((sys.executable, "-c", script)), 60.0)
    with pytest.raises(DownloadError, match="no JSON"):
        client.tools()
    child = int((tmp_path / "pid").read_text())
    assert until(lambda: not _runs(child), 30)


def _runs(pid: int) -> bool:
    try:
        os.kill(pid, 0)
        return "Z" not in Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0]
    except (ProcessLookupError, FileNotFoundError):
        return False


def test_our_own_server_is_one(tmp_path: Path) -> None:
    tiny(tmp_path / "talker.gguf", vocab=4096, seed=5)
    command = (sys.executable, "-m", "woolly", "mcp", "talker")
    client = Client("woolly", McpServer(command, env=environ(tmp_path, tmp_path)), 30.0)
    try:
        assert "generate" in [tool.name for tool in client.tools()]
        assert not client.call("generate", {"prompt": "Hi", "max_tokens": 3}).wrong
        assert client.call("generate", {}).wrong
    finally:
        client.close()
