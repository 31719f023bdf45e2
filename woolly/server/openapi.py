"""The description of the server at /openapi.json, made from the table of doors and the types behind them.

ABOUT has a row for each function behind a door: the Struct that reads its body and the shape of its answer. Paths,
methods, who may enter and the shape of errors come from the doors themselves, so an alias needs no row of its own.
"""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from http import HTTPStatus
from typing import Annotated, Any, TypeAlias

import msgspec
from msgspec import Meta

from woolly import __version__
from woolly.server import schemas
from woolly.server.dialects import (
    api_v1_generation,
    asks,
    benchmarks,
    describing,
    documents,
    figures,
    openai,
    openai_chat,
    openai_completions,
)
from woolly.server.door import Dialect, Door, Generation, Query
from woolly.server.errors import ROWS

Schema: TypeAlias = dict[str, Any]

JSON, EVENTS, TEXT, HTML = "application/json", "text/event-stream", "text/plain", "text/html"
PAGES = ("page",)  # dialects whose routes are files for browsers, and no part of what programs ask
ERRORS = {
    "openai": openai.OpenAIError,
    "documents": schemas.documents.ShortError,
    "woolly": schemas.woolly.WoollyError,
}
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

WORDS = """Woolly's own routes are under /api/v1, OpenAI's under /v1, those of older documents under /api.
A field that is not described has no effect: the header X-Woolly-Notes names it, and with X-Woolly-Strict: 1 it is
refused. What is described as an event stream comes as `data: {...}` lines when `stream` is true, and ends with
`data: [DONE]`. Every route that takes GET takes HEAD, and every route takes OPTIONS."""


@dataclass(frozen=True, slots=True)
class About:
    """What stands behind a door.

    answer: the type of its JSON, None where it has none. event: that of each event of a stream. other: media types
    beside them. status: answers besides 200 of the same shape. errors: those of the shape of errors.
    """

    tag: str
    summary: str
    body: type[msgspec.Struct] | None = None
    answer: Any = None
    event: type[msgspec.Struct] | None = None
    other: tuple[str, ...] = ()
    without: frozenset[str] = frozenset()  # fields of the body that are refused here
    status: tuple[int, ...] = ()
    errors: tuple[int, ...] = ()
    fails: bool = False  # always: what it stands for is not there


