"""How big the house is, and how far one walks in it: size, imports, broad excepts, and the calls of whole commands.

From the repository's root: python -m tools.house [--journeys] [--list] [--json] [--hold]

- A module is a .py file that is no `__init__`; lines are physical lines, those of `__init__` among them. A function's
  are those from its `def` on, without its docstring. Untyped: a parameter but self and cls, or the return, unannotated.
- `from package import submodule` ties to the submodule, any other import to the file it names. `circles` are of what
  runs when a module is imported, `circles_in_all` of imports in functions and under TYPE_CHECKING, too.
- Importers are counted over all of these, and over strings that name a module, as "package.module" or
  "package.module:name", in tables of what is imported by name.
- An except swallows if it neither raises nor uses the error it caught.
- A journey is a command's own calls and its worker's, summed: `calls` of named functions and of class bodies (a
  generator's every resumption is one; module bodies, comprehensions, generator expressions and lambdas are none),
  `modules` in which they land, and `hops`, those that land in another file than the call before them in that process.
  Archives are kept in a cache that the first run finds empty. A further input is a tenth of the difference between
  twelve and two, and the modules that are entered at least once more for each. How often a parent looks after its
  worker is a matter of time: what is told of runs varies by a tenth, of `build` and `inspect` it does not.
"""

import argparse
import ast
import inspect
import json
import os
import shutil
import statistics
import subprocess
import sys
import tempfile
from collections import Counter
from collections.abc import Collection, Iterable, Iterator, Mapping
from importlib.util import resolve_name
from itertools import pairwise
from pathlib import Path
from typing import Any, NamedTuple

ROOT = Path(__file__).resolve().parents[1]
PACKAGE = ROOT / "marpack"
LONG_MODULE, LONG_FUNCTION = 600, 60  # lines
# The most that each figure may be, of a journey's as "journey.figure".
BOUNDS = {
    "modules": 342,
    "lines": 57_300,
    "long_modules": 0,
    "long_functions": 0,
    "untyped_functions": 0,
    "circles": 0,
    "circles_in_all": 0,
    "one_importer": 70,
    "further_input.modules": 24,
    "inspect.hops": 2300,
}
# One importer is all that these need: they are chosen by name, or started. Below the package; with all that is in them.
CHOSEN = (
    *("gate.checks", "loaders", "weights", "worker.loaders"),
    *("exporting.docker", "exporting.kserve", "exporting.ray_serve", "exporting.sagemaker"),
)
STARTED = "__main__"
BRIEF = {"one_importer", "broad_excepts", "swallows"}  # whose names are printed only when asked for
EXAMPLE, ARCHIVE, SAMPLES = "examples/digits", "digits.mar", "samples"
FEW, MANY = 2, 12  # inputs, which tell what a further one takes
# journey → its command, and how many samples it is given, in the order in which they are run
COMMANDS = {
    "build": (("build",), 0),
    "run": (("run", ARCHIVE, "--input"), 1),
    "few": (("run", ARCHIVE, "--input"), FEW),
    "many": (("run", ARCHIVE, "--input"), MANY),
    "inspect": (("inspect", ARCHIVE), 0),
    "check_samples": (("check", ARCHIVE, "--only", "samples"), 0),
}
OPTIONS = {
    "journeys": "run the commands, which takes half a minute, and tell what they walk through",
    "list": "print the names behind all figures",
    "json": "print JSON: of a figure with names, the list of them",
    "hold": "exit 1 with a sentence for each bound that is broken",
}

Figures = dict[str, Any]  # Any: a number, or the list of what it counts
Function = ast.FunctionDef | ast.AsyncFunctionDef


class Module(NamedTuple):
    """One file of the package."""

    name: str  # dotted
    path: Path
    text: str
    tree: ast.Module

    @property
    def is_init(self) -> bool:
        return self.path.name == "__init__.py"

    @property
    def package(self) -> str:
        return self.name if self.is_init else self.name.rpartition(".")[0]

    @property
    def lines(self) -> int:
        return len(self.text.splitlines())

    def place(self, node: ast.stmt | ast.excepthandler) -> str:
        return f"{self.path}:{node.lineno}"


