"""The program of the sealed process, run here with its pipes and limits replaced: every branch of it.

test_renderer.py and test_template.py run the real process; here each answer and each limit it sets is looked at.
"""

from __future__ import annotations

import builtins
import json
import os
import resource
import runpy
import signal
import sys
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import pytest

from woolly.text.template import worker

LIBRARIES = os.pathsep.join(str(Path(find_spec(name).origin).parents[1]) for name in ("jinja2", "markupsafe"))  # type: ignore[union-attr,arg-type]
PIECE = 7  # bytes that one read or write of the replaced pipes takes at most


class Pipes:
    """Standard input and output of a worker: small pieces, as real pipes may give them."""

    def __init__(self, requests: bytes) -> None:
        self.requests = requests
        self.written = bytearray()
        self.limits: dict[int, tuple[int, int]] = {}
        self.alarms: list[float] = []

    def read(self, handle: int, size: int) -> bytes:
        assert handle == 0
        data, self.requests = self.requests[: min(size, PIECE)], self.requests[min(size, PIECE) :]
        return data

    def write(self, handle: int, data: memoryview) -> int:
        assert handle == 1
        self.written += data[:PIECE]
        return len(data[:PIECE])

    def answers(self) -> list[str]:
        answers, data = [], bytes(self.written)
        while data:
            size = int.from_bytes(data[:4], "little")
            answers.append(data[4 : 4 + size].decode())
            data = data[4 + size :]
        return answers


def frame(request: bytes) -> bytes:
    return len(request).to_bytes(4, "little") + request


def ask(source: str, **variables: Any) -> bytes:
    return frame(json.dumps({"source": source, "now": "2026-02-03T04:05:06", "variables": variables}).encode())


@pytest.fixture
def run(monkeypatch: pytest.MonkeyPatch) -> Any:
    def started(*requests: bytes, output: int = 1000, hard: int = resource.RLIM_INFINITY) -> Pipes:
        pipes = Pipes(b"".join(requests))
        with monkeypatch.context() as m:
            m.setattr(sys, "path", list(sys.path))
            m.setattr(sys, "argv", ["worker.py", LIBRARIES, str(64 << 20), str(output), "2.0"])
            m.setattr(os, "read", pipes.read)
            m.setattr(os, "write", pipes.write)
            m.setattr(signal, "setitimer", lambda which, seconds: pipes.alarms.append(seconds))
            m.setattr(resource, "getrlimit", lambda kind: (hard, hard))
            m.setattr(resource, "setrlimit", lambda kind, value: pipes.limits.update({kind: value}))
            runpy.run_path(worker.__file__, run_name="__main__")
        return pipes

    return started


def test_it_says_that_it_is_ready_and_ends_when_its_input_ends(run: Any) -> None:
    assert run().answers() == ["T"]
    assert run(b"\x05\0").answers() == ["T"]  # half a length
    assert run(b"\x05\0\0\0abc").answers() == ["T", "EJSONDecodeError: Expecting value: line 1 column 1 (char 0)"]


@pytest.mark.parametrize(
    ("source", "answer"),
    [
        ("{{ x }}{% if not y %}é{% endif %}", "T5é"),
        ("{{ {'a': [1, 'é<']} | tojson }}", 'T{"a": [1, "é<"]}'),
        ("{{ strftime_now('%Y-%m') }}", "T2026-02"),
        ("{% generation %}in{% endgeneration %}{% for i in range(3) %}{% break %}{% endfor %}", "Tin"),
        ("{{ raise_exception('no ' ~ 'é' * 400) }}", "Rno " + "é" * 297),
        ("{{ [] + 1 }}", 'ETypeError: can only concatenate list (not "int") to list'),
        ("{{ 1 / 0 }}", "EZeroDivisionError: division by zero"),
        ("{{ '\\ud800' }}", "EUnicodeEncodeError: 'utf-8' codec can't encode character '\\ud800' in position 0:"),
        ("{{ ''.__class__ }}", "ESecurityError: access to attribute '__class__' of 'str' object is unsafe."),
        ("{{ 'x' * 1001 }}", "Loutput"),
        ("{% for i in range(1001) %}y{% endfor %}", "Loutput"),
        ("{{ range(100001) }}", "EOverflowError: Range too big"),
        ("{% broken", "ETemplateSyntaxError: Encountered unknown tag 'broken'."),
    ],
)
def test_each_kind_of_answer(run: Any, source: str, answer: str) -> None:
    pipes = run(ask(source, x=5), ask("{{ x }}", x="next"))
    assert pipes.answers()[1].startswith(answer)
    assert pipes.answers()[2] == "Tnext"
    assert pipes.alarms == [2.0, 0, 2.0, 0]


def test_an_error_of_the_system_tells_no_path(run: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    def closed(*_: object) -> bytes:
        raise OSError(24, "Too many open files", "/home/somebody/html/entities.py")

    monkeypatch.setattr(json, "loads", closed)
    assert run(ask("x")).answers() == ["T", "EOSError: the template needs what its process does not have"]


def test_memory_that_runs_out_is_a_limit(run: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    def none_left(*_: object) -> bytes:
        raise MemoryError

    monkeypatch.setattr(json, "loads", none_left)
    assert run(ask("x")).answers() == ["T", "Lmemory"]


def test_it_gives_everything_away_before_it_sees_a_template(run: Any) -> None:
    limits = run().limits
    assert {limits[kind] for kind in (resource.RLIMIT_FSIZE, resource.RLIMIT_NPROC, resource.RLIMIT_CORE)} == {(0, 0)}
    assert limits[resource.RLIMIT_NOFILE] == (3, 3)
    if Path("/proc/self/statm").exists():
        assert limits[resource.RLIMIT_AS][0] > 64 << 20


def test_a_limit_that_is_lower_already_stays(run: Any) -> None:
    assert run(hard=2).limits[resource.RLIMIT_NOFILE] == (2, 2)


def test_a_system_without_proc_has_the_other_limits(run: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    real = builtins.open

    def no_proc(path: Any, *args: Any, **more: Any) -> Any:
        if str(path).startswith("/proc"):
            raise FileNotFoundError(path)
        return real(path, *args, **more)

    monkeypatch.setattr(builtins, "open", no_proc)
    limits = run().limits
    assert resource.RLIMIT_AS not in limits
    assert resource.RLIMIT_NOFILE in limits