TAGS = ("OpenAI", "Generation", "Models", "Health", "Figures", "Access", "MCP", "Older documents", "About")
ONE = frozenset(("model", "n", "stream_options"))  # the older documents know one model and one answer
NOTHING = Annotated[list[Any], Meta(max_length=0)]
ABOUT: dict[Callable[..., Any], About] = {
    asks.health: About("Health", "Whether the process answers; never waits for a model.", answer=schemas.health.Health),
    asks.live: About("Health", "Whether the process lives.", answer=schemas.health.Alive),
    asks.ready: About("Health", "Whether a request would be taken now.", answer=schemas.health.Ready, status=(503,)),
    asks.woolly_models: About(
        "Models",
        "All models; wrapped in an object for Ole.",
        answer=list[schemas.models.ModelRecord] | schemas.models.WrappedModels,
    ),
    asks.bare_models: About("Models", "All models.", answer=list[schemas.models.ModelRecord]),
    asks.openai_models: About("OpenAI", "All models, as OpenAI lists them.", answer=schemas.openai.OpenAIModels),
    asks.openai_model: About("OpenAI", "One model, as OpenAI tells of it.", answer=schemas.openai.OpenAIModel),
    asks.woolly_model: About("Models", "One model.", answer=schemas.models.ModelRecord),
    asks.load_model: About(
        "Models",
        "Load a model, named in the path or in the body; one that is loaded stays as it is.",
        asks.LoadBody,
        schemas.models.Loaded,
        errors=(404,),
    ),
    asks.unload_model: About(
        "Models",
        "Free a model; one that answers is freed only by force.",
        asks.UnloadBody,
        schemas.models.Unloaded,
        errors=(404, 409),
    ),
    api_v1_generation.read_completion: About(
        "Generation",
        "Continue a prompt.",
        api_v1_generation.PromptBody,
        api_v1_generation.WoollyCompletion,
        api_v1_generation.WoollyTextChunk,
    ),
    api_v1_generation.read_stream: About(
        "Generation",
        "Continue a prompt, always as a stream.",
        api_v1_generation.PromptBody,
        event=api_v1_generation.WoollyTextChunk,
    ),
    api_v1_generation.read_chat: About(
        "Generation",
        "Answer a conversation.",
        api_v1_generation.ChatBody,
        api_v1_generation.WoollyChat,
        api_v1_generation.WoollyChatChunk,
    ),
    api_v1_generation.read_batch: About(
        "Generation",
        "Continue several prompts at once.",
        api_v1_generation.BatchBody,
        api_v1_generation.WoollyBatch,
        without=frozenset(("n", "stream", "stream_options")),
    ),
    openai_chat.read: About(
        "OpenAI",
        "Answer a conversation, as OpenAI does.",
        openai_chat.OpenAIChatBody,
        openai_chat.OpenAIChat,
        openai_chat.OpenAIChatChunk,
    ),
    openai_completions.read: About(
        "OpenAI",
        "Continue prompts, as OpenAI does.",
        openai_completions.OpenAICompletionBody,
        openai_completions.OpenAICompletion,
        openai_completions.OpenAITextChunk,
    ),
    documents.read_generate: About(
        "Older documents",
        "Continue a prompt.",
        api_v1_generation.PromptBody,
        documents.ShortCompletion,
        documents.ShortToken,
        without=ONE,
    ),
    documents.read_chat: About(
        "Older documents",
        "Answer a conversation.",
        api_v1_generation.ChatBody,
        documents.ShortChat,
        documents.ShortPiece,
        without=ONE,
    ),
    documents.tokenize: About(
        "Older documents", "The tokens of a text.", documents.TextBody, schemas.documents.Tokens, errors=(404,)
    ),
    documents.detokenize: About(
        "Older documents", "The text of tokens.", documents.TokensBody, schemas.documents.DecodedText, errors=(404,)
    ),
    documents.embeddings: About("Older documents", "Embeddings, which this version does not make.", fails=True),
    figures.stats: About("Figures", "What the server has done, measured.", answer=schemas.figures.Stats),
    figures.metrics: About(
        "Figures",
        "The same and three more; as Prometheus' text for who asks for text.",
        None,
        schemas.figures.Metrics,
        other=(TEXT,),
    ),
    figures.prometheus: About(
        "Figures",
        "Metrics in Prometheus' text format; in JSON for who asks for it.",
        None,
        schemas.figures.Metrics,
        other=(TEXT,),
    ),
    figures.engine: About(
        "Figures", "What is loaded, for whoever looks for a fault.", answer=schemas.figures.EngineState
    ),
    benchmarks.benchmark: About(
        "Figures",
        "Time the loaded model; the scalar kernels get at most 2 s for comparison.",
        benchmarks.BenchmarkBody,
        schemas.figures.BenchmarkResult,
        errors=(404, 409, 504),
    ),
    benchmarks.benchmarks: About(
        "Figures", "The benchmarks there are, and their last results.", answer=schemas.figures.Benchmarks
    ),
    describing.openapi: About("About", "This description.", answer=dict[str, Any]),
    describing.docs: About("About", "This description as a page.", other=(HTML,)),
    asks.make_token: About(
        "Access",
        "A token for an hour in exchange for a key.",
        asks.TokenBody,
        schemas.access.AccessToken,
        errors=(401,),
    ),
    asks.validate_token: About("Access", "Whether a token is valid.", asks.ValidateBody, schemas.access.TokenValid),
    asks.empty_list: About("MCP", "Tools, resources and prompts: there are none.", answer=NOTHING),
    asks.not_enabled: About("MCP", "MCP is not enabled.", errors=(404,), fails=True),
}


def behind(door: Door) -> Callable[..., Any]:
    """The function that stands behind a door, and all aliases of it."""
    return door.read if isinstance(door, Generation) else door.call


def describe(doors: tuple[tuple[Dialect, Door], ...]) -> Schema:
    """The OpenAPI document of these doors."""
    described = [(dialect, door) for dialect, door in doors if dialect.name not in PAGES]
    types = _Types(
        [kind for _, door in described for kind in _types(door)] + list(ERRORS.values()) + [schemas.models.LoadError]
    )
    paths: dict[str, Schema] = {}
    for dialect, door in sorted(described, key=lambda row: row[1].path):
        paths.setdefault(public(door.path), {})[door.method.lower()] = _operation(dialect, door, types)
    return {
        "openapi": "3.1.0",
        "info": {"title": "Woolly", "version": __version__, "description": WORDS},
        "servers": [{"url": "/"}],
        "tags": [{"name": name} for name in TAGS],
        "paths": paths,
        "components": {
            "schemas": _reached(types.schemas, paths),
            "securitySchemes": {
                "bearer": {"type": "http", "scheme": "bearer"},
                "key": {"type": "apiKey", "in": "header", "name": "X-API-Key"},
            },
        },
    }


def public(path: str) -> str:
    """A path as it is written outside: `{name:path}` is `{name}`."""
    return re.sub(r"\{(\w+)(:\w+)?\}", r"{\1}", path)


class _Types:
    """The schemas of all types, each under a name of its own."""

    def __init__(self, kinds: Iterable[Any]) -> None:
        unique = list({repr(kind): kind for kind in kinds}.values())
        made, schemas = msgspec.json.schema_components(unique, ref_template=NAMES + "{name}")
        self._made = {repr(kind): schema for kind, schema in zip(unique, made, strict=True)}
        self.schemas = {_plain(name): _sent(_tidy(schema)) for name, schema in sorted(schemas.items())}
        for kind in unique:
            if isinstance(kind, type) and issubclass(kind, api_v1_generation.WoollyBody):
                _aliases(self.schemas[self[kind]["$ref"].removeprefix(NAMES)])

    def __getitem__(self, kind: Any) -> Schema:
        parts = _members(kind)
        if len(parts) > 1:
            return {"anyOf": [self[part] for part in parts]}
        made: Schema = _tidy(self._made[repr(kind)])
        return made

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
    return getattr(kind, "__args__", (kind,)) if type(kind).__name__ == "UnionType" else (kind,)


