"""index_to_name.json, read as the server reads it, and labels for classes (contract §6)."""

import codecs
import itertools
import json
from collections import Counter
from collections.abc import Iterable
from enum import StrEnum
from pathlib import Path
from typing import Any

from msgspec import Struct
from msgspec.structs import replace

LABELS_NAME = "index_to_name.json"
MAX_LABELS = 16 << 20  # bytes of a labels file, for every reader


class LabelError(Exception):
    """Labels that do not map class indices to text; the server fails to load the model."""

    hint = "Pass a list of rows of probabilities, and labels as a dict of class index to text."


class LabelsFault(StrEnum):
    """What about a labels file makes the server's loader fail."""

    ENCODING = "encoding"
    SYNTAX = "syntax"
    SHAPE = "shape"
    SIZE = "size"  # marpack does not read it; the server may


class ParsedLabels(Struct, frozen=True, kw_only=True):
    """What a labels file holds."""

    names: dict[str, Any] = {}  # class index → label; Any: text, unless the file is wrong
    listed: bool = False  # the names come as a list, under "object_type_names"
    duplicates: tuple[str, ...] = ()  # keys that the object has more than once
    fault: LabelsFault | None = None
    problem: str | None = None  # the fault, in words
    line: int | None = None  # where it is


def parse_labels(data: bytes) -> ParsedLabels:
    """Parse a labels file; never raises. A byte-order mark is a fault; the rest of the file is still read."""
    if len(data) > MAX_LABELS:
        return ParsedLabels(fault=LabelsFault.SIZE, problem=f"it is larger than {MAX_LABELS >> 20} MiB")
    text = data.removeprefix(codecs.BOM_UTF8)
    duplicates: tuple[str, ...] = ()

    def pairs(found: list[tuple[str, Any]]) -> dict[str, Any]:  # Any: JSON
        nonlocal duplicates  # of the outermost object, which comes last
        duplicates = tuple(key for key, times in Counter(key for key, _ in found).items() if times > 1)
        return dict(found)

    try:
        mapping = json.loads(text.decode("utf-8"), object_pairs_hook=pairs)
    except UnicodeDecodeError as error:
        line = text[: error.start].count(b"\n") + 1
        parsed = ParsedLabels(fault=LabelsFault.ENCODING, problem="it is not UTF-8", line=line)
    except json.JSONDecodeError as error:
        problem = f"it is not valid JSON: {error.msg}"
        parsed = ParsedLabels(fault=LabelsFault.SYNTAX, problem=problem, line=error.lineno)
    except (RecursionError, ValueError) as error:
        problem = "it is nested too deeply" if isinstance(error, RecursionError) else str(error)[:100]
        parsed = ParsedLabels(fault=LabelsFault.SYNTAX, problem=problem)
    else:
        if not isinstance(mapping, dict):
            parsed = ParsedLabels(fault=LabelsFault.SHAPE, problem=f"it is {json_kind(mapping)}, not an object")
        elif (listed := _listed(mapping)) is not None:
            parsed = ParsedLabels(names=listed, listed=True, duplicates=duplicates)
        else:
            names = {key: value[-1] if isinstance(value, list) and value else value for key, value in mapping.items()}
            parsed = ParsedLabels(names=names, duplicates=duplicates)
    if not data.startswith(codecs.BOM_UTF8):
        return parsed
    return replace(parsed, fault=LabelsFault.ENCODING, problem="it begins with a byte-order mark", line=1)


def _listed(mapping: dict[str, Any]) -> dict[str, Any] | None:  # Any: JSON
    names = mapping.get("object_type_names")
    return {str(index): name for index, name in enumerate(names)} if isinstance(names, list) else None


def json_kind(value: Any) -> str:  # Any: JSON
    """Return what a JSON value is, in words."""
    kinds = {dict: "an object", list: "a list", str: "a string", bool: "a boolean", int: "a number", float: "a number"}
    return kinds.get(type(value), "null")


def load_label_mapping(mapping_file_path: str) -> dict[str, str] | None:
    """Return {class index: label}, or None if the file does not exist.

    The values may be lists (the last item is the label); `{"object_type_names": […]}` numbers its items. Raises
    LabelError for anything else.
    """
    path = Path(mapping_file_path)
    if not path.is_file():
        import logging  # noqa: PLC0415 - looking reads labels, too, and logs nothing

        logging.getLogger(__name__).warning("%r is missing: responses have no class names", mapping_file_path)
        return None
    with path.open() as file:  # the locale's encoding, as on the server
        mapping = json.load(file)
    if not isinstance(mapping, dict):
        raise LabelError(f"{path.name} is {json_kind(mapping)}, not an object of class index to label")
    if (listed := _listed(mapping)) is not None:
        return listed
    labels = {key: value[-1] if isinstance(value, list) else value for key, value in mapping.items()}
    for key, label in labels.items():
        if not isinstance(label, str):
            raise LabelError(f"the label of {key} is {mapping[key]!r}, not text or a list that ends in text")
    return labels


def map_class_to_label(
    probs: Any,  # Any: rows of probabilities, checked here
    mapping: dict[str, str] | None = None,
    lbl_classes: Iterable[Iterable[Any]] | None = None,
) -> list[dict[str, Any]]:
    """Return one `{label: probability}` per row of `probs`, with its class indices in `lbl_classes` or from 0 up.

    Without a mapping {class index: label} the indices are the labels. Two classes with one label collapse into one
    entry, at the first's place with the later's value.
    """
    if not isinstance(probs, list):
        raise LabelError(f"the probabilities are a {type(probs).__name__}, not a list")
    if mapping is not None and not isinstance(mapping, dict):
        raise LabelError(f"the label mapping is a {type(mapping).__name__}, not a dict")
    indices = itertools.repeat(range(len(probs[0])), len(probs)) if lbl_classes is None else lbl_classes
    pairs = (zip(map(str, numbers), row, strict=False) for numbers, row in zip(indices, probs, strict=False))
    return [{(index if mapping is None else mapping[index]): value for index, value in row} for row in pairs]
