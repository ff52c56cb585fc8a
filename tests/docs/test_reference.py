"""The pages that are printed from the code say what the code says."""

import re
import subprocess
import sys
from pathlib import Path

import pytest

from marpack.errors import MarpackError, UsageError
from tools.reference import PAGES
from tools.reference.errors import messages, subclasses

ROOT = Path(__file__).parents[2]


@pytest.mark.parametrize("name", PAGES)
def test_a_page_is_what_the_code_says(name: str):
    assert (ROOT / "docs" / name).read_text() == PAGES[name](), "print it again: python -m tools.reference"


TABLE = re.compile(r"<!-- table: python -c \"(?P<print>.*)\" -->\n(?P<table>.*?)\n?<!-- end -->", re.DOTALL)


def test_a_table_is_what_the_code_says():
    (found,) = TABLE.finditer((ROOT / "docs/how-to/environments.md").read_text())
    said = subprocess.run([sys.executable, "-c", found["print"]], cwd=ROOT, capture_output=True, text=True, check=True)
    assert found["table"].split() == said.stdout.split(), f"print it again: {found['print']}"


def test_every_error_has_a_code_of_its_own_a_cause_and_a_way_out():
    kinds = subclasses(MarpackError)
    codes = [kind.code for kind in kinds]
    assert len(set(codes)) == len(codes), sorted(codes)
    for kind in kinds:
        assert kind.__doc__, kind
        assert kind.fix or kind is UsageError, kind  # whose messages each have a hint


def test_every_sentence_reads_as_one():
    for kind, sentences in messages().items():
        for sentence in sentences:
            assert not sentence.rstrip().endswith("."), f"{kind}: {sentence}"
            assert "  " not in sentence, f"{kind}: {sentence}"


@pytest.mark.nightly
def test_printing_needs_no_more_than_the_package(tmp_path: Path):
    done = subprocess.run(
        [sys.executable, "-c", "from tools.reference import PAGES; print(*(make()[:1] for make in PAGES.values()))"],
        cwd=ROOT,
        capture_output=True,
        text=True,
    )
    assert done.stdout.split() == ["#"] * len(PAGES), done.stderr
