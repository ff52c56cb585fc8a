"""A folder's parts and the author's answers → the project's files."""

import hashlib
import os
import re
from collections.abc import Iterable, Iterator
from pathlib import Path, PurePosixPath
from typing import Any

import msgspec
from msgspec import Struct
from msgspec.structs import asdict, replace

from marpack.archive.names import MODEL_NAME
from marpack.errors import UsageError
from marpack.findings import Finding, Severity
from marpack.project.label_files import count_classes, count_labels, labels_member
from marpack.project.members import NAME_HINT, OFFERED, EntryPoint, near_built_in
from marpack.project.scaffold.folder_scan import (
    LabelsFile,
    OwnHandler,
    Survey,
    Weights,
    foreign_weights,
    model_files_for,
    read_handler,
    read_weights,
    remarks,
)
from marpack.project.scaffold.template import Template, load_template, render
from marpack.project.scaffold.write_files import Conversion, Source
from marpack.protocol.targets import Target
from marpack.torchserve.labels import LABELS_NAME
from marpack.torchserve.stock import TOPK
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
    fitting = model_files_for(folder, found, weights) if FORMATS[weights.kind].is_state and model_file is None else ()
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
    if row.is_state:
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


_PLAIN_STEMS = re.compile(
    r"(?i)(model|weights?|state_?dict|checkpoint|best|last|final|net|pytorch_model|traced|scripted)"
)
_TOY_LABELS = ("labels.txt", "toy-labels.txt")


class Answers(Struct, frozen=True, kw_only=True):
    """What the author says; None is for what marpack shall find out. Paths are relative to the project."""

    name: str | None = None
    version: str = "1.0"
    template: str | None = None
    handler: str | None = None
    weights: str | None = None
    model_file: str | None = None
    labels: str | None = None
    target: Target | None = None


class Proposal(Struct, frozen=True, kw_only=True):
    """A project to be: the keys of its marpack.yaml, and the files that it brings along."""

    template: Template
    fit: Fit
    name: str
    version: str
    handler: str
    weights: str | None
    kind: WeightsFormat | None  # of the author's own weights, where it is known
    toy: bool  # whether the model is the template's
    converts: Path | None  # the safetensors file that the weights are to be made of
    model_file: str | None
    labels: str | None
    requirements: str | None
    config: str | None
    target: Target | None
    files: tuple[str | dict[str, str], ...]
    samples: Chosen
    brought: dict[str, bytes]  # files of the template, beside samples
    made: tuple[str, ...]  # files that are rendered
    findings: tuple[Finding, ...] = ()

    @property
    def built_in(self) -> bool:
        """Whether the handler is the server's own."""
        return self.handler in OFFERED


def propose(folder: Path, found: Survey, answers: Answers) -> Proposal:
    """Decide what goes into a project: the author's answers first, then what is there, then the template's.

    Raises UsageError for an answer that cannot be, ProjectError for labels that cannot be read.
    """
    own = _own_handler(folder, found, answers)
    weights = _weights(folder, found, answers, own)
    labels = _labels(folder, found, answers, weights, own)
    fitting = fit(found, weights, labels.count if labels else None) if weights or not own else Fit(template="custom")
    template = load_template(answers.template or fitting.template)
    weights = _suited(weights, template, answers)
    toy = weights is None and own is None
    handler = own.entry if own else _handler(answers, template, fitting)
    samples = _samples(template, found, weights, fitting, own)
    served = serve(folder, found, weights, own, model_file=answers.model_file, target=answers.target)
    brought = _toy_files(template, found) if toy else {}
    requirements = found.requirements or template.requirements
    if requirements and not found.requirements:
        brought[requirements] = template.read(requirements)
    return Proposal(
        template=template,
        fit=fitting,
        name=_name(folder, answers, weights),
        version=answers.version,
        handler=handler,
        weights=template.weights if toy else served.weights,
        kind=served.kind,
        toy=toy,
        converts=Path(os.path.normpath(folder / served.converts)) if served.converts else None,
        model_file=served.model_file,
        labels=answers.labels or (_toy_labels(found) if toy else labels.name if labels else None),
        requirements=requirements,
        config=next(iter(found.configs), None),
        target=served.target,
        files=tuple(template.files)
        if toy
        else _files(found, own, {served.weights, served.converts, *found.configs[:1]}),
        samples=samples,
        brought=brought,
        made=tuple(_made(handler, found, own)),
        findings=(*served.findings, *_remarks(found, weights, labels, samples, answers, own)),
    )


