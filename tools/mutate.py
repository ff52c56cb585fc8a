"""Mutation testing: break the package at one place after the other, and see whether a test notices.

    python -m tools.mutate --count 60 --seed 1 [--results mutants.jsonl] [--room archive] [--only-room-tests]
    python -m tools.mutate --report

Every verdict goes into the results file at once; the same command goes on where it was stopped. The tests run in a
copy of the checkout (what git knows and does not ignore), with that copy as PYTHONPATH: it comes before an editable
install's .pth, and `python -P`, as workers are started, leaves out the current folder only. What a test starts with
`python -I`, or without this environment, would not see the mutants; before the first, a child with -P has to say where
it finds the package. A room is a folder of the package, with its tests in the folder of the same name under tests/.
What they miss is shown to the tests of the modules that import the changed one, and then to all the rest.
"""

import argparse
import ast
import itertools
import json
import math
import os
import random
import re
import shutil
import subprocess
import sys
import tempfile
import time
import uuid
from collections import Counter
from collections.abc import Iterator, Sequence
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any, NamedTuple

import psutil

ROOT = Path(__file__).parents[1]
PACKAGE = "marpack"  # also the room of the modules that are in no folder
PER_FUNCTION = 2
TIMES, MORE = 4, 60.0  # a run may take so many times what it takes without mutants, and so many seconds more
FOUND, MISSED, MISSED_BY_ROOM = "found by ", "missed", "missed by room"  # the last: the rest was not tried
ALL = "all"  # the baseline of the rest
_MARK = "MUTATION_RUN"  # in the environment of all that a run starts
_SAID = {"hint", "hints", "message", "what"}  # keywords and variables
_LOGGERS = {"logger", "logging", "warnings"}
_KEYWORDS = _SAID | {"frozen", "kw_only", "slots", "stacklevel", "exc_info"}
_UNTOUCHED = {"annotation", "returns", "decorator_list", "type_params", "msg"}  # fields of syntax nodes
_SWAPS: dict[type[ast.AST], tuple[str, str]] = {
    ast.Lt: ("<", "<="), ast.LtE: ("<=", "<"), ast.Gt: (">", ">="), ast.GtE: (">=", ">"),
    ast.Eq: ("==", "!="), ast.NotEq: ("!=", "=="), ast.Is: ("is", "is not"), ast.IsNot: ("is not", "is"),
    ast.In: ("in", "not in"), ast.NotIn: ("not in", "in"), ast.And: ("and", "or"), ast.Or: ("or", "and"),
    ast.Add: ("+", "-"), ast.Sub: ("-", "+"),
}  # fmt: skip
_WORDS = {"all": "any", "any": "all", "min": "max", "max": "min", "startswith": "endswith", "endswith": "startswith"}
_SEQUENCES = (ast.JoinedStr, ast.List, ast.ListComp, ast.Tuple)  # what `-` does to those is found by anything


class Edit(NamedTuple):
    """Bytes of a source, and what to put in their place."""

    start: int
    end: int
    text: str


class Mutant(NamedTuple):
    """One change of one module."""

    room: str
    module: str  # from the root, with slashes
    function: str
    line: int
    before: str  # the changed line, without indentation
    after: str
    edit: Edit

    def facts(self) -> dict[str, Any]:
        return {name: value for name, value in self._asdict().items() if name != "edit"}


class Source:
    """A module's text, and where in it syntax nodes are."""

    def __init__(self, data: bytes) -> None:
        self.data = data
        self._starts = [0, *itertools.accumulate(len(line) for line in data.splitlines(keepends=True))]

    def start(self, node: Any) -> int:  # Any: most nodes have a place, their base class has none
        return self._starts[node.lineno - 1] + node.col_offset

    def end(self, node: Any) -> int:
        return self._starts[node.end_lineno - 1] + node.end_col_offset

    def replace(self, node: Any, text: str) -> Edit:
        """Replace a whole node, whose lines stay."""
        return Edit(self.start(node), self.end(node), text + "\n" * (node.end_lineno - node.lineno))

    def after(self, edit: Edit) -> bytes:
        return self.data[: edit.start] + edit.text.encode() + self.data[edit.end :]


