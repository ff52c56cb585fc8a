"""A project's small files: YAML with its lines, marpack.yaml, labels (contract §6) and metrics_config."""

import csv
import io
import json
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import Any, TypeVar

import msgspec
from msgspec import Struct
from msgspec import inspect as types

from marpack import finding_codes as codes
from marpack.archive.protocol import quoted
from marpack.errors import NoProjectError, ProjectError, convert_os_errors, did_you_mean, refuse_unusable_paths
from marpack.findings import Code, Finding
from marpack.inspection.yaml_document import MAX_BYTES, YamlDocument, YamlFault, read_yaml
from marpack.project.schema import FILE_NAME, Project, ProjectFile
from marpack.torchserve.labels import parse_labels
from marpack.torchserve.metrics import MODEL_METRICS, SERVER_METRICS, Declared, MetricTypes, Section, handlers_metric

S = TypeVar("S", bound=Struct)

LABEL_SUFFIXES = (".json", ".yaml", ".yml", ".txt", ".csv")
_INDEX_WORDS = frozenset({"index", "id", "idx", "class", "class_id", "class_index", "label_id", "#", ""})
_MAX_LABELS = 16 << 20  # bytes of a labels file, as for the static checks
_MAX_SCAN = 1 << 20  # bytes of a file that may be labels
_LABEL_FORM = 'Write a list of labels, or a mapping of index to label: {"0": "cat"}.'
_WORDS: dict[type, str] = {
    str: "text", bool: "true or false", int: "a number", float: "a number", list: "a list", dict: "a mapping",
    types.StrType: "text", types.BoolType: "true or false", types.IntType: "a number",
    types.ListType: "a list", types.DictType: "a mapping",
}  # fmt: skip

_Label = tuple[Any, Any, str]  # index, label, place; Any: they are checked later


def read_text_file(path: Path, *, limit: int = MAX_BYTES) -> str:
    """Return a small file's text; raises ProjectError if it cannot be read, is too large, or is not UTF-8."""
    unreadable = convert_os_errors(ProjectError, "the file cannot be read", where=str(path), code="unreadable-file")
    with unreadable, path.open("rb") as file:
        data = file.read(limit + 1)
    if len(data) > limit:
        hint = "Check that it is the right file, or shorten it."
        raise ProjectError(f"the file is larger than {limit // 1024} KiB", where=str(path), hint=hint)
    try:
        text = data.decode("utf-8-sig")
    except UnicodeDecodeError:
        text = "\0"
    if "\0" in text:
        what = "this is not a text file in UTF-8"
        raise ProjectError(what, where=str(path), hint="Save it as UTF-8 text.", code="not-utf8")
    return text


def read_document(path: Path) -> YamlDocument:
    """Read one YAML file; see `parse_document`."""
    return parse_document(read_text_file(path), file=str(path))


def parse_document(text: str, *, file: str, as_text: bool = False) -> YamlDocument:
    """Parse one YAML document with the safe loader; with `as_text`, every scalar stays text: `no` is not false.

    Raises ProjectError if it is not YAML, repeats a key, or is too deep or too large.
    """
    read = read_yaml(text, as_text=as_text)
    for key in read.duplicates:
        message = f"the key {key.name} is repeated; its first line is {key.first}"
        raise ProjectError(message, where=f"{file}:{key.line}", hint="Keep one of them.")
    problem = read.problem
    if problem is None:
        return read
    where = f"{file}:{problem.line}" if problem.line else file
    if problem.fault is YamlFault.EXCESS:
        hint = "Write the values out, without aliases, or shorten the document."
        raise ProjectError(f"the document is too large to expand: {problem.reason}", where=where, hint=hint)
    if problem.fault is YamlFault.VALUE:
        hint = "Remove the tag, or write the value in quotes."
        raise ProjectError(f"this is not a plain YAML value: {problem.reason}", where=where, hint=hint)
    hint = problem.hint or "Correct this line, or the one before it."
    rest = text.splitlines()[problem.seen - 1 :] if problem.seen else []
    if rest and rest[0].lstrip(" ").startswith("\t"):
        where, hint = f"{file}:{problem.seen}", "Indent with spaces: YAML does not allow tabs."
    what = f"this is not valid YAML: {problem.reason} {problem.context}".rstrip()
    raise ProjectError(what, where=where, hint=hint, code="invalid-yaml")


