"""How large the code is. From the repository's root: python -m tools.house

A module is a .py file of marpack/ other than __init__. A code line is not blank, a comment or part of a docstring. A
look-up is an option read from an untyped dict, as in options["name"]. The bounds fall with the code:
tests/tools/test_house.py fails if a bound is more than 1 % above its figure. Raising a bound needs a row in
docs/architecture.md.
"""

import ast
import re
import sys
from pathlib import Path

ROOT = Path(__file__).resolve().parents[1]
BOUNDS = {
    "modules": 184,
    "longest function": 60,
    "look-ups": 0,
    "code lines of marpack": 34_920,
    "code lines of tests": 49_100,
    "code lines of tools, templates": 1_515,
}
_LOOK_UP = re.compile(r"\boptions\[[\"']")
_FUNCTION = ast.FunctionDef | ast.AsyncFunctionDef


def measure(root: Path = ROOT) -> dict[str, int]:
    """Return the figures that BOUNDS bounds."""
    modules = _read(root / "marpack")
    functions = [node for _, nodes in modules.values() for node in nodes if isinstance(node, _FUNCTION)]
    return {
        "modules": sum(path.name != "__init__.py" for path in modules),
        "longest function": max(((each.end_lineno or 0) - each.lineno + 1 for each in functions), default=0),
        "look-ups": sum(len(_LOOK_UP.findall(text)) for text, _ in modules.values()),
        "code lines of marpack": _count(modules),
        "code lines of tests": _count(_read(root / "tests")),
        "code lines of tools, templates": _count(_read(root / "tools")) + _count(_read(root / "templates")),
    }


def _read(folder: Path) -> dict[Path, tuple[str, list[ast.AST]]]:
    texts = {path: path.read_text() for path in folder.rglob("*.py")}
    return {path: (text, [*ast.walk(ast.parse(text))]) for path, text in texts.items()}


def _count(modules: dict[Path, tuple[str, list[ast.AST]]]) -> int:
    return sum(len(code_lines(text, nodes)) for text, nodes in modules.values())


def code_lines(text: str, nodes: list[ast.AST]) -> set[int]:
    """Return the numbers of the lines that hold code."""
    stripped = enumerate(map(str.strip, text.split("\n")), 1)
    lines = {number for number, line in stripped if line and not line.startswith("#")}
    for node in nodes:
        if isinstance(node, ast.Constant | ast.JoinedStr):  # all lines of a text are code
            lines.update(range(node.lineno, (node.end_lineno or 0) + 1))
    for node in nodes:
        if isinstance(node, ast.Module | ast.ClassDef | _FUNCTION) and ast.get_docstring(node, clean=False) is not None:
            lines.difference_update(range(node.body[0].lineno, (node.body[0].end_lineno or 0) + 1))
    return lines


def main() -> int:
    """Print each figure with its bound; return 1 if one is exceeded."""
    figures = measure()
    for name, bound in BOUNDS.items():
        print(f"{name:<32}{figures[name]:>7,} of at most {bound:,}")
    return int(any(figures[name] > bound for name, bound in BOUNDS.items()))


if __name__ == "__main__":
    sys.exit(main())
