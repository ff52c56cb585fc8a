"""The field's words: names that needed their docstring to be understood do not come back."""

import io
import tokenize
from collections.abc import Iterator
from pathlib import Path

import pytest

PACKAGE = Path(__file__).parents[2] / "marpack"
GONE = {
    *("Witness", "Subject", "Manner", "Terms", "Conduct", "Outlets", "Serving", "Listener", "Journal", "Told", "Kept"),
    *(
        "Looked",
        "Spread",
        "Tally",
        "Sums",
        "Stamp",
        "Shape",
        "Weight",
        "Sort",
        "Likeness",
        "Side",
        "Across",
        "Compared",
    ),
    *(
        "Exchange",
        "Gathering",
        "Planned",
        "Resolved",
        "Opened",
        "Reading",
        "Excess",
        "Wrong",
        "Prints",
        "Course",
        "Scene",
    ),
    *("witness", "manner", "conduct", "outlets", "oddities", "misgivings", "surroundings", "patience", "strangers"),
    *("told", "_MOST", "unseen", "fall_silent"),
}


def names(path: Path) -> Iterator[str]:
    """Yield every identifier of a module, those inside formatted strings aside."""
    tokens = tokenize.generate_tokens(io.StringIO(path.read_text()).readline)
    return (token.string for token in tokens if token.type == tokenize.NAME)


@pytest.mark.parametrize("room", sorted({path.relative_to(PACKAGE).parts[0] for path in PACKAGE.rglob("*.py")}))
def test_a_word_that_is_gone_does_not_come_back(room: str):
    place = PACKAGE / room
    modules = sorted(place.rglob("*.py")) if place.is_dir() else [place]
    found = {f"{path.relative_to(PACKAGE)}: {name}" for path in modules for name in set(names(path)) & GONE}
    assert not found, "docs/architecture.md has the glossary"
