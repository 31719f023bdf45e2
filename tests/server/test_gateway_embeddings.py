"""Embeddings and scores through a gateway: those of the replicas, to the bit, whichever replicas there are."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from tests.end.test_embed import bert_model
from tests.server.fleets import fleet
from tests.server.raw import ask

TEXTS = ["hello world", "ab ! hello", "hello hello", "world ab"]
ASKED: dict[str, tuple[str, dict[str, Any]]] = {
    "bert": ("/v1/embeddings", {"input": TEXTS * 10}),
    "bert_rank": ("/v1/rerank", {"query": "hello", "documents": TEXTS}),
}


@pytest.mark.parametrize("case", ASKED)
def test_what_a_replica_gives_for_texts_comes_through_the_gateway_and_outlives_it(tmp_path: Path, case: str) -> None:
    path, body = ASKED[case]
    with fleet(tmp_path, bert_model(case, tmp_path / "talker.gguf")) as deployment:
        status, _, there = ask(deployment.replicas[0].port, "POST", path, {"model": "talker", **body})
        assert status == 200, there
        assert ask(deployment.port, "POST", path, {"model": "talker", **body})[2] == there
        deployment.kill(deployment.replicas[0])
        assert ask(deployment.port, "POST", path, {"model": "talker", **body})[2] == there
        chat = {"messages": [{"role": "user", "content": "hello"}]}
        status, _, refused = ask(deployment.port, "POST", "/v1/chat/completions", chat)
        assert (status, refused["error"]["param"]) == (400, "model")
