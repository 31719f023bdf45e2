"""The n-th call of a story fails, or the process is killed there: what was acknowledged is there, and nothing crashes.

In `make test` a few calls of each kind; in `make soak` each of them, with each error.
"""

from __future__ import annotations

import errno
import hashlib
import random
from collections import Counter
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pytest

from tests.faults.calls import KILL, KINDS, FailingCalls
from tests.faults.kills import kill_at
from tests.faults.server_story import server_story
from tests.faults.stories import SMALL, Story, download_story
from tests.store.server import serving
from tests.tiny import tiny

ERRORS = (errno.EMFILE, errno.ENOSPC, errno.EIO, errno.EACCES)
LASTING = [(number, lasting) for number in ERRORS for lasting in (False, True)]
DATA = b"GGUF" + random.Random(7).randbytes(300_000)


@dataclass
class Score:
    """calls: of the story when none fails, by their kinds."""

    calls: list[str] = field(default_factory=list)
    faults: int = 0
    acknowledged: int = 0
    lost: list[str] = field(default_factory=list)

    def __str__(self) -> str:
        kinds = ", ".join(f"{count} {kind}" for kind, count in Counter(self.calls).items())
        counts = f"{self.faults} faults, {self.acknowledged} acknowledged, {len(self.lost)} lost"
        return f"{len(self.calls)} calls ({kinds}), {counts}"


def run(story: Story, folder: Path, score: Score, *, at: int = 0, failure: int = 0, lasting: bool = False) -> list[str]:
    """Run a story, and note what was lost; returns the kinds of its calls."""
    folder.mkdir()
    acknowledged: dict[str, Any] = {}
    problems: list[str] = []
    kinds: list[str] = []
    if failure == KILL:
        acknowledged, killed = kill_at(story, folder, at)
        score.faults += killed
    else:
        with FailingCalls(folder, at=at, failure=failure, lasting=lasting) as calls:
            problems = story.act(folder, acknowledged.__setitem__, calls)
        score.faults += bool(calls.failures)
        kinds = calls.kinds
    score.acknowledged += len(acknowledged)
    where = f"{story.name}, {failure} at {at}{' and after' if lasting else ''}: "
    score.lost += [where + what for what in (*problems, *story.losses(folder, acknowledged))]
    return kinds


def sample(kinds: list[str], each: int) -> list[int]:
    """The numbers of a few calls of each kind, from the first to the last."""
    numbers = []
    for kind in KINDS:
        places = [number for number, one in enumerate(kinds, 1) if one == kind]
        numbers += places[:: max(1, len(places) // each)][:each]
    return numbers


@pytest.fixture
def models(tmp_path: Path) -> Path:
    folder = tmp_path / "models"
    folder.mkdir()
    tiny(folder / "beta.gguf", seed=2)
    return folder


@pytest.fixture
def download() -> Iterator[Story]:
    with serving(DATA) as shop:
        yield download_story(shop.url, hashlib.sha256(DATA).hexdigest(), DATA)


def some_faults(story: Story, folder: Path, each: int) -> Score:
    score = Score()
    score.calls = run(story, folder / "well", score)
    assert score.acknowledged and {"open", "write"} <= set(score.calls)
    for order, at in enumerate(sample(score.calls, each)):
        run(story, folder / f"error-{at}", score, at=at, failure=ERRORS[order % len(ERRORS)])
    for at in sample(score.calls, 1):
        run(story, folder / f"kill-{at}", score, at=at, failure=KILL)
    return score


def all_faults(story: Story, folder: Path, failure: int, lasting: bool) -> Score:
    """Every call fails in turn, until the story ran without touching the n-th."""
    score = Score()
    score.calls = run(story, folder / "well", score)
    at, before = 0, -1
    while score.faults > before:
        at, before = at + 1, score.faults
        run(story, folder / str(at), score, at=at, failure=failure, lasting=lasting)
    return score


@pytest.mark.parametrize("story", SMALL, ids=lambda story: story.name.replace(" ", "-"))
def test_f30_a_call_that_fails_loses_nothing_that_was_acknowledged(tmp_path: Path, story: Story) -> None:
    assert some_faults(story, tmp_path, 4).lost == []


def test_f30_a_download_loses_nothing_where_a_call_fails(tmp_path: Path, download: Story) -> None:
    assert some_faults(download, tmp_path, 4).lost == []


def test_f30_a_server_goes_on_and_loses_nothing_where_a_call_fails(tmp_path: Path, models: Path) -> None:
    assert some_faults(server_story(models), tmp_path, 3).lost == []


def each_failure(test: Callable[..., None]) -> Callable[..., None]:
    """Every error, of one call and of all from it on, and a kill."""
    named = {f"{errno.errorcode[one]}-{'lasting' if lasting else 'once'}": (one, lasting) for one, lasting in LASTING}
    marked = pytest.mark.parametrize(("failure", "lasting"), [*named.values(), (KILL, False)], ids=[*named, "kill"])
    return pytest.mark.soak(marked(test))


def report(story: Story, score: Score, capsys: pytest.CaptureFixture[str]) -> None:
    with capsys.disabled():
        print(f"\n{story.name}: {score}")
    assert score.lost == []


@each_failure
@pytest.mark.parametrize("story", SMALL, ids=lambda story: story.name.replace(" ", "-"))
def test_f30_every_call_of_a_small_story_may_fail(
    tmp_path: Path, story: Story, failure: int, lasting: bool, capsys: pytest.CaptureFixture[str]
) -> None:
    report(story, all_faults(story, tmp_path, failure, lasting), capsys)


@each_failure
def test_f30_every_call_of_a_download_may_fail(
    tmp_path: Path, download: Story, failure: int, lasting: bool, capsys: pytest.CaptureFixture[str]
) -> None:
    report(download, all_faults(download, tmp_path, failure, lasting), capsys)


@each_failure
def test_f30_every_call_of_a_server_may_fail(
    tmp_path: Path, models: Path, failure: int, lasting: bool, capsys: pytest.CaptureFixture[str]
) -> None:
    story = server_story(models)
    report(story, all_faults(story, tmp_path, failure, lasting), capsys)
