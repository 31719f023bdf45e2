"""An OpenAPI document in pieces that are compared by themselves: each route, the names of the schemas, and all else."""

from __future__ import annotations

from typing import Any

REF = "#/components/schemas/"


def pieces(document: dict[str, Any]) -> dict[str, Any]:
    """A route has its schemas in the places where it refers to them: another name of one changes the list of names."""
    schemas = document["components"]["schemas"]
    by_path = {path: filled(methods, schemas) for path, methods in document["paths"].items()}
    components = {name: value for name, value in document["components"].items() if name != "schemas"}
    rest = {name: value for name, value in document.items() if name != "paths"} | {"components": components}
    return by_path | {"names of schemas": sorted(schemas), "all else": rest}


def filled(value: Any, schemas: dict[str, Any], within: tuple[str, ...] = ()) -> Any:
    """The value with schemas in place of references; one within itself is told by how far out it begins."""
    if isinstance(value, list):
        return [filled(one, schemas, within) for one in value]
    if isinstance(value, str) and value.startswith(REF):
        return "one of the schemas"  # of a discriminator, beside which all of them stand
    if not isinstance(value, dict):
        return value
    reference = value.get("$ref")
    if not isinstance(reference, str) or not reference.startswith(REF):
        return {name: filled(one, schemas, within) for name, one in value.items() if not is_title(name, one)}
    name = reference.removeprefix(REF)
    if name in within:
        return f"the schema {len(within) - within.index(name)} around this"
    return filled(schemas[name], schemas, (*within, name))


def is_title(name: str, value: Any) -> bool:
    """Whether this is the name of a schema, and no property that is called title."""
    return name == "title" and isinstance(value, str)
