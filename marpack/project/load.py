"""A project's YAML files → values that know their lines; marpack.yaml → Project, with every problem of it in one go."""

import types
from enum import Enum
from pathlib import Path
from typing import Annotated, Any, TypeVar, Union, get_args, get_origin

import msgspec
from msgspec import NODEFAULT, Struct

from marpack.archive.names import quoted
from marpack.errors import NoProjectError, ProjectError, did_you_mean, refuse_unusable_paths
from marpack.findings import Finding, Severity
from marpack.inspection.yaml_document import MAX_BYTES, YamlFault, YamlProblem, read_yaml
from marpack.project.schema import FILE_NAME, Project, ProjectFile
from marpack.torchserve.metrics import MODEL_METRICS, SERVER_METRICS, Declared, MetricTypes, Section, handlers_metric

S = TypeVar("S", bound=Struct)

_WORDS = {str: "text", bool: "true or false", int: "a number", float: "a number", list: "a list", dict: "a mapping"}
_WRONG = object()  # no value: the problem is reported already


class Document(Struct, frozen=True, kw_only=True):
    """One document's values; keys of `lines` and `texts` are dotted paths such as `files[0].from`."""

    file: str
    value: Any  # Any: whatever the author wrote
    lines: dict[str, int]  # counted from 1
    texts: dict[str, str]  # scalars as they are written: 1.10 stays 1.10

    def place(self, key: str = "") -> str:
        """Return where a key stands, as `path:line: key`."""
        line = self.lines.get(key)
        return self.file + (f":{line}" if line else "") + (f": {key}" if key else "")


def read_document(path: Path) -> Document:
    """Read one YAML file with the safe loader.

    Raises ProjectError if it cannot be read, is no YAML, repeats a key, or is too deep or too large.
    """
    return parse_document(_text_of(path), file=str(path))


def parse_document(text: str, *, file: str, as_text: bool = False) -> Document:
    """Parse one YAML document; see `read_document`.

    Args:
        text: The document.
        file: Its path, for messages.
        as_text: Whether every scalar stays the text it is written as: `no` is a label, not false.
    """
    read = read_yaml(text, as_text=as_text)
    if read.problem:
        raise _unreadable(read.problem, text, file)
    for key in read.duplicates:
        message = f"the key {key.name} is there twice, first on line {key.first}"
        raise ProjectError(message, where=f"{file}:{key.line}", hint="keep one of them")
    return Document(file=file, value=read.value, lines=read.lines, texts=read.texts)


def _unreadable(problem: YamlProblem, text: str, file: str) -> ProjectError:
    where = f"{file}:{problem.line}" if problem.line else file
    if problem.fault is YamlFault.EXCESS:
        return ProjectError(f"the document asks for too much: {problem.reason}", where=where)
    if problem.fault is YamlFault.VALUE:
        return ProjectError(f"this is no plain YAML value: {problem.reason}", where=where)
    hint = problem.hint or "mend this line, or the one before it"
    rest = text.splitlines()[problem.seen - 1 :] if problem.seen else []
    if rest and rest[0].lstrip(" ").startswith("\t"):
        where, hint = f"{file}:{problem.seen}", "indent with spaces: YAML takes no tabs"
    return ProjectError(
        f"this is not valid YAML: {problem.reason} {problem.context}".rstrip(),
        where=where,
        hint=hint,
        code="invalid-yaml",
    )


def _text_of(path: Path) -> str:
    try:
        with path.open("rb") as file:
            data = file.read(MAX_BYTES + 1)
    except OSError as error:
        raise ProjectError(f"it cannot be read: {error.strerror}", where=str(path)) from None
    if len(data) > MAX_BYTES:
        raise ProjectError(f"it is larger than {MAX_BYTES // 1024} KiB", where=str(path))
    try:
        text = data.decode("utf-8-sig")
    except UnicodeDecodeError:
        text = "\0"
    if "\0" in text:
        raise ProjectError(
            "this is not a text file in UTF-8", where=str(path), hint="save it as UTF-8 text", code="not-utf8"
        )
    return text


