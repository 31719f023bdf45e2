"""Callers that go away in the middle of work: their threads, the requests of child processes and the steps end too."""

from __future__ import annotations

import os
import signal
from collections.abc import Iterator
from typing import Any

import pytest

from tests.server.conftest import HELLO, Live, real_server
from tests.server.raw import Raw
from tests.server.stand_in import until
from woolly.engine.grammar.compiler import COMPILER
from woolly.io.sandbox import Child
from woolly.server.accounts import Resource
from woolly.server.workers import THREADS
from woolly.text.template.renderer import RENDERER

CHAT = "/v1/chat/completions"
TOOL = {"type": "function", "function": {"name": "f", "strict": True, "parameters": {"type": "object"}}}
WORK: dict[str, tuple[Child, dict[str, Any]]] = {
    "a template is rendered": (RENDERER._children[0], {}),
    "a format is compiled": (COMPILER, {"response_format": {"type": "regex", "value": "[ab]{3}"}}),
    "tools are compiled": (COMPILER, {"tools": [TOOL], "tool_choice": "required"}),
}


@pytest.fixture(scope="module")
def live(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Live]:
    with real_server(tmp_path_factory, "small", context=1024, limits={}) as live:
        format = {"type": "regex", "value": "[a-z]{2}"}
        assert live.chat(response_format=format)[0] == 200  # so that both processes have begun
        yield live


def stop(child: Child, monkeypatch: pytest.MonkeyPatch) -> int:
    """Stop a child process, so that its next request would take hours."""
    monkeypatch.setattr(child, "_seconds", 10_000.0)
    monkeypatch.setattr(RENDERER, "_free", RENDERER._children[:1])
    assert child._process is not None
    os.kill(child._process.pid, signal.SIGSTOP)
    return child._process.pid


@pytest.mark.parametrize("work", WORK)
def test_l20_who_goes_while_a_child_process_works_for_it_has_nothing_out_any_more(
    live: Live, work: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    child, fields = WORK[work]
    stopped = stop(child, monkeypatch)
    body = {"messages": HELLO, "max_tokens": 5, **fields}
    asking = [Raw(live.port).post(CHAT, body) for _ in range(5)]  # more than one caller has threads
    assert until(lambda: live.app.accounts.out(Resource.THREADS) == THREADS.each)
    assert until(lambda: live.app.state.open == len(asking) and child._lock.locked())
    for raw in asking:
        raw.close()
    assert until(lambda: live.app.accounts.empty and live.app.state.open == 0)
    assert child._process is not None and child._process.pid != stopped
    assert live.chat(**fields)[0] == 200


def test_l20_who_goes_before_or_while_its_steps_are_computed_has_nothing_out_any_more(live: Live) -> None:
    engine = live.app.models.loaded[0].model.engine  # type: ignore[attr-defined]
    for left in range(40):
        raw = Raw(live.port).post(CHAT, {"messages": HELLO, "max_tokens": 900, "stream": True})
        if left % 2:
            assert raw.read(100)
        raw.close()
    assert until(lambda: live.app.accounts.empty and live.app.state.open == 0)
    assert until(lambda: not engine.sequences())
    assert live.chat()[0] == 200
