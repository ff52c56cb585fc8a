"""docs/marpack.schema.json, for editors: `python -m marpack.project.json_schema > docs/marpack.schema.json`."""

import sys
from typing import Any

import msgspec

from marpack.project.schema import FILE_NAME, ProjectFile

_NULL = {"type": "null"}


def schema_text() -> bytes:
    """Return the JSON Schema of marpack.yaml, made from the types that read it."""
    _, made = msgspec.json.schema_components([ProjectFile], ref_template="#/$defs/{name}")
    components = {name: _without_null(made[name]) for name in sorted(made)}
    top = components.pop(ProjectFile.__name__)
    top["properties"]["version"]["type"] = ["string", "number"]  # taken as it is written: 1.10 stays 1.10
    head = {"$schema": "https://json-schema.org/draft/2020-12/schema"}
    tree = head | top | {"title": FILE_NAME, "$defs": components}
    return msgspec.json.format(msgspec.json.encode(tree), indent=2) + b"\n"


def _without_null(schema: Any) -> Any:  # Any: JSON
    """Return a schema in which an optional key is one that may be left out, never one that is empty."""
    if isinstance(schema, list):
        return [_without_null(item) for item in schema if item != _NULL]
    if not isinstance(schema, dict):
        return schema
    inner = {key: _without_null(value) for key, value in schema.items() if (key, value) != ("default", None)}
    if len(inner.get("anyOf", ())) != 1:
        return inner
    (only,) = inner.pop("anyOf")
    return inner | only


if __name__ == "__main__":
    sys.stdout.buffer.write(schema_text())
