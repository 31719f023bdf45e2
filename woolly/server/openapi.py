"""The description of the server at /openapi.json, made from the doors alone.

A body is the Struct in a door's row, an answer the return type of the function that makes it, a summary the docstring
of the function behind the door; paths, methods, who may enter and the shape of errors stand in the row and its dialect.
"""

from __future__ import annotations

import json
import re
from collections.abc import AsyncGenerator, Callable, Iterable
from http import HTTPStatus
from types import UnionType
from typing import Any, NoReturn, TypeAlias, Union, get_args, get_origin, get_type_hints

import msgspec

from woolly import __version__
from woolly.server.door import Dialect, Door, Download, Generation, Query, Reply, Streamed
from woolly.server.errors import ROWS

Schema: TypeAlias = dict[str, Any]

JSON, FORM = "application/json", "multipart/form-data"
NAMES = "#/components/schemas/"
LOCAL = (  # what happens before a door is found, or while it works
    HTTPStatus.BAD_REQUEST,
    HTTPStatus.FORBIDDEN,
    HTTPStatus.REQUEST_URI_TOO_LONG,
    HTTPStatus.REQUEST_HEADER_FIELDS_TOO_LARGE,
    HTTPStatus.INTERNAL_SERVER_ERROR,
    HTTPStatus.SERVICE_UNAVAILABLE,
)
POSTED = (HTTPStatus.REQUEST_TIMEOUT, HTTPStatus.REQUEST_ENTITY_TOO_LARGE, HTTPStatus.UNSUPPORTED_MEDIA_TYPE)
NAMED = (HTTPStatus.NOT_FOUND, HTTPStatus.METHOD_NOT_ALLOWED)  # a name in a path can be that of another route

WORDS = """Woolly's own routes are under /api/v1, OpenAI's and Anthropic's under /v1, those of Ollama and older
documents under /api.
A field that is not described has no effect: the header X-Woolly-Notes names it, and with X-Woolly-Strict: 1 it is
refused. What is described as an event stream comes as `data: {...}` lines when `stream` is true, and ends with
`data: [DONE]` unless its events have names. Every route that takes GET takes HEAD, and every route takes OPTIONS."""


TAGS = (
    "OpenAI",
    "Anthropic",
    "Ollama",
    "llama-server",
    "Generation",
    "Models",
    "Health",
    "Figures",
    "Access",
    "MCP",
    "Older documents",
    "About",
)


PARAMS = {"name": {"description": "A model's name; a slash in it is written %2F."}}


def behind(door: Door) -> Callable[..., Any]:
    """The function that stands behind a door, and all aliases of it."""
    return door.read if isinstance(door, Generation) else door.call


def returned(function: Callable[..., Any]) -> Any:
    """The type that a function returns; for a Reply that of its body, for a stream that of each piece."""
    hint = get_type_hints(function, localns={"App": Any}, include_extras=True)["return"]
    return get_args(hint)[0] if get_origin(hint) in (Reply, AsyncGenerator, Streamed) else hint


def answer_of(door: Door) -> tuple[Any, ...]:
    """The types of a door's JSON answer; none where it has none."""
    if isinstance(door, Generation):
        return (returned(door.whole),) if door.whole else ()
    kinds = _members(returned(door.call))
    return tuple(kind for kind in kinds if kind not in (bytes, Download, NoReturn) and get_origin(kind) is not Streamed)


def events_of(door: Door) -> tuple[Any, ...]:
    """The types of the events of a door's stream; none where it never streams."""
    if isinstance(door, Generation):
        return _members(returned(door.frames)) if door.whole is None or "stream" not in door.without else ()
    streams = [get_args(kind)[0] for kind in _members(returned(door.call)) if get_origin(kind) is Streamed]
    return _members(streams[0]) if streams else ()


