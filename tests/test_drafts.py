"""Drafts in the library: a model answers the same with them and without, and another vocabulary is refused."""

from __future__ import annotations

import os
from collections.abc import Iterator, Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from tests.families import FAMILY_CASES
from tests.tiny import byte_vocabulary, tiny
from woolly import LLM, Format, Tokenizer, gguf
from woolly.config import sources
from woolly.errors import RequestError
from woolly.request import Completion, complete, request_of

pytestmark = pytest.mark.native

PROMPT = "the sheep and the wool and the sheep and the wool and the "
ASKED: tuple[dict[str, Any], ...] = (
    {"temperature": 0},
    {"temperature": 0, "logprobs": 3},
    {"temperature": 0.2, "seed": 1},
    {"temperature": 1.3, "seed": 2, "top_k": 0, "top_p": 1.0, "logprobs": 2},
    {"temperature": 0.7, "seed": 3, "repetition_penalty": 1.2, "presence_penalty": 0.3},
    {"temperature": 0.7, "seed": 4, "stop": ["e", "oo"]},
    {"temperature": 0.3, "seed": 5, "mirostat": 2, "mirostat_tau": 2.0},
    {"temperature": 0.9, "seed": 6, "dry_multiplier": 0.8},
    {"temperature": 0.8, "seed": 7, "format": Format("regex", "(sheep and wool, ){2,9}end")},
    {"temperature": 0, "format": {"type": "array", "items": {"enum": ["wool", "yarn"]}}},
)


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    path = tmp_path_factory.mktemp("drafts")
    tiny(path / "large.gguf", context=512)
    tiny(path / "small.gguf", context=256, seed=2)
    return path


@pytest.fixture(scope="module")
def without(folder: Path) -> Iterator[LLM]:
    with LLM(folder / "large.gguf", threads=1, draft="off") as llm:
        yield llm


def asked(llm: LLM, options: dict[str, Any]) -> Completion:
    return complete(llm.submit(request_of(options | {"max_tokens": 60}, prompt=PROMPT)))


@pytest.mark.parametrize("draft", ["text", "large", "small"])
def test_d07_answers_are_those_without_drafts(folder: Path, without: LLM, draft: str) -> None:
    drafted = 0
    with LLM(folder / "large.gguf", threads=2, draft=draft if draft == "text" else folder / f"{draft}.gguf") as llm:
        for options in ASKED:
            expected = asked(without, options)
            for _ in range(2):
                answers = asked(llm, options)
                assert (answers.text, answers.tokens, answers.logprobs) == (
                    expected.text,
                    expected.tokens,
                    expected.logprobs,
                )
                assert (answers.finish_reason, answers.usage.completion_tokens) == (
                    expected.finish_reason,
                    expected.usage.completion_tokens,
                )
                drafted += answers.timings.drafted
        tally = llm.figures().tally
        assert tally.drafted == drafted
        assert draft == "small" or tally.accepted > 0


def test_a_model_that_carries_a_state_has_no_draft_and_is_none(folder: Path, tmp_path: Path) -> None:
    """Words of one vocabulary, so that only this stands against it."""
    case = next(case for case in FAMILY_CASES if case.name == "mamba2")
    embedding = case.tensors["token_embd.weight"]
    tensors = case.tensors | {"token_embd.weight": [288, *embedding[1:]]}
    carrying = replace(case, tensors=tensors, keys=case.keys | byte_vocabulary(288)).write(tmp_path / "carrying.gguf")
    for target, draft in ((carrying, folder / "small.gguf"), (folder / "large.gguf", carrying)):
        with pytest.raises(RequestError, match="carries a state") as caught:
            LLM(target, threads=1, context=256, draft=draft)
        assert caught.value.param == "draft"


def test_a_draft_with_another_vocabulary_is_refused_by_name(folder: Path, tmp_path: Path) -> None:
    tokens = list(Tokenizer(folder / "large.gguf")._tokenizer._tokens)
    other = tiny(tmp_path / "other.gguf", meta={"tokenizer.ggml.tokens": [*tokens[:-1], "another"]})
    with pytest.raises(RequestError, match="another vocabulary") as caught:
        LLM(folder / "large.gguf", threads=1, draft=other)
    assert caught.value.param == "draft"


def test_a_load_opens_each_file_once_and_reads_the_settings_once(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    opened: list[str] = []
    read: list[str] = []
    open_file, read_file = gguf.open, sources.file_values

    def counted(path: str | os.PathLike[str]) -> gguf.GgufFile:
        opened.append(Path(path).name)
        return open_file(path)

    def counted_settings(environ: Mapping[str, str]) -> dict[str, Any]:
        read.append("settings")
        return read_file(environ)

    monkeypatch.setattr(gguf, "open", counted)
    monkeypatch.setattr(sources, "file_values", counted_settings)
    LLM(folder / "large.gguf", threads=1, context=256, draft=folder / "small.gguf").close()
    assert sorted(opened) == ["large.gguf", "small.gguf"]
    assert read == ["settings"]
