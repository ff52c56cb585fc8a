"""The parts of a project in a folder: weights by their content, handlers by their syntax tree; nothing is run."""

import ast
import os
import re
from collections.abc import Iterable, Iterator
from contextlib import suppress
from pathlib import Path, PurePosixPath

from msgspec import Struct

from marpack.inspection.lint.config import FRONTEND_KEYS, WORKER_KEYS
from marpack.inspection.lint.handler import Classes, LocalClass, find_loader, own_classes, read_entry
from marpack.inspection.lint.source import Files, Found, Located, Module, parse, texts_in, walk
from marpack.inspection.lint.weights import check_state_keys
from marpack.project.load import LABEL_SUFFIXES, count_labels
from marpack.project.members import EntryPoint, local_modules
from marpack.project.schema import FILE_NAME
from marpack.torchserve.labels import LABELS_NAME
from marpack.torchserve.server_modules import HandlerName
from marpack.weights.contents import read_contents, recognize
from marpack.weights.hugging_face import CONFIG_FILE, SETTINGS, find_weights
from marpack.weights.kind import WeightsFormat
from marpack.weights.tensors import WeightsSummary

VOCABULARY = "source_vocab.pt"
REQUIREMENTS = "requirements.txt"
_PICTURES = (".png", ".jpg", ".jpeg", ".webp", ".bmp")
_MAX_DEPTH = 2  # folders below the project's
_MAX_COUNT = 2000  # files
_TEXTS = (".py", ".txt", ".md", ".json", ".yaml", ".yml", ".csv", ".toml", ".cfg", ".ipynb", ".html")
_NOT_WEIGHTS = frozenset({*_TEXTS, *_PICTURES, ".mar", ".gz"})
_SKIPPED = frozenset({"__pycache__", "node_modules", "site-packages", "MAR-INF", "tests"})
_NOT_HANDLERS = re.compile(r"(test_.*|.*_test|conftest|setup|train)\.py")
_HANDLER = re.compile(r"(?i)([^/]*_)?handler\.py")
_LABELS = re.compile(r"(?i)index_to_name|label|class|categor|synset")
_NO_LABELS = re.compile(r"(?i)(requirements|constraints|readme|license|cmakelists)([-_.].*)?\.txt")
_CONFIG = re.compile(r"(?i)model[-_]?config[^/]*")
_KEYS = re.compile(r"(?m)^([\w-]+):")  # at a YAML document's top
# Models of other libraries: by their suffix, or by their first bytes where the suffix is a common one.
_PICKLES = {".pkl", ".pickle", ".joblib", ".dill"}
_FOREIGN = _PICKLES | {".bst", ".ubj", ".xgb", ".lgb", ".cbm", ".gguf", ".h5", ".hdf5", ".keras", ".tflite", ".pb"}
_BOOSTER = re.compile(rb'\s*\{.{0,200}"learner"|tree\r?\nversion=', re.DOTALL)
_INPUTS = re.compile(r"(?i)(samples?|inputs?|examples?|requests?|test)([-_.\d].*)?")
_INPUT_SUFFIXES = (*_PICTURES, ".json", ".txt")
_DATA = _FOREIGN | {".json", ".txt", ".csv", ".npy", ".vocab", ".model"}
_LOADERS = frozenset({"from_pretrained", "pipeline"})  # of transformers
_ENDPOINT = "EndpointHandler"  # the class that Hugging Face's Inference Endpoints call
ENDPOINT_FILE = "endpoint_handler.py"  # the template of a handler that calls it
_PREFERRED = (WeightsFormat.TORCHSCRIPT, WeightsFormat.ONNX, WeightsFormat.STATE_DICT, WeightsFormat.SAFETENSORS)


class Weights(Struct, frozen=True, kw_only=True):
    """One weights file."""

    name: str
    size: int  # bytes
    contents: WeightsSummary

    @property
    def kind(self) -> WeightsFormat:
        """The format, by the file's content."""
        return self.contents.kind


