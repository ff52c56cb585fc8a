"""Labels put to a model's classes, with a note where a class has none (contract §6)."""

from typing import Any

from marpack.runtime.diagnostics import note
from marpack.runtime.labels import LABELS_NAME, map_class_to_label

# Any: probabilities, or the detector's boxes
Rows = list[list[Any]]


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
