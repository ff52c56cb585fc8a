"""The committed schemas are those that the types make."""

import dataclasses
import json
from pathlib import Path

import pytest

from tools.schemas import REPORTS, project_schema, report_schema

DOCS = Path(__file__).parents[2] / "docs"
AGAIN = "make them again: python -m tools.schemas docs"


@pytest.mark.parametrize("command", REPORTS)
def test_the_committed_schema_is_up_to_date(command: str) -> None:
    assert (DOCS / "schemas" / f"{command}.json").read_bytes() == report_schema(command), AGAIN


def _fields(report: type) -> set[str]:
    is_plain = dataclasses.is_dataclass(report)
    return {field.name for field in dataclasses.fields(report)} if is_plain else set(report.__struct_fields__)


@pytest.mark.parametrize("command", REPORTS)
def test_a_schema_describes_every_field_of_its_report(command: str) -> None:
    schema = json.loads(report_schema(command))
    for report in REPORTS[command]:
        assert set(schema["$defs"][report.__name__]["properties"]) == _fields(report)


def test_the_committed_schema_of_the_project_file_is_up_to_date() -> None:
    assert (DOCS / "marpack.schema.json").read_bytes() == project_schema(), AGAIN


def test_the_schema_of_the_project_file_says_what_the_reader_holds_to() -> None:
    schema = json.loads(project_schema())
    assert schema["required"] == ["name", "version", "handler"]
    assert schema["properties"]["version"]["type"] == ["string", "number"]
    assert schema["$defs"]["FileMapping"]["required"] == ["from", "to"]
    objects = [schema, *(part for part in schema["$defs"].values() if part.get("type") == "object")]
    assert [part["additionalProperties"] for part in objects] == [False] * 9
    assert "null" not in project_schema().decode()
    assert all("description" in part for item in objects for part in item["properties"].values())
