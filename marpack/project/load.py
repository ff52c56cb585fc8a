"""A project's small files → values with their lines; marpack.yaml → Project, with all its problems at once."""

import types
from enum import Enum
from pathlib import Path
from typing import Annotated, Any, TypeVar, Union, get_args, get_origin

import msgspec
from msgspec import NODEFAULT, Struct

from marpack import finding_codes as codes
from marpack.archive.protocol import quoted
from marpack.errors import NoProjectError, ProjectError, convert_os_errors, did_you_mean, refuse_unusable_paths
from marpack.findings import Code, Finding
from marpack.inspection.yaml_document import MAX_BYTES, YamlFault, read_yaml
from marpack.project.schema import FILE_NAME, Project, ProjectFile
from marpack.torchserve.metrics import MODEL_METRICS, SERVER_METRICS, Declared, MetricTypes, Section, handlers_metric

S = TypeVar("S", bound=Struct)

_WORDS = {str: "text", bool: "true or false", int: "a number", float: "a number", list: "a list", dict: "a mapping"}
_WRONG = object()  # no value: the problem is reported already
_METRICS = "it needs model_metrics, with lists of name, unit and dimensions under counter, gauge or histogram"


class Document(Struct, frozen=True, kw_only=True):
    """One document's values; keys of `lines` and `texts` are dotted paths such as `files[0].from`."""

    file: str
    value: Any  # Any: plain YAML values
    lines: dict[str, int]  # counted from 1
    texts: dict[str, str]  # scalars as they are written: 1.10 stays 1.10

    def place(self, key: str = "") -> str:
        """Return the place of a key, as `path:line: key`."""
        line = self.lines.get(key)
        return self.file + (f":{line}" if line else "") + (f": {key}" if key else "")


def read_text_file(path: Path, *, limit: int = MAX_BYTES) -> str:
    """Return a small file's text; raises ProjectError if it cannot be read, is too large, or is not UTF-8."""
    with convert_os_errors(ProjectError, "it cannot be read", where=str(path)), path.open("rb") as file:
        data = file.read(limit + 1)
    if len(data) > limit:
        raise ProjectError(f"it is larger than {limit // 1024} KiB", where=str(path))
    try:
        text = data.decode("utf-8-sig")
    except UnicodeDecodeError:
        text = "\0"
    if "\0" in text:
        what = "this is not a text file in UTF-8"
        raise ProjectError(what, where=str(path), hint="save it as UTF-8 text", code="not-utf8")
    return text


def read_document(path: Path) -> Document:
    """Read one YAML file with the safe loader.

    Raises ProjectError if it cannot be read, is not YAML, repeats a key, or is too deep or too large.
    """
    return parse_document(read_text_file(path), file=str(path))


def parse_document(text: str, *, file: str, as_text: bool = False) -> Document:
    """Parse one YAML document; see `read_document`.

    Args:
        text: The document.
        file: Its path, for messages.
        as_text: Whether every scalar stays the text it is written as: `no` is a label, not false.
    """
    read = read_yaml(text, as_text=as_text)
    for key in read.duplicates:
        message = f"the key {key.name} is there twice, first on line {key.first}"
        raise ProjectError(message, where=f"{file}:{key.line}", hint="keep one of them")
    problem = read.problem
    if problem is None:
        return Document(file=file, value=read.value, lines=read.lines, texts=read.texts)
    where = f"{file}:{problem.line}" if problem.line else file
    if problem.fault is YamlFault.EXCESS:
        raise ProjectError(f"the document is too large to expand: {problem.reason}", where=where)
    if problem.fault is YamlFault.VALUE:
        raise ProjectError(f"this is not a plain YAML value: {problem.reason}", where=where)
    hint = problem.hint or "correct this line, or the one before it"
    rest = text.splitlines()[problem.seen - 1 :] if problem.seen else []
    if rest and rest[0].lstrip(" ").startswith("\t"):
        where, hint = f"{file}:{problem.seen}", "indent with spaces: YAML does not allow tabs"
    what = f"this is not valid YAML: {problem.reason} {problem.context}".rstrip()
    raise ProjectError(what, where=where, hint=hint, code="invalid-yaml")


