"""How many classes a file of labels names, and how many a weights file's last layer tells apart."""

import json
from pathlib import Path

from marpack.errors import ProjectError
from marpack.project.labels import labels_member
from marpack.weights.contents import Contents

_LARGEST = 1 << 20  # bytes of a file that may be labels
_STATISTICS = ("running_mean", "running_var", "num_batches_tracked")


def count_labels(path: Path) -> int | None:
    """Return how many labels a file holds; None for one that does not read as labels."""
    try:
        if path.stat().st_size > _LARGEST:
            return None
        made = labels_member(path)
        mapping = json.loads(made if isinstance(made, bytes) else made.read_bytes())
    except (ProjectError, OSError, ValueError):
        return None
    names = mapping.get("object_type_names")
    if isinstance(names, list):
        return len(names)
    return len(mapping) if mapping and all(key.isdecimal() for key in mapping) else None


def count_classes(contents: Contents) -> int | None:
    """Return how many numbers a model's last layer gives, guessed from its tensors' names and shapes."""
    outputs = [port.shape[-1] for port in contents.outputs if port.shape]
    if outputs and isinstance(outputs[0], int):
        return outputs[0]
    shapes = [placed.tensor.shape for placed in contents.tensors if not placed.tensor.name.endswith(_STATISTICS)]
    layers = [shape for shape in shapes if len(shape) > 1]
    return layers[-1][0] if layers else None
