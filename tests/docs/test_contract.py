"""Every section of the contract that somebody cites is there, under the anchor and the number that it always had."""

import re
from pathlib import Path

ROOT = Path(__file__).parents[2]
CONTRACT = ROOT / "docs" / "contract.md"
# The contract's sections are whole numbers; those of other papers, such as APPNOTE's §4.3, have a dot.
CITED = re.compile(r"§ ?(\d+)(?![.\d]*\d)")
HEADING = re.compile(r'^## <a id="s(\d+)"></a>§(\d+) \S', re.MULTILINE)


def headings() -> list[tuple[str, str]]:
    return HEADING.findall(CONTRACT.read_text())


def cited() -> dict[str, Path]:
    kinds = (("marpack", "*.py"), ("docs", "*.md"), ("tests", "*.py"))
    paths = {path for folder, kind in kinds for path in (ROOT / folder).rglob(kind)}
    return {number: path for path in paths - {CONTRACT, Path(__file__)} for number in CITED.findall(path.read_text())}


def test_every_cited_section_is_there():
    sections = {number for _, number in headings()}
    missing = {number: path.relative_to(ROOT) for number, path in cited().items() if number not in sections}
    assert not missing
    assert len(cited()) > 8


def test_every_number_is_there_once_and_in_order():
    assert headings() == [(str(number), str(number)) for number in range(1, len(headings()) + 1)]
    assert len(headings()) == len(re.findall("^## ", CONTRACT.read_text(), re.MULTILINE))


def test_what_a_citation_looks_like():
    assert CITED.findall("(contract §2 and §5), (§7), §10. §11") == ["2", "5", "7", "10", "11"]
    assert not CITED.findall("APPNOTE §4.3.9, §12.1")