class LabelsFile(Struct, frozen=True, kw_only=True):
    """One file whose content can be labels."""

    name: str
    count: int
    named: bool  # its name is one for labels


class FolderScan(Struct, frozen=True, kw_only=True):
    """The parts of a project, each by its path below the folder, the likeliest first."""

    weights: tuple[Weights, ...] = ()
    foreign: tuple[Weights, ...] = ()  # models that only the author's handler can load
    handlers: tuple[str, ...] = ()  # file.py, or file.py:function
    model_files: tuple[str, ...] = ()
    labels: tuple[LabelsFile, ...] = ()
    configs: tuple[str, ...] = ()
    requirements: str | None = None
    vocabulary: str | None = None
    pictures: tuple[str, ...] = ()
    inputs: tuple[str, ...] = ()  # request bodies, by their folder or name
    data: tuple[str, ...] = ()  # other files that a handler may read
    names: frozenset[str] = frozenset()  # every file of the scan


def scan_folder(folder: Path) -> FolderScan:
    """Scan a folder, if it exists, two levels deep, without other projects, environments and hidden files."""
    names = sorted(_list_files(folder), key=lambda name: (name.count("/"), name))[:_MAX_COUNT]
    code = [name for name in names if name.endswith(".py") and not _NOT_HANDLERS.fullmatch(Path(name).name)]
    vocabularies = [name for name in names if Path(name).name == VOCABULARY]
    readable = (name for name in names if Path(name).suffix.lower() not in _NOT_WEIGHTS and name not in vocabularies)
    found = (read_weights(folder / name, name) for name in readable)
    weights = [each for each in found if each and each.kind is not WeightsFormat.UNKNOWN]
    # First the formats that the server loads, and of these the largest.
    order = {kind: number for number, kind in enumerate(_PREFERRED)}
    weights.sort(key=lambda each: (each.name.count("/"), order.get(each.kind, len(order)), -each.size))
    known = {each.name for each in weights}
    others = [name for name in names if name not in known and _is_foreign(folder / name)]
    others.sort(key=lambda name: (name.count("/"), "model" not in name.lower()))
    configs = [name for name in names if _is_config(folder / name)]
    labels = [
        LabelsFile(name=name, count=count, named=bool(_LABELS.search(Path(name).stem)))
        for name in names
        if name.lower().endswith(LABEL_SUFFIXES) and name not in configs and not _NO_LABELS.fullmatch(Path(name).name)
        if (count := count_labels(folder / name))
    ]
    data = (name for name in names if Path(name).suffix.lower() in _DATA and not _NO_LABELS.fullmatch(Path(name).name))
    return FolderScan(
        weights=tuple(weights),
        foreign=tuple(each for name in others if (each := read_weights(folder / name, name))),
        handlers=tuple(_list_handlers(folder, code)) or tuple(filter(_HANDLER.fullmatch, code)),
        model_files=tuple(name for name in code if _defines_one_module(folder / name)),
        labels=tuple(labels),
        configs=tuple(sorted(configs, key=lambda name: not _CONFIG.search(Path(name).stem))),
        requirements=REQUIREMENTS if REQUIREMENTS in names else None,
        vocabulary=next(iter(vocabularies), None),
        pictures=tuple(name for name in names if name.lower().endswith(_PICTURES)),
        inputs=tuple(filter(_is_input, names)),
        data=tuple(name for name in data if not _is_input(name)),
        names=frozenset(names),
    )


def _list_files(folder: Path) -> Iterator[str]:
    for here, folders, files in os.walk(folder):
        inner = Path(here).relative_to(folder)
        folders[:] = [
            name
            for name in folders
            if len(inner.parts) < _MAX_DEPTH and not name.startswith(".") and name not in _SKIPPED
            if not any(Path(here, name, mark).exists() for mark in ("pyvenv.cfg", FILE_NAME))
        ]
        visible = (name for name in files if not name.startswith(".") and Path(here, name).is_file())
        yield from ((inner / name).as_posix() for name in visible)


