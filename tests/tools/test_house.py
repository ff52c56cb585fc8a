"""What tools/house.py measures, on a package small enough to count by hand."""

import ast
import json
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
sys.path.append(str(ROOT))  # tools/ is no part of the package

from tools import house  # noqa: E402

TYPED = '''
def typed(self, *rest: int) -> int:
    """Return one.

    At length.
    """
    return 1
'''
TOY = {
    "__init__.py": "from toy.first import typed\n",
    "__main__.py": (
        "import os, subprocess, sys\nfrom toy import loose\nfrom toy.first import typed\n"
        "typed(0)\nloose.swallow()\n"
        "if len(sys.argv) == 1:\n    subprocess.run([sys.executable, '-P', '-m', 'toy', 'child'])\n    os._exit(0)\n"
    ),
    # A circle as long as all imports count: one for types only, one within a function.
    "first.py": f"from typing import TYPE_CHECKING\nif TYPE_CHECKING:\n    from toy.second import lazy\n{TYPED}",
    "second.py": "def lazy() -> None:\n    from .first import typed\n",
    # A circle as soon as one of them is imported.
    "inner/__init__.py": "",
    "inner/one.py": "from toy.inner import two\n",
    "inner/two.py": "import toy.inner.one\n",
    "loose.py": (
        "TABLE = {'named': 'toy.named:thing'}\n"
        "def swallow(untyped=lambda x: x):\n"
        "    try:\n        pass\n    except Exception as error:\n        return None\n"
        "def tell() -> None:\n"
        "    try:\n        pass\n    except (OSError, BaseException) as error:\n        print(error)\n"
        "    try:\n        pass\n    except:\n        raise\n"
        "    except_for: object = 1  # Any: of no kind\n"
    ),
    "named.py": "def thing() -> None:\n" + "    print()\n" * 61 + "\n" * 540,
    "loaders/only.py": "",
    "loaders/__init__.py": "from toy.loaders import only\n",
}


@pytest.fixture
def toy(tmp_path: Path) -> Path:
    package = tmp_path / "toy"
    for name, text in TOY.items():
        (package / name).parent.mkdir(parents=True, exist_ok=True)
        (package / name).write_text(text)
    return package


def test_size(toy: Path) -> None:
    figures = house.measure(toy)
    assert figures["modules"] == 8
    assert figures["lines"] == sum(len(text.splitlines()) for text in TOY.values())
    assert figures["median_lines"] == 5.0  # 0, 1, 1, 2, 8, 11, 16, 602
    assert figures["long_modules"] == ["toy/named.py (602)"]
    assert figures["long_functions"] == ["toy/named.py:1 thing (62)"]
    assert figures["untyped_functions"] == ["toy/loose.py:2 swallow"]


def test_a_docstring_and_decorators_are_no_part_of_a_functions_length() -> None:
    [function] = ast.parse(f"@one\n@two{TYPED}").body
    assert isinstance(function, house.Function)
    assert house.length(function) == 2


def test_ties(toy: Path) -> None:
    figures = house.measure(toy)
    assert figures["circles"] == ["toy.inner.one toy.inner.two"]
    assert figures["circles_in_all"] == ["toy.first toy.second", "toy.inner.one toy.inner.two"]
    # Not toy.loaders.only, which is chosen by name; nor toy.first, which has three importers.
    assert figures["one_importer"] == [
        "toy.inner.one (by toy.inner.two)",
        "toy.inner.two (by toy.inner.one)",
        "toy.loose (by toy.__main__)",
        "toy.named (by toy.loose)",
        "toy.second (by toy.first)",
    ]


def test_excepts(toy: Path) -> None:
    figures = house.measure(toy)
    assert [place.rpartition(":")[2] for place in figures["broad_excepts"]] == ["5", "10", "14"]
    assert figures["swallows"] == ["toy/loose.py:5"]
    assert figures["any_comments"] == 1


def test_a_walk_is_the_calls_of_a_process_and_its_children_however_they_end(toy: Path) -> None:
    walk = house.walk(toy, ["-m", "toy"], toy.parent)
    assert walk.entered == {"first.py": 2, "loose.py": 2}
    assert walk.hops == 2


def test_bounds() -> None:
    figures = {"modules": 343, "lines": 33_000, "circles": ["a b"], "journeys": {"inspect": {"hops": 2301}}}
    assert list(house.broken(figures)) == [
        "modules: 343, where at most 342 may be.",
        "circles: 1, where at most 0 may be.",
        "inspect, hops: 2,301, where at most 2,300 may be.",
    ]


def test_holding_a_package_that_breaks_a_bound(toy: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert house.main([str(toy), "--hold", "--list"]) == 1
    printed = capsys.readouterr()
    assert "long modules               1\n    toy/named.py (602)\n" in printed.out
    assert "long modules: 1, where at most 0 may be.\n" in printed.err


@pytest.mark.nightly
def test_the_house_itself_can_be_measured() -> None:
    command = [sys.executable, "-m", "tools.house", "--json"]
    figures = json.loads(subprocess.run(command, cwd=ROOT, capture_output=True, check=True).stdout)
    assert figures["modules"] > 100
    assert figures.keys() >= {name for name in house.BOUNDS if "." not in name}
