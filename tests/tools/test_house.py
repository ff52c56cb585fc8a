"""The size of the code: counted on a package small enough to count by hand, and bounded in the repository."""

from pathlib import Path

import pytest

from tools import house

TOY = {
    "marpack/__init__.py": "",
    "marpack/one.py": 'def run(options):\n    """Run."""\n    return options["a"] + options[\'b\']\n',
    "marpack/inner/__init__.py": "",
    "marpack/inner/two.py": "class Two:\n    async def short(self):\n        pass  # nothing\n\nvalue = '''\n\n'''\n",
    "tests/test_one.py": '"""Two lines\nof text."""\n\n# and no more\nvalue = 1\n',
    "tools/one.py": "value = 1\n",
}


def test_figures_are_counted(tmp_path: Path):
    for name, text in TOY.items():
        (tmp_path / name).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / name).write_text(text)
    assert list(house.measure(tmp_path).values()) == [2, 3, 2, 2 + 6, 1, 1]


@pytest.mark.peer  # it parses all code
def test_bounds_hold_and_fall_with_the_code():
    figures = house.measure()
    for name, bound in house.BOUNDS.items():
        assert figures[name] <= bound, f"{name}: {figures[name]:,}; remove code, or add a row to docs/architecture.md"
        assert bound <= figures[name] * 1.01, f"{name}: lower the bound to {figures[name]:,}"
