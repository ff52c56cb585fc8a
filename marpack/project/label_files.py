"""A file of labels in any of its formats → index_to_name.json, and the number of its labels (contract §6)."""

import csv
import io
import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from marpack.errors import ProjectError
from marpack.project.load import parse_document, read_text_file
from marpack.torchserve.labels import parse_labels

SUFFIXES = (".json", ".yaml", ".yml", ".txt", ".csv")
_INDEX_WORDS = frozenset({"index", "id", "idx", "class", "class_id", "class_index", "label_id", "#", ""})
_MAX_BYTES = 16 << 20  # of a labels file, as for the checks
_MAX_SCAN = 1 << 20  # bytes of a file that may be labels

_Entry = tuple[int, Any, str]  # index, label (text, or a list of it), place


def labels_member(path: Path) -> Path | bytes:
    """Return the content to pack: the file itself if it is a JSON object, otherwise the bytes made from it.

    Raises ProjectError with the line or entry that is not a label.
    """
    suffix = path.suffix.lower()
    if suffix not in SUFFIXES:
        raise ProjectError(f"labels come as {' '.join(SUFFIXES)}, not as {path.name}", where=str(path))
    text = read_text_file(path, limit=_MAX_BYTES)
    if suffix == ".txt":
        entries = _read_lines(path, text)
    elif suffix == ".csv":
        entries = _read_rows(path, text)
    else:
        value = (
            _read_json(path, text) if suffix == ".json" else parse_document(text, file=str(path), as_text=True).value
        )
        if isinstance(value, dict) and suffix == ".json":
            return path
        if isinstance(value, dict) and "object_type_names" in value:
            return _encode(value)
        entries = _read_value(path, value)
    labels: dict[int, Any] = {}  # Any: see _Entry
    for index, label, where in entries:
        if index in labels:
            raise ProjectError(f"the index {index} is there twice", where=where)
        # The server takes the last item of a list.
        is_list = isinstance(label, list) and bool(label) and all(isinstance(item, str) for item in label)
        if not is_list and not isinstance(label, str):
            raise ProjectError(f"the label of {index} is not text", where=where, hint="put it in quotes")
        labels[index] = label
    if not labels:
        raise ProjectError("there are no labels in this file", where=str(path))
    return _encode(dict(sorted(labels.items())))


def _encode(labels: dict[Any, Any]) -> bytes:  # Any: see _Entry
    return json.dumps(labels, indent=2, ensure_ascii=True).encode() + b"\n"


def _read_json(path: Path, text: str) -> Any:  # Any: JSON
    try:
        return json.loads(text)
    except RecursionError:
        raise ProjectError("the labels are nested too deeply", where=str(path)) from None
    except json.JSONDecodeError as error:
        raise ProjectError(f"this is not valid JSON: {error.msg}", where=f"{path}:{error.lineno}") from None


def _read_lines(path: Path, text: str) -> Iterator[_Entry]:
    for number, line in enumerate(text.rstrip().splitlines(), 1):
        if not line.strip():
            raise ProjectError("this line is empty, and needs a label", where=f"{path}:{number}")
        yield number - 1, line.strip(), f"{path}:{number}"


def _read_rows(path: Path, text: str) -> Iterator[_Entry]:
    """Yield `index,label` rows in either order of columns, or one label a row; a first row of names is skipped."""
    reader = csv.reader(io.StringIO(text), skipinitialspace=True, strict=True)
    try:
        rows = [(f"{path}:{reader.line_num}", [cell.strip() for cell in row]) for row in reader if any(row)]
    except csv.Error as error:
        raise ProjectError(f"this is not CSV: {error}", where=f"{path}:{reader.line_num}") from None
    if rows and all(len(row) == 1 for _, row in rows):
        labels = rows[1:] if rows[0][1][0].lower() in {"label", "name", "labels"} else rows
        yield from ((index, row[0], where) for index, (where, row) in enumerate(labels))
        return
    has_header = bool(rows) and not any(cell.isdecimal() for cell in rows[0][1])
    names = [name.lower() for name in rows[0][1]] if has_header else [""]
    column = next((number for number, name in enumerate(names) if name in _INDEX_WORDS), 0)
    for where, row in rows[has_header:]:
        if len(row) < 2:
            raise ProjectError("this row has no label beside its index", where=where)
        if not row[column].isdecimal():
            raise ProjectError(f"'{row[column]}' is not an index", where=where, hint="write rows as: index,label")
        yield int(row[column]), row[1 if column == 0 else 0], where


def _read_value(path: Path, value: Any) -> Iterator[_Entry]:  # Any: JSON, or YAML as text
    if not isinstance(value, list | dict):
        raise ProjectError("labels are a list, or a mapping of index to label", where=str(path))
    for index, label in enumerate(value) if isinstance(value, list) else value.items():
        if not str(index).isdecimal():
            raise ProjectError(f"'{index}' is not an index", where=str(path), hint="write the mapping as index: label")
        yield int(index), label, str(path)


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
