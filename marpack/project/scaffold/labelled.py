"""How many classes a weights file's last layer tells apart."""

from marpack.weights.contents import Contents

_STATISTICS = ("running_mean", "running_var", "num_batches_tracked")


def count_classes(contents: Contents) -> int | None:
    """Return how many numbers a model's last layer gives, guessed from its tensors' names and shapes."""
    outputs = [port.shape[-1] for port in contents.outputs if port.shape]
    if outputs and isinstance(outputs[0], int):
        return outputs[0]
    shapes = [placed.tensor.shape for placed in contents.tensors if not placed.tensor.name.endswith(_STATISTICS)]
    layers = [shape for shape in shapes if len(shape) > 1]
    return layers[-1][0] if layers else None
