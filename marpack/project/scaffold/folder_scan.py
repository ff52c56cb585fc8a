"""What a folder already holds of a project: weights by their content, handlers by their syntax tree; nothing is run."""

import ast
import os
import re
from collections.abc import Iterable, Iterator
from pathlib import Path, PurePosixPath

from msgspec import Struct

from marpack.findings import Finding, Severity
from marpack.inspection.lint.bindings import count
from marpack.inspection.lint.classes import Library, LocalClass
from marpack.inspection.lint.entry_point import EntryDecision, EntryKind, HandlerFile, answers, decide
from marpack.inspection.lint.files import Files, Found, Located, Module
from marpack.inspection.lint.model_config import FRONTEND_KEYS, WORKER_KEYS
from marpack.inspection.lint.model_loading import check_keys_of_state, loader_of
from marpack.inspection.lint.source import Broken, own_nodes, parse, texts_in, walk
from marpack.project.label_files import SUFFIXES as LABEL_SUFFIXES
from marpack.project.label_files import count_labels
from marpack.project.members import EntryPoint
from marpack.project.planning import local_modules
from marpack.project.schema import FILE_NAME
from marpack.torchserve.labels import LABELS_NAME
from marpack.torchserve.stock import HandlerName
from marpack.weights.contents import WeightsSummary, read_contents, recognize
from marpack.weights.kind import WeightsFormat

VOCABULARY = "source_vocab.pt"
REQUIREMENTS = "requirements.txt"
_PICTURES = (".png", ".jpg", ".jpeg", ".webp", ".bmp")
_DEEPEST = 2  # folders below the project's
_MAX_COUNT = 2000  # files looked at
_TEXTS = (".py", ".txt", ".md", ".json", ".yaml", ".yml", ".csv", ".toml", ".cfg", ".ipynb", ".html")
_NOT_WEIGHTS = frozenset({*_TEXTS, *_PICTURES, ".mar", ".gz"})
_NOT_OURS = frozenset({"__pycache__", "node_modules", "site-packages", "MAR-INF", "tests"})
_NOT_HANDLERS = re.compile(r"(test_.*|.*_test|conftest|setup|train)\.py")
_HANDLER = re.compile(r"(?i)([^/]*_)?handler\.py")
_LABELS = re.compile(r"(?i)index_to_name|label|class|categor|synset")
_NO_LABELS = re.compile(r"(?i)(requirements|constraints|readme|license|cmakelists)([-_.].*)?\.txt")
_CONFIG = re.compile(r"(?i)model[-_]?config")
_KEYS = re.compile(r"(?m)^([\w-]+):")  # at a YAML document's top
_MANIFEST_KEYS = {"apiVersion", "kind"}  # of what is Kubernetes's
# Models of other libraries: by their suffix, or where that tells nothing, by what they begin with or hold early.
_PICKLES = {".pkl", ".pickle", ".joblib", ".dill"}
_FOREIGN = _PICKLES | {".bst", ".ubj", ".xgb", ".lgb", ".cbm", ".gguf", ".h5", ".hdf5", ".keras", ".tflite", ".pb"}
_BOOSTER = re.compile(rb'\s*\{.{0,200}"learner"|tree\r?\nversion=', re.DOTALL)
_INPUTS = re.compile(r"(?i)(samples?|inputs?|examples?|requests?|test)([-_.\d].*)?")
_INPUT_SUFFIXES = (*_PICTURES, ".json", ".txt")
_DATA = _FOREIGN | {".json", ".txt", ".csv", ".npy", ".vocab", ".model"}


class Weights(Struct, frozen=True, kw_only=True):
    """One weights file."""

    name: str
    size: int  # bytes
    contents: WeightsSummary

    @property
    def kind(self) -> WeightsFormat:
        """What it is, by its content."""
        return self.contents.kind


class LabelsFile(Struct, frozen=True, kw_only=True):
    """One file that reads as labels."""

    name: str
    count: int
    named: bool  # its name says that it is one


class Survey(Struct, frozen=True, kw_only=True):
    """The parts of a project, each by its path below the folder, the likeliest first."""

    weights: tuple[Weights, ...] = ()
    foreign: tuple[Weights, ...] = ()  # models that only a handler of their own can load
    handlers: tuple[str, ...] = ()  # file.py, or file.py:function
    model_files: tuple[str, ...] = ()
    labels: tuple[LabelsFile, ...] = ()
    configs: tuple[str, ...] = ()
    requirements: str | None = None
    vocabulary: str | None = None
    pictures: tuple[str, ...] = ()
    inputs: tuple[str, ...] = ()  # what lies there to be sent, by its place or name
    data: tuple[str, ...] = ()  # what else a handler may read
    names: frozenset[str] = frozenset()  # every file that was looked at