class Walk(NamedTuple):
    """The calls of one command."""

    entered: Counter[str]  # files, with the calls that land in each
    hops: int


def read(package: Path) -> dict[str, Module]:
    """Return every file of a package by its dotted name."""
    modules = {}
    for path in sorted(package.rglob("*.py")):
        inside = path.relative_to(package.parent)
        name = ".".join(inside.with_suffix("").parts).removesuffix(".__init__")
        text = path.read_text()
        modules[name] = Module(name, inside, text, ast.parse(text))
    return modules


def measure(package: Path) -> Figures:
    """Return all that can be told without running anything."""
    modules = read(package)
    return size(modules.values()) | ties(modules, package.name) | excepts(modules.values())


def size(modules: Collection[Module]) -> Figures:
    """Return how much there is, and what of it is too long or untyped."""
    nodes = [(module, node) for module in modules for node in ast.walk(module.tree) if isinstance(node, Function)]
    functions = [(f"{module.place(node)} {node.name}", node) for module, node in nodes]
    return {
        "modules": sum(not module.is_init for module in modules),
        "lines": sum(module.lines for module in modules),
        "median_lines": statistics.median(module.lines for module in modules if not module.is_init),
        "long_modules": [f"{each.path} ({each.lines})" for each in modules if each.lines > LONG_MODULE],
        "long_functions": [f"{place} ({length(node)})" for place, node in functions if length(node) > LONG_FUNCTION],
        "untyped_functions": [place for place, node in functions if is_untyped(node)],
    }


def length(function: Function) -> int:
    documented = ast.get_docstring(function, clean=False) is not None
    first, last, text = function.lineno, function.end_lineno or 0, function.body[0]
    return last - first + 1 - documented * ((text.end_lineno or 0) - text.lineno + 1)


def is_untyped(function: Function) -> bool:
    given = function.args
    parameters = [*given.posonlyargs, *given.args, *given.kwonlyargs, given.vararg, given.kwarg]
    named = [each for each in parameters if each is not None and each.arg not in {"self", "cls"}]
    return function.returns is None or any(each.annotation is None for each in named)


def ties(modules: Mapping[str, Module], package: str) -> Figures:
    """Return where imports go in circles, and what only one module asks for."""
    eager: dict[str, set[str]] = {name: set() for name in modules}
    every: dict[str, set[str]] = {name: set() for name in modules}
    importers: dict[str, set[str]] = {name: set() for name in modules}
    for name, module in modules.items():
        for target, at_once in imported(module, modules):
            every[name].add(target)
            if at_once:
                eager[name].add(target)
        for target in (every[name] | named_in_strings(module, modules)) - {name}:
            importers[target].add(name)
    return {
        "circles": circles(eager),
        "circles_in_all": circles(every),
        "one_importer": [
            f"{name} (by {min(importers[name])})"
            for name, module in modules.items()
            if len(importers[name]) == 1 and not module.is_init and not is_chosen(name.removeprefix(f"{package}."))
        ],
    }


def imported(module: Module, modules: Collection[str]) -> Iterator[tuple[str, bool]]:
    """Yield each of the package's modules that one imports, with whether it does so when it is imported itself."""
    for node, at_once in imports(module.tree):
        if isinstance(node, ast.Import):
            targets = [alias.name for alias in node.names]
        else:
            source = resolve_name("." * node.level + (node.module or ""), module.package)
            submodules = [f"{source}.{alias.name}" for alias in node.names]
            targets = [each if each in modules else source for each in submodules]
        yield from ((target, at_once) for target in targets if target in modules and target != module.name)


def imports(node: ast.AST, *, at_once: bool = True) -> Iterator[tuple[ast.Import | ast.ImportFrom, bool]]:
    if isinstance(node, ast.Import | ast.ImportFrom):
        yield node, at_once
    typing = isinstance(node, ast.If) and ast.unparse(node.test) in {"TYPE_CHECKING", "typing.TYPE_CHECKING"}
    later = node.body if isinstance(node, Function) or (isinstance(node, ast.If) and typing) else ()
    for child in ast.iter_child_nodes(node):
        yield from imports(child, at_once=at_once and child not in later)


