"""cli.toml: every wrong line has its number, and a change leaves the rest of a file alone."""

from __future__ import annotations

import tomllib
from typing import Any

import pytest

from woolly.cli.toml import changed, problems
from woolly.errors import FileError, RequestError

FILE = """# ours
bind = "127.0.0.1:9000"  # here

[engine]
# as many as there are
num_threads = 2
"""


@pytest.mark.parametrize(
    ("key", "value", "text"),
    [
        ("engine.num_threads", 4, FILE.replace("num_threads = 2", "num_threads = 4")),
        ("engine.kv", "q8", FILE + 'kv = "q8"\n'),
        ("logging.level", "debug", FILE + '\n[logging]\nlevel = "debug"\n'),
        ("bind", "[::1]:1", FILE.replace("127.0.0.1:9000", "[::1]:1")),
    ],
)
def test_a_change_touches_one_line(key: str, value: Any, text: str) -> None:
    assert changed(FILE, key, value) == text


def test_the_first_setting_makes_the_file() -> None:
    assert changed("", "models.offline", True) == "[models]\noffline = true\n"


def test_a_dotted_key_stays_one() -> None:
    assert changed('engine.kv = "f16"\n', "engine.kv", "f32") == 'engine.kv = "f32"\n'


@pytest.mark.parametrize("value", ['a"b', "back\\slash", "line\nend", "é\x7f\x00", "[x]", "# no comment"])
def test_any_text_comes_back_as_it_was(value: str) -> None:
    text = changed(FILE, "models.default_model", value)
    assert tomllib.loads(text)["models"]["default_model"] == value


@pytest.mark.parametrize(
    ("before", "key", "value", "after"),
    [
        ('engine = { kv = "f16" }\n', "engine.kv", "q8", 'engine = { kv = "q8" }\n'),
        ('cors.allowed_origins = [\n  "a",\n]\n', "cors.allowed_origins", ["b"], 'cors.allowed_origins = ["b"]\n'),
        ('"engine".kv = "f16"\n', "engine.kv", "q8", '"engine".kv = "q8"\n'),
    ],
)
def test_every_way_to_write_a_value_can_be_changed(before: str, key: str, value: Any, after: str) -> None:
    assert changed(before, key, value) == after


@pytest.mark.parametrize("text", ["engine = 3\n", "engine = []\n", "[[engine]]\nkv = 'f16'\n"])
def test_a_section_that_is_no_table_is_left_as_it_is(text: str) -> None:
    with pytest.raises(FileError, match="by hand"):
        changed(text, "engine.kv", "q8")


def test_a_wrong_value_is_not_written() -> None:
    with pytest.raises(RequestError, match=r"engine\.kv is 'q9'"):
        changed(FILE, "engine.kv", "q9")


def test_every_wrong_line_is_named() -> None:
    text = 'x = 1\n[engine]\nkv = "q7"\nnum_threads = 0\n\n[logging]\nlevel = 3\n[server]\nport = 99999\nhots = "a"\n'
    lines = [(problem.line, problem.what) for problem in problems(text)]
    assert [line for line, _ in lines] == [1, 3, 4, 7, 9, 10]
    assert "'x' has no meaning" in lines[0][1] and "f32, f16, q8" in lines[1][1]
    assert "did you mean server.host?" in lines[5][1]


def test_text_that_is_no_toml_is_named_with_its_line() -> None:
    faults = problems("[engine]\nkv = \n")
    assert [problem.line for problem in faults] == [2]


def test_an_address_that_others_reach_without_a_key_is_wrong_together() -> None:
    text = '[server]\nport = 1\nhost = "0.0.0.0"\n'
    assert [problem.line for problem in problems(text)] == [3]
    assert problems(text + '[auth]\napi_keys = ["' + "k" * 30 + '"]\n') == []


def test_a_right_file_has_no_problems() -> None:
    assert problems(FILE) == [] and problems("") == []