def _own_handler(folder: Path, found: Survey, answers: Answers) -> OwnHandler | None:
    """Return the author's handler: the one named, else, unless a template was, the likeliest of the folder's."""
    entry = answers.handler
    if entry is not None:
        _check_handler(folder, entry)
    elif answers.template is None:
        entry = min(found.handlers, key=_likely, default=None)
    return None if entry is None or entry in OFFERED else read_handler(folder, found.names, entry)


def _likely(handler: str) -> tuple[bool, bool, bool]:
    """Put what is called a handler first, then what is at the top, and functions that only look like one last."""
    return "handler" not in handler, "/" in handler, ":" in handler


def _samples(
    template: Template, found: Survey, weights: Weights | None, fitting: Fit, own: OwnHandler | None
) -> Chosen:
    if own:
        pictures = found.pictures if fitting.pictures or fitting.gray else ()
        return there_samples(name for name in (*found.inputs, *pictures) if name not in own.asked)
    return own_samples(template, found, weights, fitting) if weights else toy_samples(template)


def _remarks(
    found: Survey,
    weights: Weights | None,
    labels: LabelsFile | None,
    samples: Chosen,
    answers: Answers,
    own: OwnHandler | None,
) -> Iterator[Finding]:
    """Yield what the author is to know of the choices that were made."""
    taken = {weights.name, *(own.asked if own else ())} if weights else set()
    others = ", ".join(each.name for each in found.weights if each.name not in taken)
    if weights and others and answers.weights is None:
        why = f", since {own.file} names it" if own and weights.name in own.asked else ""
        message = f"{weights.name} was taken{why}; there are also {others}"
        hint = "--weights names another"
        yield Finding(code="more-weights", severity=Severity.WARNING, message=message, hint=hint)
    if own:
        packed = {each.name for each in (weights, labels) if each}
        yield from remarks(own, found, packed, has_weights=weights is not None)
    if not samples.listed:
        until = "until `marpack run --input FILE --record` has been done"
        message = f"there is no sample: `marpack check` calls the archive not proved {until}"
        yield Finding(code="no-samples", severity=Severity.NOTE, message=message)


def suggested_name(folder: Path, weights: str | None) -> str:
    """Return a model name made from the weights' file, or the folder's name where that says nothing."""
    stem = Path(weights).stem if weights else ""
    text = folder.absolute().name if not stem or _PLAIN_STEMS.fullmatch(stem) else stem
    name = re.sub(r"[^A-Za-z0-9_.-]+", "-", text).strip("-._")
    return name if MODEL_NAME.fullmatch(name) else "model"


def _name(folder: Path, answers: Answers, weights: Weights | None) -> str:
    if answers.name is None:
        return suggested_name(folder, weights.name if weights else None)
    if not MODEL_NAME.fullmatch(answers.name):
        raise UsageError(f"'{answers.name}' is no model name", where="--name", hint=NAME_HINT)
    return answers.name


def _weights(folder: Path, found: Survey, answers: Answers, own: OwnHandler | None) -> Weights | None:
    if answers.weights is None:
        return likely_weights(found, own)
    return chosen_weights(_there(folder, answers.weights, "--weights"), answers.weights, own)


def _labels(
    folder: Path, found: Survey, answers: Answers, weights: Weights | None, own: OwnHandler | None
) -> LabelsFile | None:
    """Return the labels: of several files one with as many as the model has classes, else one whose name says so.

    Beside an author's handler the name must say so, and the handler's source must name no labels of its own.
    """
    if answers.labels is not None:
        path = _there(folder, answers.labels, "--labels")
        labels_member(path)  # raises what is wrong with them
        return LabelsFile(name=answers.labels, count=count_labels(path) or 0, named=True)
    classes = count_classes(weights.contents) if weights else None
    if own is None:
        likely = [each for each in found.labels if each.named or (each.count == classes and each.count > 1)]
        return min(likely, key=lambda each: (each.count != classes, not each.named), default=None)
    named = [each for each in found.labels if each.named]
    if any(each.name in own.asked for each in named):
        named = [each for each in named if each.name == LABELS_NAME]
    return min(named, key=lambda each: (each.name != LABELS_NAME, each.count != classes), default=None)


