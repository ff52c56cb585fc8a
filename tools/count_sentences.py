"""Count the tests that hold marpack to the wording of its messages: `python -m tools.count_sentences [--list]`.

A message must be free to change. Tests assert its code and its facts; the snapshots hold the console output.
"""

import ast
import re
import sys
from collections.abc import Iterator
from pathlib import Path

ROOT = Path(__file__).parents[1]
RUN = 3  # words of one literal of the package, one after the other
_WORD = re.compile(r"[A-Za-z][A-Za-z'-]*")


def main() -> None:
    """Print how many test functions assert a sentence of the package."""
    known = set().union(*(runs_of(text) for path in python_files("marpack") for text in messages_of(path)))
    found = [(path, name) for path in python_files("tests") for name in functions_of(path, known)]
    if "--list" in sys.argv[1:]:
        for path, name in found:
            print(f"{path.relative_to(ROOT)}::{name}")
    print(len(found))


def python_files(folder: str) -> list[Path]:
    """Return the Python files of a folder of this checkout."""
    return sorted(ROOT.joinpath(folder).rglob("*.py"))


def messages_of(path: Path) -> Iterator[str]:
    """Yield the string literals of a file, docstrings left out."""
    tree = ast.parse(path.read_bytes())
    documented = ast.Module | ast.ClassDef | ast.FunctionDef | ast.AsyncFunctionDef
    docs = {id(node.body[0].value) for node in ast.walk(tree) if isinstance(node, documented) if _has_docstring(node)}  # type: ignore[attr-defined]
    for node in ast.walk(tree):
        if isinstance(node, ast.Constant) and isinstance(node.value, str) and id(node) not in docs:
            yield node.value


def _has_docstring(node: ast.Module | ast.ClassDef | ast.FunctionDef | ast.AsyncFunctionDef) -> bool:
    return ast.get_docstring(node, clean=False) is not None


def runs_of(text: str) -> set[tuple[str, ...]]:
    """Return each run of three words in a text; a word has letters only, besides the punctuation around it."""
    words = [word.strip(".,:;!?()\"'`").lower() for word in text.split()]
    runs = (tuple(words[start : start + RUN]) for start in range(len(words) - RUN + 1))
    return {run for run in runs if all(map(_WORD.fullmatch, run))}


def functions_of(path: Path, known: set[tuple[str, ...]]) -> Iterator[str]:
    """Yield the names of a file's functions with an assert or a `match=` that holds a run of the package's words."""
    for function in ast.walk(ast.parse(path.read_bytes())):
        if isinstance(function, ast.FunctionDef | ast.AsyncFunctionDef):
            texts = (node.value for part in _asserted(function) for node in ast.walk(part) if _is_text(node))  # type: ignore[attr-defined]
            if any(runs_of(text) & known for text in texts):
                yield function.name


def _asserted(function: ast.AST) -> Iterator[ast.AST]:
    for node in ast.walk(function):
        if isinstance(node, ast.Assert):
            yield node.test
        if isinstance(node, ast.keyword) and node.arg == "match":
            yield node.value


def _is_text(node: ast.AST) -> bool:
    return isinstance(node, ast.Constant) and isinstance(node.value, str)


if __name__ == "__main__":
    main()