def describe(doors: tuple[tuple[Dialect, Door], ...]) -> Schema:
    """The OpenAPI document of these doors."""
    described = [(dialect, door) for dialect, door in doors if door.tag]
    types = _Types([kind for dialect, door in described for kind in _types(dialect, door)])
    paths: dict[str, Schema] = {}
    for dialect, door in sorted(described, key=lambda row: row[1].path):
        methods, method = paths.setdefault(public(door.path), {}), door.method.lower()
        made = _operation(dialect, door, types)
        methods[method] = _merged(methods[method], made) if method in methods else made
    return {
        "openapi": "3.1.0",
        "info": {"title": "Woolly", "version": __version__, "description": WORDS},
        "servers": [{"url": "/"}],
        "tags": [{"name": name} for name in dict.fromkeys((*TAGS, *(door.tag for _, door in described)))],
        "paths": paths,
        "components": {
            "schemas": _reached(types.schemas, paths),
            "securitySchemes": {
                "bearer": {"type": "http", "scheme": "bearer"},
                "key": {"type": "apiKey", "in": "header", "name": "X-API-Key"},
            },
        },
    }


def _merged(one: Schema, other: Schema) -> Schema:
    """The operation of two doors at one path, between which the body decides."""
    made = one | {"summary": f"{one['summary']} {other['summary']}"}
    if "requestBody" in one:
        bodies = [door["requestBody"]["content"][JSON]["schema"] for door in (one, other) if "requestBody" in door]
        made["requestBody"] = one["requestBody"] | {"content": {JSON: {"schema": _any_of(bodies)}}}
    made["responses"] = dict(one["responses"])
    for status, response in other["responses"].items():
        before = made["responses"].get(status, response)
        content = dict(before.get("content", {}))
        for kind, about in response.get("content", {}).items():
            content[kind] = {"schema": _any_of([content.get(kind, about)["schema"], about["schema"]])}
        made["responses"][status] = before | {"content": content}
    return made


def _any_of(schemas: list[Schema]) -> Schema:
    unique = [schema for index, schema in enumerate(schemas) if schema not in schemas[:index]]
    return unique[0] if len(unique) == 1 else {"anyOf": unique}


def public(path: str) -> str:
    """A path as it is written outside: `{name:path}` is `{name}`."""
    return re.sub(r"\{(\w+)(:\w+)?\}", r"{\1}", path)


class _Types:
    """The schemas of all types, each under a name of its own."""

    def __init__(self, kinds: Iterable[Any]) -> None:
        unique = list({repr(kind): kind for kind in kinds}.values())
        made, schemas = msgspec.json.schema_components(unique, ref_template=NAMES + "{name}")
        self._made = {repr(kind): schema for kind, schema in zip(unique, made, strict=True)}
        self.schemas = {name: _sent(schema) for name, schema in sorted(schemas.items())}
        for kind in unique:
            for field, others in getattr(kind, "ALIASES", {}).items():
                _aliases(self.schemas[kind.__name__]["properties"], field, others)

    def any_of(self, *kinds: Any) -> Schema:
        made = [self._made[repr(kind)] for kind in kinds]
        return made[0] if len(made) == 1 else {"anyOf": made}

    def without(self, name: str, other: str, left_out: frozenset[str]) -> str:
        """A schema under another name, without some of its fields."""
        schema = self.schemas[name]
        fields = {field: about for field, about in schema["properties"].items() if field not in left_out}
        self.schemas[other] = schema | {"properties": fields}
        return other


def _sent(schema: Schema) -> Schema:
    """A field of an answer that has a default is sent all the same; those that may be missing have none."""
    if schema.get("additionalProperties") is not False:  # a body
        return schema
    fields = schema["properties"]
    needed = [name for name in fields if name in schema.get("required", ()) or "default" in fields[name]]
    plain = {name: {key: value for key, value in field.items() if key != "default"} for name, field in fields.items()}
    return schema | {"properties": plain, "required": needed}


def _reached(schemas: dict[str, Schema], start: object) -> dict[str, Schema]:
    """The schemas that something refers to."""
    found: set[str] = set()
    look = [start]
    while look:
        names = set(re.findall(rf'"{NAMES}(\w+)"', json.dumps(look.pop()))) - found
        found |= names
        look += [schemas[name] for name in names]
    return {name: schemas[name] for name in sorted(found)}


def _members(kind: Any) -> tuple[Any, ...]:
    """The types of a union: msgspec reads no union of objects, and here nothing is read."""
    return get_args(kind) if get_origin(kind) in (UnionType, Union) else (kind,)


