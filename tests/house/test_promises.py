"""The page of promises and the tests that keep them name each other."""

from __future__ import annotations

import re
from collections.abc import Iterator
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
ROW = re.compile(r"^\| ([A-Z]\d\d) \| .+ \| (.+) \|$", re.MULTILINE)
NAME = re.compile(r"^\s*(?:async )?def test_((?:[a-z]\d\d_)+)", re.MULTILINE)
MENTION = re.compile(r"\b[DFGHLST]\d\d\b(?<!F16)(?<!F32)(?<!F64)")  # F16 and its kind are types of tensors


def page() -> set[tuple[str, str]]:
    """Each promise with each file that keeps it."""
    rows = ROW.findall((ROOT / "docs" / "promises.md").read_text())
    return {(promise, name) for promise, files in rows for name in re.findall(r"`(.+?)`", files)}


def sources() -> Iterator[tuple[str, str]]:
    for path in sorted((ROOT / "tests").rglob("*.py")):
        if path != Path(__file__):
            yield str(path.relative_to(ROOT / "tests")), path.read_text()


def test_every_promise_names_the_files_of_its_tests_and_every_test_has_its_promise() -> None:
    tested = {(p, name) for name, text in sources() for ids in NAME.findall(text) for p in ids.upper().split("_") if p}
    assert tested == page()
    assert len({promise for promise, _ in tested}) > 100


def test_no_id_is_mentioned_that_the_page_does_not_explain() -> None:
    mentioned = {promise for _, text in sources() for promise in MENTION.findall(text)}
    assert mentioned - {promise for promise, _ in page()} == set()


def test_no_id_is_given_twice() -> None:
    ids = [promise for promise, _ in ROW.findall((ROOT / "docs" / "promises.md").read_text())]
    assert len(ids) == len(set(ids))