def operators(source: Source, node: ast.AST) -> Iterator[Edit]:
    """Yield what can be done to what stands between two values."""
    match node:
        case ast.Compare(left=left, ops=between, comparators=others):
            sides: list[Any] = [left, *others]
        case ast.BoolOp(op=operator, values=sides):
            between = [operator] * (len(sides) - 1)
        case ast.BinOp(left=left, op=operator, right=right) | ast.AugAssign(target=left, op=operator, value=right):
            sides, between = [left, right], [] if is_sequence(left) or is_sequence(right) else [operator]
        case _:
            return
    for (left, right), operator in zip(itertools.pairwise(sides), between, strict=False):
        old, new = _SWAPS.get(type(operator), ("", ""))
        at = source.data.find(old.encode(), source.end(left), source.start(right))
        if old and at >= 0:
            yield Edit(at, at + len(old), new)


def is_sequence(node: ast.AST) -> bool:
    return isinstance(node, _SEQUENCES) or (isinstance(node, ast.Constant) and isinstance(node.value, str | bytes))


def words(source: Source, node: ast.AST) -> Iterator[Edit]:
    """Yield what can be done to a keyword or a name."""
    match node:
        case ast.Call(func=ast.Name(id=name) as called) if name in _WORDS:
            yield source.replace(called, _WORDS[name])
        case ast.Attribute(attr=name) if name in {"startswith", "endswith"}:
            yield Edit(source.end(node) - len(name), source.end(node), _WORDS[name])
        case ast.UnaryOp(op=ast.Not()):
            start = source.start(node)
            yield Edit(start, start + len(re.match(rb"not[ \t]*", source.data[start:])[0]), "")
        case ast.Break():
            yield source.replace(node, "continue")
        case ast.Continue():
            yield source.replace(node, "break")


def values(source: Source, node: ast.AST) -> Iterator[Edit]:
    """Yield what can be done to a constant, a slice, a returned value and a call for its own sake."""
    match node:
        case ast.Constant(value=bool(value)):
            yield source.replace(node, str(not value))
        case ast.Constant(value=int(value)):
            yield source.replace(node, str(value + 1))
        case ast.Slice(lower=lower, upper=upper):
            for bound in (lower, upper):
                if bound is not None and not isinstance(bound, ast.Constant | ast.UnaryOp):  # the others are numbers
                    start, end = source.start(bound), source.end(bound)
                    yield Edit(start, end, f"({source.data[start:end].decode()}) + 1")
        case ast.Return(value=ast.expr() as value):
            if not isinstance(value, ast.Constant) or value.value:
                yield source.replace(node, "return None")
        case ast.Expr(value=ast.Call()):
            yield source.replace(node, "pass")


def speaks(node: ast.AST) -> bool:
    """Say whether a node only tells people something, or does nothing when it runs."""
    match node:
        case ast.Raise() | ast.JoinedStr() | ast.Import() | ast.ImportFrom() | ast.FunctionDef(name="__repr__"):
            return True
        case ast.If(test=ast.Name(id=name) | ast.Attribute(attr=name)):
            return name == "TYPE_CHECKING"
        case ast.keyword(arg=name):
            return name in _KEYWORDS
        case ast.Assign(targets=[ast.Name(id=name)]):
            return name.strip("_").lower() in _SAID
        case ast.Call(
            func=ast.Attribute(value=ast.Name(id=name) | ast.Call(func=ast.Attribute(value=ast.Name(id=name))))
        ):
            return name.strip("_") in _LOGGERS
        case ast.Constant(value=str(text)):
            return " " in text
        case ast.Expr(value=ast.expr() as value) | ast.Return(value=ast.expr() as value):
            return speaks(value)
    return False


def nodes(node: ast.AST, function: str = "") -> Iterator[tuple[str, ast.AST]]:
    """Yield what may be changed, each with the function or class around it."""
    if speaks(node):
        return
    yield function, node
    if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef | ast.ClassDef):
        function = f"{function}.{node.name}".lstrip(".")
    for field, value in ast.iter_fields(node):
        for child in value if isinstance(value, list) else [value]:
            if isinstance(child, ast.AST) and field not in _UNTOUCHED:
                yield from nodes(child, function)


