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
REFUSED_S = 0.1 * RELAXED
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
        for _ in range(3):  # a slow try may be the machine's
            if PEAK.exists():
                PEAK.write_text("5")
                before = memory("VmRSS")
            begin = time.process_time()
            became, said = verdict(way, path)
            took = time.process_time() - begin
            if took < REFUSED_S:
                break
        if became != {"render": "load"}.get(expected, expected):
            yield f"{path.name}: {became} {said}"
        elif became == "refuse":
            if took >= REFUSED_S:
                yield f"{path.name}: {took:.3f} s"
            if PEAK.exists() and memory("VmHWM") - before > REFUSED_BYTES:
                yield f"{path.name}: {memory('VmHWM') - before:,} bytes"
            if not said.isprintable() or len(said) > 285:
                yield f"{path.name}: {said}"


def look(path: Path) -> None:
    report(path)


def load(path: Path) -> None:
    with LLM(path, context=64, threads=1) as llm:
        llm.logits([1, 2, 3])


def seconds_of_a_chat(llm: LLM) -> float:
    begin = time.monotonic()
    with pytest.raises(RequestError):
        llm.chat([{"role": "user", "content": "hi"}])
    return time.monotonic() - begin


def test_inspect_is_right_about_every_file_of_the_zoo(zoo: list[tuple[Path, str]]) -> None:
    assert list(wrongs(look, zoo)) == []


def test_the_library_is_right_about_every_file_of_the_zoo(zoo: list[tuple[Path, str]]) -> None:
    assert list(wrongs(load, zoo)) == []


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
            assert any(seconds_of_a_chat(llm) < 1.5 * RELAXED for _ in range(5)), path.name
            assert llm.generate("the", max_tokens=1).tokens
