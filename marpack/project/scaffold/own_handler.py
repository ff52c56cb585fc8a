"""An author's own handler, read and never run: what of the folder its source asks for, and how it begins."""

import ast
from collections.abc import Iterable, Iterator
from pathlib import Path, PurePosixPath

from msgspec import Struct

from marpack.findings import Finding, Severity
from marpack.inspection.lint.classes import Library
from marpack.inspection.lint.entry_point import EntryDecision, HandlerFile, decide
from marpack.inspection.lint.files import Files, Found, Located, Module
from marpack.inspection.lint.model_loading import loader_of
from marpack.inspection.syntax import Broken, own_nodes, parse, texts_in, walk
from marpack.project.members import EntryPoint
from marpack.project.planning import local_modules
from marpack.project.scaffold.survey import Survey
from marpack.project.schema import FILE_NAME
from marpack.torchserve.labels import LABELS_NAME
from marpack.torchserve.stock import HandlerName

_JOINS = frozenset({"join", "joinpath"})
_SHOWN = 5  # names in one sentence
_KEPT = frozenset({FILE_NAME, LABELS_NAME})  # what marpack.yaml has keys for


class OwnHandler(Struct, frozen=True, kw_only=True):
    """What is known of an author's handler from its source, and that of the modules that it imports."""

    entry: str  # file.py or file.py:function, below the project's folder
    loads: bool = True  # it loads its model in its own way; else BaseHandler does
    asked: dict[str, str] = {}  # a file, or a folder with "/", that the source names → its name in the archive
    imported: frozenset[str] = frozenset()  # files that come along with its imports
    findings: tuple[Finding, ...] = ()

    @property
    def file(self) -> str:
        """The handler's file."""
        return HandlerName.parse(self.entry).path


def read_handler(folder: Path, names: Iterable[str], entry: str) -> OwnHandler:
    """Read the handler that `entry` names, held against the names of the files that the folder has."""
    file = EntryPoint.parse(entry, folder).file
    assert file is not None  # noqa: S101 - for the type checker: a built-in is nobody's own
    modules = [module.path for module in local_modules(file, (file.parent, folder))]
    trees = [tree for path in (file, *modules) if path.suffix == ".py" and (tree := _tree(path))]
    imported = frozenset(path.relative_to(folder).as_posix() for path in modules if path.is_relative_to(folder))
    decided, loads = _decided(folder, names, entry)
    texts, paths = _texts(trees), {text for tree in trees for text in _in_paths(tree)}
    likely = sorted(names, key=lambda name: (name.count("/"), name))
    others = [name for name in likely if name not in imported | _KEPT and not name.endswith(".py")]
    return OwnHandler(
        entry=entry,
        loads=loads,
        asked=dict(_asked(others, texts, paths)),
        imported=imported,
        findings=tuple(_at_load(decided)),
    )


def remarks(own: OwnHandler, found: Survey, packed: set[str], *, has_weights: bool) -> Iterator[Finding]:
    """Yield what speaks against a handler, what else could be one, and the files that its source left out."""
    yield from own.findings
    others = ", ".join(name for name in found.handlers if name != own.entry and name not in own.imported)
    if others:
        message = f"{own.entry} was taken for the handler; it could also be {others}"
        yield _remark("more-handlers", message, "--handler names another")
    if not has_weights and own.loads:
        message = f"no weights were found that {own.file} could load, so the archive has none, which the server allows"
        yield _remark("no-weights", message, "--weights names them, if there are any")
    elif not has_weights:
        message = f"{own.file} loads its model as BaseHandler does, and no weights were found that could be it"
        hint = "put them here and run: marpack init --force"
        yield _remark("no-weights", message, hint, Severity.WARNING)
    folders = tuple(name for name in own.asked if name.endswith("/"))
    left = [name for name in found.data if name not in packed | own.asked.keys() and not name.startswith(folders)]
    if left:
        more = f" and {len(left) - _SHOWN} more" if left[_SHOWN:] else ""
        message = f"left out, since {own.file} does not name them: {', '.join(left[:_SHOWN])}{more}"
        yield _remark("left-out", message, "what is needed all the same goes under `files:` in marpack.yaml")


def _remark(code: str, message: str, hint: str, severity: Severity = Severity.NOTE) -> Finding:
    return Finding(code=code, severity=severity, message=message, hint=hint)


def _tree(path: Path) -> ast.Module | None:
    try:
        parsed = parse(path.read_bytes())
    except OSError:
        return None
    return None if isinstance(parsed, Broken) else parsed


