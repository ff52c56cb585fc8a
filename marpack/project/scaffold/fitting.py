"""Which weights are packed and in what form, which template suits them, and which samples go along."""

import hashlib
from collections.abc import Iterable, Iterator
from pathlib import Path, PurePosixPath
from typing import Any

import msgspec
from msgspec import Struct
from msgspec.structs import replace

from marpack.errors import UsageError
from marpack.findings import Finding, Severity
from marpack.project.label_files import count_classes
from marpack.project.scaffold.own_handler import OwnHandler
from marpack.project.scaffold.survey import Survey, Weights, foreign_weights, model_files_for, read_weights
from marpack.project.scaffold.template import Template
from marpack.torchserve.targets import Target
from marpack.weights.contents import WeightsSummary
from marpack.weights.kind import FORMATS, WeightsFormat

_MAX_COUNT = 5
_WIDEST = 4096  # numbers in a stand-in
_STAND_IN = "samples/stand-in"
_SAVED = "torch.save(model.state_dict(), 'model.pt')"
_KNOWN = "save a model with torch.jit.save, torch.onnx.export or torch.save(model.state_dict(), …)"


class ServedWeights(Struct, frozen=True, kw_only=True):
    """The weights as marpack.yaml names them, and whom they are for."""

    weights: str | None = None
    kind: WeightsFormat | None = None
    converts: str | None = None  # the safetensors file that they are to be made of
    model_file: str | None = None
    target: Target | None = None
    findings: tuple[Finding, ...] = ()


def chosen_weights(path: Path, name: str, own: OwnHandler | None) -> Weights:
    """Return the weights that the author named; raises UsageError for what nobody can load."""
    weights = read_weights(path, name)
    if weights is None and not (own and own.loads):
        raise UsageError(f"{name} holds no weights that marpack knows", where="--weights", hint=_KNOWN)
    return weights or foreign_weights(path, name)


def likely_weights(found: Survey, own: OwnHandler | None) -> Weights | None:
    """Return the weights that the handler's source names, or else the likeliest.

    What marpack cannot look into is taken only for a handler that loads its model by itself.
    """
    choice = (*found.weights, *(found.foreign if own and own.loads else ()))
    asked = (each for each in choice if own and each.name in own.asked)
    return next(iter((*asked, *choice)), None)


def serve(
    folder: Path,
    found: Survey,
    weights: Weights | None,
    own: OwnHandler | None,
    *,
    model_file: str | None,
    target: Target | None,
) -> ServedWeights:
    """Return how weights are served; None is for a model file and a target that are to be found."""
    if weights is None or weights.kind is WeightsFormat.UNKNOWN:
        return ServedWeights(weights=weights.name if weights else None, model_file=model_file, target=target)
    fitting = model_files_for(folder, found, weights) if FORMATS[weights.kind].state and model_file is None else ()
    served = ServedWeights(
        weights=weights.name, kind=weights.kind, model_file=model_file or next(iter(fitting), None), target=target
    )
    if fitting[1:]:
        message = f"{fitting[0]} was taken for the model's class; it could also be {', '.join(fitting[1:])}"
        finding = _finding("more-model-files", message, "--model-file names another", Severity.NOTE)
        served = replace(served, findings=(finding,))
    if target is Target.MARPACK or (own and own.loads):
        return served
    return _for_server(found, weights, served)


def _for_server(found: Survey, weights: Weights, served: ServedWeights) -> ServedWeights:
    """Return how the server's own loader is served, or that it cannot be."""
    if not FORMATS[weights.kind].marpack_only:
        return replace(served, findings=(*served.findings, *_for_loader(weights, served.model_file)))
    converted = _converted_name(weights, served.model_file)
    findings = (*served.findings, *_in_place(found, weights, converted))
    if converted is None:
        return served if served.target else replace(served, target=Target.MARPACK, findings=findings)
    kind = WeightsFormat.STATE_DICT
    return replace(served, weights=converted, kind=kind, converts=weights.name, findings=findings)


