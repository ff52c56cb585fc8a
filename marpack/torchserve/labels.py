"""index_to_name.json as the server loads it, and labels put to classes (contract §6)."""

import itertools
import json
import logging
from collections.abc import Iterable
from pathlib import Path
from typing import Any

from marpack.torchserve.diagnostics import note

logger = logging.getLogger(__name__)

LABELS_NAME = "index_to_name.json"
# Any: probabilities, or the detector's boxes
Rows = list[list[Any]]


class LabelError(Exception):
    """Labels that are no mapping of class index to text; the server fails to load the model."""


def load_label_mapping(mapping_file_path: str) -> dict[str, str] | None:
    """Return {class index: label}, or None where there is no such file.

    The values may be lists (the last item is the label); `{"object_type_names": […]}` numbers its items. Raises
    LabelError for anything else.
    """
    path = Path(mapping_file_path)
    if not path.is_file():
        logger.warning("%r is missing: answers will not name their classes", mapping_file_path)
        return None
    with path.open() as file:  # the locale's encoding, as on the server
        mapping = json.load(file)
    if not isinstance(mapping, dict):
        raise LabelError(f"{path.name} must be an object of class index to label")
    names = mapping.get("object_type_names")
    if isinstance(names, list):
        return {str(index): name for index, name in enumerate(names)}
    return {key: _label(value, path.name) for key, value in mapping.items()}


def _label(value: Any, where: str) -> str:  # Any: JSON
    last = value[-1] if isinstance(value, list) else value
    if not isinstance(last, str):
        raise LabelError(f"{where}: a label must be text, or a list that ends in text, not {value!r}")
    return last


def map_class_to_label(
    probs: Any,  # Any: rows of probabilities, checked here
    mapping: dict[str, str] | None = None,
    lbl_classes: Iterable[Iterable[Any]] | None = None,
) -> list[dict[str, Any]]:
    """Return one `{label: probability}` per row.

    Args:
        probs: A list of rows; each holds the probabilities of the classes beside it.
        mapping: {class index: label}; without one the indices are the labels.
        lbl_classes: The class indices beside each row; without them 0, 1, 2, …

    Two classes with one label collapse into one entry, at the first's place with the later's value.
    """
    if not isinstance(probs, list):
        raise LabelError("the classes' probabilities must be a list before labels can be given")
    if mapping is not None and not isinstance(mapping, dict):
        raise LabelError("the label mapping must be a dict")
    indices = itertools.repeat(range(len(probs[0])), len(probs)) if lbl_classes is None else lbl_classes
    return [
        {
            (str(index) if mapping is None else mapping[str(index)]): value
            for index, value in zip(row_indices, row, strict=False)
        }
        for row_indices, row in zip(indices, probs, strict=False)
    ]


def named(values: Rows, mapping: dict[str, str] | None, classes: list[list[int]] | None = None) -> list[dict[str, Any]]:
    """Return one `{label: value}` per row; raises KeyError for a class without a label, after noting it."""
    try:
        return map_class_to_label(values, mapping, classes)
    except KeyError as error:
        number = error.args[0]
        hint = f'add "{number}" to {LABELS_NAME}, or check that the labels belong to these weights'
        message = f"the model answers with class {number}, and {LABELS_NAME} names {len(mapping or ())} others"
        note("labels-gap", message, stage="postprocess", hint=hint)
        raise
