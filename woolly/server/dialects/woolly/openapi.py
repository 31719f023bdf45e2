"""The description of the server at /openapi.json, made from the routes alone.

A body is the Struct in a route's row, an answer the return type of the function that makes it, a summary the docstring
of the function behind the route; paths, methods, who may ask and the shape of errors stand in the row and its dialect.
"""

from __future__ import annotations

import json
import re
from collections.abc import AsyncGenerator, Callable, Iterable
from http import HTTPStatus
from types import UnionType
from typing import Any, NoReturn, TypeAlias, Union, get_args, get_origin, get_type_hints

import msgspec

from woolly.server.http.caller import Access
from woolly.server.http.errors import ERROR_KINDS
from woolly.server.http.guard import FLEET_SECRET
from woolly.server.http.reply import Reply
from woolly.server.routes import Dialect, Download, Generation, Query, Route, Streamed
from woolly.version import __version__

Schema: TypeAlias = dict[str, Any]

JSON, FORM = "application/json", "multipart/form-data"
NAMES = "#/components/schemas/"
LOCAL = (  # errors before a route is found, or while it works
    HTTPStatus.BAD_REQUEST,
    HTTPStatus.FORBIDDEN,
    HTTPStatus.REQUEST_URI_TOO_LONG,
    HTTPStatus.REQUEST_HEADER_FIELDS_TOO_LARGE,
    HTTPStatus.INTERNAL_SERVER_ERROR,
    HTTPStatus.SERVICE_UNAVAILABLE,
)
POSTED = (HTTPStatus.REQUEST_TIMEOUT, HTTPStatus.REQUEST_ENTITY_TOO_LARGE, HTTPStatus.UNSUPPORTED_MEDIA_TYPE)
NAMED = (HTTPStatus.NOT_FOUND, HTTPStatus.METHOD_NOT_ALLOWED)  # a name in a path can be that of another route

DESCRIPTION = """Woolly's own routes are under /api/v1, OpenAI's and Anthropic's under /v1, those of Ollama and older
documents under /api.
A field that is not described has no effect: the header X-Woolly-Notes names it, and with X-Woolly-Strict: 1 it is
refused. What is described as an event stream comes as `data: {...}` lines when `stream` is true, and ends with
`data: [DONE]` unless its events have names. Every route that takes GET takes HEAD, and every route takes OPTIONS."""


SECURITY: dict[Access, list[Schema]] = {"open": [], "fleet": [{}, {"fleet": []}]}  # of other routes: a key, or none
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


def handler_of(route: Route) -> Callable[..., Any]:
    """The function of a route and of all its aliases."""
    return route.read if isinstance(route, Generation) else route.call


def return_type(function: Callable[..., Any]) -> Any:
    """The return type of a function; for a Reply that of its body, for a stream that of each piece."""
    hint = get_type_hints(function, include_extras=True)["return"]
    return get_args(hint)[0] if get_origin(hint) in (Reply, AsyncGenerator, Streamed) else hint


def answer_types(route: Route) -> tuple[Any, ...]:
    """The types of a route's JSON answer; none where it has none."""
    if isinstance(route, Generation):
        return _members(return_type(route.render)) if route.render else ()
    kinds = _members(return_type(route.call))
    return tuple(kind for kind in kinds if kind not in (bytes, Download, NoReturn) and get_origin(kind) is not Streamed)


def event_types(route: Route) -> tuple[Any, ...]:
    """The types of the events of a route's stream; none where it never streams."""
    if isinstance(route, Generation):
        return _members(return_type(route.frames)) if route.render is None or "stream" not in route.without else ()
    streams = [get_args(kind)[0] for kind in _members(return_type(route.call)) if get_origin(kind) is Streamed]
    return _members(streams[0]) if streams else ()


