"""docs/check.md: its table is the registry's, and it has a section for every check and every code."""

import re
from pathlib import Path

import pytest

from marpack import finding_codes
from marpack.findings import Code
from marpack.gate.check import RUNS, list_as_markdown
from marpack.project.schema import CHECKS

DOCUMENT = (Path(__file__).parents[2] / "docs" / "check.md").read_text()
TABLE = re.compile(r"<!-- table: (?P<print>.*) -->\n(?P<table>.*?)<!-- end -->", re.DOTALL)


def test_the_table_is_printed_from_the_registry():
    found = TABLE.search(DOCUMENT)
    assert found is not None
    assert found["table"] == list_as_markdown(), f"print it again: {found['print']}"


def test_every_check_has_its_function():
    assert list(RUNS) == [each.name for each in CHECKS]


@pytest.mark.parametrize("name", [each.name for each in CHECKS])
def test_every_check_has_its_section_in_order(name: str):
    sections = re.findall(r"^## (\S+)$", DOCUMENT, re.MULTILINE)
    assert [section for section in sections if section in {each.name for each in CHECKS}] == [
        each.name for each in CHECKS
    ]
    text = DOCUMENT.partition(f"\n## {name}\n")[2].partition("\n## ")[0]
    assert "Fails " in text or "It fails " in text


def test_every_code_of_the_checks_is_documented():
    codes = list(dict.fromkeys(each.name for each in vars(finding_codes).values() if isinstance(each, Code)))
    checks = codes[codes.index("does-not-load") :]
    assert "slower-undecided" in checks
    assert [code for code in checks if f"`{code}`" not in DOCUMENT] == []
