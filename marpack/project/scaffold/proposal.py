"""A folder's parts and the author's answers → the template that fits them, and the project's files."""

import hashlib
import os
import re
from collections.abc import Callable, Iterable, Iterator
from functools import partial
from pathlib import Path, PurePosixPath
from typing import Any

import msgspec
from msgspec import Struct
from msgspec.structs import asdict, replace

from marpack import finding_codes as codes
from marpack.archive.protocol import MODEL_NAME
from marpack.errors import UsageError
from marpack.findings import Finding, Severity
from marpack.project.load import count_labels, labels_member
from marpack.project.members import OFFERED, EntryPoint, near_built_in
from marpack.project.scaffold.folder_scan import (
    FolderScan,
    LabelsFile,
    OwnHandler,
    Weights,
    foreign_weights,
    handler_findings,
    model_files_for,
    read_handler,
    read_weights,
)
from marpack.project.scaffold.template import Template, load_template, render
from marpack.project.scaffold.write_files import Source
from marpack.project.schema import Expectation, SampleSpec
from marpack.protocol.targets import Target
from marpack.torchserve.labels import LABELS_NAME
from marpack.torchserve.server_modules import TOPK
from marpack.weights.kind import FORMATS, WeightsFormat
from marpack.weights.tensors import WeightsSummary

_MAX_SAMPLES = 5
_MAX_WIDTH = 4096  # numbers in a generated sample
_GENERATED = "samples/stand-in"
_SAVED = "torch.save(model.state_dict(), 'model.pt')"
_KNOWN = "save a model with torch.jit.save, torch.onnx.export or torch.save(model.state_dict(), …)"
_PLAIN_STEMS = re.compile(
    r"(?i)(model|weights?|state_?dict|checkpoint|best|last|final|net|pytorch_model|traced|scripted)"
)
_TOY_LABELS = ("labels.txt", "toy-labels.txt")

Convert = Callable[[Path, Path], object]  # writes a safetensors file's tensors as a state_dict


class Answers(Struct, frozen=True, kw_only=True):
    """The author's answers; None lets marpack choose. Paths are relative to the project."""

    name: str | None = None
    version: str = "1.0"
    template: str | None = None
    handler: str | None = None
    weights: str | None = None
    model_file: str | None = None
    labels: str | None = None
    target: Target | None = None


class TemplateChoice(Struct, frozen=True, kw_only=True):
    """A template, and the facts about the model that led to it."""

    template: str
    pictures: bool = False  # inputs are pictures of three channels
    gray: bool = False  # of one
    classes: int | None = None


class ServedWeights(Struct, frozen=True, kw_only=True):
    """The weights as marpack.yaml names them, and the target that can load them."""

    weights: str | None = None
    kind: WeightsFormat | None = None
    converts: str | None = None  # the safetensors file that they are converted from
    model_file: str | None = None
    target: Target | None = None
    findings: tuple[Finding, ...] = ()


class SampleChoice(Struct, frozen=True, kw_only=True):
    """Samples for marpack.yaml, and the files to write for them."""

    listed: tuple[SampleSpec, ...]
    brought: dict[str, bytes] = {}
    stand_ins: bool = False  # they are generated, so they show only that the model responds


class Proposal(Struct, frozen=True, kw_only=True):
    """A project to write: the keys of its marpack.yaml, and the files that it brings along."""

    template: Template
    fit: TemplateChoice
    name: str
    version: str
    handler: str
    weights: str | None
    kind: WeightsFormat | None  # of the author's own weights, if it is known
    toy: bool  # whether the model is the template's
    converts: Path | None  # the safetensors file that the weights are converted from
    model_file: str | None
    labels: str | None
    requirements: str | None
    config: str | None
    target: Target | None
    files: tuple[str | dict[str, str], ...]
    samples: SampleChoice
    brought: dict[str, bytes]  # files of the template, without samples
    made: tuple[str, ...]  # files that are rendered
    findings: tuple[Finding, ...] = ()

    @property
    def built_in(self) -> bool:
        """Whether the handler is the server's own."""
        return self.handler in OFFERED