class SchemaReader:
    """One document being read: its problems gather in `findings`."""

    def __init__(self, document: Document) -> None:
        self.document = document
        self.findings: list[Finding] = []

    def struct(self, kind: type[S], value: dict[Any, Any], path: str = "") -> S:
        """Return a mapping as a struct; what is wrong in it is in `findings`."""
        fields = {field.encode_name: field for field in msgspec.structs.fields(kind)}
        found: dict[str, Any] = {}  # Any: each field has its own type
        for key, item in value.items():
            inner = f"{path}.{key}" if path else str(key)
            if key in fields:
                found[fields[key].name] = self.value(fields[key].type, item, inner)
            else:
                self._unknown(str(key), inner, list(fields))
        for key, field in fields.items():
            if key not in value and field.default is NODEFAULT and field.default_factory is NODEFAULT:
                self._missing(key, path)
                found[field.name] = _WRONG
        return kind(**found)

    def value(self, wanted: Any, value: Any, path: str) -> Any:  # Any: a type's form, and whatever YAML holds
        """Return a value as the type wants it, or the mark of a wrong one."""
        options = _options(wanted)
        if value is None and Any not in options:
            self._report("empty-key", f"{path} is empty", path, "give it a value, or take the line out")
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
            found = self._plain(option, value, path)
            if found is not _WRONG:
                return found
        self._mismatch(options, value, path)
        return _WRONG

    def _plain(self, option: Any, value: Any, path: str) -> Any:  # Any: see value
        if option is Any:
            return value
        if option is str and not isinstance(value, list | dict):
            text = self.document.texts.get(path, str(value))  # as it is written: version 1.10 is not 1.1
            return _WRONG if "\0" in text else text
        if isinstance(option, type) and issubclass(option, Enum):
            return next((member for member in option if member.value == value), _WRONG)
        plain = get_origin(option) or option
        fits = isinstance(plain, type) and type(value) is plain
        return value if fits else _WRONG

    def _unknown(self, key: str, path: str, known: list[str]) -> None:
        hint = did_you_mean(key.lower(), known) or f"known keys: {', '.join(known)}"
        self._report("unknown-key", f"there is no key {key}", path, hint)

    def _missing(self, key: str, path: str) -> None:
        inner = f"{path}.{key}" if path else key
        self._report("missing-key", f"{key} is missing", path, f"add a line '{inner.rpartition('.')[2]}: …'")

    def _mismatch(self, options: tuple[Any, ...], value: Any, path: str) -> None:  # Any: see value
        wanted = " or ".join(dict.fromkeys(_word(option) for option in options))
        is_text = isinstance(value, str)
        actual = quoted(value) if is_text else _WORDS.get(type(value), "something else")
        hint = did_you_mean(value, _choices(options)) if is_text else None
        self._report("wrong-type", f"{path} must be {wanted}, not {actual}", path, hint)

    def _report(self, code: str, message: str, path: str, hint: str | None) -> None:
        where = self.document.place(path)
        self.findings.append(Finding(code=code, severity=Severity.ERROR, message=message, where=where, hint=hint))


def _options(wanted: Any) -> tuple[Any, ...]:  # Any: a type's form
    """Return the alternatives of a type, without Annotated, None and UNSET."""
    if get_origin(wanted) is Annotated:
        return _options(get_args(wanted)[0])
    if get_origin(wanted) in {Union, types.UnionType}:
        return tuple(option for part in get_args(wanted) if part is not type(None) for option in _options(part))
    return (wanted,)


def _is_struct(option: Any) -> bool:  # Any: a type's form
    return isinstance(option, type) and issubclass(option, Struct)


def _choices(options: tuple[Any, ...]) -> list[str]:  # Any: a type's form
    return [
        str(member.value)
        for option in options
        if isinstance(option, type) and issubclass(option, Enum)
        for member in option
    ]


def _word(option: Any) -> str:  # Any: a type's form
    if _is_struct(option):
        return f"a mapping of {', '.join(field.encode_name for field in msgspec.structs.fields(option))}"
    if _choices((option,)):
        return " or ".join(_choices((option,)))
    return _WORDS.get(get_origin(option) or option, "something else")


@refuse_unusable_paths()
def load_project(folder: Path) -> Project:
    """Read the project that lies in a folder.

    Args:
        folder: The folder of marpack.yaml, or that file itself.

    Raises NoProjectError if there is none, ProjectError holding a finding for everything that is wrong with it.
    """
    file = folder / FILE_NAME if folder.is_dir() else folder
    if file.name != FILE_NAME or not file.is_file():
        raise _no_project(folder, file)
    document = read_document(file)
    if not isinstance(document.value, dict):
        actual = "is empty" if document.value is None else "is no mapping of keys to values"
        hint = "it needs at least name, version and handler, each as 'key: value'"
        raise ProjectError(f"the project file {actual}", where=str(file), hint=hint, code="not-a-mapping")
    reading = SchemaReader(document)
    found = reading.struct(ProjectFile, document.value)
    if reading.findings:
        count = f"{len(reading.findings)} problems" if len(reading.findings) > 1 else "a problem"
        raise ProjectError(f"{file} has {count}", findings=tuple(reading.findings))
    values = msgspec.structs.asdict(found)
    return Project(**values, folder=file.parent, file=str(file), lines=document.lines)


