"""A case: one request, or the messages of one WebSocket, and what of the answer later cases need."""

from __future__ import annotations

import dataclasses
import json
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from typing import Any, TypeAlias

HELLO = [{"role": "user", "content": "Hello"}]


@dataclass(frozen=True, slots=True, kw_only=True)
class Case:
    """A request. `<name>` in its path, headers or body stands for what an earlier case has kept.

    server: the name of a row in servers.py. body: bytes are sent as they are, all else as JSON.
    keep: name -> where in the answer the value is, as `data.0.id`.
    until: asked again until this field of the answer has one of these values.
    vague: fields whose values depend on the moment; only their types are kept.
    unordered: the pieces of a stream come in any order, as those of two answers side by side.
    """

    name: str
    method: str = "GET"
    path: str
    body: Any = None
    headers: Mapping[str, str] = field(default_factory=dict)
    server: str = "open"
    keep: Mapping[str, str] = field(default_factory=dict)
    until: tuple[str, tuple[str, ...]] | None = None
    vague: frozenset[str] = frozenset()
    unordered: bool = False

    @property
    def data(self) -> bytes | None:
        return self.body if isinstance(self.body, bytes | None) else json.dumps(self.body).encode()


@dataclass(frozen=True, slots=True)
class Turn:
    """A message over a WebSocket, bytes and texts as they are, and the types of messages that its answer ends with."""

    message: Any
    ends: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class Socket:
    """A WebSocket: what is said on it, one turn after another."""

    name: str
    path: str
    turns: tuple[Turn, ...] = ()
    headers: Mapping[str, str] = field(default_factory=dict)
    server: str = "open"


AnyCase: TypeAlias = Case | Socket


def get(name: str, path: str, **more: Any) -> Case:
    return Case(name=name, path=path, **more)


def post(name: str, path: str, body: Any = None, **more: Any) -> Case:
    return Case(name=name, method="POST", path=path, body=body, **more)


def delete(name: str, path: str, body: Any = None, **more: Any) -> Case:
    return Case(name=name, method="DELETE", path=path, body=body, **more)


def both(name: str, path: str, body: dict[str, Any], **more: Any) -> tuple[Case, Case]:
    """The same request answered at once and as a stream."""
    unstreamed, stream = ({**body, "stream": stream} for stream in (False, True))
    return post(f"{name}, whole", path, unstreamed, **more), post(f"{name}, streamed", path, stream, **more)


def made_current(model: str) -> tuple[Case, Case]:
    """Load a model anew: requests that name none are answered by what was loaded last."""
    path = f"/api/v1/models/{model}"
    return post("unloaded to be loaded", f"{path}/unload", {"force": True}), post("loaded last", f"{path}/load", {})


def refused(path: str, good: dict[str, Any], faults: Mapping[str, dict[str, Any]], **more: Any) -> Iterable[Case]:
    """A good body with one field wrong or gone (...), by the name of the fault."""
    for name, fields in faults.items():
        body = {key: value for key, value in {**good, **fields}.items() if value is not ...}
        yield post(f"refused, {name}", path, body, **more)


def named(dialect: str, *groups: AnyCase | Iterable[AnyCase]) -> tuple[AnyCase, ...]:
    """One table, whose cases have the name of the dialect before their own."""
    cases = [case for group in groups for case in ((group,) if isinstance(group, Case | Socket) else group)]
    return tuple(dataclasses.replace(case, name=f"{dialect}: {case.name}") for case in cases)