def propose(folder: Path, found: FolderScan, answers: Answers) -> Proposal:
    """Decide what a project contains: the author's answers first, then the folder's files, then the template's.

    Raises UsageError for an answer that is not possible, ProjectError for labels that cannot be read.
    """
    if answers.name is not None and not MODEL_NAME.fullmatch(answers.name):
        raise UsageError(f"'{answers.name}' is not a model name", where="--name", hint=codes.MODEL_NAME.hint)
    own = _choose_handler(folder, found, answers)
    weights = _choose_weights(folder, found, answers, own)
    labels = _choose_labels(folder, found, answers, weights, own)
    choice = TemplateChoice(template="custom")
    if weights or not own:
        choice = choose_template(found, weights, labels.count if labels else None)
    template = load_template(answers.template or choice.template)
    weights = _suited(weights, template, answers)
    is_toy = weights is None and own is None
    handler = own.entry if own else answers.handler or template.handler
    is_chosen = own is None and answers.handler is None
    if is_chosen and handler == "image_classifier" and choice.classes is not None and choice.classes < TOPK:
        handler = "handler.py"  # the server's own fails with fewer classes
    samples = choose_samples(template, found, weights, choice, own)
    served = serve_weights(folder, found, weights, own, model_file=answers.model_file, target=answers.target)
    # A toy's labels do not replace an author's, which are there before their weights.
    toy_labels = _TOY_LABELS["labels.txt" in found.names and not found.weights]
    brought = {name: template.read(name) for name in (template.weights, *template.files)} if is_toy else {}
    if is_toy:
        brought[toy_labels] = template.read("labels.txt")
    requirements = found.requirements or template.requirements
    if requirements and not found.requirements:
        brought[requirements] = template.read(requirements)
    is_made = handler not in OFFERED and handler not in found.handlers and own is None
    made = (f"{handler.partition(':')[0].removesuffix('.py')}.py",) if is_made else ()
    return Proposal(
        template=template,
        fit=choice,
        name=answers.name or suggested_name(folder, weights.name if weights else None),
        version=answers.version,
        handler=handler,
        weights=template.weights if is_toy else served.weights,
        kind=served.kind,
        toy=is_toy,
        converts=Path(os.path.normpath(folder / served.converts)) if served.converts else None,
        model_file=served.model_file,
        labels=answers.labels or (toy_labels if is_toy else labels.name if labels else None),
        requirements=requirements,
        config=next(iter(found.configs), None),
        target=served.target,
        files=tuple(template.files) if is_toy else _file_entries(found, own, served),
        samples=samples,
        brought=brought,
        made=("marpack.yaml", *made, "test_model.py", "README.md"),
        findings=(*served.findings, *_choice_findings(found, weights, labels, samples, answers, own)),
    )


def _choose_handler(folder: Path, found: FolderScan, answers: Answers) -> OwnHandler | None:
    """Return the author's handler: the named one, or, unless a template is named, the likeliest in the folder."""
    entry = answers.handler
    if entry is None and answers.template is None:
        # First those that are called handlers, then those at the top; functions that only look like one come last.
        likely = sorted(found.handlers, key=lambda name: ("handler" not in name, "/" in name, ":" in name))
        entry = next(iter(likely), None)
    elif entry is not None:
        file = EntryPoint.parse(entry, folder).file
        if file is not None and not file.is_file():
            near = near_built_in(entry)
            hint = f"did you mean {near}?" if near else "leave --handler out, and marpack writes one"
            what = f"{entry} is neither a built-in handler nor a file in {folder}"
            raise UsageError(what, where="--handler", hint=hint)
    return None if entry is None or entry in OFFERED else read_handler(folder, found.names, entry)


def _choose_weights(folder: Path, found: FolderScan, answers: Answers, own: OwnHandler | None) -> Weights | None:
    """Return the named weights, or those that the handler's source names, or the likeliest.

    Formats that marpack cannot read are accepted only for a handler that loads its model itself.
    """
    loads = own is not None and own.loads
    if answers.weights is not None:
        path = _existing(folder, answers.weights, "--weights")
        weights = read_weights(path, answers.weights) or (foreign_weights(path, answers.weights) if loads else None)
        if weights is None:
            raise UsageError(
                f"{answers.weights} does not hold weights that marpack knows", where="--weights", hint=_KNOWN
            )
        return weights
    choice = (*found.weights, *(found.foreign if loads else ()))
    named = (each for each in choice if own and each.name in own.asked)
    return next(iter((*named, *choice)), None)


def _suited(weights: Weights | None, template: Template, answers: Answers) -> Weights | None:
    """Return the weights if a named template supports them; raises UsageError if both are named and do not fit."""
    is_onnx = weights is not None and weights.kind is WeightsFormat.ONNX
    if weights is None or answers.template is None or (template.name == "onnx") == is_onnx:
        return weights
    if answers.weights is None:
        return None
    what = "is for ONNX models" if template.name == "onnx" else "is not for ONNX models"
    raise UsageError(f"the template {template.name} {what}, and {weights.name} is {weights.kind}", where="--template")


