"""The zoo of broken and hostile files, when its maker lies beside this checkout: right verdicts, within bounds."""

from __future__ import annotations

import os
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from tests.golden import SHARED
from woolly import LLM
from woolly.errors import FileError, NotFoundError, RequestError, UnsupportedError
from woolly.examine import report

MAKER = SHARED.parent / "tools" / "make_bad_gguf.py"
RELAXED = 20 if "ASAN_OPTIONS" in os.environ else 1  # under the sanitizers everything is slower and larger
REFUSED_S = 0.1
REFUSED_BYTES = (50 << 20) * RELAXED
PEAK = Path("/proc/self/clear_refs")

pytestmark = [
    pytest.mark.native,
    pytest.mark.skipif(not MAKER.is_file(), reason="the maker of the zoo is not beside this checkout"),
]


@pytest.fixture(scope="module")
def zoo(tmp_path_factory: pytest.TempPathFactory) -> list[tuple[Path, str]]:
    """The files and what is expected of them."""
    folder = tmp_path_factory.mktemp("zoo")
    subprocess.run([sys.executable, str(MAKER), str(folder)], check=True, capture_output=True)
    rows = [line.split("\t") for line in (folder / "cases.tsv").read_text().splitlines()[1:]]
    return [(folder / file, expected) for _, file, expected, _ in rows]


def memory(word: str) -> int:
    lines = Path("/proc/self/status").read_text().splitlines()
    return next(int(line.split()[1]) << 10 for line in lines if line.startswith(word))


def verdict(way: Callable[[Path], None], path: Path) -> tuple[str, str]:
    """What became of a file, and the line that was said."""
    try:
        way(path)
        return "load", ""
    except (FileError, UnsupportedError) as error:
        return "refuse", str(error)
    except NotFoundError as error:
        return "absent", str(error)


def wrongs(way: Callable[[Path], None], zoo: list[tuple[Path, str]]) -> Iterator[str]:
    for path, expected in zoo:
        if PEAK.exists():
            PEAK.write_text("5")
            before = memory("VmRSS")
        became, message = verdict(way, path)
        if became != {"render": "load"}.get(expected, expected):
            yield f"{path.name}: {became} {message}"
        elif became == "refuse":
            if PEAK.exists() and memory("VmHWM") - before > REFUSED_BYTES:
                yield f"{path.name}: {memory('VmHWM') - before:,} bytes"
            if not message.isprintable() or len(message) > 285:
                yield f"{path.name}: {message}"


def look(path: Path) -> None:
    report(path)


def load(path: Path) -> None:
    with LLM(path, context=64, threads=1) as llm:
        llm.logits([1, 2, 3])


def test_inspect_is_right_about_every_file_of_the_zoo(zoo: list[tuple[Path, str]]) -> None:
    assert list(wrongs(look, zoo)) == []


def test_the_library_is_right_about_every_file_of_the_zoo(zoo: list[tuple[Path, str]]) -> None:
    assert list(wrongs(load, zoo)) == []


@pytest.mark.soak
def test_a_file_of_the_zoo_is_refused_soon(zoo: list[tuple[Path, str]]) -> None:
    def seconds(path: Path) -> float:
        begin = time.process_time()
        verdict(load, path)
        return time.process_time() - begin

    files = [path for path, expected in zoo if expected == "refuse"]
    assert [path.name for path in files if min(seconds(path) for _ in range(3)) >= REFUSED_S] == []


def test_inspect_and_the_library_refuse_a_file_of_the_zoo_with_the_same_words(zoo: list[tuple[Path, str]]) -> None:
    both = [(verdict(look, path), verdict(load, path)) for path, expected in zoo if expected == "refuse"]
    assert both
    assert [row for row in both if row[0] != row[1]] == []


def test_g57_a_chat_by_a_hostile_template_is_refused_in_time_and_raw_completion_goes_on(
    zoo: list[tuple[Path, str]],
) -> None:
    templates = [path for path, expected in zoo if expected == "render"]
    assert len(templates) == 19
    for path in templates:
        with LLM(path, context=64, threads=1) as llm:
            llm.generate("the", max_tokens=1)
            with pytest.raises(RequestError):
                llm.chat([{"role": "user", "content": "hi"}])
            assert llm.generate("the", max_tokens=1).tokens