def describe(routes: tuple[tuple[Dialect, Route], ...]) -> Schema:
    """The OpenAPI document of these routes."""
    described = [(dialect, route) for dialect, route in routes if route.tag]
    types = _Types([kind for dialect, route in described for kind in _types(dialect, route)])
    paths: dict[str, Schema] = {}
    for dialect, route in sorted(described, key=lambda row: row[1].path):
        methods, method = paths.setdefault(public_path(route.path), {}), route.method.lower()
        operation = _operation(dialect, route, types)
        methods[method] = _merge(methods[method], operation) if method in methods else operation
    return {
        "openapi": "3.1.0",
        "info": {"title": "Woolly", "version": __version__, "description": DESCRIPTION},
        "servers": [{"url": "/"}],
        "tags": [{"name": name} for name in dict.fromkeys((*TAGS, *(route.tag for _, route in described)))],
        "paths": paths,
        "components": {
            "schemas": _referenced(types.schemas, paths),
            "securitySchemes": {
                "bearer": {"type": "http", "scheme": "bearer"},
                "key": {"type": "apiKey", "in": "header", "name": "X-API-Key"},
                "fleet": {"type": "apiKey", "in": "header", "name": FLEET_SECRET},
            },
        },
    }


def _merge(one: Schema, other: Schema) -> Schema:
    """The operation of two routes at one path, one of which the body selects."""
    merged = one | {"summary": f"{one['summary']} {other['summary']}"}
    if "requestBody" in one:
        bodies = [route["requestBody"]["content"][JSON]["schema"] for route in (one, other) if "requestBody" in route]
        merged["requestBody"] = one["requestBody"] | {"content": {JSON: {"schema": _any_of(bodies)}}}
    merged["responses"] = dict(one["responses"])
    for status, response in other["responses"].items():
        before = merged["responses"].get(status, response)
        content = dict(before.get("content", {}))
        for kind, about in response.get("content", {}).items():
            content[kind] = {"schema": _any_of([content.get(kind, about)["schema"], about["schema"]])}
        merged["responses"][status] = before | {"content": content}
    return merged


def _any_of(schemas: list[Schema]) -> Schema:
    unique = [schema for index, schema in enumerate(schemas) if schema not in schemas[:index]]
    return unique[0] if len(unique) == 1 else {"anyOf": unique}


def public_path(path: str) -> str:
    """A path as clients see it: `{name:path}` is `{name}`."""
    return re.sub(r"\{(\w+)(:\w+)?\}", r"{\1}", path)


class _Types:
    """The schemas of all types, each under a name of its own."""

    def __init__(self, kinds: Iterable[Any]) -> None:
        unique = list({repr(kind): kind for kind in kinds}.values())
        references, schemas = msgspec.json.schema_components(unique, ref_template=NAMES + "{name}")
        self._made = {repr(kind): schema for kind, schema in zip(unique, references, strict=True)}
        self.schemas = {name: _as_sent(schema) for name, schema in sorted(schemas.items())}
        for kind in unique:
            for field, others in getattr(kind, "ALIASES", {}).items():
                _aliases(self.schemas[kind.__name__]["properties"], field, others)

    def any_of(self, *kinds: Any) -> Schema:
        options = [self._made[repr(kind)] for kind in kinds]
        return options[0] if len(options) == 1 else {"anyOf": options}

    def without(self, name: str, other: str, left_out: frozenset[str]) -> str:
        """A schema under another name, without some of its fields."""
        schema = self.schemas[name]
        fields = {field: about for field, about in schema["properties"].items() if field not in left_out}
        self.schemas[other] = schema | {"properties": fields}
        return other


def _as_sent(schema: Schema) -> Schema:
    """The schema of an answer: fields with a default are always sent, so they are required, and have no default."""
    if schema.get("additionalProperties") is not False:  # the schema of a request's body
        return schema
    fields = schema["properties"]
    needed = [name for name in fields if name in schema.get("required", ()) or "default" in fields[name]]
    plain = {name: {key: value for key, value in field.items() if key != "default"} for name, field in fields.items()}
    return schema | {"properties": plain, "required": needed}


def _referenced(schemas: dict[str, Schema], start: object) -> dict[str, Schema]:
    """The schemas that a part of the document refers to, and those that they refer to."""
    referenced: set[str] = set()
    look = [start]
    while look:
        names = set(re.findall(rf'"{NAMES}(\w+)"', json.dumps(look.pop()))) - referenced
        referenced |= names
        look += [schemas[name] for name in names]
    return {name: schemas[name] for name in sorted(referenced)}


def _members(kind: Any) -> tuple[Any, ...]:
    """The types of a union, each of which gets a schema: msgspec makes none for a union of objects."""
    return get_args(kind) if get_origin(kind) in (UnionType, Union) else (kind,)


