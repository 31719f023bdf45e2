"""The ids that define right: 18 vocabularies on awkward strings, the lines shipped with them, the default model."""

from __future__ import annotations

import gzip
import json
import os
from functools import cache
from pathlib import Path
from typing import Any

import pytest

from tests.golden import DATA
from woolly import gguf
from woolly.text import Tokenizer, chat_template

# Taken out of the environment: it is for the tests, and Woolly warns of names that mean nothing to it.
FOLDER = Path(os.environ.pop("WOOLLY_VOCABS", "") or Path(__file__).resolve().parents[2] / "build" / "vocabs")
GOLDEN = DATA / "vocab"
SHIPPED = sorted(path.name.removesuffix(".inp") for path in FOLDER.glob("*.inp"))

needs_vocabs = pytest.mark.skipif(
    not FOLDER.is_dir(), reason="the vocabularies are not here (tools/get_vocabs.py fetches them)"
)


@cache
def goldens() -> dict[str, Any]:
    loaded: dict[str, Any] = json.loads(gzip.decompress((GOLDEN / "goldens.json.gz").read_bytes()))
    return loaded


@cache
def strings() -> list[str]:
    loaded: list[str] = json.loads(gzip.decompress((GOLDEN / "strings.json.gz").read_bytes()))
    return loaded


def load(path: Path) -> Tokenizer:
    with gguf.open(path) as file:
        return Tokenizer(file.meta)


def differences(tokenizer: Tokenizer, golden: dict[str, Any]) -> list[str]:
    """What differs from the golden ids; disputed cases are left out."""
    result = []
    for i, (text, ids) in enumerate(zip(strings(), golden["ids"], strict=True)):
        disputed = golden["disputed"].get(str(i), {})
        if "ids" not in disputed and tokenizer.encode(text) != ids:
            result.append(f"ids of string {i}")
        parsed = golden["ids_parsed"].get(str(i), ids)
        if tokenizer.fewest(text) > min(len(ids), len(parsed)):
            result.append(f"fewest tokens of string {i}")
        if "parsed" not in disputed and tokenizer.encode(text, special=True) != parsed:
            result.append(f"parsed ids of string {i}")
    for i, ids in golden["ids_bos"].items():
        if tokenizer.encode(strings()[int(i)], bos=None) != ids:
            result.append(f"ids with BOS of string {i}")
    for i, ids in golden.get("ids_whole", {}).items():
        if tokenizer.encode_complete(strings()[int(i)]) != ids:
            result.append(f"ids with beginning and end of string {i}")
    return result


@needs_vocabs
@pytest.mark.parametrize("name", sorted(goldens().keys() - {"smollm2"}))
def test_a_vocabulary_gives_the_golden_ids(name: str) -> None:
    golden = goldens()[name]
    tokenizer = load(FOLDER / golden["file"])
    assert tokenizer.vocab == golden["n_vocab"]
    assert differences(tokenizer, golden) == []


def test_the_default_model_gives_the_golden_ids(smollm2: Path) -> None:
    tokenizer = load(smollm2)
    assert differences(tokenizer, goldens()["smollm2"]) == []
    cases = json.loads((DATA / "smollm2" / "tokens.json").read_text("utf-8"))["cases"]
    wrong = [text for text, special, ids in cases if tokenizer.encode(text, special=special) != ids]
    assert len(cases) == 1000
    assert wrong == []


@needs_vocabs
@pytest.mark.parametrize("name", SHIPPED or ["all"])
def test_a_vocabulary_gives_the_ids_of_its_own_test_lines(name: str) -> None:
    tokenizer = load(FOLDER / name)
    texts = (FOLDER / f"{name}.inp").read_bytes().decode().split("\n__ggml_vocab_test__\n")
    lines = (FOLDER / f"{name}.out").read_text().split("\n")[: len(texts)]
    assert len(texts) == len(lines) > 40
    assert [tokenizer.encode(text) for text in texts] == [[int(word) for word in line.split()] for line in lines]


def test_the_chats_of_the_default_model_give_their_prompt_ids(smollm2: Path) -> None:
    with gguf.open(smollm2) as file:
        tokenizer = Tokenizer(file.meta)
        template = chat_template(file.meta, tokenizer)
    assert template is not None
    for chat in json.loads((DATA / "smollm2" / "chat.json").read_text("utf-8"))["cases"]:
        rendered = template.render(chat["messages"])
        assert rendered.plain == chat["prompt"]
        assert tokenizer.encode_chat(rendered.text, rendered.escape) == chat["prompt_ids"]


# The ids of a few texts by the default model, so that this file means something alone.
OWN = {
    "Hello, world!": [19556, 28, 905, 17],
    "  two  spaces": [216, 827, 216, 5600],
    "12345": [33, 34, 35, 36, 37],
    "caf\u00e9 \U0001f411": [83, 1939, 2756, 15107, 234, 235],
    "a\x04b": [81, 82],
}


@pytest.mark.parametrize("text", OWN)
def test_the_default_model_gives_these_ids(smollm2: Path, text: str) -> None:
    assert load(smollm2).encode(text) == OWN[text]