class SchemaReader:
    """Converts one document to structs, and collects its problems in `findings`."""

    def __init__(self, document: Document) -> None:
        self.document = document
        self.findings: list[Finding] = []

    def struct(self, kind: type[S], value: dict[Any, Any], path: str = "") -> S:
        """Return a mapping as a struct; its problems are in `findings`."""
        fields = {field.encode_name: field for field in msgspec.structs.fields(kind)}
        found: dict[str, Any] = {}  # Any: each field has its own type
        for key, item in value.items():
            inner = f"{path}.{key}" if path else str(key)
            if key in fields:
                found[fields[key].name] = self.value(fields[key].type, item, inner)
            else:
                hint = did_you_mean(str(key).lower(), list(fields)) or f"known keys: {', '.join(fields)}"
                self._report(codes.UNKNOWN_KEY, f"there is no key {key}", inner, hint)
        for key, field in fields.items():
            if key not in value and field.default is NODEFAULT and field.default_factory is NODEFAULT:
                self._report(codes.MISSING_KEY, f"{key} is missing", path, f"add a line '{key}: …'")
                found[field.name] = _WRONG
        return kind(**found)

    def value(self, wanted: Any, value: Any, path: str) -> Any:  # Any: a type's form, and plain YAML values
        """Return a value as the type requires it, or the mark of a wrong one."""
        options = _options(wanted)
        if value is None and Any not in options:
            self._report(codes.EMPTY_KEY, f"{path} is empty", path, "give it a value, or remove the line")
            return _WRONG
        for option in options:
            if isinstance(value, dict) and _is_struct(option):
                return self.struct(option, value, path)
            if isinstance(value, list) and get_origin(option) is list:
                inner = get_args(option)[0]
                return [self.value(inner, item, f"{path}[{index}]") for index, item in enumerate(value)]
            if isinstance(value, dict) and get_origin(option) is dict:
                inner = get_args(option)[1]
                return {key: self.value(inner, item, f"{path}.{key}") for key, item in value.items()}
            found = self._scalar(option, value, path)
            if found is not _WRONG:
                return found
        expected = " or ".join(dict.fromkeys(map(_describe_type, options)))
        actual = quoted(value) if isinstance(value, str) else _WORDS.get(type(value), "something else")
        hint = did_you_mean(value, [each for o in options for each in _choices(o)]) if isinstance(value, str) else None
        self._report(codes.WRONG_TYPE, f"{path} must be {expected}, not {actual}", path, hint)
        return _WRONG

    def _scalar(self, option: Any, value: Any, path: str) -> Any:  # Any: see value
        if option is Any:
            return value
        if option is str and not isinstance(value, list | dict):
            text = self.document.texts.get(path, str(value))  # as it is written: version 1.10 is not 1.1
            return _WRONG if "\0" in text else text
        if isinstance(option, type) and issubclass(option, Enum):
            return next((member for member in option if member.value == value), _WRONG)
        plain = get_origin(option) or option
        return value if isinstance(plain, type) and type(value) is plain else _WRONG

    def _report(self, code: Code, message: str, path: str, hint: str | None) -> None:
        where = self.document.place(path)
        self.findings.append(code.at(where, hint=hint, message=message))

    def raise_findings(self) -> None:
        """Raise ProjectError with the problems found so far, if there are any."""
        if self.findings:
            count = f"{len(self.findings)} problems" if len(self.findings) > 1 else "a problem"
            raise ProjectError(f"{self.document.file} has {count}", findings=tuple(self.findings))


def _options(wanted: Any) -> tuple[Any, ...]:  # Any: a type's form
    """Return the alternatives of a type, without Annotated, None and UNSET."""
    if get_origin(wanted) is Annotated:
        return _options(get_args(wanted)[0])
    if get_origin(wanted) in {Union, types.UnionType}:
        return tuple(option for part in get_args(wanted) if part is not type(None) for option in _options(part))
    return (wanted,)


def _is_struct(option: Any) -> bool:  # Any: a type's form
    return isinstance(option, type) and issubclass(option, Struct)


def _choices(option: Any) -> list[str]:  # Any: a type's form
    return [str(member.value) for member in option] if isinstance(option, type) and issubclass(option, Enum) else []


def _describe_type(option: Any) -> str:  # Any: a type's form
    if _is_struct(option):
        return f"a mapping of {', '.join(field.encode_name for field in msgspec.structs.fields(option))}"
    return " or ".join(_choices(option)) or _WORDS.get(get_origin(option) or option, "something else")