def _converted_name(weights: Weights, model_file: str | None) -> str | None:
    """Return where the state_dict goes that the server loads into the model file's class in place of safetensors."""
    if weights.kind is not WeightsFormat.SAFETENSORS or model_file is None:
        return None
    path = PurePosixPath(weights.name).with_suffix(".pt")
    return path.name if path.is_absolute() or ".." in path.parts else str(path)


def _in_place(found: Survey, weights: Weights, converted: str | None) -> Iterator[Finding]:
    """Yield what was done about weights that the server has no loader for."""
    name, title = weights.name, FORMATS[weights.kind].title
    if converted in found.names:
        message = f"{converted} is there already, and is packed in place of {name}, which TorchServe cannot load"
        yield _finding("converted", message, "--force makes it anew")
    elif converted:
        message = f"{converted} holds what {name} does, which stays where it is: TorchServe loads no safetensors"
        hint = f"when that changes: marpack init --force --weights {name}"
        yield _finding("converted", message, hint, Severity.NOTE)
    elif weights.kind is WeightsFormat.SAFETENSORS:
        message = f"TorchServe cannot load {name}, so the target is marpack, and that needs the model's class, too"
        hint = "marpack init --force --model-file FILE: with the model's class it is converted for TorchServe"
        yield _finding("not-for-torchserve", message, hint)
    else:
        message = f"TorchServe cannot load {name}, and {title} cannot be converted, so the target is marpack"
        hint = f"for TorchServe: torch.jit.trace(model, example).save('model.pt'), or {_SAVED} and --model-file FILE"
        yield _finding("not-for-torchserve", message, hint)


def _for_loader(weights: Weights, model_file: str | None) -> Iterator[Finding]:
    """Yield why the server's loader will not take weights of a format that it knows."""
    row, path = FORMATS[weights.kind], PurePosixPath(weights.name)
    if model_file:
        return
    if row.state:
        message = f"{weights.name} is {row.title}, and there is no model file: nobody can load tensors alone"
        hint = "put the file with the model's class here, and: marpack init --force --model-file FILE"
        yield _finding("no-model-file", message, hint)
    elif row.served_suffix and path.suffix != row.served_suffix:
        message = f"{weights.name} is {row.title}, which TorchServe takes only from a {row.served_suffix} file"
        hint = f"mv {path} {path.with_suffix(row.served_suffix)} && marpack init --force"
        yield _finding("weights-suffix", message, hint)


def _finding(code: str, message: str, hint: str, severity: Severity = Severity.WARNING) -> Finding:
    return Finding(code=code, severity=severity, message=message, hint=hint)


class Fit(Struct, frozen=True, kw_only=True):
    """A template, and what is known of the model that speaks for it."""

    template: str
    pictures: bool = False  # it takes pictures of three channels
    gray: bool = False  # of one
    classes: int | None = None  # that it tells apart


def fit(found: Survey, weights: Weights | None, labels: int | None) -> Fit:
    """Return the template that fits the folder's parts, the weights chosen of them, and the number of labels."""
    if weights is None:
        return Fit(template="image_classifier")
    channels, classes = channels_of(weights.contents), labels or count_classes(weights.contents)
    if weights.kind is WeightsFormat.ONNX:
        return Fit(template="onnx", pictures=channels == 3, gray=channels == 1, classes=classes)
    arguments, result = _signature(weights)
    if found.vocabulary and (arguments > 1 or weights.kind is not WeightsFormat.TORCHSCRIPT):
        return Fit(template="text_classifier", classes=classes)
    if "List[Dict[str, Tensor]]" in result:
        return Fit(template="object_detector")
    if result == "Dict[str, Tensor]":
        return Fit(template="image_segmenter")
    if channels == 3:
        return Fit(template="image_classifier", pictures=True, classes=classes)
    if channels == 1:
        return Fit(template="custom", gray=True, classes=classes)
    return Fit(template="custom", classes=classes)