def _choose_labels(
    folder: Path, found: FolderScan, answers: Answers, weights: Weights | None, own: OwnHandler | None
) -> LabelsFile | None:
    """Return the labels: the file with as many as the model has classes, or one with a name for labels.

    Beside an author's handler the name must say so, and the handler's source must not name labels itself.
    """
    if answers.labels is not None:
        path = _existing(folder, answers.labels, "--labels")
        labels_member(path)  # raises ProjectError
        return LabelsFile(name=answers.labels, count=count_labels(path) or 0, named=True)
    classes = count_classes(weights.contents) if weights else None
    if own is None:
        likely = [each for each in found.labels if each.named or (each.count == classes and each.count > 1)]
        return min(likely, key=lambda each: (each.count != classes, not each.named), default=None)
    named = [each for each in found.labels if each.named]
    if any(each.name in own.asked for each in named):
        named = [each for each in named if each.name == LABELS_NAME]
    return min(named, key=lambda each: (each.name != LABELS_NAME, each.count != classes), default=None)


def _existing(folder: Path, name: str, flag: str) -> Path:
    path = Path(os.path.normpath(folder / name))  # the project's folder itself may not exist yet
    if not path.is_file():
        raise UsageError(f"{path} does not exist, or is not a file", where=flag)
    return path


def choose_template(found: FolderScan, weights: Weights | None, labels: int | None) -> TemplateChoice:
    """Return the template that fits the folder's files, the chosen weights, and the number of labels."""
    if weights is None:
        return TemplateChoice(template="image_classifier")
    channels, classes = channels_of(weights.contents), labels or count_classes(weights.contents)
    if weights.kind is WeightsFormat.ONNX:
        return TemplateChoice(template="onnx", pictures=channels == 3, gray=channels == 1, classes=classes)
    forward = next((method for method in weights.contents.methods if method.name == "forward"), None)
    arguments, _, result = forward.signature.rpartition(" -> ") if forward else ("x: Tensor", "", "")
    if found.vocabulary and (arguments.count(": ") > 1 or weights.kind is not WeightsFormat.TORCHSCRIPT):
        return TemplateChoice(template="text_classifier", classes=classes)
    if "List[Dict[str, Tensor]]" in result:
        return TemplateChoice(template="object_detector")
    if result == "Dict[str, Tensor]":
        return TemplateChoice(template="image_segmenter")
    if channels == 3:
        return TemplateChoice(template="image_classifier", pictures=True, classes=classes)
    return TemplateChoice(template="custom", gray=channels == 1, classes=classes)


def channels_of(contents: WeightsSummary) -> int | None:
    """Return the number of channels of the pictures that a model takes; None if its first layer takes no pictures."""
    ports = [port.shape for port in contents.inputs if port.shape and len(port.shape) == 4]
    if ports and isinstance(ports[0][1], int):
        return ports[0][1]
    kernels = (placed.tensor.shape for placed in contents.tensors if len(placed.tensor.shape) == 4)
    return next((shape[1] for shape in kernels), None)


def count_classes(contents: WeightsSummary) -> int | None:
    """Return how many numbers a model's last layer gives, guessed from its tensors' names and shapes."""
    outputs = [port.shape[-1] for port in contents.outputs if port.shape]
    if outputs and isinstance(outputs[0], int):
        return outputs[0]
    layers = [placed.tensor.shape for placed in contents.tensors if len(placed.tensor.shape) > 1]
    return layers[-1][0] if layers else None


def width_of(contents: WeightsSummary) -> int | None:
    """Return how many numbers a model takes, guessed from its first layer."""
    ports = [port.shape[-1] for port in contents.inputs if port.shape]
    layers = [placed.tensor.shape[1] for placed in contents.tensors if len(placed.tensor.shape) == 2]
    return next((size for size in (*ports, *layers) if isinstance(size, int) and 0 < size <= _MAX_WIDTH), None)