@refuse_unusable_paths()
def load_project(folder: Path) -> Project:
    """Read the project in a folder.

    Args:
        folder: The folder of marpack.yaml, or that file itself.

    Raises NoProjectError if there is none, ProjectError with a finding for each of its problems.
    """
    file = folder / FILE_NAME if folder.is_dir() else folder
    if file.name != FILE_NAME or not file.is_file():
        raise _no_project(folder, file)
    document = read_document(file)
    if not isinstance(document.value, dict):
        actual = "is empty" if document.value is None else "is not a mapping of keys to values"
        hint = "it needs at least name, version and handler, each as 'key: value'"
        raise ProjectError(f"the project file {actual}", where=str(file), hint=hint, code="not-a-mapping")
    reader = SchemaReader(document)
    found = reader.struct(ProjectFile, document.value)
    reader.raise_findings()
    values = msgspec.structs.asdict(found)
    return Project(**values, folder=file.parent, file=str(file), lines=document.lines)


def _no_project(folder: Path, file: Path) -> NoProjectError:
    where = str(folder)
    if not folder.exists():
        return NoProjectError("the folder does not exist", where=where, code="source-not-found")
    if not folder.is_dir():
        return NoProjectError(
            f"this is not a project: a project is a folder with a {FILE_NAME}, or that file", where=where
        )
    if file.exists():
        return NoProjectError(f"{FILE_NAME} is not a file", where=str(file))
    other = next((name for name in ("marpack.yml", "Marpack.yaml", "marpack.json") if (folder / name).is_file()), None)
    hint = f"rename {other} to {FILE_NAME}" if other else "run marpack init; or use torch-model-archiver's flags"
    return NoProjectError(f"there is no {FILE_NAME} in this folder", where=where, hint=hint)


class _Metric(Struct, frozen=True):
    """One metric of the server's `metrics_config`."""

    name: str
    unit: str
    dimensions: list[str]


class _MetricsByType(Struct, frozen=True):
    """Metrics by their type; the server has no others."""

    counter: list[_Metric] = []
    gauge: list[_Metric] = []
    histogram: list[_Metric] = []


def checked_metrics_config(file: Path) -> str:
    """Return the full path of a metrics file that the server's workers start with; they read model_metrics only.

    Raises ProjectError if it cannot be read, or with a finding for each of its problems.
    """
    _read_metrics(file, Section.MODELS)
    return str(file.resolve())


def declared_metrics(file: Path | None) -> tuple[Declared, ...]:
    """Return the metrics that a metrics file declares, or those of a stock server.

    Without ts_metrics in the file the server keeps its own; of a name that is declared twice the later counts. Raises
    ProjectError as `checked_metrics_config` does, also for ts_metrics.
    """
    if file is None:
        return SERVER_METRICS + MODEL_METRICS
    found = _read_metrics(file, Section.MODELS, Section.SERVER)
    declared = list(() if Section.SERVER in found else SERVER_METRICS)
    for section in (Section.SERVER, Section.MODELS):
        for kind, metrics in msgspec.structs.asdict(found.get(section, _MetricsByType())).items():
            for each in metrics:
                labels = tuple(each.dimensions)
                if section is Section.MODELS:
                    declared.append(handlers_metric(MetricTypes(kind), each.name, each.unit, labels))
                else:
                    row = Declared(
                        section=section, kind=MetricTypes(kind), name=each.name, unit=each.unit, labels=labels
                    )
                    declared.append(row)
    return tuple({(metric.section, metric.name): metric for metric in declared}.values())


def _read_metrics(file: Path, *sections: Section) -> dict[Section, _MetricsByType]:
    """Return the metrics of some sections of a metrics file; a section that is missing is left out."""
    if not file.is_file():
        what, hint = "the metrics file does not exist", "name the YAML file of the server's metrics_config"
        raise ProjectError(what, where=str(file), hint=hint, code="metrics-file-not-found")
    document = read_document(file)
    models = document.value.get(Section.MODELS) if isinstance(document.value, dict) else None
    if not isinstance(models, dict) or not models:
        what = "the file declares no model_metrics"
        raise ProjectError(what, where=str(file), hint=_METRICS, code="no-model-metrics")
    reader, found = SchemaReader(document), dict[Section, _MetricsByType]()
    for section in sections:
        value = document.value.get(section)
        if isinstance(value, dict):
            # The server skips a type without metrics, a worker does not.
            types = {kind: each for kind, each in value.items() if section is Section.MODELS or each is not None}
            value = {kind: _known_keys(metrics) for kind, metrics in types.items()}
        if value is not None:
            found[section] = reader.value(_MetricsByType, value, section)
    reader.raise_findings()
    return found


def _known_keys(metrics: Any) -> Any:  # Any: plain YAML values
    """Return metrics without the keys that a worker does not read; the frontend only logs them."""
    if not isinstance(metrics, list):
        return metrics
    return [
        {key: metric[key] for key in metric if key in _Metric.__struct_fields__} if isinstance(metric, dict) else metric
        for metric in metrics
    ]