def _there(folder: Path, name: str, flag: str) -> Path:
    path = Path(os.path.normpath(folder / name))  # the project's folder itself need not be there yet
    if not path.is_file():
        raise UsageError(f"there is no file {path}", where=flag)
    return path


def _suited(weights: Weights | None, template: Template, answers: Answers) -> Weights | None:
    """Return the weights if the template can take them: one that was asked for decides over those that were found."""
    if weights is None or answers.template is None or (template.name == "onnx") == (weights.kind is WeightsFormat.ONNX):
        return weights
    if answers.weights is None:
        return None
    what = "is for ONNX models" if template.name == "onnx" else "is not for ONNX models"
    raise UsageError(f"the template {template.name} {what}, and {weights.name} is {weights.kind}", where="--template")


def _handler(answers: Answers, template: Template, fitting: Fit) -> str:
    if answers.handler is not None:
        return answers.handler
    if template.name == "image_classifier" and fitting.classes is not None and fitting.classes < TOPK:
        return "handler.py"  # the server's own fails with so few
    return template.handler


def _check_handler(folder: Path, handler: str) -> None:
    file = EntryPoint.parse(handler, folder).file
    if file is None or file.is_file():
        return
    near = near_built_in(handler)
    hint = f"did you mean {near}?" if near else "leave --handler out, and one is written for you"
    raise UsageError(f"{handler} is neither a built-in handler nor a file in {folder}", where="--handler", hint=hint)


def _toy_files(template: Template, found: Survey) -> dict[str, bytes]:
    names = (template.weights, *template.files)
    return {name: template.read(name) for name in names} | {_toy_labels(found): template.read("labels.txt")}


def _toy_labels(found: Survey) -> str:
    """Return where the toy model's labels go: an author's labels, there before their weights, stay what they are."""
    return _TOY_LABELS["labels.txt" in found.names and not found.weights]


def _files(found: Survey, own: OwnHandler | None, named: set[str | None]) -> tuple[str | dict[str, str], ...]:
    """Return the entries of `files`: the vocabulary, and what the handler's source names and no other key brings."""
    asked = {found.vocabulary: found.vocabulary} if found.vocabulary else {}
    asked |= {name: member for name, member in (own.asked if own else {}).items() if name not in named}
    return tuple(name if name == member else {"from": name, "to": member} for name, member in asked.items())


def _made(handler: str, found: Survey, own: OwnHandler | None) -> Iterator[str]:
    yield "marpack.yaml"
    if handler not in OFFERED and handler not in found.handlers and own is None:
        yield f"{handler.partition(':')[0].removesuffix('.py')}.py"
    yield "test_model.py"
    yield "README.md"


def assemble(proposal: Proposal, *, for_new: bool = True) -> dict[str, Source]:
    """Return every file that the project gets, by its name below the project's folder.

    Samples and converted weights come along only `for_new` projects: a marpack.yaml that is there already would not
    name them.
    """
    values = _values(proposal)
    files: dict[str, Source] = {}
    for name in proposal.made:
        own = name.endswith(".py") and name != "test_model.py"
        source = f"{proposal.template.name}/handler.py.j2" if own else f"{name}.j2"
        files[name] = render(source, values)
    if for_new and proposal.converts and proposal.weights:
        files[proposal.weights] = Conversion(proposal.converts)
    return files | proposal.brought | (proposal.samples.brought if for_new else {})


def _values(proposal: Proposal) -> dict[str, Any]:  # Any: what the template files ask for
    """Return what the template files are rendered with."""
    template, fit = proposal.template, proposal.fit
    is_toy = proposal.toy
    return (
        asdict(template)
        | asdict(proposal)
        | {
            "model": " ".join(template.model.split()),
            "built_in": proposal.built_in,
            "config_file": proposal.config,
            "metadata": {},
            "batch_size": 4 if is_toy and template.name != "text_classifier" else 1,
            "samples": proposal.samples.listed,
            "stand_ins": proposal.samples.stand_ins,
            "brought_samples": bool(proposal.samples.brought),
            "test": template.test.strip(),
            "handler_test": template.handler_test.strip(),
            "classes": fit.classes,
            "topk": min(fit.classes or TOPK, TOPK),
            "onnx": template.name == "onnx",
            "pictures": fit.pictures and not is_toy,
            "gray": fit.gray and not is_toy,
        }
    )