def _decided(folder: Path, names: Iterable[str], entry: str) -> tuple[EntryDecision, bool]:
    """Return what the server will call, and whether that loads its model in a way of its own."""
    name = HandlerName.parse(entry)
    member = f"{name.path.removesuffix('.py')}.py"
    here = member[: member.rfind("/") + 1]
    files = Files({*names, member}, lambda inner: (folder / inner).open("rb"), (here, ""))
    module = files.module(Located(name.module, Found.SOURCE, member))
    if not isinstance(module, Module):
        return EntryDecision(), True
    library = Library(files)
    try:
        decided = decide(HandlerFile(member=member, module=module, function=name.function), library)
        return decided, loader_of(decided, library).own_way
    except RecursionError:
        return EntryDecision(), True


def _texts(trees: list[ast.Module]) -> set[str]:
    """Return the parts of all texts, taken for paths."""
    return {part for tree in trees for text in texts_in(tree) for part in str(text.value).split("/") if part}


def _in_paths(tree: ast.Module) -> Iterator[str]:
    """Yield the texts that are certainly part of a path: `here / "assets"`, `os.path.join(here, "assets")`."""
    for node in walk(tree):
        match node:
            case ast.BinOp(op=ast.Div(), right=ast.Constant(value=str() as text)):
                yield text.strip("/")
            case ast.Call(func=ast.Attribute(attr=name), args=arguments) if name in _JOINS:
                yield from (part.strip("/") for item in arguments if (part := _text(item)))
            case ast.JoinedStr(values=[*_, ast.FormattedValue(), ast.Constant(value=str() as text)]):
                yield text.strip("/")


def _text(node: ast.AST) -> str | None:
    return node.value if isinstance(node, ast.Constant) and isinstance(node.value, str) else None


def _asked(names: list[str], texts: set[str], paths: set[str]) -> Iterator[tuple[str, str]]:
    """Yield the files that a source names, under its own name for each; and the folders of which it names no file."""
    found: dict[str, str] = {}  # by its name in the archive
    for name in names:
        *folders, base = PurePosixPath(name).parts
        if base in texts and "." in base:
            found.setdefault(name if texts.issuperset(folders) else base, name)
    yield from ((name, member) for member, name in found.items())
    for folder in dict.fromkeys(str(PurePosixPath(name).parent) for name in names):
        if folder in paths and not any(name.startswith(f"{folder}/") for name in found.values()):
            yield f"{folder}/", f"{folder}/"


def _at_load(decided: EntryDecision) -> Iterator[Finding]:
    """Yield where a handler that is a function goes through the rows of the call that has none (contract §2)."""
    function = decided.function
    if function is None or not function.node.args.args:
        return
    rows = function.node.args.args[0].arg
    nodes = list(own_nodes(function.node))
    lines = sorted(line for node in nodes for line in _lines_through(node, rows))
    if lines and not any(_may_spare(node, rows, lines[0]) for node in nodes):
        message = f"the server calls {decided.name} with {rows}=None to load the model, and this line needs rows"
        hint = f"load the model and return where `{rows} is None`, before the rows are gone through"
        where = function.module.at(lines[0])
        yield Finding(code="rows-of-none", severity=Severity.WARNING, message=message, where=where, hint=hint)


def _lines_through(node: ast.AST, rows: str) -> Iterator[int]:
    """Yield the line of what goes through the rows, measures them or takes one."""
    match node:
        case ast.For(iter=ast.Name(id=name) as used) | ast.comprehension(iter=ast.Name(id=name) as used):
            pass
        case ast.Subscript(value=ast.Name(id=name) as used):
            pass
        case ast.Call(func=ast.Name(id="len" | "enumerate"), args=[ast.Name(id=name) as used]):
            pass
        case _:
            return
    if name == rows:
        yield used.lineno


def _may_spare(node: ast.AST, rows: str, line: int) -> bool:
    """Say whether the line may not be reached, or not end the call: rows are asked after, or it is left before."""
    if isinstance(node, ast.Try) or (isinstance(node, ast.Return | ast.Raise) and node.lineno < line):
        return True
    match node:
        case ast.Compare(left=asked) | ast.UnaryOp(op=ast.Not(), operand=asked) | ast.BoolOp(values=[asked, *_]):
            return isinstance(asked, ast.Name) and asked.id == rows
        case ast.If(test=asked) | ast.IfExp(test=asked):
            return isinstance(asked, ast.Name) and asked.id == rows
        case ast.Assign(targets=[ast.Name(id=name)]):
            return name == rows and node.lineno < line
    return False
