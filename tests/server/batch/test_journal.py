"""The output of a batch: whole lines in order; a job resumes exactly where they end."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.server.batch.lines import read, row, write
from woolly.config.serving import SERVING
from woolly.errors import BusyError, FileError, RequestError
from woolly.server.batch import BatchRow, Input, Journal, Terms
from woolly.server.batch.answers import output_line


def rows_of(tmp_path: Path, count: int = 6, terms: Terms = Terms()) -> list[BatchRow]:  # noqa: B008
    path = write(tmp_path / "in.jsonl", [row(f"r{number}") for number in range(count)])
    return list(Input(path, terms, SERVING, most_bytes=1 << 20, most_rows=100).rows())


def line(each: BatchRow) -> bytes:
    return output_line(each, 200, {"said": "word " * 5}, 0)


def fill(tmp_path: Path, rows: list[BatchRow], failed: tuple[int, ...] = ()) -> tuple[Path, Path]:
    output, errors = tmp_path / "out.jsonl", tmp_path / "err.jsonl"
    journal = Journal(output, errors)
    for each in rows:
        journal.add(line(each), failed=each.index in failed)
    journal.close()
    return output, errors


def test_wherever_the_output_is_cut_the_job_goes_on_to_the_same_bytes(tmp_path: Path) -> None:
    rows = rows_of(tmp_path)
    output, errors = fill(tmp_path, rows)
    complete = output.read_bytes()
    for at in sorted({*range(0, len(complete), 29), *range(len(complete) - 3, len(complete) + 1)}):
        output.write_bytes(complete[:at])
        journal = Journal(output, errors)
        done, failed = journal.resume(rows)
        assert (done, failed) == (complete[:at].count(b"\n"), 0)
        for each in rows[done:]:
            journal.add(line(each), failed=False)
        journal.close()
        assert output.read_bytes() == complete


def test_rows_of_both_files_are_skipped(tmp_path: Path) -> None:
    rows = rows_of(tmp_path)
    output, errors = fill(tmp_path, rows[:5], failed=(0, 3))
    assert [each["custom_id"] for each in read(errors)] == ["r0", "r3"]
    journal = Journal(output, errors)
    assert journal.resume(rows) == (5, 2)
    journal.close()


def test_what_a_power_cut_left_of_the_errors_file_alone_is_made_again(tmp_path: Path) -> None:
    rows = rows_of(tmp_path)
    output, errors = fill(tmp_path, rows[:5], failed=(1, 4))
    output.write_bytes(b"".join(line(each) for each in rows[:1]))  # r2 and r3 are lost
    journal = Journal(output, errors)
    assert journal.resume(rows) == (2, 1)
    journal.close()
    assert [each["custom_id"] for each in read(errors)] == ["r1"]


def test_an_output_without_its_errors_file_is_not_gone_on_with(tmp_path: Path) -> None:
    rows = rows_of(tmp_path)
    output, _ = fill(tmp_path, rows[:5], failed=(1,))
    before = output.read_bytes()
    with pytest.raises(FileError, match="'r2' does not follow"):
        Journal(output).resume(rows)
    assert output.read_bytes() == before


@pytest.mark.parametrize("terms", [Terms(seed=1), Terms(model="other")])
def test_an_output_of_another_seed_or_model_is_not_gone_on_with(tmp_path: Path, terms: Terms) -> None:
    output, errors = fill(tmp_path, rows_of(tmp_path)[:3])
    with pytest.raises(FileError, match="another input, seed or model"):
        Journal(output, errors).resume(rows_of(tmp_path, terms=terms))


def test_an_output_of_another_input_is_not_gone_on_with(tmp_path: Path) -> None:
    rows = rows_of(tmp_path)
    output, errors = fill(tmp_path, rows)
    with pytest.raises(FileError, match="does not follow"):
        Journal(output, errors).resume(rows[:3])


@pytest.mark.parametrize("text", ["my notes\nare here\n", "my only line", '{"id": 1', "\0\0 zeros"])
def test_a_file_that_is_no_output_is_left_alone(tmp_path: Path, text: str) -> None:
    output = tmp_path / "notes.txt"
    output.write_text(text)
    with pytest.raises(FileError, match="line 1 is no row"):
        Journal(output).resume(rows_of(tmp_path))
    assert output.read_text() == text


def test_zeros_that_a_power_cut_left_behind_are_cut(tmp_path: Path) -> None:
    rows = rows_of(tmp_path)
    output, errors = fill(tmp_path, rows[:2])
    complete = output.read_bytes()
    for torn in (b"\0" * 100, line(rows[2])[:40] + b"\0" * 100):
        output.write_bytes(complete + torn)
        journal = Journal(output, errors)
        assert journal.resume(rows) == (2, 0)
        journal.close()
        assert output.read_bytes() == complete


def test_two_jobs_never_write_one_output(tmp_path: Path) -> None:
    first = Journal(tmp_path / "out.jsonl")
    with pytest.raises(BusyError, match="another process writes"):
        Journal(tmp_path / "out.jsonl")
    first.close()
    Journal(tmp_path / "out.jsonl").close()


def test_no_file_is_named_twice(tmp_path: Path) -> None:
    source = Input(write(tmp_path / "in.jsonl", [row("a")]), Terms(), SERVING, most_bytes=1000, most_rows=9)
    with pytest.raises(RequestError, match="named twice"):
        Journal(tmp_path / "in.jsonl", source=source.handle)
    with pytest.raises(RequestError, match="named twice"):
        Journal(tmp_path / "out.jsonl", tmp_path / "out.jsonl")
    assert read(tmp_path / "in.jsonl")[0]["custom_id"] == "a"
