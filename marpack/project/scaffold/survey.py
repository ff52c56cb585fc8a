"""What a folder already holds of a project: weights by their content, handlers by their syntax tree; nothing is run."""

import ast
import os
import re
from collections.abc import Iterator
from pathlib import Path

from msgspec import Struct

from marpack.inspection.lint.bindings import count
from marpack.inspection.lint.classes import Library, LocalClass
from marpack.inspection.lint.entry_point import EntryKind, HandlerFile, answers, decide
from marpack.inspection.lint.files import Files, Found, Located, Module
from marpack.inspection.syntax import Broken, parse
from marpack.project.label_files import SUFFIXES as LABEL_SUFFIXES
from marpack.project.label_files import count_labels
from marpack.project.schema import FILE_NAME
from marpack.torchserve.labels import LABELS_NAME
from marpack.weights.contents import WeightsSummary, read_contents
from marpack.weights.detect import recognize
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
_LABELS = re.compile(r"(?i)index_to_name|label|class|categor|synset")
_SERVER_KEYS = re.compile(
    r"(?m)^(minWorkers|maxWorkers|batchSize|maxBatchDelay|responseTimeout|deviceType|handler|pt2):"
)


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
    handlers: tuple[str, ...] = ()  # file.py, or file.py:function
    model_files: tuple[str, ...] = ()
    labels: tuple[LabelsFile, ...] = ()
    configs: tuple[str, ...] = ()
    requirements: str | None = None
    vocabulary: str | None = None
    pictures: tuple[str, ...] = ()
    names: frozenset[str] = frozenset()  # every file that was looked at


def survey(folder: Path) -> Survey:
    """Look over a folder, if there is one, two levels deep, past other projects, environments and hidden files."""
    names = sorted(_files(folder), key=lambda name: (name.count("/"), name))[:_MAX_COUNT]
    code = [name for name in names if name.endswith(".py") and not _NOT_HANDLERS.fullmatch(Path(name).name)]
    return Survey(
        weights=tuple(_weights(folder, names)),
        handlers=tuple(_handlers(folder, code)),
        model_files=tuple(name for name in code if _models(folder / name) == 1),
        labels=tuple(_labels(folder, names)),
        configs=tuple(name for name in names if _is_config(folder / name)),
        requirements=REQUIREMENTS if REQUIREMENTS in names else None,
        vocabulary=next((name for name in names if Path(name).name == VOCABULARY), None),
        pictures=tuple(name for name in names if name.lower().endswith(_PICTURES)),
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


def _labels(folder: Path, names: list[str]) -> Iterator[LabelsFile]:
    for name in names:
        path = folder / name
        if path.suffix.lower() not in LABEL_SUFFIXES or path.name in {REQUIREMENTS, FILE_NAME} or _is_config(path):
            continue
        count = count_labels(path)
        if count:
            yield LabelsFile(name=name, count=count, named=path.name == LABELS_NAME or bool(_LABELS.search(path.stem)))


def _is_config(file: Path) -> bool:
    if file.suffix not in {".yaml", ".yml"} or file.name == FILE_NAME or not file.is_file():
        return False
    try:
        return bool(_SERVER_KEYS.search(file.read_text("utf-8")[:65536]))
    except (OSError, UnicodeDecodeError):
        return False
