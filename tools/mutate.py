"""Mutation testing: change the package at one place after another, and run the tests of the changed room.

    python -m tools.mutate --count 60 --seed 1 [--room archive] [--results mutants.jsonl]

Each verdict is appended to the results file at once; the same command resumes an interrupted run. The tests run in a
copy of the checkout (the files that git does not ignore), with that copy as PYTHONPATH: it comes before an editable
install, also for `python -P`, the way workers start. A room is a folder of the package; its tests have the same name
under tests/. Tests of other rooms do not run.
"""

import argparse
import ast
import json
import os
import random
import shutil
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any, NamedTuple

ROOT = Path(__file__).parents[1]
PACKAGE = "marpack"  # also the room of the modules that are in no folder
_PAIRS: list[tuple[type[ast.AST], type[ast.AST]]] = [
    *((ast.Lt, ast.LtE), (ast.Gt, ast.GtE), (ast.Eq, ast.NotEq), (ast.Is, ast.IsNot)),
    *((ast.In, ast.NotIn), (ast.And, ast.Or), (ast.Add, ast.Sub)),
]
_SWAPS = dict(_PAIRS) | {second: first for first, second in _PAIRS}
_MESSAGES = {"hint", "message", "what"}  # keywords and variables that hold text for people
_UNTOUCHED = {"annotation", "returns", "decorator_list", "type_params", "msg"}  # fields of syntax nodes


class Mutant(NamedTuple):
    """One change of one module."""

    module: str  # from the root, with slashes
    line: int
    before: str
    after: str
    start: int  # bytes of the source that `after` replaces
    end: int

    @property
    def room(self) -> str:
        parts = Path(self.module).parts
        return parts[1] if len(parts) > 2 else PACKAGE


def changes(node: ast.AST) -> Iterator[ast.AST]:
    """Yield the nodes that may replace a node."""
    match node:
        case ast.Compare(left=left, ops=[operator], comparators=others) if type(operator) in _SWAPS:
            yield ast.Compare(left, [_SWAPS[type(operator)]()], others)
        case ast.BoolOp(op=operator, values=values):
            yield ast.BoolOp(_SWAPS[type(operator)](), values)
        case ast.BinOp(left=left, op=operator, right=right) if type(operator) in _SWAPS:
            yield ast.BinOp(left, _SWAPS[type(operator)](), right)
        case ast.UnaryOp(op=ast.Not(), operand=operand):
            yield operand
        case ast.Constant(value=bool(value)):
            yield ast.Constant(not value)
        case ast.Constant(value=int(value)):
            yield ast.Constant(value + 1)
        case ast.Return(value=ast.expr() as value) if not isinstance(value, ast.Constant) or value.value:
            yield ast.Return(ast.Constant(None))
        case ast.Expr(value=ast.Call()):
            yield ast.Pass()


def nodes(node: ast.AST) -> Iterator[ast.AST]:
    """Yield a node and those below it, without annotations, imports and text for people."""
    match node:
        case ast.Raise() | ast.JoinedStr() | ast.Import() | ast.ImportFrom():
            return
        case ast.keyword(arg=name) | ast.Assign(targets=[ast.Name(id=name)]) if str(name).strip("_") in _MESSAGES:
            return
    yield node
    for field, value in ast.iter_fields(node):
        for child in value if isinstance(value, list) else [value]:
            if isinstance(child, ast.AST) and field not in _UNTOUCHED:
                yield from nodes(child)


def mutants_of(source: bytes, module: str) -> Iterator[Mutant]:
    """Yield every mutant of a module."""
    starts = [0]
    for line in source.splitlines(keepends=True):
        starts.append(starts[-1] + len(line))
    for node in nodes(ast.parse(source)):
        for new in changes(node):
            place: Any = node  # Any: every node that changes has a place, its base class has none
            start, end = (
                starts[place.lineno - 1] + place.col_offset,
                starts[place.end_lineno - 1] + place.end_col_offset,
            )
            after = f"({ast.unparse(new)})" if isinstance(new, ast.expr) else ast.unparse(new)
            yield Mutant(module, place.lineno, source[start:end].decode(), after, start, end)


def pick(root: Path, *, count: int, seed: int, room: str | None = None) -> list[Mutant]:
    """Return mutants in an order that the seed decides; one a line at most."""
    paths = [path for path in sorted((root / PACKAGE).rglob("*.py")) if path.name != "__init__.py"]
    every = [each for path in paths for each in mutants_of(path.read_bytes(), path.relative_to(root).as_posix())]
    random.Random(seed).shuffle(every)
    by_line = {(each.module, each.line): each for each in reversed(every) if room in (None, each.room)}
    chosen = [each for each in every if by_line.get((each.module, each.line)) is each]
    return chosen[:count]