def mutants_of(source: Source, room: str, module: str) -> Iterator[Mutant]:
    """Yield every mutant of a module, sound or not."""
    for function, node in nodes(ast.parse(source.data)):
        for edit in (*operators(source, node), *words(source, node), *values(source, node)):
            first, last = (source.data.count(b"\n", 0, place) for place in (edit.start, edit.end))
            lines = (text.decode().split("\n")[first : last + 1] for text in (source.data, source.after(edit)))
            before, after = (" ".join(line.strip() for line in each).strip() for each in lines)
            yield Mutant(room, module, function, first + 1, before, after, edit)


def is_sound(source: Source, mutant: Mutant) -> bool:
    """Say whether a mutant compiles and is another program."""
    changed = source.after(mutant.edit)
    with suppress(SyntaxError):
        compile(changed, mutant.module, "exec", dont_inherit=True)
        return ast.dump(ast.parse(changed)) != ast.dump(ast.parse(source.data))
    return False


def sources_of(root: Path) -> dict[str, dict[str, Source]]:
    """Return each room's modules."""
    rooms: dict[str, dict[str, Source]] = {}
    for path in sorted((root / PACKAGE).rglob("*.py")):
        room, *inside = path.relative_to(root / PACKAGE).parts
        modules = rooms.setdefault(room if inside else PACKAGE, {})
        modules[path.relative_to(root).as_posix()] = Source(path.read_bytes())
    return rooms


def pick(root: Path, *, count: int, seed: int, room: str | None = None) -> list[Mutant]:
    """Return at least `count` mutants if there are as many, of every room (or of one) by its number of lines."""
    rooms = {name: modules for name, modules in sources_of(root).items() if room in (None, name)}
    lines = {name: sum(source.data.count(b"\n") for source in modules.values()) for name, modules in rooms.items()}
    orders = {name: shuffled(modules, name, random.Random(f"{seed} {name}")) for name, modules in rooms.items()}
    chosen: list[Mutant] = []
    for name, order in orders.items():
        chosen += itertools.islice(order, math.ceil(count * lines[name] / max(1, sum(lines.values()))))
    chosen += itertools.islice(itertools.chain(*orders.values()), max(0, count - len(chosen)))  # a room had too few
    random.Random(seed).shuffle(chosen)
    return chosen


def shuffled(modules: dict[str, Source], room: str, chance: random.Random) -> Iterator[Mutant]:
    """Yield a room's sound mutants in an order by chance: few a function, one a line."""
    candidates = [mutant for module, source in modules.items() for mutant in mutants_of(source, room, module)]
    chance.shuffle(candidates)
    taken: Counter[tuple[str, str | int]] = Counter()
    for mutant in candidates:
        function, line = (mutant.module, mutant.function), (mutant.module, mutant.line)
        if taken[function] < PER_FUNCTION and not taken[line] and is_sound(modules[mutant.module], mutant):
            taken.update((function, line))
            yield mutant


def copy_of(root: Path, folder: Path) -> Path:
    """Copy a checkout as it stands, without what git ignores."""
    listed = ["git", "ls-files", "-z", "--cached", "--others", "--exclude-standard"]
    for name in subprocess.run(listed, cwd=root, check=True, capture_output=True, text=True).stdout.split("\0"):
        if (root / name).is_file():
            (folder / name).parent.mkdir(parents=True, exist_ok=True)
            shutil.copy2(root / name, folder / name)
    where = [sys.executable, "-P", "-c", f"import {PACKAGE}; print({PACKAGE}.__file__)"]
    found = subprocess.run(where, cwd="/", env=environment(folder), check=True, capture_output=True, text=True).stdout
    if not Path(found).resolve().is_relative_to(folder.resolve()):
        sys.exit(f"tests would not see the mutants: Python finds {found.strip()} before {folder}")
    return folder


def environment(copy: Path) -> dict[str, str]:
    """Return what makes a copy's package come first; its coverage is nobody's business."""
    kept = {name: value for name, value in os.environ.items() if not name.startswith("COVERAGE_PROCESS")}
    return kept | {"PYTHONPATH": str(copy)}


@contextmanager
def applied(copy: Path, mutant: Mutant, number: int) -> Iterator[None]:
    """Have the copy mutated for a while; no two mutants have one time, by which Python knows stale bytecode."""
    path = copy / mutant.module
    original, times = path.read_bytes(), path.stat()
    path.write_bytes(Source(original).after(mutant.edit))
    os.utime(path, (times.st_atime, int(times.st_mtime) + number))
    try:
        yield
    finally:
        path.write_bytes(original)
        os.utime(path, ns=(times.st_atime_ns, times.st_mtime_ns))


