"""The name of a model is looked up in a list and nowhere else, wherever it stands in a request."""

from __future__ import annotations

import os
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any
from urllib.parse import quote

import pytest

from tests.server.conftest import HELLO, Live

HOSTILE = (
    *("../../etc/passwd", "/etc/passwd", "C:\\x", "a/../../b", "%2e%2e%2f", "a\0b", "x" * 10_000),
    *("http://x/y", "file:///etc/passwd", "..", " ", "\u202ebeta"),
)
_listening: list[list[str]] = []  # an audit hook cannot be taken away again


def _heard(event: str, args: tuple[Any, ...]) -> None:
    if event == "open" and _listening and isinstance(args[0], str | bytes):
        for names in _listening:
            names.append(os.fsdecode(args[0]))


sys.addaudithook(_heard)


@pytest.fixture
def opened(live: Live) -> Iterator[list[str]]:
    """Every file that this process opens once the server has listed and loaded its models."""
    live.chat()
    names: list[str] = []
    _listening.append(names)
    yield names
    _listening.remove(names)


def test_the_watch_hears_of_files(opened: list[str], tmp_path: Path) -> None:
    (tmp_path / "file").write_text("x")
    os.close(os.open(tmp_path / "file", os.O_RDONLY))
    assert opened == [str(tmp_path / "file")] * 2


def test_h41_a_hostile_model_name_is_only_a_name(live: Live, opened: list[str]) -> None:
    for name in HOSTILE:
        refused_everywhere(live, name)
    folders = [str(folder) for folder in live.app.config.folders]
    assert [
        path for path in opened if not path.startswith((*folders, "/proc/", "/sys/")) and "python" not in path
    ] == []
    assert live.loader.talkers[0].seen[1:] == []  # nothing but the first request has reached a model
    assert live.chat()[0] == 200


def refused_everywhere(live: Live, name: str) -> None:
    part = quote(name, safe="")
    status, _, body = live.chat(model=name)
    assert (status, body["error"]["code"]) == (404, "model_not_found")
    assert len(body["error"]["message"]) < 300
    asked: list[tuple[str, str, Any]] = [
        ("GET", f"/v1/models/{part}", None),
        ("GET", f"/api/v1/models/{part}", None),
        ("POST", f"/api/v1/models/{part}/load", {}),
        ("POST", f"/api/v1/models/{part}/unload", {}),
        ("POST", f"/api/v1/models/{part}/generate", {"prompt": "x"}),
        ("POST", "/api/v1/inference/chat", {"messages": HELLO, "model": name}),
        ("POST", "/v1/models/load", {"model": name}),
        *(("POST", "/api/v1/models/load", {field: name}) for field in ("name", "model", "path", "model_path")),
    ]
    for method, path, fields in asked:
        status, _, answer = live.ask(method, path, fields)
        long = len(path) > live.app.settings.limits.request_line
        assert status in ((414,) if long else (403, 404)), (path, answer)
    assert live.ask("GET", f"/v1/models?model={part[:1000]}")[0] == 200  # a query chooses no model