def copy_checkout(root: Path, folder: Path) -> Path:
    """Copy a checkout without the files that git ignores, and return the copy."""
    listed = ["git", "ls-files", "-z", "--cached", "--others", "--exclude-standard"]
    for name in subprocess.check_output(listed, cwd=root, text=True).split("\0"):
        if (root / name).is_file():
            (folder / name).parent.mkdir(parents=True, exist_ok=True)
            shutil.copy2(root / name, folder / name)
    where, path = f"import {PACKAGE}; print({PACKAGE}.__file__)", os.environ | {"PYTHONPATH": str(folder)}
    found = subprocess.check_output([sys.executable, "-P", "-c", where], cwd="/", env=path, text=True)
    if not Path(found).resolve().is_relative_to(folder.resolve()):
        sys.exit(f"the tests would not run the mutants: Python finds {found.strip()} before {folder}")
    return folder


@contextmanager
def applied(copy: Path, mutant: Mutant) -> Iterator[None]:
    """Mutate the copy for a while; the changed size or time makes the module's bytecode stale."""
    path = copy / mutant.module
    original = path.read_bytes()
    path.write_bytes(original[: mutant.start] + mutant.after.encode() + original[mutant.end :])
    os.utime(path, (time.time(), time.time() + 2))
    try:
        yield
    finally:
        path.write_bytes(original)


def is_green(copy: Path, room: str, timeout: float | None = None) -> bool:
    """Run a room's tests and return whether all pass; False for a run that takes too long."""
    tests = [f"tests/{room}"] if room != PACKAGE else [str(path) for path in sorted((copy / "tests").glob("test_*.py"))]
    command = [sys.executable, "-m", "pytest", *tests, "-x", "-q", "-p", "no:cacheprovider"]
    environment = os.environ | {"PYTHONPATH": str(copy), "PYTHONDONTWRITEBYTECODE": "1"}
    streams = dict.fromkeys(("stdin", "stdout", "stderr"), subprocess.DEVNULL)
    process = subprocess.Popen(command, cwd=copy, env=environment, start_new_session=True, **streams)
    try:
        return process.wait(timeout) in (0, 5)  # 5: there are no tests
    except subprocess.TimeoutExpired:
        return False
    finally:
        with suppress(ProcessLookupError):
            os.killpg(process.pid, signal.SIGKILL)
        process.wait()


def main(arguments: Sequence[str] | None = None) -> None:
    """Judge the mutants that have no verdict yet, and print the missed ones."""
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("--count", type=int, default=60, help="number of mutants")
    parser.add_argument("--seed", type=int, default=1, help="the same seed picks the same mutants")
    parser.add_argument("--room", help="mutate only this folder of the package")
    parser.add_argument("--results", type=Path, default=Path("mutants.jsonl"), help="file of all verdicts")
    options = parser.parse_args(arguments)
    lines = options.results.read_text().splitlines() if options.results.exists() else []
    found = {tuple(mutant): verdict for mutant, verdict in map(json.loads, lines)}
    usual: dict[str, float] = {}  # seconds of a room's tests
    with tempfile.TemporaryDirectory(prefix="mutants-") as folder:
        copy = copy_checkout(ROOT, Path(folder, "checkout"))
        for mutant in pick(copy, count=options.count, seed=options.seed, room=options.room):
            if mutant in found:
                continue
            if mutant.room not in usual:
                started = time.monotonic()
                if not is_green(copy, mutant.room):
                    sys.exit(f"without any mutant the tests of {mutant.room} fail")
                usual[mutant.room] = time.monotonic() - started
            with applied(copy, mutant):
                found[mutant] = not is_green(copy, mutant.room, 4 * usual[mutant.room] + 60)
            with options.results.open("a") as file:
                file.write(json.dumps([mutant, found[mutant]]) + "\n")
    missed = [Mutant(*each) for each, is_caught in found.items() if not is_caught]
    print(f"{len(found) - len(missed)} of {len(found)} mutants were caught")
    for mutant in missed:
        print(f"missed: {mutant.module}:{mutant.line}\n    {mutant.before}\n  → {mutant.after}")


if __name__ == "__main__":
    main()