def read_weights(path: Path, name: str) -> Weights | None:
    """Return a file as weights, with its headers if its format is known; None if it cannot be read."""
    with suppress(OSError), path.open("rb") as file:
        contents = read_contents(file, recognize(file))
        return Weights(name=name, size=os.fstat(file.fileno()).st_size, contents=contents)
    return None


def _is_foreign(path: Path) -> bool:
    """Return whether a file is a model of another library."""
    suffix = path.suffix.lower()
    if suffix not in {".json", ".txt"}:
        return suffix in _FOREIGN
    with suppress(OSError), path.open("rb") as file:
        return _BOOSTER.match(file.read(256)) is not None
    return False


def _module(files: Files, name: str) -> Module | None:
    found = files.module(Located(Path(name).stem, Found.SOURCE, name))
    return found if isinstance(found, Module) else None


def _files(folder: Path, names: Iterable[str], name: str) -> Files:
    """Return the files that a file can import: from its own folder, then from the project's root."""
    return Files(names, lambda member: (folder / member).open("rb"), (name[: name.rfind("/") + 1], ""))


def _list_handlers(folder: Path, code: list[str]) -> Iterator[str]:
    """Yield the entry points in Python files, as marpack.yaml names them.

    A file is one if the server finds an entry point in it, or would if its one handler were the only class.
    """
    for name in code:
        files = _files(folder, code, name)
        module, classes = _module(files, name), Classes(files)
        if module is None:
            continue
        with suppress(RecursionError):
            nodes = own_classes(module.scope).certain.values()
            is_function = read_entry(classes, module).is_function
            if is_function or sum(classes.has_handle(LocalClass(module, node)) for node in nodes) == 1:
                yield name
                continue
        for function in (node for node in module.tree.body if isinstance(node, ast.FunctionDef)):
            if [each.arg for each in function.args.args][1:] in (["context"], ["ctx"]):
                yield f"{name}:{function.name}"


def _defines_one_module(file: Path) -> bool:
    """Return whether a file defines exactly one class of nn.Module, as a model file does."""
    tree = parse(file.read_bytes())
    classes = (node for node in (tree.body if isinstance(tree, ast.Module) else ()) if isinstance(node, ast.ClassDef))
    return sum(any(ast.unparse(base).rpartition(".")[2] == "Module" for base in node.bases) for node in classes) == 1


def model_files_for(folder: Path, found: FolderScan, weights: Weights) -> tuple[str, ...]:
    """Return the files with one nn.Module that fit the keys of a state_dict; otherwise all of them."""
    files = _files(folder, found.names, "")
    keys = [placed.tensor.name for placed in weights.contents.tensors]
    modules = ((name, _module(files, name)) for name in found.model_files)
    fitting = (
        name for name, module in modules if module and not any(check_state_keys(Classes(files), module, keys, name))
    )
    return tuple(fitting) or found.model_files


def _is_config(file: Path) -> bool:
    """Return whether a file is a model config: by its name, a key of the frontend's, or only keys of the worker's."""
    if file.suffix not in {".yaml", ".yml"} or file.name == FILE_NAME or not file.is_file():
        return False
    try:
        keys = set(_KEYS.findall(file.read_text("utf-8")[:65536]))
    except (OSError, UnicodeDecodeError):
        return False
    return bool(_CONFIG.search(file.stem) or keys & FRONTEND_KEYS or (keys and keys <= WORKER_KEYS))


def _is_input(name: str) -> bool:
    """Return whether a picture, a JSON or a text file is in a folder of inputs, or has a name for one."""
    *folders, base = Path(name).parts
    is_named = any(map(_INPUTS.fullmatch, folders)) or (not folders and _INPUTS.fullmatch(base))
    return bool(is_named) and base.lower().endswith(_INPUT_SUFFIXES) and not _LABELS.search(base)


