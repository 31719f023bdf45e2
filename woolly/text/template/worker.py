"""The child process that renders chat templates: a program of its own that imports nothing of Woolly.

Started by renderer.py. A template is a program from a stranger, so this process gives away everything it does not need
before it sees one: it may open no file, start no process, write to no file and grow by a fixed number of bytes. The
parent kills it when a render takes too long; should the parent be gone, an alarm does. It ends when its input ends.

Messages have the form that sandbox.py describes. In: JSON with `source`, `now` and `variables`.
Out: one byte that says what follows, and text in UTF-8:

    T  the rendering          R  the message of raise_exception      L  a limit that was reached
    E  any other error of the template
"""

from __future__ import annotations

import json
import os
import resource
import signal
import sys
from collections.abc import Callable
from datetime import datetime
from functools import lru_cache
from importlib import import_module
from typing import Any

_MESSAGE = 300  # characters of an error message
_KEPT = 8  # compiled templates


def main(libraries: str, memory: int, output: int, seconds: float) -> None:
    """libraries: folders that hold jinja2 and what it needs. memory, output: bytes. seconds: for one render."""
    sys.path += libraries.split(os.pathsep)
    compiled = _compiler()
    _warm(compiled)
    _seal(memory)
    _send(b"T")
    while (request := _receive()) is not None:
        # The default action of the signal ends the process, whatever it is doing.
        signal.setitimer(signal.ITIMER_REAL, seconds)
        answer = _answer(compiled, request, output)
        signal.setitimer(signal.ITIMER_REAL, 0)
        _send(answer)


class Raised(Exception):
    """The template called raise_exception."""


class TooLong(Exception):
    """The template wrote more than it may."""


def _compiler() -> Callable[[str], Any]:
    from jinja2 import nodes
    from jinja2.exceptions import SecurityError
    from jinja2.ext import Extension, loopcontrols
    from jinja2.parser import Parser
    from jinja2.runtime import Undefined
    from jinja2.sandbox import ImmutableSandboxedEnvironment

    class Generation(Extension):
        """{% generation %} marks the model's words for training; here its body is just rendered."""

        tags = {"generation"}  # noqa: RUF012

        def parse(self, parser: Parser) -> nodes.Node:
            line = next(parser.stream).lineno
            body = parser.parse_statements(("name:endgeneration",), drop_needle=True)
            return nodes.Scope(body).set_lineno(line)

    class Sandbox(ImmutableSandboxedEnvironment):
        """A forbidden attribute ends the render; the library alone would print nothing in its place and go on."""

        def unsafe_undefined(self, obj: Any, attribute: str) -> Undefined:
            raise SecurityError(f"access to attribute '{attribute}' of '{type(obj).__name__}' object is unsafe.")

    environment = Sandbox(trim_blocks=True, lstrip_blocks=True, extensions=[Generation, loopcontrols], cache_size=0)
    environment.globals = {name: environment.globals[name] for name in ("namespace", "range")}
    environment.globals["raise_exception"] = _raise
    environment.filters["tojson"] = _tojson
    return lru_cache(maxsize=_KEPT)(environment.from_string)


def _raise(message: object) -> None:
    raise Raised(str(message))


def _tojson(
    value: object,
    ensure_ascii: bool = False,
    indent: int | None = None,
    separators: Any = None,
    sort_keys: bool = False,
) -> str:
    return json.dumps(value, ensure_ascii=ensure_ascii, indent=indent, separators=separators, sort_keys=sort_keys)


def _answer(compiled: Callable[[str], Any], request: bytes, output: int) -> bytes:
    try:
        return b"T" + _render(compiled, request, output)
    except Raised as error:
        return b"R" + _line(str(error))
    except TooLong:
        return b"Loutput"
    except MemoryError:
        return b"Lmemory"
    except (OSError, ImportError) as error:  # their texts name files of this machine
        return b"E" + _line(f"{type(error).__name__}: the template needs what its process does not have")
    except Exception as error:
        return b"E" + _line(f"{type(error).__name__}: {error}")


def _render(compiled: Callable[[str], Any], request: bytes, output: int) -> bytes:
    asked = json.loads(request)
    now = datetime.fromisoformat(asked["now"])
    today = {"date_string": now.strftime("%d %b %Y")}  # Llama's templates have a day of 2024 for those who tell none
    variables = today | asked["variables"] | {"strftime_now": now.strftime}
    text = bytearray()
    for piece in compiled(asked["source"]).generate(variables):
        text += piece.encode()
        if len(text) > output:
            raise TooLong
    return bytes(text)


def _line(text: str) -> bytes:
    return text[:_MESSAGE].encode("utf-8", "backslashreplace")


def _warm(compiled: Callable[[str], Any]) -> None:
    """Uses every feature that loads modules late: once sealed, the process can open no more files."""
    for module in ("jinja2.debug", "linecache", "pprint", "textwrap"):
        import_module(module)
    filters = import_module("jinja2.defaults").DEFAULT_FILTERS
    for source in (
        *(f"{{{{ '<b>x</b> &amp; y' | {name} }}}}" for name in filters),
        '{{ "\\u00e9\\n" }}{{ {"a": [1.5]} | tojson(indent=1) }}{{ strftime_now("%d %b") }}{{ "a b" | wordwrap(1) }}',
        "{% for m in messages %}{% if loop.index > 1 %}{% break %}{% endif %}{% endfor %}{{ [1] | pprint }}",
        "{% generation %}{{ '%s' | format(1) }}{% endgeneration %}{{ 'x'.upper() }}",
        "{{ raise_exception('x') }}",
        "{{ nothing.at.all }}",
        "{{ ''.__class__ }}",
        "{{ 1 / 0 }}",
        "{{ [] + 1 }}",
        "{% include 'x' %}",
        "{% broken",
    ):
        _answer(compiled, json.dumps({"source": source, "now": "2025-01-01", "variables": {}}).encode(), 1 << 20)


def _seal(memory: int) -> None:
    limits = {"RLIMIT_NOFILE": 3, "RLIMIT_FSIZE": 0, "RLIMIT_NPROC": 0, "RLIMIT_CORE": 0}
    try:
        with open("/proc/self/statm", "rb") as file:
            limits["RLIMIT_AS"] = int(file.read().split()[0]) * resource.getpagesize() + memory
    except OSError:
        pass  # a system without /proc does not keep this limit either; the time is limited everywhere
    for name, value in limits.items():
        kind = getattr(resource, name)
        hard = resource.getrlimit(kind)[1]
        value = value if hard == resource.RLIM_INFINITY else min(value, hard)
        resource.setrlimit(kind, (value, value))


def _receive() -> bytes | None:
    head = _read(4)
    return _read(int.from_bytes(head, "little")) if len(head) == 4 else None


def _read(size: int) -> bytes:
    parts = bytearray()
    while len(parts) < size:
        part = os.read(0, min(size - len(parts), 1 << 20))
        if not part:
            return b""
        parts += part
    return bytes(parts)


def _send(answer: bytes) -> None:
    data = memoryview(len(answer).to_bytes(4, "little") + answer)
    while data:
        data = data[os.write(1, data) :]


if __name__ == "__main__":
    main(sys.argv[1], int(sys.argv[2]), int(sys.argv[3]), float(sys.argv[4]))
