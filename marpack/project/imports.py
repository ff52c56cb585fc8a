"""The local modules that a Python file imports, found by reading its syntax tree; nothing is executed."""

import ast
import sys
from collections.abc import Iterable, Iterator
from pathlib import Path

from msgspec import Struct

from marpack.inspection.syntax import Broken, parse
from marpack.project.trees import tree

_BYTECODE = (".pyc", ".pyo")


class LocalModule(Struct, frozen=True):
    """One file that an import needs."""

    name: str  # inside the archive: where `import` will find it in the model folder
    path: Path


def local_modules(file: Path, roots: Iterable[Path]) -> Iterator[LocalModule]:
    """Yield the files beside a Python file that it imports, by itself or through them, in a fixed order.

    A package is taken whole, its data files included; of a folder without `__init__.py` only the modules named.

    Args:
        file: Where the imports stand; one that does not parse yields nothing.
        roots: The folders in which the author's Python finds local modules, the first one first.
    """
    folders = list(dict.fromkeys(roots))
    seen: set[Path] = {file}
    waiting = [file]
    while waiting:
        for dotted in _imported(waiting.pop(0)):
            for module in _resolve(dotted, folders):
                if module.path in seen:
                    continue
                seen.add(module.path)
                yield module
                if module.path.suffix == ".py":
                    waiting.append(module.path)


def _imported(file: Path) -> list[str]:
    """Return the dotted names that a file imports absolutely; `from a import b` may mean the module a.b too."""
    try:
        parsed = parse(file.read_bytes())
    except OSError:
        return []
    if isinstance(parsed, Broken):
        return []  # the preflight says what is wrong with it
    names: dict[str, None] = {}
    for node in ast.walk(parsed):
        if isinstance(node, ast.Import):
            names.update(dict.fromkeys(alias.name for alias in node.names))
        elif isinstance(node, ast.ImportFrom) and node.module and not node.level:
            names[node.module] = None
            names.update(dict.fromkeys(f"{node.module}.{alias.name}" for alias in node.names))
    return sorted(names)


def _resolve(dotted: str, roots: list[Path]) -> Iterator[LocalModule]:
    """Yield the local files that make up a module, or nothing when it is no local one."""
    top, *rest = dotted.split(".")
    if top in sys.stdlib_module_names:
        return
    for root in roots:
        package = root / top
        if (package / "__init__.py").is_file():
            yield from _package(package, top)
            return
        if (root / f"{top}.py").is_file():
            yield LocalModule(f"{top}.py", root / f"{top}.py")
            return
        if package.is_dir():
            found = list(_inside(package, top, rest))
            yield from found
            if found:
                return


def _inside(folder: Path, name: str, rest: list[str]) -> Iterator[LocalModule]:
    """Yield what a dotted name means below a folder that is no package itself."""
    if not rest:
        return
    head, *tail = rest
    if (folder / head / "__init__.py").is_file():
        yield from _package(folder / head, f"{name}/{head}")
    elif (folder / f"{head}.py").is_file():
        yield LocalModule(f"{name}/{head}.py", folder / f"{head}.py")
    elif (folder / head).is_dir():
        yield from _inside(folder / head, f"{name}/{head}", tail)


def _package(folder: Path, name: str) -> Iterator[LocalModule]:
    for inner, path in tree(folder):
        if path.suffix not in _BYTECODE:
            yield LocalModule(f"{name}/{inner}", path)