def failing(copy: Path, tests: Sequence[str], timeout: float | None = None) -> str | None:
    """Run tests and return the first that fails, or what pytest ends with; None if all pass.

    Raises subprocess.TimeoutExpired.
    """
    token = uuid.uuid4().hex
    options = ["-x", "-q", "-p", "no:cacheprovider", "--color=no", f"--basetemp={copy.parent / 'tmp'}"]
    command = [sys.executable, "-m", "pytest", *tests, *options]
    with tempfile.TemporaryFile("w+", errors="replace") as output:  # a pipe would stay open as long as a stray child
        process = subprocess.Popen(
            command, cwd=copy, env=environment(copy) | {_MARK: token}, start_new_session=True,
            stdin=subprocess.DEVNULL, stdout=output, stderr=subprocess.STDOUT,
        )  # fmt: skip
        try:
            code = process.wait(timeout)
        finally:
            end_all(token)
            process.wait()
        output.seek(0)
        text = output.read()
    if code in (0, 5):  # 5: there are no tests
        return None
    named = re.search(r"^(?:FAILED|ERROR) (.+?)(?: - |$)", text, re.MULTILINE)
    return named[1] if named else (text.strip().splitlines() or [f"pytest ended with {code}"])[-1]


def end_all(token: str) -> None:
    """End what a run has left, whichever session it is in."""
    for process in psutil.process_iter():
        with suppress(psutil.Error):
            if process.environ().get(_MARK) == token:
                process.kill()


def tests_of(copy: Path, room: str, module: str) -> tuple[list[str], list[str]]:
    """Return the tests of a module by name, and where all of its room's are."""
    top, name = copy / "tests", f"test_{Path(module).stem.strip('_')}.py"
    if room == PACKAGE:
        here = sorted(top.glob("test_*.py"))
        own = [path for path in here if path.name == name]
    else:
        here = [top / room] if (top / room).is_dir() else []
        own = sorted((top / room).rglob(name))
    return [str(path.relative_to(copy)) for path in own], [str(path.relative_to(copy)) for path in here]


def users_of(copy: Path, module: str) -> list[str]:
    """Return the tests of any room that import a module, or are named after a module that does."""
    dotted = module.removesuffix(".py").removesuffix("/__init__").replace("/", ".")
    parent, _, stem = dotted.rpartition(".")
    word = re.compile(rf"\b{re.escape(dotted)}\b|\bfrom {re.escape(parent)} import [^\n]*\b{stem}\b")
    importers = [path.stem for path in (copy / PACKAGE).rglob("*.py") if word.search(path.read_text())]
    names = {f"test_{name.strip('_')}.py" for name in importers}
    paths = sorted((copy / "tests").rglob("test_*.py"))
    return [str(path.relative_to(copy)) for path in paths if path.name in names or word.search(path.read_text())]


def without(tests: Sequence[str]) -> list[str]:
    return [f"--ignore={path}" for path in tests]


