"""What speaks against the files that a project was found to be made of."""

from collections.abc import Iterator
from pathlib import Path

from marpack.findings import Finding, Severity
from marpack.project.scaffold.labelled import count_classes
from marpack.project.scaffold.survey import Labels, Survey, Weights
from marpack.weights.kind import Kind

# The server tells formats by their suffix alone (contract §6).
_SUFFIXES = {Kind.TORCHSCRIPT: ".pt", Kind.STATE_DICT: ".pt", Kind.ONNX: ".onnx", Kind.ELF: ".so"}


def misgivings(
    found: Survey, weights: Weights | None, labels: Labels | None, *, named: frozenset[str]
) -> Iterator[Finding]:
    """Yield what will keep the project from being served as it is.

    Args:
        found: What is in the folder.
        weights: The author's, if there are any.
        labels: The author's, if there are any.
        named: The keys that the author gives an answer for.
    """
    if weights is None:
        return
    if weights.kind is Kind.PICKLED_MODULE:
        hint = "where the model's code is: torch.jit.script(model).save('model.pt')"
        yield _warning("pickled-module", f"{weights.name} is a whole pickled model, which no server loads", hint)
    if weights.kind in {Kind.STATE_DICT, Kind.SAFETENSORS} and not ("model_file" in named or found.model_files):
        hint = "put the file with its nn.Module here, and name it in marpack.yaml: model_file: model.py"
        yield _warning("no-model-file", f"{weights.name} is a {weights.kind}: it needs the model's class", hint)
    suffix = _SUFFIXES.get(weights.kind)
    if suffix and not weights.name.endswith(suffix):
        message = f"{weights.name} holds {weights.kind}, which the server takes only from a file that ends in {suffix}"
        renamed = Path(weights.name).with_suffix(suffix)
        hint = f"mv {weights.name} {renamed}, and set weights: {renamed} in marpack.yaml"
        yield _warning("weights-suffix", message, hint)
    classes = count_classes(weights.contents)
    if labels and classes and labels.count != classes:
        message = f"{labels.name} has {labels.count} labels, and the model's last layer seems to give {classes} numbers"
        yield _warning("labels-count", message, f"look whether {labels.name} is the right file")
    if len(found.weights) > 1 and "weights" not in named:
        others = ", ".join(each.name for each in found.weights if each.name != weights.name)
        yield _warning("more-weights", f"{weights.name} was taken; there are also {others}", "--weights names another")


def _warning(code: str, message: str, hint: str) -> Finding:
    return Finding(code=code, severity=Severity.WARNING, message=message, hint=hint)