def survey(folder: Path) -> Survey:
    """Look over a folder, if there is one, two levels deep, past other projects, environments and hidden files."""
    names = sorted(_files(folder), key=lambda name: (name.count("/"), name))[:_MAX_COUNT]
    code = [name for name in names if name.endswith(".py") and not _NOT_HANDLERS.fullmatch(Path(name).name)]
    weights = tuple(_weights(folder, names))
    return Survey(
        weights=weights,
        foreign=tuple(_foreign(folder, names, {each.name for each in weights})),
        handlers=tuple(_handlers(folder, code)) or tuple(filter(_is_called_handler, code)),
        model_files=tuple(name for name in code if _models(folder / name) == 1),
        labels=tuple(_labels(folder, names)),
        configs=tuple(sorted((name for name in names if _is_config(folder / name)), key=lambda name: not _named(name))),
        requirements=REQUIREMENTS if REQUIREMENTS in names else None,
        vocabulary=next((name for name in names if Path(name).name == VOCABULARY), None),
        pictures=tuple(name for name in names if name.lower().endswith(_PICTURES)),
        inputs=tuple(name for name in names if _is_input(name)),
        data=tuple(name for name in names if _is_data(name)),
        names=frozenset(names),
    )


def read_weights(path: Path, name: str) -> Weights | None:
    """Return what a weights file is and holds, from its headers; None for one that is none or cannot be read."""
    try:
        with path.open("rb") as file:
            contents = read_contents(file, recognize(file))
            size = os.fstat(file.fileno()).st_size
    except OSError:
        return None
    return None if contents.kind is WeightsFormat.UNKNOWN else Weights(name=name, size=size, contents=contents)


def _files(folder: Path) -> Iterator[str]:
    for here, folders, files in os.walk(folder):
        inner = Path(here).relative_to(folder)
        folders[:] = [] if len(inner.parts) == _DEEPEST else [name for name in folders if _is_ours(Path(here, name))]
        yield from ((inner / name).as_posix() for name in files if not name.startswith("."))


def _is_ours(folder: Path) -> bool:
    hidden = folder.name.startswith(".") or folder.name in _NOT_OURS
    return not hidden and not any((folder / name).exists() for name in ("pyvenv.cfg", FILE_NAME))


def _weights(folder: Path, names: list[str]) -> Iterator[Weights]:
    candidates = (name for name in names if Path(name).suffix.lower() not in _NOT_WEIGHTS)
    found = (read_weights(folder / name, name) for name in candidates if Path(name).name != VOCABULARY)
    yield from sorted((each for each in found if each), key=lambda each: (each.name.count("/"), *_rank(each)))


def _foreign(folder: Path, names: list[str], known: set[str]) -> Iterator[Weights]:
    """Yield the models that marpack cannot look into, those with plainer names first."""
    for name in sorted(names, key=lambda name: (name.count("/"), "model" not in name.lower())):
        suffix = Path(name).suffix.lower()
        if name not in known and (suffix in _FOREIGN or (suffix in {".json", ".txt"} and _is_booster(folder / name))):
            yield foreign_weights(folder / name, name)


def foreign_weights(path: Path, name: str) -> Weights:
    """Return a file as weights, of a format that is the handler's business."""
    return Weights(name=name, size=path.stat().st_size, contents=WeightsSummary(kind=WeightsFormat.UNKNOWN))


def _is_booster(path: Path) -> bool:
    try:
        with path.open("rb") as file:
            return _BOOSTER.match(file.read(256)) is not None
    except OSError:
        return False


def _rank(weights: Weights) -> tuple[int, int]:
    """Put what the server loads first, and of these the largest."""
    order = (WeightsFormat.TORCHSCRIPT, WeightsFormat.ONNX, WeightsFormat.STATE_DICT, WeightsFormat.SAFETENSORS)
    return order.index(weights.kind) if weights.kind in order else len(order), -weights.size


def _handlers(folder: Path, code: list[str]) -> Iterator[str]:
    by_folder: dict[str, Files] = {}  # each finds what lies beside it before what lies at the project's root
    for name in code:
        here = name[: name.rfind("/") + 1]
        if here not in by_folder:
            by_folder[here] = Files(code, lambda member: (folder / member).open("rb"), (here, ""))
        yield from _entries(by_folder[here], name)


