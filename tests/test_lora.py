"""Adapters in the library: each answer has those of its request, whatever else is answered."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from tests.lora import adapter
from tests.tiny import tiny
from woolly import LLM
from woolly.errors import FileError, NotFoundError, RequestError, UnsupportedError
from woolly.request import complete

IDS = [116, 257, 268, 100, 32, 97, 98, 99]
NEVER_END = dict.fromkeys((270, 271, 272), -100.0)


@pytest.fixture(scope="module")
def path(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tiny(tmp_path_factory.mktemp("base") / "tiny.gguf", context=512)


@pytest.fixture(scope="module")
def pirates(path: Path, tmp_path_factory: pytest.TempPathFactory) -> dict[str, Path]:
    folder = tmp_path_factory.mktemp("lora")
    return {name: adapter(folder / f"{name}.gguf", path, seed=seed) for seed, name in enumerate(("pirate", "judge"))}


def test_an_answer_has_the_adapters_that_its_request_names(path: Path, pirates: dict[str, Path]) -> None:
    with LLM(path, threads=2) as plain, LLM(path, lora=pirates, threads=2) as llm:

        def logits(lora: dict[str, float] | None) -> bytes:
            return llm.logits(IDS, lora=lora).tobytes()

        sets: tuple[dict[str, float], ...] = (
            {}, {"pirate": 1.0}, {"judge": 1.0}, {"pirate": 0.5}, {"pirate": 1.0, "judge": 1.0}
        )  # fmt: skip
        each = [logits(lora) for lora in sets]
        assert len(set(each)) == len(sets)
        assert each[0] == plain.logits(IDS).tobytes() == logits({"pirate": 0.0})
        assert each[4] == logits(None) == logits({"judge": 1.0, "pirate": 1.0}), "all that were loaded, by default"
        request = {"prompt": IDS * 9, "max_tokens": 30, "seed": 1, "logit_bias": NEVER_END}
        alone = [llm.generate(**request, lora=lora).tokens for lora in sets]  # type: ignore[arg-type]
        assert alone[0] == plain.generate(**request).tokens and len({*map(tuple, alone)}) > 2  # type: ignore[arg-type]
        streams = [llm.stream(**request, lora=lora) for lora in (*sets, *sets)]  # type: ignore[arg-type]
        assert [complete(stream).tokens for stream in streams] == alone * 2
    with LLM(path, lora=[f"{pirates['pirate']}=0.5", f"{pirates['judge']}=0"], threads=1) as llm:
        assert llm.logits(IDS).tobytes() == each[3]
        llm.adapters.put({"pirate": 0.0, "judge": 1.0})
        assert llm.logits(IDS).tobytes() == each[2]


def test_pages_of_one_set_of_adapters_are_not_used_by_another(path: Path, pirates: dict[str, Path]) -> None:
    with LLM(path, lora=pirates, threads=1) as llm:

        def cached(lora: dict[str, float]) -> int:
            return llm.generate(IDS * 40, max_tokens=1, lora=lora).usage.cached_tokens

        sets: tuple[dict[str, float], ...] = ({}, {"pirate": 1.0}, {"pirate": 0.5}, {"judge": 1.0})
        assert [cached(lora) for lora in sets] == [0] * 4
        assert all(cached(lora) >= 64 for lora in sets)


@pytest.mark.parametrize(
    ("lora", "message"),
    [
        ({"parrot": 1.0}, "no adapter 'parrot': there are pirate, judge"),
        ({"pirate": 1e9}, "lora.pirate"),
        ([1], "lora"),
    ],
)
def test_an_adapter_that_was_not_loaded_is_refused(
    path: Path, pirates: dict[str, Path], lora: Any, message: str
) -> None:
    with LLM(path, lora=pirates, threads=1) as llm, pytest.raises(RequestError, match=message):
        llm.generate(IDS, lora=lora)


def test_adapters_are_files_that_are_there_and_have_names_of_their_own(path: Path, pirates: dict[str, Path]) -> None:
    one = pirates["pirate"]
    for wrong, kind in (
        ([one, one], RequestError),
        (f"{one}=x", RequestError),
        ("nowhere.gguf", NotFoundError),
        ([5], RequestError),
    ):
        with pytest.raises(kind):
            LLM(path, lora=wrong)  # type: ignore[arg-type]
    with pytest.raises(FileError, match="no adapter"):
        LLM(path, lora=path)
    with pytest.raises(UnsupportedError, match="of type adapter"):
        LLM(one)
