"""docs/reference/marpack-yaml.md: the keys, from the types that read them."""

import msgspec

from marpack.project.schema import ProjectFile
from tools.reference.page import NOTE, escaped, page
from tools.schemas import project_schema


def project_file() -> str:
    """Return the keys of marpack.yaml, from the types that read it."""
    schema = msgspec.json.decode(project_schema())
    parts = [
        "# marpack.yaml",
        (
            "A project is a folder with a `marpack.yaml`. Paths are relative to that folder. Unknown keys are"
            " errors. Editors can use the JSON Schema [marpack.schema.json](../marpack.schema.json)."
        ),
        NOTE,
        keys(schema, schema["$defs"]),
    ]
    for name, inner in sorted(schema["$defs"].items()):
        if "properties" in inner and name != ProjectFile.__name__:
            parts += [f"## {name}", inner.get("description", ""), keys(inner, schema["$defs"])]
    return page(*parts)


def keys(schema: dict, definitions: dict) -> str:
    """Return the table of a mapping's keys; a type that all of them have is before the table."""
    kinds = {key: takes(value, definitions) for key, value in schema["properties"].items()}
    shared = next(iter(kinds.values())) if len(kinds) > 1 and len(set(kinds.values())) == 1 else ""
    rows = ["| key | meaning |", "|---|---|"] if shared else ["| key | value | meaning |", "|---|---|---|"]
    for key, value in schema["properties"].items():
        required = " (required)" if key in schema.get("required", ()) else ""
        text = value.get("description") or definition(value, definitions).get("description", "")
        kind = "" if shared else f" {kinds[key]} |"
        rows.append(f"| `{key}` |{kind} {escaped(text)}{required} |")
    table = "\n".join(rows)
    return f"Each value is {shared}.\n\n{table}" if shared else table


def definition(value: dict, definitions: dict) -> dict:
    return definitions.get(value.get("$ref", "").rpartition("/")[2], value)


def takes(value: dict, definitions: dict) -> str:
    """Return the kinds of value that a key takes, in words."""
    if "$ref" in value:
        inner = definition(value, definitions)
        if "enum" in inner:
            return " or ".join(f"`{each}`" for each in inner["enum"])
        name = value["$ref"].rpartition("/")[2]
        return f"[{name}](#{name.lower()})"
    if "anyOf" in value:
        return ", or ".join(takes(each, definitions) for each in value["anyOf"])
    if value.get("type") == "array":
        return f"a list of {takes(value['items'], definitions).replace('text', 'texts').replace('a number', 'numbers')}"
    words = {
        "string": "text",
        "object": "a mapping",
        "integer": "a number",
        "number": "a number",
        "boolean": "yes or no",
    }
    kind = value.get("type", "anything")
    return " or ".join(words.get(each, each) for each in ([kind] if isinstance(kind, str) else kind))
