"""The pages that are printed from the code say what the code says."""

import ast
import re
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from string import Formatter

import pytest

from marpack import finding_codes
from marpack.errors import MarpackError, UsageError
from tools.reference import PAGES
from tools.reference.errors import subclasses
from tools.reference.findings import explanations, rows

ROOT = Path(__file__).parents[2]


@pytest.mark.parametrize("name", PAGES)
def test_a_page_is_what_the_code_says(name: str):
    assert (ROOT / "docs" / name).read_text() == PAGES[name](), "print it again: python -m tools.reference"


TABLE = re.compile(r"<!-- table: python -c \"(?P<print>.*)\" -->\n(?P<table>.*?)\n?<!-- end -->", re.DOTALL)


def test_a_table_is_what_the_code_says():
    (found,) = TABLE.finditer((ROOT / "docs/how-to/environments.md").read_text())
    said = subprocess.run([sys.executable, "-c", found["print"]], cwd=ROOT, capture_output=True, text=True, check=True)
    assert found["table"].split() == said.stdout.split(), f"print it again: {found['print']}"


def test_every_error_has_a_code_of_its_own_and_a_remedy():
    kinds = subclasses(MarpackError)
    codes = [kind.code for kind in kinds]
    assert len(set(codes)) == len(codes), sorted(codes)
    for kind in kinds:
        assert kind.__doc__, kind
        assert kind.fix or kind is UsageError, kind  # whose messages each have a hint


def test_every_code_is_explained_and_nothing_else():
    assert set(explanations("errors.yaml")) == {kind.code for kind in subclasses(MarpackError)}
    assert set(explanations("findings.yaml")) == set(rows())
    for explanation in (*explanations("errors.yaml").values(), *explanations("findings.yaml").values()):
        assert explanation["causes"].endswith(".")
        assert not explanation["fails if"].endswith(".")


def test_an_example_fits_its_template():
    for name, explanation in explanations("findings.yaml").items():
        row = getattr(finding_codes, explanation["row"]) if "row" in explanation else rows()[name][0]
        fields = {field.partition("[")[0] for _, field, _, _ in Formatter().parse(row.message) if field}
        assert row.name == name
        assert set(explanation.get("example", {})) == fields, name
        assert all(code.hint[:1].isupper() for code in rows()[name]), name


@pytest.mark.peer  # it parses all modules
def test_an_example_of_an_error_is_a_sentence_of_the_code():
    patterns = [re.compile(pattern) for pattern in set(sentence_patterns())]
    for code, explanation in explanations("errors.yaml").items():
        assert any(pattern.fullmatch(explanation["example"]) for pattern in patterns), code


def sentence_patterns() -> Iterator[str]:
    """Yield the texts of the package that have a few words, as patterns."""
    for path in (ROOT / "marpack").rglob("*.py"):
        for node in ast.walk(ast.parse(path.read_text())):
            parts = node.values if isinstance(node, ast.JoinedStr) else [node]
            texts = [each.value if isinstance(each, ast.Constant) else None for each in parts]
            known = "".join(text for text in texts if isinstance(text, str))
            if len(known.split()) > 1 or known == "interrupted":
                yield "".join(".+" if text is None else re.escape(str(text)) for text in texts)


@pytest.mark.slow
def test_printing_needs_no_more_than_the_package(tmp_path: Path):
    done = subprocess.run(
        [sys.executable, "-c", "from tools.reference import PAGES; print(*(make()[:1] for make in PAGES.values()))"],
        cwd=ROOT,
        capture_output=True,
        text=True,
    )
    assert done.stdout.split() == ["#"] * len(PAGES), done.stderr