class SchemaReader:
    """Converts one document to structs, and collects its problems in `findings`; msgspec stops at the first one."""

    def __init__(self, document: YamlDocument, file: str) -> None:
        self.document = document
        self.file = file
        self.findings: list[Finding] = []

    def read(self, kind: type[S], value: Any, path: str = "") -> S:  # Any: plain YAML values
        """Return a value as a struct; its problems are in `findings`."""
        found: S = self._value(types.type_info(kind), value, path)
        return found

    def _struct(self, kind: types.StructType, value: dict[Any, Any], path: str) -> Struct:
        fields = {field.encode_name: field for field in kind.fields}
        found: dict[str, Any] = {}  # Any: each field has its own type
        for key, item in value.items():
            inner = f"{path}.{key}" if path else str(key)
            if key in fields:
                found[fields[key].name] = self._value(fields[key].type, item, inner)
            elif kind.forbid_unknown_fields:
                hint = did_you_mean(str(key).lower(), list(fields)) or f"Use one of these keys: {', '.join(fields)}."
                self._report(codes.UNKNOWN_KEY, inner, hint, key=key)
        for key, field in fields.items():
            if key not in value and field.required:
                self._report(codes.MISSING_KEY, path, f"Add a line '{key}: …'.", key=key)
                found[field.name] = None
        made: Struct = kind.cls(**found)
        return made

    def _value(self, wanted: types.Type, value: Any, path: str) -> Any:  # Any: plain YAML values
        """Return a value as the type requires it; None, and a finding, if it cannot be one."""
        options = _alternatives(wanted)
        if value is None and not isinstance(options[0], types.AnyType):
            self._report(codes.EMPTY_KEY, path, key=path)
            return None
        for option in options:
            match option, value:
                case types.StructType(), dict():
                    return self._struct(option, value, path)
                case types.ListType(item_type=inner), list():
                    return [self._value(inner, item, f"{path}[{index}]") for index, item in enumerate(value)]
                case (types.AnyType(), _) | (types.DictType(), dict()) | (types.BoolType(), bool()):
                    return value
                case types.IntType(), int() if not isinstance(value, bool):
                    return value
                case types.StrType(), _ if not isinstance(value, list | dict) and "\0" not in str(value):
                    return self.document.texts.get(path, str(value))  # as it is written: version 1.10 is not 1.1
                case _, str() if value in _choices(option):
                    return _choices(option)[value]
        expected = " or ".join(dict.fromkeys(map(_describe_type, options)))
        shown = quoted(value) if isinstance(value, str) else str(value).lower()  # true, as YAML has it
        actual = _WORDS[type(value)] if isinstance(value, list | dict) else shown
        hint = did_you_mean(value, [each for o in options for each in _choices(o)]) if isinstance(value, str) else None
        self._report(codes.WRONG_TYPE, path, hint, key=path, actual=actual, expected=expected)
        return None

    def _report(self, code: Code, path: str, hint: str | None = None, **values: Any) -> None:  # Any: see `Code.at`
        line = self.document.lines.get(path)
        where = self.file + (f":{line}" if line else "") + (f": {path}" if path else "")
        self.findings.append(code.at(where, hint=hint, **values))

    def raise_findings(self) -> None:
        """Raise ProjectError with the problems found so far, if there are any."""
        if self.findings:
            count = f"{len(self.findings)} problems" if len(self.findings) > 1 else "a problem"
            raise ProjectError(f"{self.file} has {count}", findings=tuple(self.findings))


def _alternatives(wanted: types.Type) -> list[types.Type]:
    """Return the alternatives of a type, without its description and None."""
    if isinstance(wanted, types.Metadata):
        return _alternatives(wanted.type)
    if isinstance(wanted, types.UnionType):
        return [option for part in wanted.types for option in _alternatives(part)]
    return [] if isinstance(wanted, types.NoneType) else [wanted]


def _choices(option: types.Type) -> dict[Any, Any]:  # Any: the values of an enumeration
    if isinstance(option, types.EnumType):
        return {member.value: member for member in option.cls}
    return {each: each for each in option.values} if isinstance(option, types.LiteralType) else {}


def _describe_type(option: types.Type) -> str:
    if isinstance(option, types.StructType):
        return f"a mapping of {', '.join(field.encode_name for field in option.fields)}"
    return " or ".join(_choices(option)) or _WORDS[type(option)]


