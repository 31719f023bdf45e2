"""What is wrong whatever the route: every route of the description is asked so, in the words of its own dialect."""

from __future__ import annotations

import re
from collections.abc import Iterator
from typing import Any

from tools.http_transcripts.case import Case

BODIES: dict[str, bytes] = {
    "no JSON": b"{",
    "an empty object": b"{}",
    "a text": b'"model"',
    "other types": b'{"model": {"a": 1}, "method": 5, "name": [], "path": 7, "messages": 5, "prompt": {}, "input": {}}',
}
BYTES = 4000  # more than the small server reads


def faults(document: dict[str, Any]) -> Iterator[Case]:
    """Cases for every route of an OpenAPI document."""
    for path, methods in sorted(document["paths"].items()):
        where = re.sub(r"\{[^}]*\}", "nobody", path)
        for method in sorted(methods):
            yield _case("no key", method, where, server="keyed", body=b"{}" if method == "post" else None)
            yield _case("another page", method, where, headers={"Origin": "https://evil.example"})
            if "requestBody" in methods[method]:
                for name, body in BODIES.items():
                    yield _case(name, method, where, body=body)
                yield _case("compressed", method, where, body=b"{}", headers={"Content-Encoding": "gzip"})
                yield _case("too large", method, where, body=b'{"x": "' + b"x" * BYTES + b'"}', server="small")
        yield _case("another method", "put", where, body=b"{}")
        yield _case("which methods", "options", where)


def _case(fault: str, method: str, path: str, **more: Any) -> Case:
    return Case(name=f"{fault}: {method.upper()} {path}", method=method.upper(), path=path, **more)