def _types(door: Door) -> list[Any]:
    about = ABOUT[behind(door)]
    return [kind for kind in (about.body, about.event, *_members(about.answer)) if kind is not None]


def _plain(name: str) -> str:
    """Two Structs of one name are told apart by their modules: woolly.server.dialects.openai_chat.OpenAIChatBody."""
    return re.sub(r"^woolly[._]server[._](dialects[._])?", "", name).replace(".", "_")


def _tidy(schema: Any) -> Any:
    if isinstance(schema, dict):
        return {
            name: NAMES + _plain(value.removeprefix(NAMES)) if name == "$ref" else _tidy(value)
            for name, value in schema.items()
        }
    return [_tidy(value) for value in schema] if isinstance(schema, list) else schema


def _aliases(schema: Schema) -> None:
    """The other names under which a body may have a field."""
    fields = schema["properties"]
    for name, others in api_v1_generation.ALIASES.items():
        for other in others:
            fields[other] = fields[name] | {"description": f"Another name of {name}, which counts if both are given."}


def _operation(dialect: Dialect, door: Door, types: _Types) -> Schema:
    about = ABOUT[behind(door)]
    made: Schema = {
        "operationId": re.sub(r"\W+", "_", f"{door.method.lower()}{public(door.path)}").strip("_"),
        "tags": [about.tag],
        "summary": about.summary,
        "security": [] if door.access == "open" else [{}, {"bearer": []}, {"key": []}],
        "responses": _responses(dialect, door, about, types),
    }
    if door.access == "key":
        made["description"] = "Needs a key wherever the server has one."
    names = re.findall(r"\{(\w+)\}", public(door.path))
    if names:
        known = {"type": "string", "minLength": 1, "description": "A model's name; a slash in it is written %2F."}
        made["parameters"] = [{"name": name, "in": "path", "required": True, "schema": known} for name in names]
    if about.body is not None:
        name = types[about.body]["$ref"].removeprefix(NAMES)
        if about.without:
            name = types.without(name, f"{dialect.name}_{name.rpartition('_')[2]}", about.without)
        required = bool(types.schemas[name].get("required"))
        made["requestBody"] = {"required": required, "content": {JSON: {"schema": {"$ref": NAMES + name}}}}
    return made


def _responses(dialect: Dialect, door: Door, about: About, types: _Types) -> Schema:
    made: Schema = {}
    if not about.fails:
        content: Schema = {} if about.answer is None else {JSON: {"schema": types[about.answer]}}
        if about.event is not None:
            content[EVENTS] = {"schema": _event({"anyOf": [types[about.event], types[ERRORS[dialect.name]]]})}
        content |= {kind: {"schema": {"type": "string"}} for kind in about.other}
        for status in (200, *about.status):
            made[str(status)] = {"description": HTTPStatus(status).phrase, "content": content}
    shape = types[ERRORS[dialect.name]]
    if isinstance(door, Query) and door.failed is not None:
        shape = {"anyOf": [types[schemas.models.LoadError], shape]}
    for status in _errors(door, about):
        made.setdefault(str(status), {"description": _reason(status, dialect), "content": {JSON: {"schema": shape}}})
    for response in made.values():
        response["headers"] = {"X-Request-Id": {"schema": {"type": "string"}}}
    return dict(sorted(made.items()))


def _event(data: Schema) -> Schema:
    """One event of a stream: a line of JSON, or the last one of a stream that ended well."""
    said = {"type": "string", "contentMediaType": JSON, "contentSchema": data}
    return {
        "type": "object",
        "properties": {"data": {"anyOf": [{"const": "[DONE]"}, said]}},
        "required": ["data"],
    }


def _errors(door: Door, about: About) -> list[int]:
    codes = {*LOCAL, *about.errors}
    if door.access != "open":
        codes |= {401, 429}
    if door.method == "POST":
        codes |= {*POSTED}
    if "{" in door.path:
        codes |= {*NAMED}
    if isinstance(door, Generation):
        codes |= {404, 504}
    return sorted(map(int, codes))


def _reason(status: int, dialect: Dialect) -> str:
    """What a status means, and the types of error that have it, as this dialect calls them."""
    rows = [row for row in ROWS.values() if row.status == status and dialect.name != "documents"]
    codes = sorted({row.openai if dialect.name == "openai" else row.woolly for row in rows})
    return HTTPStatus(status).phrase + (f": {', '.join(codes)}" if codes else "")


def described(doors: Mapping[str, Any]) -> list[tuple[str, str]]:
    """Every method and path of a document."""
    return [(method.upper(), path) for path, methods in doors["paths"].items() for method in methods]