@refuse_unusable_paths()
def load_project(folder: Path) -> Project:
    """Read the project in a folder, or of the marpack.yaml that `folder` names.

    Raises NoProjectError if the folder has no project, ProjectError with a finding for each problem of the file.
    """
    file = folder / FILE_NAME if folder.is_dir() else folder
    if not folder.exists():
        hint = f"Check the path, and name a folder with a {FILE_NAME}."
        raise NoProjectError("the folder does not exist", where=str(folder), hint=hint, code="source-not-found")
    if file.name != FILE_NAME or (file.exists() and not file.is_file()):
        what = f"this is not a project: a project is a folder with a {FILE_NAME}, or that file"
        raise NoProjectError(what, where=str(file), hint="Name the project's folder.")
    if not file.exists():
        others = (name for name in ("marpack.yml", "Marpack.yaml", "marpack.json") if (folder / name).is_file())
        hints = (f"Rename {name} to {FILE_NAME}." for name in others)
        hint = next(hints, "Run marpack init, or pass the options of torch-model-archiver: --model-name, --handler.")
        raise NoProjectError(f"this folder has no {FILE_NAME}", where=str(folder), hint=hint)
    document = read_document(file)
    if not isinstance(document.value, dict):
        actual = "is empty" if document.value is None else "is not a mapping of keys to values"
        hint = "Write at least name, version and handler, each as 'key: value'."
        raise ProjectError(f"the project file {actual}", where=str(file), hint=hint, code="not-a-mapping")
    reader = SchemaReader(document, str(file))
    found = reader.read(ProjectFile, document.value)
    reader.raise_findings()
    values = msgspec.structs.asdict(found)
    return Project(**values, folder=file.parent, file=str(file), lines=document.lines)


class _Metric(Struct, frozen=True):
    """One metric of the server's `metrics_config`; a worker does not read further keys."""

    name: str
    unit: str
    dimensions: list[str]


