"""The input of a batch is checked to its last line before anything is answered; faults name the line by its number."""

from __future__ import annotations

import dataclasses
import json
import os
from pathlib import Path
from typing import Any

import pytest

from tests.server.batch.lines import HELLO, row, write
from woolly.config.serving import SERVING, Serving
from woolly.errors import FileError, NotFoundError, RequestError, WoollyError
from woolly.server.batch import Input, Terms


def opened(path: Path, terms: Terms = Terms(), limits: Serving = SERVING, **most: int) -> Input:  # noqa: B008
    return Input(path, terms, limits, **{"most_bytes": 1 << 20, "most_rows": 100} | most)


def refused(path: Path, **more: Any) -> WoollyError:
    with pytest.raises(WoollyError) as caught:
        opened(path, **more).check()
    return caught.value


@pytest.mark.parametrize(
    ("line", "code", "words"),
    [
        ("{", "invalid_json_line", "is not JSON"),
        ('{"custom_id": NaN}', "invalid_json_line", "NaN"),
        ("[1]", "invalid_json_line", "expected an object"),
        ("\udcff", "invalid_json_line", "UTF-8"),
        (row("first"), "duplicate_custom_id", "'first' stands in an earlier row"),
        (row(""), "invalid_custom_id", "1 to 512 characters"),
        (row("x" * 513), "invalid_custom_id", "1 to 512 characters"),
        (row("x") | {"custom_id": 7}, "invalid_custom_id", "custom_id"),
        (row("x") | {"method": "GET"}, "invalid_method", "POST"),
        (row("x", "/v1/images"), "invalid_url", "'/v1/images'; expected /v1/chat/completions"),
        (row("x") | {"body": [1]}, "missing_required_parameter", "body is an object"),
        (row("x", messages=HELLO, stream=True), "invalid_body", "answered whole"),
        (row("x", "/v1/responses", input="y", previous_response_id="z"), "invalid_body", "cannot go on"),
    ],
)
def test_a_line_that_is_wrong_is_told_by_its_number(tmp_path: Path, line: Any, code: str, words: str) -> None:
    path = tmp_path / "in.jsonl"
    text = line if isinstance(line, str) else json.dumps(line)
    path.write_text(f"{json.dumps(row('first'))}\n\n{text}\n", encoding="utf-8", errors="surrogateescape")
    error = refused(path)
    assert (error.code, error.facts["line"]) == (code, 3)
    assert words in str(error) and "in.jsonl, line 3: " in str(error) and "\n" not in str(error)


def test_a_file_without_rows_is_refused(tmp_path: Path) -> None:
    assert refused(write(tmp_path / "in.jsonl", ["", "  "])).code == "empty_file"


def test_sizes_are_bounded(tmp_path: Path) -> None:
    path = write(tmp_path / "in.jsonl", [row(str(number)) for number in range(4)])
    assert "at most 3 rows" in str(refused(path, most_rows=3))
    assert "at most 50 are read" in str(refused(path, most_bytes=50))
    short = dataclasses.replace(SERVING, max_body_size=60)
    assert "line 1: a line has at most 60 bytes" in str(refused(path, limits=short))
    assert opened(path, most_rows=4).check() == 4


def test_what_is_no_file_is_refused(tmp_path: Path) -> None:
    os.mkfifo(tmp_path / "pipe")
    with pytest.raises(FileError, match="no ordinary file"):
        opened(tmp_path / "pipe")
    with pytest.raises(NotFoundError):
        opened(tmp_path / "nothing")


def test_a_file_that_changes_while_it_is_read_is_refused(tmp_path: Path) -> None:
    path = write(tmp_path / "in.jsonl", [row("a"), row("b")])
    source = opened(path)
    rows = source.rows()
    next(rows)
    write(path, [row("a"), row("b"), row("c")])
    with pytest.raises(FileError, match="was changed"):
        list(rows)


def test_a_url_that_the_job_does_not_have_is_refused(tmp_path: Path) -> None:
    path = write(tmp_path / "in.jsonl", [row("a"), row("b", "/v1/completions", prompt="x")])
    assert refused(path, terms=Terms(url="/v1/chat/completions")).facts["line"] == 2


def test_seeds_are_made_of_the_jobs_seed_and_the_custom_id_where_a_row_has_none(tmp_path: Path) -> None:
    rows = [
        row("a"),
        row("b"),
        row("c", messages=HELLO, seed=5),
        row("d", "/v1/embeddings", input="x"),
        row("e", "/v1/responses", input="x"),
    ]
    path = write(tmp_path / "in.jsonl", rows)
    a, b, c, d, e = opened(path).rows()
    assert a.body["seed"] != b.body["seed"] and 0 <= a.body["seed"] < 2**53
    assert c.body["seed"] == 5 and "seed" not in d.body and "seed" in e.body
    assert next(opened(path).rows()).body == a.body
    assert next(opened(path, Terms(seed=1)).rows()).body["seed"] != a.body["seed"]


def test_a_model_of_the_job_answers_every_row(tmp_path: Path) -> None:
    path = write(tmp_path / "in.jsonl", [row("a", messages=HELLO, model="gpt-4o"), row("b")])
    assert [each.body["model"] for each in opened(path, Terms(model="mine")).rows()] == ["mine", "mine"]
    assert [each.body.get("model") for each in opened(path).rows()] == ["gpt-4o", None]


def test_rows_that_begin_alike_are_neighbours_in_the_order_of_their_prompts(tmp_path: Path) -> None:
    systems = ["You are a cook. " * 9, "You are a sailor. " * 9]
    rows = [
        row(str(number), messages=[{"role": "system", "content": systems[number % 2]}, HELLO[0]]) for number in range(6)
    ]
    ordered = sorted(opened(write(tmp_path / "in.jsonl", rows)).rows(), key=lambda each: (each.prefix, each.index))
    assert [each.index for each in ordered] == [0, 2, 4, 1, 3, 5]


def test_a_row_has_the_same_ids_only_under_the_same_terms(tmp_path: Path) -> None:
    path = write(tmp_path / "in.jsonl", [row("a")])
    changed = write(tmp_path / "other.jsonl", [row("a", messages=HELLO)])
    ids = [next(source.rows()).id for source in (opened(path), opened(path, Terms(1)), opened(path, Terms(model="m")))]
    assert len({*ids, next(opened(changed).rows()).id}) == 4
    assert next(opened(path, Terms(created=5)).rows()).id == ids[0]


def test_a_row_keeps_no_response_for_later(tmp_path: Path) -> None:
    path = write(tmp_path / "in.jsonl", [row("a", "/v1/responses", input="x", store=True)])
    assert next(opened(path).rows()).body["store"] is False


def test_request_errors_are_errors_of_the_request(tmp_path: Path) -> None:
    assert isinstance(refused(write(tmp_path / "in.jsonl", ["{"])), RequestError)
