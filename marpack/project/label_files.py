"""A file of labels in any of its spellings → index_to_name.json; and how many labels it names (contract §6)."""

import csv
import io
import json
from collections.abc import Iterable
from pathlib import Path
from typing import Any

from marpack.errors import ProjectError
from marpack.project.load import parse_document
from marpack.torchserve.labels import parse_labels
from marpack.weights.contents import WeightsSummary

SUFFIXES = (".json", ".yaml", ".yml", ".txt", ".csv")
_INDEX_WORDS = frozenset({"index", "id", "idx", "class", "class_id", "class_index", "label_id", "#", ""})
_MAX_BYTES = 1 << 20  # bytes of a file that may be labels


def labels_member(path: Path) -> Path | bytes:
    """Return what to pack: the file itself if it is a JSON object already, else the bytes made from it.

    Raises ProjectError naming the line or entry that is no label.
    """
    suffix = path.suffix.lower()
    if suffix not in SUFFIXES:
        raise ProjectError(f"labels come as {' '.join(SUFFIXES)}, not as {path.name}", where=str(path))
    text = _text_of(path)
    if suffix == ".txt":
        return _encode(_by_line(path, text))
    if suffix == ".csv":
        return _encode(_by_row(path, text))
    if suffix == ".json":
        value = _json(path, text)
        return path if isinstance(value, dict) else _encode(_by_value(path, value))
    return _encode(_by_value(path, parse_document(text, file=str(path), as_text=True).value))


def _by_line(path: Path, text: str) -> dict[int, str]:
    lines = text.rstrip().splitlines()
    for number, line in enumerate(lines, 1):
        if not line.strip():
            raise ProjectError("an empty line stands where a label should", where=f"{path}:{number}")
    return _not_empty(path, {index: line.strip() for index, line in enumerate(lines)})


def _by_row(path: Path, text: str) -> dict[int, str]:
    """Read `index,label` rows in either order of columns, or one label a row; a first row of names is left out."""
    reader = csv.reader(io.StringIO(text), skipinitialspace=True, strict=True)
    try:
        rows = [(reader.line_num, [cell.strip() for cell in row]) for row in reader if any(row)]
    except csv.Error as error:
        raise ProjectError(f"this is not CSV: {error}", where=f"{path}:{reader.line_num}") from None
    if rows and all(len(row) == 1 for _, row in rows):
        labels = rows[1:] if rows[0][1][0].lower() in {"label", "name", "labels"} else rows
        return _not_empty(path, {index: row[0] for index, (_, row) in enumerate(labels)})
    header = bool(rows) and not any(cell.isdecimal() for cell in rows[0][1])
    column = _index_column(rows[0][1]) if header else 0
    return _unique(path, (_row_label(path, line, row, column) for line, row in rows[header:]))


def _index_column(names: list[str]) -> int:
    return next((number for number, name in enumerate(names) if name.lower() in _INDEX_WORDS), 0)


def _row_label(path: Path, line: int, row: list[str], column: int) -> tuple[int, str, str]:
    where = f"{path}:{line}"
    if len(row) < 2:
        raise ProjectError("this row has no label beside its index", where=where)
    if not row[column].isdecimal():
        raise ProjectError(f"'{row[column]}' is no index", where=where, hint="write rows as: index,label")
    return int(row[column]), row[1 if column == 0 else 0], where


def _by_value(path: Path, value: Any) -> dict[int, Any] | dict[str, Any]:  # Any: what the author wrote
    if isinstance(value, dict) and "object_type_names" in value:
        return value
    if isinstance(value, list):
        for index, label in enumerate(value):
            _check_label(path, index, label)
        return _not_empty(path, dict(enumerate(value)))
    if not isinstance(value, dict):
        raise ProjectError("labels are a list, or a mapping of index to label", where=str(path))
    for index, label in value.items():
        if not str(index).isdecimal():
            raise ProjectError(f"'{index}' is no index", where=str(path), hint="write the mapping as index: label")
        _check_label(path, index, label)
    return _unique(path, ((int(index), label, str(path)) for index, label in value.items()))


def _check_label(path: Path, index: object, label: object) -> None:
    if isinstance(label, list) and label and all(isinstance(item, str) for item in label):
        return  # the server takes the last item
    if not isinstance(label, str):
        raise ProjectError(f"the label of {index} is not text", where=str(path), hint="put it in quotes")


def _unique(path: Path, triples: Iterable[tuple[int, Any, str]]) -> dict[int, Any]:  # Any: text, or a list of it
    found: dict[int, Any] = {}  # Any: see above
    for index, label, where in triples:
        if index in found:
            raise ProjectError(f"the index {index} is there twice", where=where)
        found[index] = label
    return _not_empty(path, found)


def _not_empty(path: Path, labels: dict[int, Any]) -> dict[int, Any]:  # Any: see _unique
    if not labels:
        raise ProjectError("there are no labels in this file", where=str(path))
    return dict(sorted(labels.items()))


def _encode(labels: dict[int, Any] | dict[str, Any]) -> bytes:  # Any: see _unique
    return json.dumps(labels, indent=2, ensure_ascii=True).encode() + b"\n"


def _json(path: Path, text: str) -> Any:  # Any: what the author wrote
    try:
        return json.loads(text)
    except RecursionError:
        raise ProjectError("the labels are nested too deeply", where=str(path)) from None
    except json.JSONDecodeError as error:
        raise ProjectError(f"this is not valid JSON: {error.msg}", where=f"{path}:{error.lineno}") from None


def _text_of(path: Path) -> str:
    try:
        return path.read_bytes().decode("utf-8-sig")
    except UnicodeDecodeError:
        raise ProjectError(
            "the labels are not text in UTF-8", where=str(path), hint="save the file as UTF-8", code="not-utf8"
        ) from None
    except OSError as error:
        raise ProjectError(f"the labels cannot be read: {error.strerror}", where=str(path)) from None


def count_labels(path: Path) -> int | None:
    """Return how many labels a file holds; None for one that does not read as labels."""
    try:
        if path.stat().st_size > _MAX_BYTES:
            return None
        made = labels_member(path)
        labels = parse_labels(made if isinstance(made, bytes) else made.read_bytes())
    except (ProjectError, OSError):
        return None
    if labels.listed:
        return len(labels.names)
    return len(labels.names) if labels.names and all(key.isdecimal() for key in labels.names) else None


def count_classes(contents: WeightsSummary) -> int | None:
    """Return how many numbers a model's last layer gives, guessed from its tensors' names and shapes."""
    outputs = [port.shape[-1] for port in contents.outputs if port.shape]
    if outputs and isinstance(outputs[0], int):
        return outputs[0]
    layers = [placed.tensor.shape for placed in contents.tensors if len(placed.tensor.shape) > 1]
    return layers[-1][0] if layers else None