def channels_of(contents: WeightsSummary) -> int | None:
    """Return how many channels the pictures have that a model begins with; None where it begins otherwise."""
    ports = [port.shape for port in contents.inputs if port.shape and len(port.shape) == 4]
    if ports and isinstance(ports[0][1], int):
        return ports[0][1]
    kernels = (placed.tensor.shape for placed in contents.tensors if len(placed.tensor.shape) == 4)
    return next((shape[1] for shape in kernels), None)


def _signature(weights: Weights) -> tuple[int, str]:
    """Return how many arguments a model's forward takes, and what it returns."""
    forward = next((method for method in weights.contents.methods if method.name == "forward"), None)
    if forward is None:
        return 1, ""
    arguments, _, result = forward.signature.rpartition(" -> ")
    return arguments.count(": "), result


class Chosen(Struct, frozen=True, kw_only=True):
    """Samples as marpack.yaml lists them, and the files that have to be brought for them."""

    listed: tuple[dict[str, Any], ...]  # Any: an expectation
    brought: dict[str, bytes] = {}
    stand_ins: bool = False  # they are generated, so they only show that the model answers


def toy_samples(template: Template) -> Chosen:
    """Return the samples of a template's own model, with the answers that they must get."""
    brought = {sample["input"]: template.read(sample["input"]) for sample in template.samples}
    return Chosen(listed=tuple(template.samples), brought=brought)


def own_samples(template: Template, found: Survey, weights: Weights, fitting: Fit) -> Chosen:
    """Return samples for a model of the author's: pictures that are there, else one stand-in that it can take."""
    picture = _picture(template, fitting)
    if picture and found.pictures:
        return Chosen(listed=tuple(_answered(name) for name in found.pictures[:_MAX_COUNT]))
    name, content = _stand_in(template, weights, picture)
    mark = f"sha256:{hashlib.sha256(content).hexdigest()}"
    return Chosen(listed=({**_answered(name), "generated": mark},), brought={name: content}, stand_ins=True)


def there_samples(names: Iterable[str]) -> Chosen:
    """Return samples for a handler of the author's: inputs that are there, or none."""
    return Chosen(listed=tuple(_answered(name) for name in list(dict.fromkeys(names))[:_MAX_COUNT]))


def _picture(template: Template, fitting: Fit) -> str | None:
    """Return the stand-in that is a picture, if the template's handler takes one."""
    if template.takes == "picture":
        return "red.png"
    if not template.reads_pictures:
        return None
    return "gray.png" if fitting.gray else "red.png" if fitting.pictures else None


def _answered(name: str) -> dict[str, Any]:  # Any: an expectation
    return {"input": name, "expect": {"status": 200}}


def _stand_in(template: Template, weights: Weights, picture: str | None) -> tuple[str, bytes]:
    if picture:
        return f"{_STAND_IN}.png", (template.folder.parent / picture).read_bytes()
    if template.takes != "numbers":
        name = template.samples[0]["input"]
        return f"{_STAND_IN}.{name.rpartition('.')[2]}", template.read(name)
    row: list[Any] = [0.5] * (width_of(weights.contents) or 3)  # Any: a row of numbers, or a list of such rows
    value = [row, row] if template.name == "streaming" else row
    return f"{_STAND_IN}.json", msgspec.json.encode(value) + b"\n"


def width_of(contents: WeightsSummary) -> int | None:
    """Return how many numbers a model takes, guessed from its first layer."""
    ports = [port.shape[-1] for port in contents.inputs if port.shape]
    layers = [placed.tensor.shape[1] for placed in contents.tensors if len(placed.tensor.shape) == 2]
    return next((size for size in (*ports, *layers) if isinstance(size, int) and 0 < size <= _WIDEST), None)
