"""The registry of codes: complete, unique, each found by a test, and printed into the documentation."""

import ast
from pathlib import Path

from inspection.lint.content_cases import CASES as CONTENTS
from inspection.lint.handler_cases import CASES as HANDLERS

import marpack.inspection.lint as package
from marpack.inspection.lint.linting import all_codes, as_markdown

DOCUMENT = Path(__file__).parents[3] / "docs" / "findings.md"
PRINT = 'python -c "from marpack.inspection.lint.linting import as_markdown as m; print(m(), end=str())"'
# Found only where files cannot be read or are made to exhaust: see test_hostile.py.
HOSTILE = {"member-unreadable", "sources-too-large", "check-gave-up", "labels-unchecked", "requirements-too-large"}

LOOKUPS = {"config-key-missing", "manifest-key-missing"}  # see test_contents.py


def declared() -> list[str]:
    """Return every code's name as it stands in the sources."""
    sources = Path(package.__file__).parent.glob("*.py")
    nodes = [node for source in sources for node in ast.walk(ast.parse(source.read_text()))]
    calls = [node for node in nodes if isinstance(node, ast.Call) and getattr(node.func, "id", "") == "Code"]
    return [ast.literal_eval(call.args[0]) for call in calls]


def test_every_code_is_in_the_registry_once():
    assert sorted(declared()) == sorted(all_codes())


def test_every_code_is_found_by_a_case():
    expected = {line.split()[1] for case in (*HANDLERS, *CONTENTS) for line in case.expected}  # see `check_case`
    assert expected | HOSTILE | LOOKUPS == set(all_codes())


def test_a_code_says_what_it_is():
    for code in all_codes().values():
        assert code.name == code.name.lower()
        assert " " not in code.name
        assert code.cause.endswith("."), code.name
        assert code.fix[-1] in ".})`", code.name
        assert code.cause[0].isupper() or code.cause.startswith(("`", "minWorkers", "image_classifier", "torch", "pip"))


def test_the_document_is_printed_from_the_registry():
    assert DOCUMENT.read_text() == as_markdown(), f"print it again: {PRINT} > docs/findings.md"
