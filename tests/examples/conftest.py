"""The examples as they are committed, and copies of them to build and run in."""

import shutil
from collections.abc import Callable
from pathlib import Path

import pytest

REPOSITORY = Path(__file__).parents[2]
EXAMPLES = REPOSITORY / "examples"
NAMES = sorted(path.parent.name for path in EXAMPLES.glob("*/marpack.yaml"))


@pytest.fixture(params=NAMES)
def example(request: pytest.FixtureRequest) -> Path:
    """Return the folder of each example in turn."""
    return EXAMPLES / request.param


@pytest.fixture
def copy_of(tmp_path: Path) -> Callable[[str], Path]:
    """Return a function that copies an example's committed files into a folder of the test's own."""

    def copy(name: str) -> Path:
        ignored = shutil.ignore_patterns("*.mar", "__pycache__")
        return Path(shutil.copytree(EXAMPLES / name, tmp_path / name, ignore=ignored))

    return copy