def _types(dialect: Dialect, door: Door) -> list[Any]:
    form = door.form if isinstance(door, Query) else None
    kinds = [door.body, form, *events_of(door), *answer_of(door), *_faults(dialect, door)]
    return [kind for kind in kinds if kind is not None]


def _faults(dialect: Dialect, door: Door) -> list[Any]:
    """The types of a door's errors."""
    own = [returned(door.failed)] if not isinstance(door, Generation) and door.failed else []
    return [*own, returned(dialect.error)]


def _aliases(fields: Schema, name: str, others: Iterable[str]) -> None:
    """The other names under which a body may have a field."""
    for other in others:
        fields[other] = fields[name] | {"description": f"Another name of {name}, which counts if both are given."}


def _operation(dialect: Dialect, door: Door, types: _Types) -> Schema:
    made: Schema = {
        "operationId": re.sub(r"\W+", "_", f"{door.method.lower()}{public(door.path)}").strip("_"),
        "tags": [door.tag],
        "summary": (behind(door).__doc__ or "").partition("\n")[0],
        "security": [] if door.access == "open" else [{}, {"bearer": []}, {"key": []}],
        "responses": _responses(dialect, door, types),
    }
    if door.access == "key":
        made["description"] = "Needs a key wherever the server has one."
    names = re.findall(r"\{(\w+)\}", public(door.path))
    if names:
        made["parameters"] = [
            {
                "name": name,
                "in": "path",
                "required": True,
                "schema": {"type": "string", "minLength": 1, **PARAMS.get(name, {})},
            }
            for name in names
        ]
    if isinstance(door, Query) and door.query:
        queries = [{"name": name, "in": "query", "schema": {"type": "string"}} for name in door.query]
        made["parameters"] = [*made.get("parameters", ()), *queries]
    if door.body is not None:
        name = door.body.__name__
        if isinstance(door, Generation) and door.without:
            name = types.without(name, f"{dialect.name}_{name}", door.without)
        required = bool(types.schemas[name].get("required"))
        made["requestBody"] = {"required": required, "content": {JSON: {"schema": {"$ref": NAMES + name}}}}
    if isinstance(door, Query) and door.form is not None:
        made["requestBody"] = _form(door.form)
    return made


def _form(kind: type[msgspec.Struct]) -> Schema:
    """The body of a door with a form: fields as text, and a file."""
    return {"required": True, "content": {FORM: {"schema": {"$ref": NAMES + kind.__name__}}}}


def _responses(dialect: Dialect, door: Door, types: _Types) -> Schema:
    made: Schema = {}
    content: Schema = {}
    if answers := answer_of(door):
        content[JSON] = {"schema": types.any_of(*answers)}
    if events := events_of(door):
        framing = door.framing
        shapes = types.any_of(*events, returned(dialect.error))
        content[framing.media_type] = {"schema": framing.schema(shapes)}
    if isinstance(door, Query):
        content |= {kind: {"schema": {"type": "string"}} for kind in door.texts}
    if content:
        for status in (200, *(() if isinstance(door, Generation) else door.status)):
            made[str(status)] = {"description": HTTPStatus(status).phrase}
            if status != HTTPStatus.ACCEPTED:  # which has no body
                made[str(status)]["content"] = content
    shape = types.any_of(*_faults(dialect, door))
    for status in _errors(door):
        made.setdefault(str(status), {"description": _reason(status, dialect), "content": {JSON: {"schema": shape}}})
    for response in made.values():
        response["headers"] = {"X-Request-Id": {"schema": {"type": "string"}}}
    return dict(sorted(made.items()))


def _errors(door: Door) -> list[int]:
    codes = {*LOCAL, *((404, 504) if isinstance(door, Generation) else door.errors)}
    if door.access != "open":
        codes |= {401, 429}
    if door.method in ("POST", "DELETE"):
        codes |= {*POSTED}
    if "{" in door.path:
        codes |= {*NAMED}
    return sorted(map(int, codes))


def _reason(status: int, dialect: Dialect) -> str:
    """What a status means, and the types of error that have it, as this dialect calls them."""
    rows = [row for row in ROWS.values() if row.status == status and dialect.name != "documents"]
    codes = sorted({row.openai if dialect.name == "openai" else row.woolly for row in rows})
    return HTTPStatus(status).phrase + (f": {', '.join(codes)}" if codes else "")