def named_in_strings(module: Module, modules: Collection[str]) -> set[str]:
    constants = [node.value for node in ast.walk(module.tree) if isinstance(node, ast.Constant)]
    return {each.partition(":")[0] for each in constants if isinstance(each, str)} & set(modules)


def circles(graph: Mapping[str, set[str]]) -> list[str]:
    """Return the strongly connected components of more than one module, each as the names in it."""
    reached = {name: reach(graph, name) for name in graph}
    found = {frozenset(each for each in reached[name] if name in reached[each]) for name in graph}
    return sorted(" ".join(sorted(circle)) for circle in found if circle)


def reach(graph: Mapping[str, set[str]], start: str) -> set[str]:
    seen: set[str] = set()
    ahead = list(graph[start])
    while ahead:
        name = ahead.pop()
        if name not in seen:
            seen.add(name)
            ahead += graph[name]
    return seen


def is_chosen(name: str) -> bool:
    return name.rpartition(".")[2] == STARTED or f"{name}.".startswith(tuple(f"{each}." for each in CHOSEN))


def excepts(modules: Collection[Module]) -> Figures:
    """Return where everything is caught, where it is also forgotten, and how many `Any` are accounted for."""
    nodes = [(module, node) for module in modules for node in ast.walk(module.tree)]
    handlers = [(module.place(node), node) for module, node in nodes if isinstance(node, ast.ExceptHandler)]
    return {
        "broad_excepts": [place for place, handler in handlers if is_broad(handler)],
        "swallows": [place for place, handler in handlers if is_broad(handler) and swallows(handler)],
        "any_comments": sum(module.text.count("# Any:") for module in modules),
    }


def is_broad(handler: ast.ExceptHandler) -> bool:
    if handler.type is None:
        return True
    caught = handler.type.elts if isinstance(handler.type, ast.Tuple) else [handler.type]
    return any(ast.unparse(each) in {"Exception", "BaseException"} for each in caught)


def swallows(handler: ast.ExceptHandler) -> bool:
    inside = [node for statement in handler.body for node in ast.walk(statement)]
    used = {node.id for node in inside if isinstance(node, ast.Name)}
    return handler.name not in used and not any(isinstance(node, ast.Raise) for node in inside)


def journeys(package: Path) -> dict[str, Figures]:
    """Run every command in a copy of the example, and return what each of them walked through."""
    with tempfile.TemporaryDirectory() as home:
        ignored = shutil.ignore_patterns("*.mar", "__pycache__")
        project = Path(shutil.copytree(package.parent / EXAMPLE, Path(home, "project"), ignore=ignored))
        samples = [f"{SAMPLES}/{path.name}" for path in sorted((project / SAMPLES).iterdir())]
        walks = {
            name: walk(package, ("-m", package.name, *command, *samples[:count]), project)
            for name, (command, count) in COMMANDS.items()
        }
    few, many = walks.pop("few"), walks.pop("many")
    figures = {name: told(each.entered, each.entered.total(), each.hops) for name, each in walks.items()}
    more = many.entered - few.entered
    steady = [path for path, count in more.items() if count >= MANY - FEW]
    calls = many.entered.total() - few.entered.total()
    return figures | {"further_input": told(steady, calls / (MANY - FEW), (many.hops - few.hops) / (MANY - FEW))}


def told(entered: Iterable[str], calls: float, hops: float) -> Figures:
    return {"modules": sorted(entered), "calls": round(calls), "hops": round(hops)}