def choose_samples(
    template: Template, found: FolderScan, weights: Weights | None, choice: TemplateChoice, own: OwnHandler | None
) -> SampleChoice:
    """Return existing inputs, or the template's samples for its toy model, or a generated one."""
    if own:
        pictures = found.pictures if choice.pictures or choice.gray else ()
        return _expect_200(name for name in (*found.inputs, *pictures) if name not in own.asked)
    if weights is None:
        brought = {sample.input: template.read(sample.input) for sample in template.samples}
        return SampleChoice(listed=tuple(template.samples), brought=brought)
    picture = "gray.png" if choice.gray else "red.png" if choice.pictures else None
    if template.takes == "picture":
        picture = "red.png"
    elif not template.reads_pictures:
        picture = None
    if picture and found.pictures:
        return _expect_200(found.pictures)
    if picture:
        name, content = f"{_GENERATED}.png", (template.folder.parent / picture).read_bytes()
    elif template.takes != "numbers":
        first = template.samples[0].input
        name, content = f"{_GENERATED}.{first.rpartition('.')[2]}", template.read(first)
    else:
        row = [0.5] * (width_of(weights.contents) or 3)
        value = [row, row] if template.name == "streaming" else row
        name, content = f"{_GENERATED}.json", msgspec.json.encode(value) + b"\n"
    mark = f"sha256:{hashlib.sha256(content).hexdigest()}"
    sample = SampleSpec(input=name, expect=Expectation(status=200), generated=mark)
    return SampleChoice(listed=(sample,), brought={name: content}, stand_ins=True)


def _expect_200(names: Iterable[str]) -> SampleChoice:
    first = list(dict.fromkeys(names))[:_MAX_SAMPLES]
    return SampleChoice(listed=tuple(SampleSpec(input=name, expect=Expectation(status=200)) for name in first))


def serve_weights(
    folder: Path,
    found: FolderScan,
    weights: Weights | None,
    own: OwnHandler | None,
    *,
    model_file: str | None,
    target: Target | None,
) -> ServedWeights:
    """Return how weights are served; marpack chooses a model file and a target that are None."""
    if weights is None or weights.kind is WeightsFormat.UNKNOWN:
        return ServedWeights(weights=weights.name if weights else None, model_file=model_file, target=target)
    row, path, findings = FORMATS[weights.kind], PurePosixPath(weights.name), list[Finding]()
    if row.is_state and model_file is None:
        fitting = model_files_for(folder, found, weights)
        model_file = next(iter(fitting), None)
        if fitting[1:]:
            message = f"{model_file} was chosen for the model's class; it could also be {', '.join(fitting[1:])}"
            findings.append(codes.MORE_MODEL_FILES.at(message=message))
    served = ServedWeights(
        weights=weights.name, kind=weights.kind, model_file=model_file, target=target, findings=tuple(findings)
    )
    if target is Target.MARPACK or (own and own.loads):
        return served
    if row.marpack_only:
        return _serve_without_loader(found, weights, served)
    if model_file is None and row.is_state:
        message = f"{weights.name} is {row.title}, and there is no model file with the class of its tensors"
        hint = "put the file with the model's class here, and: marpack init --force --model-file FILE"
        findings.append(codes.NO_MODEL_FILE.at(hint=hint, message=message))
    elif model_file is None and row.served_suffix and path.suffix != row.served_suffix:
        message = f"{weights.name} is {row.title}, which TorchServe takes only from a {row.served_suffix} file"
        hint = f"mv {path} {path.with_suffix(row.served_suffix)} && marpack init --force"
        findings.append(codes.WEIGHTS_SUFFIX_RENAME.at(severity=Severity.WARNING, hint=hint, message=message))
    return replace(served, findings=tuple(findings))


def _serve_without_loader(found: FolderScan, weights: Weights, served: ServedWeights) -> ServedWeights:
    """Return how weights are served that TorchServe cannot load: converted to a state_dict, or by target marpack."""
    name, is_safetensors = weights.name, weights.kind is WeightsFormat.SAFETENSORS
    if is_safetensors and served.model_file:
        path = PurePosixPath(name).with_suffix(".pt")
        converted = path.name if path.is_absolute() or ".." in path.parts else str(path)
        message = f"{converted} has the tensors of {name}, which stays: TorchServe does not load safetensors"
        hint = f"when that changes: marpack init --force --weights {name}"
        finding = codes.CONVERTED.at(severity=Severity.NOTE, hint=hint, message=message)
        if converted in found.names:
            message = f"{converted} exists, and is packed instead of {name}, which TorchServe cannot load"
            finding = codes.CONVERTED.at(message=message)
        kind = WeightsFormat.STATE_DICT
        return replace(served, weights=converted, kind=kind, converts=name, findings=(*served.findings, finding))
    if served.target:
        return served
    message = f"TorchServe cannot load {name}, so the target is marpack, which also needs the model's class"
    hint = "marpack init --force --model-file FILE: with the model's class it is converted for TorchServe"
    if not is_safetensors:
        title = FORMATS[weights.kind].title
        message = f"TorchServe cannot load {name}, and {title} cannot be converted, so the target is marpack"
        hint = f"for TorchServe: torch.jit.trace(model, example).save('model.pt'), or {_SAVED} and --model-file FILE"
    findings = (*served.findings, codes.NOT_FOR_TORCHSERVE.at(hint=hint, message=message))
    return replace(served, target=Target.MARPACK, findings=findings)


