"""Errors: one sentence, the facts as fields, nothing harmful printed."""

from __future__ import annotations

import ast
import copy
import pickle
from pathlib import Path

import pytest

import woolly
from woolly import errors
from woolly.cli.main import EXITS, FAULT
from woolly.errors import (
    BusyError,
    ContextError,
    DownloadError,
    FileError,
    NativeError,
    NotFoundError,
    RequestError,
    UnsupportedError,
    WoollyError,
    printable,
)
from woolly.server.http.errors import ERROR_KINDS

KINDS = [kind for kind in vars(errors).values() if isinstance(kind, type) and issubclass(kind, WoollyError)]
# What stands behind `code=` where it is no word: the disk's two codes, and what the compiled core says.
COMPUTED = {
    "code or disk_code": {"disk_full", "disk_error", "file_error"},
    "code": {"not_enough_memory", "native_error"},
    "error.args[0]": {"not_enough_memory"},
}


def codes() -> set[str]:
    """Every code that an error of the package can have."""
    result = {kind.code for kind in KINDS if kind is not WoollyError}
    for path in Path(woolly.__file__).parent.rglob("*.py"):
        for call in ast.walk(ast.parse(path.read_text())):
            if isinstance(call, ast.Call) and ast.unparse(call.func) in {kind.__name__ for kind in KINDS}:
                for value in (word.value for word in call.keywords if word.arg == "code"):
                    result |= {value.value} if isinstance(value, ast.Constant) else COMPUTED[ast.unparse(value)]
    return result


def test_an_error_says_what_happened_and_what_to_do():
    error = FileError("m.gguf: cut", suggestion="fetch it again", offset=7)
    assert str(error) == "m.gguf: cut; fetch it again"
    assert (error.message, error.suggestion, error.facts, error.offset) == (
        "m.gguf: cut",
        "fetch it again",
        {"offset": 7},
        7,
    )
    assert str(FileError("m.gguf: cut")) == "m.gguf: cut"


def test_an_unknown_fact_is_an_attribute_error():
    with pytest.raises(AttributeError, match="no attribute or fact 'colour'"):
        _ = FileError("x").colour


def test_every_kind_has_its_own_code_and_an_error_may_narrow_it():
    kinds = (FileError, UnsupportedError, NotFoundError, RequestError, BusyError, DownloadError, NativeError)
    codes = {kind("x").code for kind in kinds} | {ContextError(1, 2).code}
    assert len(codes) == 8
    assert BusyError("x", code="not_enough_memory").code == "not_enough_memory"
    assert BusyError("x").code == "busy"


def test_every_code_has_a_status_and_every_kind_an_exit_code():
    assert {"overloaded", "disk_full", "model_error", "generation_error"} < codes() <= set(ERROR_KINDS)
    assert {kind.code for kind in KINDS if kind is not WoollyError} <= set(EXITS) <= codes()
    assert [code for code, exit in EXITS.items() if exit == FAULT] == ["native_error"]


def test_a_context_error_holds_both_numbers():
    error = ContextError(5000, 4096)
    assert "5,000" in str(error) and "4,096" in str(error)
    assert (error.prompt, error.limit) == (5000, 4096)


@pytest.mark.parametrize("error", [FileError("cut", suggestion="again", offset=7), ContextError(5000, 4096)], ids=str)
def test_an_error_survives_copying_and_pickling(error: WoollyError):
    for twin in (copy.copy(error), pickle.loads(pickle.dumps(error))):
        assert type(twin) is type(error)
        assert (str(twin), twin.code, twin.facts) == (str(error), error.code, error.facts)


@pytest.mark.parametrize(
    ("value", "shown"),
    [
        ("plain ä 漢", "plain ä 漢"),
        ("a\x1b[31mb\nc\0", "a\\x1b[31mb\\nc\\x00"),
        ("left\u202eright\u2028line", "left\\u202eright\\u2028line"),
        ("lone \ud800", "lone \\ud800"),
        (b"caf\xc3\xa9 \xff", "café \\xff"),
        (b"cut \xc3", "cut \\xc3"),
        (12, "12"),
    ],
)
def test_printable_escapes_what_a_terminal_would_obey(value: object, shown: str):
    assert printable(value) == shown
    assert printable(value).isprintable()


def test_printable_cuts_long_values_after_escaping():
    assert printable("x" * 100) == "x" * 100
    assert printable("x" * 101) == "x" * 99 + "…"
    assert len(printable("\0" * 1000)) == 100
    assert len(printable(b"\xff" * 10**6)) == 100