class Judge:
    """Runs tests with mutants, and keeps in the results file what comes of it."""

    def __init__(self, copy: Path, results: Path, *, whole: bool) -> None:
        self.copy, self.results, self.whole = copy, results, whole
        self.usual = {record["unmutated"]: record["seconds"] for record in records(results) if "unmutated" in record}

    def keep(self, record: dict[str, Any]) -> None:
        with self.results.open("a") as file:
            file.write(json.dumps(record, ensure_ascii=False) + "\n")

    def patience(self, name: str, tests: Sequence[str]) -> float:
        """Return the seconds that tests may take, having seen once that they pass without a mutant."""
        if name not in self.usual:
            started = time.monotonic()
            if broken := failing(self.copy, tests):
                sys.exit(f"without any mutant the tests ({name}) fail, so they can judge none: {broken}")
            self.usual[name] = round(time.monotonic() - started, 1)
            self.keep({"unmutated": name, "seconds": self.usual[name]})
        return TIMES * self.usual[name] + MORE

    def phases(self, mutant: Mutant) -> Iterator[tuple[str, list[str], float]]:
        """Yield whose tests to run, which, and for how long at most."""
        own, room = tests_of(self.copy, mutant.room, mutant.module)
        if own:
            yield "room", own, self.patience(mutant.room, room)
        if others := [path for path in room if path not in own]:
            yield "room", [*others, *without(own)], self.patience(mutant.room, room)
        if self.whole:
            workers = ["-n", "2", "--dist", "loadfile"]
            patience = self.patience(ALL, ["tests", *workers])
            near = [
                path for path in users_of(self.copy, mutant.module) if not any(map(Path(path).is_relative_to, room))
            ]
            if near:
                yield "users", [*near, *workers], patience
            yield "rest", ["tests", *workers, *without([*room, *near])], patience

    def judge(self, mutant: Mutant, number: int, *, past_room: bool = False) -> str:
        """Return the verdict on a mutant, and keep it; past its room's tests if they have missed it before."""
        verdict, test, seconds = MISSED if self.whole else MISSED_BY_ROOM, None, 0.0
        for whose, tests, patience in self.phases(mutant):
            if past_room and whose == "room":
                continue
            started = time.monotonic()
            with applied(self.copy, mutant, number):
                try:
                    test, by = failing(self.copy, tests, patience), whose
                except subprocess.TimeoutExpired:
                    test, by = " ".join(tests), "timeout"
            seconds += time.monotonic() - started
            if test:
                verdict = FOUND + by
                break
        self.keep({**mutant.facts(), "verdict": verdict, "test": test, "seconds": round(seconds, 1)})
        return verdict


def records(results: Path) -> list[dict[str, Any]]:
    return [json.loads(line) for line in results.read_text().splitlines()] if results.exists() else []


def verdicts(results: Path) -> dict[tuple[Any, ...], dict[str, Any]]:
    """Return the last record of each mutant."""
    return {key(record): record for record in records(results) if "verdict" in record}


def key(facts: dict[str, Any]) -> tuple[Any, ...]:
    return tuple(facts[name] for name in ("module", "line", "before", "after"))


def report(judged: Sequence[dict[str, Any]]) -> str:
    """Return a table of the rooms, and the mutants that were missed."""
    total = Counter(record["room"] for record in judged)
    found = Counter(record["room"] for record in judged if record["verdict"].startswith(FOUND))
    rows = [(room, found[room], total[room]) for room in sorted(total)]
    text = f"{'room':<14}found  total\n"
    for room, some, every in [*rows, ("together", found.total(), total.total())]:
        text += f"{room:<14}{some:>5}  {every:>5}  {some / max(1, every):>4.0%}\n"
    for record in judged:
        if not record["verdict"].startswith(FOUND):
            text += f"\n{record['verdict']}: {record['module']}:{record['line']} {record['function']}\n"
            text += f"    {record['before']}\n  → {record['after']}\n"
    return text


def main(arguments: Sequence[str] | None = None) -> None:
    """Judge the mutants that were not judged before, and print the report."""
    parser = argparse.ArgumentParser(description="Break the package at one place after the other: do the tests notice?")
    parser.add_argument("--count", type=int, default=60, help="how many mutants, at least")
    parser.add_argument("--seed", type=int, default=1, help="the same seed picks the same mutants")
    parser.add_argument("--results", type=Path, default=Path("mutants.jsonl"), help="the file of all verdicts")
    parser.add_argument("--room", choices=sorted(sources_of(ROOT)), help="only of this folder of the package")
    parser.add_argument("--only-room-tests", action="store_true", help="leave out the tests of the other rooms")
    parser.add_argument("--report", action="store_true", help="only print what the results file says")
    options = parser.parse_args(arguments)
    if not options.report:
        with tempfile.TemporaryDirectory(prefix="mutants-", ignore_cleanup_errors=True) as folder:
            copy = copy_of(ROOT, Path(folder, "checkout"))
            judge = Judge(copy, options.results.absolute(), whole=not options.only_room_tests)
            chosen = pick(copy, count=options.count, seed=options.seed, room=options.room)
            for number, mutant in enumerate(chosen, 1):
                before = verdicts(options.results).get(key(mutant.facts()))
                if before and not (judge.whole and before["verdict"] == MISSED_BY_ROOM):
                    continue
                verdict = judge.judge(mutant, number, past_room=before is not None)
                print(f"{number}/{len(chosen)} {verdict}: {mutant.module}:{mutant.line} {mutant.after}", flush=True)
    print(report(list(verdicts(options.results).values())), end="")


if __name__ == "__main__":
    main()