class _MetricsByType(Struct, frozen=True, forbid_unknown_fields=True):
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

    Without ts_metrics in the file the server keeps its own; if a name is declared twice, the last one counts. Raises
    ProjectError as `checked_metrics_config` does, also for ts_metrics.
    """
    if file is None:
        return SERVER_METRICS + MODEL_METRICS
    found = _read_metrics(file, Section.MODELS, Section.SERVER)
    declared = [] if Section.SERVER in found else list(SERVER_METRICS)
    for section in (Section.SERVER, Section.MODELS):
        by_type = msgspec.structs.asdict(found.get(section, _MetricsByType()))
        for kind, metric in ((MetricTypes(name), metric) for name, metrics in by_type.items() for metric in metrics):
            labels = tuple(metric.dimensions)
            own = Declared(section=section, kind=kind, name=metric.name, unit=metric.unit, labels=labels)
            is_handlers = section is Section.MODELS
            declared.append(handlers_metric(kind, metric.name, metric.unit, labels) if is_handlers else own)
    return tuple({(metric.section, metric.name): metric for metric in declared}.values())


def _read_metrics(file: Path, *sections: Section) -> dict[Section, _MetricsByType]:
    """Return the metrics of some sections of a metrics file; a section that is missing is left out."""
    if not file.is_file():
        what, hint = "the metrics file does not exist", "Name the YAML file of the server's metrics_config."
        raise ProjectError(what, where=str(file), hint=hint, code="metrics-file-not-found")
    document = read_document(file)
    models = document.value.get(Section.MODELS) if isinstance(document.value, dict) else None
    if not isinstance(models, dict) or not models:
        hint = "Add model_metrics with counter, gauge or histogram: lists of name, unit and dimensions."
        raise ProjectError("the file declares no model_metrics", where=str(file), hint=hint, code="no-model-metrics")
    reader, found = SchemaReader(document, str(file)), dict[Section, _MetricsByType]()
    for section in sections:
        value = document.value.get(section)
        if isinstance(value, dict) and section is Section.SERVER:  # it skips a type without metrics, a worker does not
            value = {kind: each for kind, each in value.items() if each is not None}
        if value is not None:
            found[section] = reader.read(_MetricsByType, value, section)
    reader.raise_findings()
    return found


def labels_member(path: Path) -> Path | bytes:
    """Return the content to pack: the file itself if it is a JSON object, otherwise the bytes made from it.

    Raises ProjectError with the line or entry that is not a label.
    """
    suffix = path.suffix.lower()
    if suffix not in LABEL_SUFFIXES:
        hint = f"Save them as one of {', '.join(LABEL_SUFFIXES)}."
        raise ProjectError(f"{path.name} is not a labels file", where=str(path), hint=hint)
    text = read_text_file(path, limit=_MAX_LABELS)
    if suffix == ".csv":
        entries: Iterable[_Label] = _read_rows(path, text)
    else:
        value = _read_value(path, text)
        if isinstance(value, dict) and suffix == ".json":
            return path
        if isinstance(value, dict) and "object_type_names" in value:
            return _encode(value)
        pairs = value.items() if isinstance(value, dict) else enumerate(value)
        entries = ((i, label, f"{path}:{i + 1}" if suffix == ".txt" else str(path)) for i, label in pairs)
    labels: dict[int, Any] = {}  # Any: see _Label
    for index, label, where in entries:
        if not str(index).isdecimal():
            raise ProjectError(f"'{index}' is not an index", where=where, hint="Write the index, then the label.")
        if int(index) in labels:
            raise ProjectError(f"the index {int(index)} is repeated", where=where, hint="Keep one of the labels.")
        # The server takes the last item of a list.
        is_list = isinstance(label, list) and bool(label) and all(isinstance(item, str) for item in label)
        if not is_list and not isinstance(label, str):
            hint = "Put it in quotes." if label is not None else "Write a label on each line."
            raise ProjectError(f"the label of {index} is not text", where=where, hint=hint)
        labels[int(index)] = label
    if not labels:
        raise ProjectError("the file contains no labels", where=str(path), hint="Write a label on each line.")
    return _encode(dict(sorted(labels.items())))


def _encode(labels: dict[Any, Any]) -> bytes:  # Any: see _Label
    return json.dumps(labels, indent=2, ensure_ascii=True).encode() + b"\n"


def _read_value(path: Path, text: str) -> Any:  # Any: JSON, or YAML as text
    """Return the list or mapping in a labels file; an empty line is None."""
    if path.suffix.lower() == ".txt":
        return [line.strip() or None for line in text.rstrip().splitlines()]
    try:
        is_json = path.suffix.lower() == ".json"
        value = json.loads(text) if is_json else parse_document(text, file=str(path), as_text=True).value
    except RecursionError:
        raise ProjectError("the labels are nested too deeply", where=str(path), hint=_LABEL_FORM) from None
    except json.JSONDecodeError as error:
        where, hint = f"{path}:{error.lineno}", "Correct this line, or the one before it."
        raise ProjectError(f"this is not valid JSON: {error.msg}", where=where, hint=hint) from None
    if not isinstance(value, list | dict):
        raise ProjectError("the labels are neither a list nor a mapping", where=str(path), hint=_LABEL_FORM)
    return value


def _read_rows(path: Path, text: str) -> Iterator[_Label]:
    """Yield `index,label` rows in either order of columns, or one label a row; a first row of names is skipped."""
    reader = csv.reader(io.StringIO(text), skipinitialspace=True, strict=True)
    try:
        rows = [(f"{path}:{reader.line_num}", [cell.strip() for cell in row]) for row in reader if any(row)]
    except csv.Error as error:
        where, hint = f"{path}:{reader.line_num}", "Correct the quotes in this line."
        raise ProjectError(f"this is not CSV: {error}", where=where, hint=hint) from None
    if rows and all(len(row) == 1 for _, row in rows):
        labels = rows[1:] if rows[0][1][0].lower() in {"label", "name", "labels"} else rows
        yield from ((index, row[0], where) for index, (where, row) in enumerate(labels))
        return
    has_header = bool(rows) and not any(cell.isdecimal() for cell in rows[0][1])
    names = [name.lower() for name in rows[0][1]] if has_header else [""]
    column = next((number for number, name in enumerate(names) if name in _INDEX_WORDS), 0)
    for where, row in rows[has_header:]:
        if len(row) < 2:
            hint = "Write the label after the index, as in 0,cat."
            raise ProjectError("the row has no label, only an index", where=where, hint=hint)
        yield row[column], row[1 if column == 0 else 0], where


def count_labels(path: Path) -> int | None:
    """Return the number of labels in a file; None if its content is not labels."""
    try:
        if path.stat().st_size > _MAX_SCAN:
            return None
        made = labels_member(path)
        labels = parse_labels(made if isinstance(made, bytes) else made.read_bytes())
    except (ProjectError, OSError):
        return None
    is_labels = labels.listed or (labels.names and all(key.isdecimal() for key in labels.names))
    return len(labels.names) if is_labels else None
