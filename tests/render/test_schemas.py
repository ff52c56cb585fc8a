"""The committed schemas are those that the types make."""

import json
from pathlib import Path

import pytest

from marpack.render.schemas import REPORTS, report_types, schema_text

COMMITTED = Path(__file__).parents[2] / "docs" / "schemas"


@pytest.mark.parametrize("command", REPORTS)
def test_the_committed_schema_is_up_to_date(command: str) -> None:
    again = "make it again: python -m marpack.render.schemas docs/schemas"
    assert (COMMITTED / f"{command}.json").read_bytes() == schema_text(command), again


@pytest.mark.parametrize("command", REPORTS)
def test_a_schema_describes_every_field_of_its_report(command: str) -> None:
    schema = json.loads(schema_text(command))
    for report in report_types(command):
        assert set(schema["$defs"][report.__name__]["properties"]) == set(report.__struct_fields__)


def test_there_is_a_schema_for_every_command_and_no_other() -> None:
    assert {path.stem for path in COMMITTED.glob("*.json")} == set(REPORTS)
