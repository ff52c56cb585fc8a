"""docs/check.md: its table is the registry's, and it has a section for every check and every code."""

import ast
import re
from pathlib import Path

import pytest

from marpack.gate import check
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


def codes() -> set[str]:
    """Return every code of the checks' own, as it stands in the sources."""
    sources = Path(str(check.__file__)).parent.glob("*.py")
    nodes = [node for source in sources for node in ast.walk(ast.parse(source.read_text()))]
    calls = [node for node in nodes if isinstance(node, ast.Call)]
    named = [call.args[0] for call in calls if getattr(call.func, "id", "") == "problem" and call.args]
    named += [
        key.value
        for call in calls
        if getattr(call.func, "id", "") == "Finding"
        for key in call.keywords
        if key.arg == "code"
    ]
    return {node.value for node in named if isinstance(node, ast.Constant)}


def test_every_code_is_told():
    assert codes() > {"batch-refused", "form-ignored", "worn-out"}
    assert [code for code in codes() if f"`{code}`" not in DOCUMENT] == []