def _types(dialect: Dialect, route: Route) -> list[Any]:
    form = route.form if isinstance(route, Query) else None
    kinds = [route.body, form, *event_types(route), *answer_types(route), *_faults(dialect, route)]
    return [kind for kind in kinds if kind is not None]


def _faults(dialect: Dialect, route: Route) -> list[Any]:
    """The types of a route's errors."""
    own = [return_type(route.failed)] if not isinstance(route, Generation) and route.failed else []
    return [*own, return_type(dialect.error)]


def _aliases(fields: Schema, name: str, others: Iterable[str]) -> None:
    """The other names under which a body may have a field."""
    for other in others:
        fields[other] = fields[name] | {"description": f"Another name of {name}, which counts if both are given."}


def _operation(dialect: Dialect, route: Route, types: _Types) -> Schema:
    operation: Schema = {
        "operationId": re.sub(r"\W+", "_", f"{route.method.lower()}{public_path(route.path)}").strip("_"),
        "tags": [route.tag],
        "summary": (handler_of(route).__doc__ or "").partition("\n")[0],
        "security": SECURITY.get(route.access, [{}, {"bearer": []}, {"key": []}]),
        "responses": _responses(dialect, route, types),
    }
    if route.access == "key":
        operation["description"] = "Needs a key wherever the server has one."
    names = re.findall(r"\{(\w+)\}", public_path(route.path))
    if names:
        operation["parameters"] = [
            {
                "name": name,
                "in": "path",
                "required": True,
                "schema": {"type": "string", "minLength": 1, **PARAMS.get(name, {})},
            }
            for name in names
        ]
    if isinstance(route, Query) and route.query:
        queries = [{"name": name, "in": "query", "schema": {"type": "string"}} for name in route.query]
        operation["parameters"] = [*operation.get("parameters", ()), *queries]
    if route.body is not None:
        name = route.body.__name__
        if isinstance(route, Generation) and route.without:
            name = types.without(name, f"{dialect.name}_{name}", route.without)
        required = bool(types.schemas[name].get("required"))
        operation["requestBody"] = {"required": required, "content": {JSON: {"schema": {"$ref": NAMES + name}}}}
    if isinstance(route, Query) and route.form is not None:
        operation["requestBody"] = _form(route.form)
    return operation


def _form(kind: type[msgspec.Struct]) -> Schema:
    """The body of a route with a form: fields as text, and a file."""
    return {"required": True, "content": {FORM: {"schema": {"$ref": NAMES + kind.__name__}}}}


def _responses(dialect: Dialect, route: Route, types: _Types) -> Schema:
    responses: Schema = {}
    content: Schema = {}
    if answers := answer_types(route):
        content[JSON] = {"schema": types.any_of(*answers)}
    if events := event_types(route):
        framing = route.framing
        shapes = types.any_of(*events, return_type(dialect.error))
        content[framing.media_type] = {"schema": framing.schema(shapes)}
    if isinstance(route, Query):
        content |= {kind: {"schema": {"type": "string"}} for kind in route.texts}
    if content:
        for status in (200, *(() if isinstance(route, Generation) else route.status)):
            responses[str(status)] = {"description": HTTPStatus(status).phrase}
            if status != HTTPStatus.ACCEPTED:  # an accepted message has no body
                responses[str(status)]["content"] = content
    shape = types.any_of(*_faults(dialect, route))
    for status in _errors(route):
        responses.setdefault(
            str(status), {"description": _reason(status, dialect), "content": {JSON: {"schema": shape}}}
        )
    for response in responses.values():
        response["headers"] = {"X-Request-Id": {"schema": {"type": "string"}}}
    return dict(sorted(responses.items()))


def _errors(route: Route) -> list[int]:
    codes = {*LOCAL, *((404, 504) if isinstance(route, Generation) else route.errors)}
    if route.access != "open":
        codes |= {401, 429}
    if route.method in ("POST", "DELETE"):
        codes |= {*POSTED}
    if "{" in route.path:
        codes |= {*NAMED}
    return sorted(map(int, codes))


def _reason(status: int, dialect: Dialect) -> str:
    """What a status means, and the types of error that have it, as this dialect calls them."""
    rows = [row for row in ERROR_KINDS.values() if row.status == status and dialect.name != "documents"]
    codes = sorted({row.openai if dialect.name == "openai" else row.woolly for row in rows})
    return HTTPStatus(status).phrase + (f": {', '.join(codes)}" if codes else "")