def _entries(files: Files, name: str) -> Iterator[str]:
    """Yield the ways into a file, as marpack.yaml names them."""
    module = files.module(Located(Path(name).stem, Found.SOURCE, name))
    if not isinstance(module, Module):
        return
    if _is_handler(module, Library(files)):
        yield name
        return
    functions = [node for node in module.tree.body if isinstance(node, ast.FunctionDef)]
    yield from (f"{name}:{function.name}" for function in functions if _takes_batch(function))


def _is_handler(module: Module, library: Library) -> bool:
    """Tell whether the server finds an entry in a file, or would, were its one handler the only class."""
    try:
        classes = [LocalClass(module, node) for _, node in count(module.scope).certain]
        is_function = decide(HandlerFile(module=module), library).kind is EntryKind.FUNCTION
        return is_function or sum(answers(library, cls) for cls in classes) == 1
    except RecursionError:
        return False


def _is_called_handler(name: str) -> bool:
    """Tell whether a file at the root is somebody's handler by its name, though nothing in it can be told for one."""
    return _HANDLER.fullmatch(name) is not None


def _takes_batch(function: ast.FunctionDef) -> bool:
    """Tell whether a function takes a batch and a context."""
    return [argument.arg for argument in function.args.args][1:] in (["context"], ["ctx"])


def _models(file: Path) -> int:
    """Return how many classes of nn.Module a file defines: a model file has one."""
    tree = parse(file.read_bytes())
    if isinstance(tree, Broken):
        return 0
    classes = [node for node in tree.body if isinstance(node, ast.ClassDef)]
    return sum(any(ast.unparse(base).rpartition(".")[2] == "Module" for base in node.bases) for node in classes)


def model_files_for(folder: Path, found: Survey, weights: Weights) -> tuple[str, ...]:
    """Return the files with one nn.Module that could be the class of a state_dict, by its keys; else all of them."""
    files = Files(found.names, lambda member: (folder / member).open("rb"))
    library = Library(files)
    keys = [placed.tensor.name for placed in weights.contents.tensors]
    modules = {name: files.module(Located(Path(name).stem, Found.SOURCE, name)) for name in found.model_files}
    fitting = (
        name
        for name, module in modules.items()
        if isinstance(module, Module) and not any(check_keys_of_state(library, module, keys, name))
    )
    return tuple(fitting) or found.model_files


def _labels(folder: Path, names: list[str]) -> Iterator[LabelsFile]:
    for name in names:
        path = folder / name
        if path.suffix.lower() not in LABEL_SUFFIXES or path.name == FILE_NAME or _is_config(path):
            continue
        if _NO_LABELS.fullmatch(path.name):
            continue
        count = count_labels(path)
        if count:
            yield LabelsFile(name=name, count=count, named=path.name == LABELS_NAME or bool(_LABELS.search(path.stem)))


def _named(name: str) -> bool:
    """Tell whether a YAML file's name says that it is a model config."""
    return _CONFIG.search(Path(name).stem) is not None


def _is_config(file: Path) -> bool:
    """Tell a model config by its name, by a key of the frontend's, or by keys that are all the worker's."""
    if file.suffix not in {".yaml", ".yml"} or file.name == FILE_NAME or not file.is_file():
        return False
    try:
        keys = set(_KEYS.findall(file.read_text("utf-8")[:65536]))
    except (OSError, UnicodeDecodeError):
        return False
    if keys >= _MANIFEST_KEYS:
        return False
    return _named(file.name) or bool(keys & FRONTEND_KEYS) or (bool(keys) and keys <= WORKER_KEYS)


def _is_input(name: str) -> bool:
    """Tell whether a picture, a JSON or a text file lies among inputs, or is called one."""
    *folders, base = Path(name).parts
    alike = any(_INPUTS.fullmatch(folder) for folder in folders) or (not folders and _INPUTS.fullmatch(base))
    return bool(alike) and base.lower().endswith(_INPUT_SUFFIXES) and not _LABELS.search(base)


def _is_data(name: str) -> bool:
    """Tell whether a handler may need a file to answer, and not only to be sent it."""
    base = Path(name).name
    return Path(base).suffix.lower() in _DATA and not _NO_LABELS.fullmatch(base) and not _is_input(name)


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