class OwnHandler(Struct, frozen=True, kw_only=True):
    """An author's handler, by its source and that of the modules that it imports."""

    entry: str  # file.py or file.py:function, below the project's folder
    file: str
    loads: bool  # it loads its model itself; otherwise BaseHandler does
    asked: dict[str, str]  # a file, or a folder with "/", that the source names → its name in the archive
    imported: frozenset[str]  # files that are packed because of its imports


def read_handler(folder: Path, names: Iterable[str], entry: str) -> OwnHandler:
    """Read the handler that `entry` names, and find the files of the folder that its source names."""
    file = EntryPoint.parse(entry, folder).file
    assert file is not None  # noqa: S101 - for the type checker: a built-in has no file
    modules = [path for _, path in local_modules(file, (file.parent, folder))]
    imported = frozenset(path.relative_to(folder).as_posix() for path in modules if path.is_relative_to(folder))
    texts, paths, loads_pretrained = set[str](), set[str](), False
    for path in (file, *modules):
        tree = parse(path.read_bytes()) if path.suffix == ".py" and path.is_file() else None
        if isinstance(tree, ast.Module):
            texts.update(part for text in texts_in(tree) for part in str(text.value).split("/") if part)
            paths.update(text.strip("/") for text in _path_texts(tree))
            loads_pretrained |= any(vars(node).get("attr", vars(node).get("id")) in _LOADERS for node in walk(tree))
    kept = {*imported, FILE_NAME, LABELS_NAME}  # marpack.yaml has keys for the last two
    likely = sorted(names, key=lambda name: (name.count("/"), name))
    others = [name for name in likely if name not in kept and not name.endswith(".py")]
    # A file is packed under the source's own name for it, and a folder if the source names none of its files.
    found: dict[str, str] = {}  # by its name in the archive
    for name in others:
        *folders, base = PurePosixPath(name).parts
        if base in texts and "." in base:
            found.setdefault(name if texts.issuperset(folders) else base, name)
    asked = {name: member for member, name in found.items()}
    for name in dict.fromkeys(str(PurePosixPath(name).parent) for name in others):
        if name in paths and not any(each.startswith(f"{name}/") for each in found.values()):
            asked[f"{name}/"] = f"{name}/"
    if loads_pretrained and CONFIG_FILE in names:
        weights = find_weights(others)
        asked |= {name: name for name in others if SETTINGS.fullmatch(name) or name in weights}
    handler = HandlerName.parse(entry)
    member = f"{handler.path.removesuffix('.py')}.py"
    files = _files(folder, {*names, member}, member)
    module, classes = _module(files, member), Classes(files)
    try:
        read = read_entry(classes, module, handler.function) if module else None
        loads = read is None or find_loader(read, classes).loads_itself
    except RecursionError:
        read, loads = None, True
    if module and member == "handler.py" and _ENDPOINT in module.scope.names and not (read and read.is_function):
        entry, loads, imported = ENDPOINT_FILE, True, imported | {member}
    return OwnHandler(entry=entry, file=handler.path, loads=loads, asked=asked, imported=imported)


def _path_texts(tree: ast.Module) -> Iterator[str]:
    """Yield the texts that are certainly part of a path: `here / "assets"`, `os.path.join(here, "assets")`."""
    for node in walk(tree):
        match node:
            case ast.BinOp(op=ast.Div(), right=ast.Constant(value=str() as text)):
                yield text
            case ast.Call(func=ast.Attribute(attr="join" | "joinpath"), args=arguments):
                yield from (
                    each.value for each in arguments if isinstance(each, ast.Constant) and isinstance(each.value, str)
                )
            case ast.JoinedStr(values=[*_, ast.FormattedValue(), ast.Constant(value=str() as text)]):
                yield text