def _no_project(folder: Path, file: Path) -> NoProjectError:
    if not folder.exists():
        return NoProjectError("there is no such folder", where=str(folder), code="source-not-found")
    if not folder.is_dir():
        return NoProjectError(
            f"this is no project: a project is a folder with a {FILE_NAME}, or that file", where=str(folder)
        )
    if file.exists():
        return NoProjectError(f"{FILE_NAME} is not a file", where=str(file))
    other = next((name for name in ("marpack.yml", "Marpack.yaml", "marpack.json") if (folder / name).is_file()), None)
    hint = f"rename {other} to {FILE_NAME}" if other else "marpack init makes one; or give torch-model-archiver's flags"
    return NoProjectError(f"there is no {FILE_NAME} in this folder", where=str(folder), hint=hint)


_HINT = "it needs model_metrics, with lists of name, unit and dimensions under counter, gauge or histogram"


class _Metric(Struct, frozen=True):
    """One metric."""

    name: str
    unit: str
    dimensions: list[str]


class _MetricsByType(Struct, frozen=True):
    """Metrics by their type; the server knows no other."""

    counter: list[_Metric] = []
    gauge: list[_Metric] = []
    histogram: list[_Metric] = []


def checked_metrics_config(file: Path) -> str:
    """Return the full path of a metrics file with which the server's workers start; they read model_metrics alone.

    Raises ProjectError if it cannot be read, or holding a finding for everything that is wrong with it.
    """
    reading = SchemaReader(_document(file))
    _models(reading)
    _raise_findings(reading)
    return str(file.resolve())


def declared_metrics(file: Path | None) -> tuple[Declared, ...]:
    """Return the metrics that a metrics file declares, those of a stock server without one.

    A file that says nothing of ts_metrics leaves the server those that it has; a name that is declared again is the
    later one's. Raises ProjectError as `checked_metrics_config` does, for ts_metrics too.
    """
    if file is None:
        return SERVER_METRICS + MODEL_METRICS
    reading = SchemaReader(_document(file))
    models, server = _models(reading), _server(reading)
    _raise_findings(reading)
    own = SERVER_METRICS if server is None else _declared(server, Section.SERVER)
    declared = own + _declared(models, Section.MODELS)
    return tuple({(metric.section, metric.name): metric for metric in declared}.values())


def _document(file: Path) -> Document:
    if not file.is_file():
        hint = "name the YAML file that the server's metrics_config names"
        raise ProjectError("there is no such metrics file", where=str(file), hint=hint, code="metrics-file-not-found")
    document = read_document(file)
    declared = document.value.get(Section.MODELS) if isinstance(document.value, dict) else None
    if not isinstance(declared, dict) or not declared:
        raise ProjectError("this file declares no model_metrics", where=str(file), hint=_HINT, code="no-model-metrics")
    return document


def _models(reading: SchemaReader) -> _MetricsByType:
    declared = reading.document.value[Section.MODELS]
    known = {kind: _known(metrics) for kind, metrics in declared.items()}
    return reading.struct(_MetricsByType, known, Section.MODELS)


def _server(reading: SchemaReader) -> _MetricsByType | None:
    declared = reading.document.value.get(Section.SERVER)
    if declared is None:
        return None
    if isinstance(declared, dict):  # the server passes over a type without metrics, a worker does not
        declared = {kind: _known(metrics) for kind, metrics in declared.items() if metrics is not None}
    found: _MetricsByType = reading.value(_MetricsByType, declared, Section.SERVER)
    return found


def _raise_findings(reading: SchemaReader) -> None:
    if reading.findings:
        count = f"{len(reading.findings)} problems" if len(reading.findings) > 1 else "a problem"
        raise ProjectError(f"{reading.document.file} has {count}", findings=tuple(reading.findings))


def _declared(metrics: _MetricsByType, section: Section) -> tuple[Declared, ...]:
    by_kind = {
        MetricTypes.COUNTER: metrics.counter,
        MetricTypes.GAUGE: metrics.gauge,
        MetricTypes.HISTOGRAM: metrics.histogram,
    }
    return tuple(_one(section, kind, metric) for kind, found in by_kind.items() for metric in found)


def _one(section: Section, kind: MetricTypes, metric: _Metric) -> Declared:
    dimensions = tuple(metric.dimensions)
    if section is Section.MODELS:
        return handlers_metric(kind, metric.name, metric.unit, dimensions)
    return Declared(section=section, kind=kind, name=metric.name, unit=metric.unit, labels=dimensions)


def _known(metrics: Any) -> Any:  # Any: whatever YAML holds
    """Return metrics without the keys that a worker does not read, of which the frontend only logs a complaint."""
    if not isinstance(metrics, list):
        return metrics
    return [
        {key: metric[key] for key in metric if key in _Metric.__struct_fields__} if isinstance(metric, dict) else metric
        for metric in metrics
    ]
