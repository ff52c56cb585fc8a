"""The committed JSON Schema is the one that the types make."""

import json
from pathlib import Path

from marpack.project.json_schema import schema_text

COMMITTED = Path(__file__).parents[2] / "docs" / "marpack.schema.json"


def test_the_committed_schema_is_up_to_date() -> None:
    made = "python -m marpack.project.json_schema > docs/marpack.schema.json"
    assert COMMITTED.read_bytes() == schema_text(), f"make it again: {made}"


def test_the_schema_says_what_the_reader_holds_to() -> None:
    schema = json.loads(schema_text())
    assert schema["required"] == ["name", "version", "handler"]
    assert schema["properties"]["version"]["type"] == ["string", "number"]
    assert schema["$defs"]["FileMapping"]["required"] == ["from", "to"]
    objects = [schema, *(part for part in schema["$defs"].values() if part.get("type") == "object")]
    assert [part["additionalProperties"] for part in objects] == [False] * 6
    assert "null" not in schema_text().decode()
    assert all("description" in part for item in objects for part in item["properties"].values())
