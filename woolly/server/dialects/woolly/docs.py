"""The description of the server as a page: one document without scripts, readable in any browser and on paper.

Everything is written here, on the server; the style sheet stands in the document and is allowed by its digest, and
nothing else is.
"""

from __future__ import annotations

import base64
import hashlib
import json
from collections.abc import Iterator, Mapping
from html import escape
from typing import Any

STYLE = """
:root { color-scheme: light dark; --edge: light-dark(#ddd, #444); --soft: light-dark(#f5f5f3, #252525); }
body { font: 16px/1.5 system-ui, sans-serif; max-width: 56rem; margin: 0 auto; padding: 1.5rem 1rem 4rem; }
body { background: light-dark(#fff, #1b1b1b); color: light-dark(#1a1a1a, #e6e6e6); }
h1 { margin: 0; } h2 { margin: 2rem 0 .5rem; } p { margin: .4rem 0; }
code { font: .92em ui-monospace, monospace; overflow-wrap: anywhere; }
details { border: 1px solid var(--edge); border-radius: .5rem; margin: .4rem 0; }
details > :not(summary) { margin-inline: .8rem; }
summary { padding: .5rem .8rem; cursor: pointer; } summary:hover, details[open] > summary { background: var(--soft); }
summary b { display: inline-block; min-width: 3.2rem; font: 600 .8rem ui-monospace, monospace; }
summary span { opacity: .75; margin-left: .5rem; }
table { border-collapse: collapse; margin: .5rem 0 1rem; width: calc(100% - 1.6rem); }
th, td { text-align: left; vertical-align: top; padding: .25rem .6rem .25rem 0; border-top: 1px solid var(--edge); }
th { font-weight: 500; } h4 { margin: .8rem 0 .2rem; } h3 { margin: 1.2rem 0 .2rem; font-size: 1rem; }
"""
_DIGEST = base64.b64encode(hashlib.sha256(STYLE.encode()).digest()).decode()
POLICY = (
    f"default-src 'none'; style-src 'sha256-{_DIGEST}'; frame-ancestors 'none'; base-uri 'none'; form-action 'none'"
)


def page(document: Mapping[str, Any]) -> bytes:
    """The whole page."""
    return "".join(_page(document)).encode()


def _page(document: Mapping[str, Any]) -> Iterator[str]:
    info = document["info"]
    title = f"{escape(info['title'])} {escape(info['version'])}"
    yield '<!doctype html><html lang="en"><head><meta charset="utf-8">'
    yield '<meta name="viewport" content="width=device-width, initial-scale=1">'
    yield f"<title>{title}: routes</title><style>{STYLE}</style></head><body><h1>{title}</h1>"
    yield f"<p>{_with_code(info['description'])}</p>"
    yield '<p><a href="/openapi.json">/openapi.json</a> says the same to programs.</p>'
    tags: dict[str, list[tuple[str, str, Mapping[str, Any]]]] = {tag["name"]: [] for tag in document["tags"]}
    for path, methods in document["paths"].items():
        for method, operation in methods.items():
            tags[operation["tags"][0]].append((method.upper(), path, operation))
    for tag, operations in tags.items():
        yield f"<h2>{escape(tag)}</h2>"
        for method, path, operation in operations:
            yield from _operation(method, path, operation, document["components"]["schemas"])
    yield "<h2>Shapes</h2>"
    for name, schema in document["components"]["schemas"].items():
        yield f'<h3 id="{escape(name)}"><code>{escape(name)}</code></h3>'
        yield from _fields(schema)
    yield "</body></html>"


def _operation(method: str, path: str, operation: Mapping[str, Any], schemas: Mapping[str, Any]) -> Iterator[str]:
    yield f"<details><summary><b>{method}</b> <code>{escape(path)}</code> "
    yield f"<span>{escape(operation['summary'])}</span></summary>"
    if "description" in operation:
        yield f"<p>{_with_code(operation['description'])}</p>"
    if "requestBody" in operation:
        ((kind, content),) = operation["requestBody"]["content"].items()
        needed = "" if operation["requestBody"]["required"] else ", may be left out"
        form = "" if kind == "application/json" else f" as {escape(kind)}"
        yield f"<h4>Body{needed}{form}: {_type(content['schema'])}</h4>"
        for schema in content["schema"].get("anyOf", [content["schema"]]):
            yield from _fields(schemas[schema["$ref"].rsplit("/", 1)[-1]])
    yield "<h4>Answers</h4><table>"
    for status, response in operation["responses"].items():
        kinds = " or ".join(_content(kind, content["schema"]) for kind, content in response.get("content", {}).items())
        yield f"<tr><th>{escape(status)}</th><td>{escape(response['description'])}</td><td>{kinds}</td></tr>"
    yield "</table></details>"


def _content(kind: str, schema: Mapping[str, Any]) -> str:
    if kind == "application/json":
        return _type(schema)
    if kind == "text/event-stream":
        return f"events of {_type(schema['properties']['data']['anyOf'][-1]['contentSchema'])}"
    return f"<code>{escape(kind)}</code>"


def _fields(schema: Mapping[str, Any]) -> Iterator[str]:
    if "description" in schema:
        yield f"<p>{_with_code(schema['description'])}</p>"
    yield "<table>"
    for name, field in schema.get("properties", {}).items():
        needed = "required" if name in schema.get("required", ()) else ""
        description = _with_code(field.get("description", ""))
        yield f"<tr><th><code>{escape(name)}</code></th><td>{_type(field)}</td><td>{needed}{description}</td></tr>"
    yield "</table>"


def _type(schema: Mapping[str, Any]) -> str:
    """A type in a few words, with its range."""
    if "$ref" in schema:
        name = escape(schema["$ref"].rsplit("/", 1)[-1])
        return f'<a href="#{name}"><code>{name}</code></a>'
    if "anyOf" in schema:
        return " or ".join(map(_type, schema["anyOf"]))
    if "const" in schema or "enum" in schema:
        values = schema.get("enum", [schema.get("const")])
        return " or ".join(f"<code>{escape(json.dumps(value))}</code>" for value in values)
    kind = schema.get("type")
    if "prefixItems" in schema:
        return " with ".join(f"({_type(item)})" for item in schema["prefixItems"])
    if kind == "array":
        return f"list{_range(schema)} of {_type(schema.get('items', {}))}"
    if kind == "object" and schema.get("properties"):
        return "object with " + ", ".join(f"<code>{escape(name)}</code>" for name in schema["properties"])
    if kind == "object" and isinstance(schema.get("additionalProperties"), dict):
        return f"object of {_type(schema['additionalProperties'])}"
    return f"{escape(kind)}{_range(schema)}" if kind else "anything"


def _range(schema: Mapping[str, Any]) -> str:
    signs = {
        "minimum": "≥",
        "exclusiveMinimum": ">",
        "maximum": "≤",
        "exclusiveMaximum": "<",
        "minLength": "at least",
        "minItems": "at least",
        "maxItems": "at most",
        "maxLength": "at most",
    }
    bounds = [f"{sign} {schema[name]}" for name, sign in signs.items() if name in schema]
    return f" ({', '.join(bounds)})" if bounds else ""


def _with_code(text: str) -> str:
    """A text, with what stands between backticks as code."""
    pieces = escape(text).split("`")
    return "".join(f"<code>{piece}</code>" if index % 2 else piece for index, piece in enumerate(pieces))
