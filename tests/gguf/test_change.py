"""G60: a file that shrinks, grows, is overwritten or replaced while it is read, and after it was read."""

from __future__ import annotations

import os
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest

from tests.tiny import tiny
from woolly import LLM, gguf, plan
from woolly import _core as core
from woolly.device import cpu
from woolly.errors import FileError, NativeError
from woolly.examine import check

pytestmark = pytest.mark.native

IDS = [1, 2, 3]


@pytest.fixture
def victim(tmp_path: Path) -> Path:
    """A model of many pages, last written an hour ago."""
    path = tiny(tmp_path / "victim.gguf", width=256, ffn=1024, vocab=2048)
    os.utime(path, (1_000_000, 1_000_000))
    assert path.stat().st_size > 1 << 20
    return path


def shrink(path: Path) -> None:
    os.truncate(path, 100_000)


def empty(path: Path) -> None:
    os.truncate(path, 0)


def grow(path: Path) -> None:
    with path.open("ab") as out:
        out.write(bytes(5000))


def overwrite(path: Path) -> None:
    with path.open("r+b") as out:
        out.seek(200_000)
        out.write(bytes(5000))


CHANGES: dict[str, Callable[[Path], None]] = {f.__name__: f for f in (shrink, empty, grow, overwrite)}


@pytest.mark.parametrize("change", CHANGES)
def test_g60_a_file_that_changes_while_it_is_checked_is_refused(
    change: str, victim: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    check_finite = cpu.check_finite

    def late(file: gguf.GgufFile) -> None:
        CHANGES[change](victim)
        check_finite(file)

    monkeypatch.setattr(cpu, "check_finite", late)
    with pytest.raises(FileError, match="changed while it was read"), gguf.open(victim) as file:
        check(file)


@pytest.mark.parametrize("change", CHANGES)
def test_g60_a_file_that_changes_while_it_is_loaded_is_refused(
    change: str, victim: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    fit = plan.fit

    def late(*args: object, **more: object) -> object:
        CHANGES[change](victim)
        return fit(*args, **more)  # type: ignore[arg-type]

    monkeypatch.setattr(plan, "fit", late)
    with pytest.raises(FileError, match="changed while it was read"):
        LLM(victim, context=64, threads=2)


def test_g60_a_file_that_is_replaced_while_it_is_loaded_gives_the_old_model(
    victim: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    with LLM(victim, context=64, threads=1) as llm:
        before = llm.logits(IDS)
    other = tiny(victim.with_name("other.gguf"), seed=2)
    fit = plan.fit

    def late(*args: object, **more: object) -> object:
        if other.exists():
            other.replace(victim)
        return fit(*args, **more)  # type: ignore[arg-type]

    monkeypatch.setattr(plan, "fit", late)
    with LLM(victim, context=64, threads=1) as llm:
        assert np.array_equal(llm.logits(IDS), before)
    with LLM(victim, context=64, threads=1) as llm:
        assert llm.logits(IDS).shape != before.shape


@pytest.mark.parametrize("change", [*CHANGES, "unlink"])
def test_g60_what_happens_to_the_file_after_the_load_changes_nothing(change: str, victim: Path) -> None:
    with LLM(victim, context=64, threads=1) as llm:
        before = llm.logits(IDS)
        {**CHANGES, "unlink": os.unlink}[change](victim)
        assert np.array_equal(llm.logits(IDS), before)


def test_pages_that_are_gone_read_as_zeros_and_the_place_is_told(victim: Path) -> None:
    page = os.sysconf("SC_PAGE_SIZE")
    file = gguf.open(victim)
    raw = bytes(file.parts[0].view)
    os.truncate(victim, 40 * page)
    view = file.parts[0].view
    assert view[39 * page : 40 * page] == raw[39 * page : 40 * page]
    assert bytes(view[60 * page :]) == bytes(len(raw) - 60 * page)
    assert file.parts[0].source.region.broken_at == 60 * page
    assert bytes(view[41 * page : 42 * page]) == bytes(page)
    assert file.parts[0].source.region.broken_at == 41 * page
    with pytest.raises(FileError, match="changed"):
        file.check_unchanged()
    file.close()
    assert file.parts[0].source.region.broken_at == 41 * page


def test_a_part_of_a_disk_that_fails_is_told_with_its_byte(victim: Path) -> None:
    """The system answers a failed read of a map as it answers a missing page; the file's size and time stay."""
    facts = victim.stat()
    with (
        pytest.raises(FileError, match=r"cannot be read at byte 409,600: the disk") as caught,
        gguf.open(victim) as file,
    ):
        os.truncate(victim, 409_600)
        assert file.parts[0].view[500_000] == 0 and file.parts[0].view[409_600] == 0
        os.truncate(victim, facts.st_size)
        os.utime(victim, ns=(facts.st_atime_ns, facts.st_mtime_ns))
    assert caught.value.offset == 409_600


def test_a_header_that_vanishes_while_it_is_read_is_refused(victim: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def late(*args: object) -> object:
        os.truncate(victim, 0)
        return read(*args)  # type: ignore[arg-type]

    read = gguf.read.read_header
    monkeypatch.setattr(gguf.read, "read_header", late)
    with pytest.raises(FileError, match="changed while it was read"):
        gguf.open(victim)


def test_a_file_that_is_emptied_before_it_is_mapped_is_refused(victim: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    first = gguf.read._first_bytes

    def late(handle: int, count: int) -> bytes:
        start = first(handle, count)
        os.truncate(victim, 0)
        return start

    monkeypatch.setattr(gguf.read, "_first_bytes", late)
    with pytest.raises(FileError, match="changed while it was read"):
        gguf.open(victim)


def test_an_error_of_the_caller_is_not_hidden_and_one_of_ours_gives_way_to_the_cause(victim: Path) -> None:
    with pytest.raises(FileError, match="changed"), gguf.open(victim):
        grow(victim)
        raise FileError("a sentence that follows from it")
    with pytest.raises(FileError, match="its own"), gguf.open(victim):
        raise FileError("an error with a reason of its own")
    with pytest.raises(ZeroDivisionError), gguf.open(victim):
        grow(victim)
        raise ZeroDivisionError


def test_a_closed_file_can_be_closed_again(victim: Path) -> None:
    with gguf.open(victim) as file:
        file.close()
    file.close()


def test_a_view_that_is_still_held_keeps_the_map(victim: Path) -> None:
    with gguf.open(victim) as file:
        view = file.data("output_norm.weight")
        first = bytes(view)
    assert bytes(view) == first


def test_packing_and_looking_that_disagree_are_a_bug(victim: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(core, "pack", lambda *_: False)
    with pytest.raises(NativeError, match="disagree"):
        LLM(victim, context=64, threads=1)


def test_regions_are_given_back() -> None:
    data = memoryview(b"bytes")
    for _ in range(5000):
        core.MappedRegion(data).close()
    views = []
    with pytest.raises(core.CoreError, match="too many files"):
        while len(views) <= 4096:
            views.append(core.MappedRegion(data))
    assert len(views) > 4000  # a few files may still be open from before
    del views
    core.MappedRegion(data).close()
