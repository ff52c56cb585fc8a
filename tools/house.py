"""How large marpack is. From the repository's root: python -m tools.house

A module is a .py file other than __init__. Lines are physical lines, docstrings included. A look-up is an option read
from an untyped dict, as in options["name"]. The bounds fall with the code: tests/tools/test_house.py fails if a bound
is more than 1 % above its figure. Raising a bound needs a row in docs/architecture.md.
"""

import ast
import re
import sys
from pathlib import Path

PACKAGE = Path(__file__).resolve().parents[1] / "marpack"
BOUNDS = {"modules": 188, "lines": 50_000, "longest function": 60, "look-ups": 0}
_LOOK_UP = re.compile(r"\boptions\[[\"']")


def measure(package: Path = PACKAGE) -> dict[str, int]:
    """Return the figures that BOUNDS bounds."""
    paths = sorted(package.rglob("*.py"))
    texts = [path.read_text() for path in paths]
    nodes = [node for text in texts for node in ast.walk(ast.parse(text))]
    functions = [node for node in nodes if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef)]
    return {
        "modules": sum(path.name != "__init__.py" for path in paths),
        "lines": sum(text.count("\n") for text in texts),
        "longest function": max(((each.end_lineno or 0) - each.lineno + 1 for each in functions), default=0),
        "look-ups": sum(len(_LOOK_UP.findall(text)) for text in texts),
    }


def main() -> int:
    """Print each figure with its bound; return 1 if one is exceeded."""
    figures = measure()
    for name, bound in BOUNDS.items():
        print(f"{name:<18}{figures[name]:>7,} of at most {bound:,}")
    return int(any(figures[name] > bound for name, bound in BOUNDS.items()))


if __name__ == "__main__":
    sys.exit(main())
