"""What llama.vim and llama.vscode send to a llama-server is answered with what they read of it."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from tests.server.conftest import Live, real_server

REQUESTS = json.loads((Path(__file__).parents[1] / "data" / "editors.json").read_text("utf-8"))["requests"]
GAP = ("pre", "suf", "mid", "rep", "sep")


@pytest.fixture(scope="module")
def coder(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Live]:
    """A server with a model that has tokens for a gap, as `woolly serve coder` starts one."""
    meta = {f"tokenizer.ggml.fim_{name}_token_id": 200 + index for index, name in enumerate(GAP)}
    with real_server(
        tmp_path_factory, "coder", context=2048, limits={}, meta=meta, default_model="coder", preload=("coder",)
    ) as live:
        yield live


def found(answer: Any, path: str) -> Any:
    """The part of an answer at a path: under the path itself, as `response_fields` gives it, or within."""
    if isinstance(answer, dict) and path in answer:
        return answer[path]
    for name in path.split("/"):
        answer = answer[int(name) if isinstance(answer, list) else name]
    return answer


@pytest.mark.parametrize("request_", REQUESTS, ids=lambda request_: request_["client"])
def test_every_request_of_an_editor_is_answered_with_what_it_reads(coder: Live, request_: dict[str, Any]) -> None:
    status, headers, answer = coder.ask("POST", request_["path"], request_["body"])
    assert status == 200, answer
    if request_["body"].get("stream"):
        pieces = [json.loads(line[6:]) for line in answer.decode().splitlines() if line.startswith("data: {")]
        for path in request_["fields_wanted"]:
            name = path.rpartition("/")[2]
            assert any(name in piece["choices"][0]["delta"] for piece in pieces), path
    else:
        for path in request_["fields_wanted"]:
            assert found(answer, path) is not None, path
    known = {"id_slot", "cache_prompt", "t_max_prompt_ms", "response_fields", "model"}
    assert set(headers.get("x-woolly-notes", "").split(", ")) <= known | {""}, "and nothing else was without effect"


def test_an_editor_that_only_warms_up_gets_an_empty_object_and_its_files_are_remembered(coder: Live) -> None:
    warm_up, completion = (row["body"] for row in REQUESTS[:2])
    assert coder.ask("POST", "/infill", warm_up)[2] == {}
    files = warm_up["input_extra"] * 8
    asked = completion | {"input_extra": files, "response_fields": [], "samplers": ["top_k"], "n_predict": 2}
    assert coder.ask("POST", "/infill", warm_up | {"input_extra": files})[0] == 200
    timings = coder.ask("POST", "/infill", asked)[2]["timings"]
    assert timings["cache_n"] > 0


def test_an_answer_for_a_gap_ends_where_its_block_does(coder: Live) -> None:
    body = {"input_prefix": "def f():\n", "input_suffix": "\n", "n_predict": 8, "temperature": 0}
    block = {"grammar": 'root ::= "    a\\n    b\\nc\\n    d"'}
    assert coder.ask("POST", "/infill", body | block | {"n_predict": 40})[2]["content"] == "    a\n    b\nc\n    d"
    cut = coder.ask("POST", "/infill", body | block | {"n_predict": 40, "n_indent": 4})[2]
    assert cut["content"] == "    a\n    b\n"
