"""`woolly top`: the table of a fleet."""

from __future__ import annotations

from pathlib import Path

from tests.cli.conftest import Woolly
from tests.server.fleets import CHAT, WORDS, fleet, talker
from tests.server.raw import ask
from tests.server.stand_in import until
from woolly.cli.top import table


def test_the_replicas_of_a_gateway_are_a_table(woolly: Woolly, tmp_path: Path) -> None:
    with fleet(tmp_path, talker(tmp_path), 1) as gateway:
        assert ask(gateway.port, "POST", CHAT, {"messages": WORDS, "max_tokens": 30})[0] == 200
        assert until(lambda: gateway.state()["replicas"][0]["models"][0]["prompt_tokens"] > 0)
        done = woolly("top", f"http://127.0.0.1:{gateway.port}", "--once")
    lines = done.stdout.splitlines()
    assert (done.returncode, len(lines)) == (0, 3), done.stderr
    assert lines[0].split()[:4] == ["REPLICA", "STATE", "MODEL", "THREADS"]
    assert lines[1].split()[:5] == [f"http://127.0.0.1:{gateway.replicas[0].port}", "here", "talker", "1", "0/16"]
    assert lines[2] == "replicas: 1; answers that went on at another one: 0; lost: 0"


def test_a_server_that_is_no_gateway_is_told_in_a_line(woolly: Woolly) -> None:
    done = woolly("top", "http://127.0.0.1:9", "--once")
    assert done.returncode != 0
    assert done.stderr.startswith("woolly: error: ") and done.stderr.count("\n") == 1


def test_what_a_gateway_tells_cannot_take_the_terminal_over() -> None:
    rows = table({"replicas": [{"url": "\x1b[2J", "models": [{"name": "a\nb", "pages": "many"}]}], "replays": 1})
    assert "\x1b" not in "".join(rows)
    assert len(rows) == 3