def suggested_name(folder: Path, weights: str | None) -> str:
    """Return a model name from the weights' file, or from the folder where the file's name says nothing."""
    stem = Path(weights).stem if weights else ""
    text = folder.absolute().name if not stem or _PLAIN_STEMS.fullmatch(stem) else stem
    name = re.sub(r"[^A-Za-z0-9_.-]+", "-", text).strip("-._")
    return name if MODEL_NAME.fullmatch(name) else "model"


def _file_entries(found: FolderScan, own: OwnHandler | None, served: ServedWeights) -> tuple[str | dict[str, str], ...]:
    """Return the entries of `files`: the vocabulary, and files that the handler's source names and no key brings."""
    named = {served.weights, served.converts, *found.configs[:1]}
    asked = {found.vocabulary: found.vocabulary} if found.vocabulary else {}
    asked |= {name: member for name, member in (own.asked if own else {}).items() if name not in named}
    return tuple(name if name == member else {"from": name, "to": member} for name, member in asked.items())


def _choice_findings(
    found: FolderScan,
    weights: Weights | None,
    labels: LabelsFile | None,
    samples: SampleChoice,
    answers: Answers,
    own: OwnHandler | None,
) -> Iterator[Finding]:
    """Yield the choices that the author may want to change."""
    chosen = {weights.name, *(own.asked if own else ())} if weights else set()
    others = ", ".join(each.name for each in found.weights if each.name not in chosen)
    if weights and others and answers.weights is None:
        why = f", since {own.file} names it" if own and weights.name in own.asked else ""
        yield codes.MORE_WEIGHTS.at(name=weights.name, why=why, others=others)
    if own:
        packed = {each.name for each in (weights, labels) if each}
        yield from handler_findings(own, found, packed, has_weights=weights is not None)
    if not samples.listed:
        until = "until `marpack run --input FILE --record` adds one"
        message = f"there is no sample: `marpack check` reports the archive as not proved {until}"
        yield codes.NO_SAMPLES.at(message=message)


def assemble(proposal: Proposal, convert: Convert, *, for_new: bool = True) -> dict[str, Source]:
    """Return every file of the project, by its name below the project's folder.

    Args:
        proposal: From `propose`.
        convert: Writes the state_dict of a safetensors file, when the files are written.
        for_new: Add samples and converted weights; an existing marpack.yaml does not name them.
    """
    template, choice, is_toy = proposal.template, proposal.fit, proposal.toy
    values: dict[str, Any] = asdict(template) | asdict(proposal)  # Any: each variable of the templates has its type
    values |= {
        "model": " ".join(template.model.split()),
        "built_in": proposal.built_in,
        "config_file": proposal.config,
        "metadata": {},
        "batch_size": 4 if is_toy and template.name != "text_classifier" else 1,
        "samples": [msgspec.to_builtins(sample) for sample in proposal.samples.listed],
        "stand_ins": proposal.samples.stand_ins,
        "brought_samples": bool(proposal.samples.brought),
        "test": template.test.strip(),
        "handler_test": template.handler_test.strip(),
        "classes": choice.classes,
        "topk": min(choice.classes or TOPK, TOPK),
        "onnx": template.name == "onnx",
        "pictures": choice.pictures and not is_toy,
        "gray": choice.gray and not is_toy,
    }
    files: dict[str, Source] = {}
    for name in proposal.made:
        is_handler = name.endswith(".py") and name != "test_model.py"
        files[name] = render(f"{template.name}/handler.py.j2" if is_handler else f"{name}.j2", values)
    if for_new and proposal.converts and proposal.weights:
        files[proposal.weights] = partial(convert, proposal.converts)
    return files | proposal.brought | (proposal.samples.brought if for_new else {})
