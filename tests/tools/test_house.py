"""The size of marpack: counted on a package small enough to count by hand, and bounded in the repository."""

from pathlib import Path

import pytest

from tools import house

TOY = {
    "__init__.py": "",
    "one.py": 'def run(options):\n    """Run."""\n    return options["a"] + options[\'b\']\n',
    "inner/__init__.py": "",
    "inner/two.py": "class Two:\n    async def short(self):\n        pass\n\nvalue = 1\n",
}


def test_figures_are_counted(tmp_path: Path):
    for name, text in TOY.items():
        (tmp_path / name).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / name).write_text(text)
    assert house.measure(tmp_path) == {"modules": 2, "lines": 8, "longest function": 3, "look-ups": 2}


@pytest.mark.parametrize("name", house.BOUNDS)
def test_a_bound_holds_and_falls_with_the_code(name: str):
    figure, bound = house.measure()[name], house.BOUNDS[name]
    assert figure <= bound, f"{name}: {figure:,}; remove code, or add a row to docs/architecture.md"
    assert bound <= figure * 1.01, f"{name}: lower the bound to {figure:,}"