def walk(package: Path, arguments: Iterable[str], folder: Path) -> Walk:
    """Run Python in a folder and return the calls in a package, its children's among them."""
    with tempfile.TemporaryDirectory() as hook:
        logs = Path(hook, "logs")
        logs.mkdir()
        # Which every Python runs when it starts, a worker's too: -P leaves PYTHONPATH alone.
        start = f"{inspect.getsource(trace)}\n\ntrace({f'{package}{os.sep}'!r}, {str(logs)!r})\n"
        Path(hook, "sitecustomize.py").write_text(start)
        environment = os.environ | {
            "PYTHONPATH": f"{hook}{os.pathsep}{package.parent}",
            "MARPACK_CACHE_DIR": str(folder.parent / "cache"),
            "OMP_NUM_THREADS": "1",  # answers that wait for a core are waited for in more calls
        }
        command = [sys.executable, "-P", *arguments]
        done = subprocess.run(command, cwd=folder, env=environment, capture_output=True, text=True, check=False)
        if done.returncode:
            sys.exit(f"{' '.join(command)} ended with exit code {done.returncode}:\n{done.stdout}{done.stderr}")
        processes = [log.read_text().splitlines() for log in logs.iterdir()]
    hops = sum(before != after for calls in processes for before, after in pairwise(calls))
    return Walk(Counter(path for calls in processes for path in calls), hops)


def trace(package: str, logs: str) -> None:
    """Write the file of each call in a package to a file of this process's: nothing is lost, however it ends."""
    # Its source is what a traced process runs: it can use nothing of this module.
    import os
    import sys
    import threading
    from types import FrameType

    log = os.open(f"{logs}/{os.getpid()}", os.O_CREAT | os.O_WRONLY | os.O_APPEND)

    def note(frame: FrameType, event: str, _: object) -> None:
        code = frame.f_code
        if event == "call" and code.co_filename.startswith(package) and not code.co_name.startswith("<"):
            os.write(log, f"{code.co_filename.removeprefix(package)}\n".encode())

    threading.setprofile(note)
    sys.setprofile(note)


def number(figure: Any) -> float:
    return len(figure) if isinstance(figure, list) else figure


def broken(figures: Figures) -> Iterator[str]:
    """Yield a sentence for each bound that the figures break."""
    walked = figures.get("journeys", {})
    flat = figures | {f"{name}.{key}": value for name, each in walked.items() for key, value in each.items()}
    for name, bound in BOUNDS.items():
        if name in flat and number(flat[name]) > bound:
            yield f"{label(name)}: {number(flat[name]):,}, where at most {bound:,} may be."


def label(name: str) -> str:
    return name.replace("_", " ").replace(".", ", ")


def show(figures: Figures, *, everything: bool) -> None:
    """Print the figures, one a line, and below each what it counts."""
    walked = figures.get("journeys", {})
    for name, figure in figures.items():
        if name != "journeys":
            print(f"{label(name):<20}{number(figure):>8,}")
        if isinstance(figure, list) and (everything or name not in BRIEF):
            print(*(f"    {each}" for each in figure), sep="\n", end="\n" if figure else "")
    if walked:
        print(f"\n{'journey':<20}{'modules':>8}{'calls':>8}{'hops':>8}")
    for name, each in walked.items():
        print(f"{label(name):<20}" + "".join(f"{number(figure):>8,}" for figure in each.values()))
        if everything:
            print(*(f"    {path}" for path in each["modules"]), sep="\n")


def main(arguments: list[str] | None = None) -> int:
    """Measure a package; return the exit code."""
    parser = argparse.ArgumentParser(prog="python -m tools.house", description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("package", nargs="?", type=Path, default=PACKAGE, help="its folder [marpack]")
    for option, meaning in OPTIONS.items():
        parser.add_argument(f"--{option}", action="store_true", help=meaning)
    options = parser.parse_args(arguments)
    package = options.package.resolve()
    figures = measure(package)
    if options.journeys:
        figures["journeys"] = journeys(package)
    if options.json:
        print(json.dumps(figures, indent=2))
    else:
        show(figures, everything=options.list)
    faults = list(broken(figures)) if options.hold else []
    print(*faults, sep="\n", end="\n" if faults else "", file=sys.stderr)
    return 1 if faults else 0


if __name__ == "__main__":
    sys.exit(main())
