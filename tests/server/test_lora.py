"""Adapters over HTTP: as a field of a request, and as a default for requests without it."""

from __future__ import annotations

from typing import Any

import pytest

from tests.server.conftest import HELLO, Live

CHAT = {"messages": HELLO, "max_tokens": 2}
PATHS: dict[str, dict[str, Any]] = {
    "/v1/chat/completions": CHAT,
    "/v1/completions": {"prompt": "a", "max_tokens": 2},
    "/api/v1/inference/chat": CHAT,
    "/api/v1/inference/complete": {"prompt": "a", "max_tokens": 2},
}


@pytest.mark.parametrize("path", PATHS)
def test_a_request_names_its_adapters_by_name_or_by_number(live: Live, path: str) -> None:
    asked: tuple[tuple[Any, Any], ...] = (
        (None, None),
        ({}, {}),
        ({"pirate": 0.5, "judge": 1}, {"pirate": 0.5, "judge": 1.0}),
        ([{"id": 1, "scale": 2}], {1: 2.0}),
    )
    for sent, meant in asked:
        status, headers, answer = live.ask("POST", path, PATHS[path] | {"lora": sent})
        assert status == 200, answer
        assert "lora" not in headers.get("x-woolly-notes", "")
        assert live.loader.talkers[-1].seen[-1].lora == meant
    for wrong in ({"pirate": 101}, {"pirate": "x"}, [{"id": -1, "scale": 1}], [{"id": 0}], "pirate", [["pirate", 1]]):
        status, _, answer = live.ask("POST", path, PATHS[path] | {"lora": wrong})
        assert status == 400 and "lora" in str(answer)


def test_the_adapters_are_listed_and_their_scales_are_changed(live: Live) -> None:
    def listed() -> list[tuple[int, str, str, float]]:
        status, _, rows = live.ask("GET", "/lora-adapters")
        assert status == 200
        return [(row["id"], row["name"], row["path"], row["scale"]) for row in rows]

    assert listed() == [(0, "pirate", "pirate.gguf", 1.0), (1, "judge", "judge.gguf", 0.0)]
    for body in ([{"id": 1, "scale": 0.5}], {"adapters": [{"id": 1, "scale": 0.5}]}):
        assert live.ask("POST", "/lora-adapters", body)[0] == 200
        assert [scale for *_, scale in listed()] == [0.0, 0.5]
    status, _, answer = live.ask("POST", "/lora-adapters", [{"id": 7, "scale": 1}])
    assert status == 400 and "there are pirate, judge" in str(answer)
    assert live.ask("POST", "/v1/chat/completions", [CHAT])[0] == 400, "no other route takes a list"
    assert [scale for *_, scale in listed()] == [0.0, 0.5]
