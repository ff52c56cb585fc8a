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
from marpack.errors import UsageError, join_names
from marpack.findings import Finding
from marpack.project.load import count_labels, labels_member
from marpack.project.members import OFFERED, EntryPoint, near_built_in
from marpack.project.scaffold.folder_scan import (
    ENDPOINT_FILE,
    REQUIREMENTS,
    FolderScan,
    LabelsFile,
    OwnHandler,
    Weights,
    model_files_for,
    read_handler,
    read_weights,
)
from marpack.project.scaffold.pretrained import PretrainedModel, is_pretrained, read_pretrained
from marpack.project.scaffold.template import Template, load_template, render
from marpack.project.scaffold.write_files import Source
from marpack.project.schema import Expectation, SampleSpec
from marpack.protocol.targets import Target
from marpack.torchserve.labels import LABELS_NAME
from marpack.torchserve.server_modules import TOPK
from marpack.weights.hugging_face import WEIGHTS_FILES, Task
from marpack.weights.kind import FORMATS, WeightsFormat
from marpack.weights.tensors import WeightsSummary

_MAX_SAMPLES = 5
_MAX_WIDTH = 4096  # numbers in a generated sample
_GENERATED = "samples/stand-in"
_PLAIN_STEMS = re.compile(
    r"(?i)(model|weights?|state_?dict|checkpoint|best|last|final|net|pytorch_model|traced|scripted)"
)

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
    task: Task | None = None  # of a Hugging Face model
    trust_remote_code: bool = False


class TemplateChoice(Struct, frozen=True, kw_only=True):
    """A template, and the facts about the model that led to it."""

    template: str
    pictures: bool = False  # inputs are pictures of three channels
    gray: bool = False  # of one
    classes: int | None = None


class SampleChoice(Struct, frozen=True, kw_only=True):
    """Samples for marpack.yaml, and the files to write for them."""

    listed: tuple[SampleSpec, ...]
    brought: dict[str, bytes] = {}


class Proposal(Struct, frozen=True, kw_only=True):
    """A project to write: the keys of its marpack.yaml, and the files that it brings along."""

    template: Template
    fit: TemplateChoice = TemplateChoice(template="custom")
    name: str
    version: str
    handler: str
    weights: str | None
    kind: WeightsFormat | None = None  # of the author's own weights, if it is known
    toy: bool = False  # whether the model is the template's
    converts: Path | None = None  # the safetensors file that the weights are converted from
    model_file: str | None = None
    labels: str | None = None
    requirements: str | None
    config_file: str | None
    target: Target | None
    files: tuple[str | dict[str, str], ...]
    samples: SampleChoice
    brought: dict[str, bytes] = {}  # files of the template, without samples
    made: tuple[str, ...]  # files that are rendered
    pretrained: PretrainedModel | None = None
    findings: tuple[Finding, ...] = ()


def propose(folder: Path, found: FolderScan, answers: Answers) -> Proposal:
    """Decide what a project contains: the author's answers first, then the folder's files, then the template's.

    Raises UsageError for an answer that is not possible, ProjectError for labels that cannot be read.
    """
    if answers.name is not None and not MODEL_NAME.fullmatch(answers.name):
        raise UsageError(f"'{answers.name}' is not a model name", where="--name", hint=codes.MODEL_NAME.hint)
    own = _choose_handler(folder, found, answers)
    others = (own, answers.template, answers.handler, answers.model_file, answers.labels)
    if not any(others) and answers.weights in {None, *WEIGHTS_FILES} and is_pretrained(folder, found):
        return _propose_pretrained(folder, found, answers)
    if answers.task is not None or answers.trust_remote_code:
        flag = "--task" if answers.task is not None else "--trust-remote-code"
        hint = "Use it in a folder with config.json, weights and a tokenizer, without options for other models."
        raise UsageError(f"{flag} requires a Hugging Face model", where=str(folder), hint=hint, code="no-hugging-face")
    weights = _choose_weights(folder, found, answers, own)
    labels = _choose_labels(folder, found, answers, weights, own)
    fit = TemplateChoice(template="custom")
    if weights or not own:
        fit = choose_template(found, weights, labels.count if labels else None)
    template = load_template(answers.template or fit.template)
    if weights and answers.template and (template.name == "onnx") != (weights.kind is WeightsFormat.ONNX):
        if answers.weights:
            what = "is for ONNX models" if template.name == "onnx" else "is not for ONNX models"
            what = f"the template {template.name} {what}, and {weights.name} is {weights.kind}"
            raise UsageError(what, where="--template", hint="Leave out --template, and marpack chooses one.")
        weights = None
    is_toy = weights is None and own is None
    handler = own.entry if own else answers.handler or template.handler
    # The server's own classifier fails with fewer classes.
    if not own and not answers.handler and handler == "image_classifier" and (fit.classes or TOPK) < TOPK:
        handler = "handler.py"
    is_made = handler not in OFFERED and handler not in found.handlers and own is None
    made = (f"{handler.partition(':')[0].removesuffix('.py')}.py",) if is_made else ()
    draft = Proposal(
        template=template,
        fit=fit,
        name=answers.name or suggested_name(folder, weights.name if weights else None),
        version=answers.version,
        handler=handler,
        weights=weights.name if weights else None,
        toy=is_toy,
        model_file=answers.model_file,
        labels=answers.labels or (labels.name if labels else None),
        requirements=found.requirements or template.requirements,
        config_file=next(iter(found.configs), None),
        target=answers.target,
        files=tuple(template.files),
        samples=choose_samples(template, found, weights, fit, own),
        made=("marpack.yaml", *made, "test_model.py", "README.md"),
    )
    if own and own.entry == ENDPOINT_FILE:
        draft = replace(draft, brought={ENDPOINT_FILE: (template.folder.parent / ENDPOINT_FILE).read_bytes()})
    elif template.requirements and not found.requirements:
        draft = replace(draft, brought={template.requirements: template.read(template.requirements)})
    return _add_toy(draft, found, answers) if is_toy else _complete(draft, folder, found, answers, weights, own)


def _add_toy(draft: Proposal, found: FolderScan, answers: Answers) -> Proposal:
    """Return a proposal with the template's model and its labels, and the note that the folder has no model."""
    # A toy's labels do not replace an author's, whose weights may come later.
    labels = "toy-labels.txt" if "labels.txt" in found.names and not found.weights else "labels.txt"
    template = draft.template
    brought = {name: template.read(name) for name in (template.weights, *template.files)}
    return replace(
        draft,
        weights=template.weights,
        labels=answers.labels or labels,
        brought=brought | {labels: template.read("labels.txt")} | draft.brought,
        findings=() if answers.template else (codes.DEMO_PROJECT.at(),),
    )


def _propose_pretrained(folder: Path, found: FolderScan, answers: Answers) -> Proposal:
    """Return the project of a folder's Hugging Face model, around a handler that loads it with transformers."""
    model = read_pretrained(folder, found, task=answers.task, trusts_code=answers.trust_remote_code)
    template = load_template("hugging_face", model.head.task)
    content = template.read(template.samples[0].input).replace(b"[MASK]", model.mask.encode())
    own = [name for name in found.inputs if name.endswith(tuple(template.suffixes))]
    return Proposal(
        template=template,
        name=answers.name or suggested_name(folder, None),
        version=answers.version,
        handler=template.handler,
        weights=model.weights,
        requirements=REQUIREMENTS,
        config_file=next(iter(found.configs), None),
        target=answers.target,
        files=model.members,
        samples=_expect_200(own) if own else _stand_in(Path(template.samples[0].input).suffix, content),
        brought={} if found.requirements else {REQUIREMENTS: "".join(f"{x}\n" for x in model.requirements).encode()},
        made=("marpack.yaml", template.handler, "test_model.py", *({"README.md"} - found.names)),
        pretrained=model,
        findings=model.findings,
    )


def _choose_handler(folder: Path, found: FolderScan, answers: Answers) -> OwnHandler | None:
    """Return the author's handler: the named one, or, unless a template is named, the likeliest in the folder."""
    entry = answers.handler
    if entry is None and not (answers.template or answers.task or answers.trust_remote_code):
        # First those that are called handlers, then those at the top; functions that only look like one come last.
        entry = min(found.handlers, key=lambda name: ("handler" not in name, "/" in name, ":" in name), default=None)
    if entry is None or entry in OFFERED:
        return None
    file = EntryPoint.parse(entry, folder).file
    if file is None or not file.is_file():
        near = near_built_in(entry)
        hint = f"Did you mean {near}?" if near else "Leave out --handler, and marpack writes one."
        raise UsageError(f"{entry} is neither a built-in handler nor a file in {folder}", where="--handler", hint=hint)
    return read_handler(folder, found.names, entry)


def _choose_weights(folder: Path, found: FolderScan, answers: Answers, own: OwnHandler | None) -> Weights | None:
    """Return the named weights, or those that the handler's source names, or the likeliest.

    Formats that marpack cannot read are accepted only for a handler that loads its model itself.
    """
    loads = own is not None and own.loads
    if answers.weights is not None:
        weights = read_weights(_existing(folder, answers.weights, "--weights"), answers.weights)
        if weights is None or (weights.kind is WeightsFormat.UNKNOWN and not loads):
            hint = "Save the model with torch.jit.save, torch.onnx.export or torch.save(model.state_dict(), …)."
            raise UsageError(f"unknown weights format: {answers.weights}", where="--weights", hint=hint)
        return weights
    choice = (*found.weights, *(found.foreign if loads else ()))
    named = (each for each in choice if own and each.name in own.asked)
    return next(iter((*named, *choice)), None)


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
    likely = [each for each in found.labels if each.named]
    if any(each.name in own.asked for each in likely):
        likely = [each for each in likely if each.name == LABELS_NAME]
    return min(likely, key=lambda each: (each.name != LABELS_NAME, each.count != classes), default=None)


def _existing(folder: Path, name: str, flag: str) -> Path:
    path = Path(os.path.normpath(folder / name))  # the project's folder itself may not exist yet
    if not path.is_file():
        hint = "Check the path: it is relative to the project's folder."
        raise UsageError(f"{path} does not exist, or is not a file", where=flag, hint=hint)
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
    first = template.samples[0].input
    if template.takes == "picture" or (template.reads_pictures and (choice.pictures or choice.gray)):
        if found.pictures:
            return _expect_200(found.pictures)
        picture = "gray.png" if choice.gray and template.takes != "picture" else "red.png"
        return _stand_in(".png", (template.folder.parent / picture).read_bytes())
    if template.takes == "numbers":
        row = [0.5] * (width_of(weights.contents) or 3)
        value = [row, row] if template.name == "streaming" else row
        return _stand_in(".json", msgspec.json.encode(value) + b"\n")
    return _stand_in(Path(first).suffix, template.read(first))


def _stand_in(suffix: str, content: bytes) -> SampleChoice:
    """Return a generated sample, which shows only that the model responds."""
    name = f"{_GENERATED}{suffix}"
    mark = f"sha256:{hashlib.sha256(content).hexdigest()}"
    sample = SampleSpec(input=name, expect=Expectation(status=200), generated=mark)
    return SampleChoice(listed=(sample,), brought={name: content})


def _expect_200(names: Iterable[str]) -> SampleChoice:
    first = list(dict.fromkeys(names))[:_MAX_SAMPLES]
    return SampleChoice(listed=tuple(SampleSpec(input=name, expect=Expectation(status=200)) for name in first))


def _complete(
    draft: Proposal, folder: Path, found: FolderScan, answers: Answers, weights: Weights | None, own: OwnHandler | None
) -> Proposal:
    """Return a proposal around an author's parts: how the weights are served, further files, and the findings."""
    if weights and weights.kind is not WeightsFormat.UNKNOWN:
        draft = _serve(draft, folder, found, weights, loads=own is not None and own.loads)
    named = {draft.weights, weights.name if weights else None, *found.configs[:1]}
    asked = {found.vocabulary: found.vocabulary} if found.vocabulary else {}
    asked |= own.asked if own else {}
    files = tuple(
        name if name == member else {"from": name, "to": member} for name, member in asked.items() if name not in named
    )
    return replace(draft, files=files, findings=(*draft.findings, *_notes(draft, found, answers, weights, own)))


def _serve(draft: Proposal, folder: Path, found: FolderScan, weights: Weights, *, loads: bool) -> Proposal:
    """Return a proposal with the weights as the server takes them: with a model file, converted, or for marpack."""
    row, name, model_file, findings = FORMATS[weights.kind], weights.name, draft.model_file, list[Finding]()
    if row.is_state and model_file is None:
        fitting = model_files_for(folder, found, weights)
        model_file = next(iter(fitting), None)
        if fitting[1:]:
            findings.append(codes.MORE_MODEL_FILES.at(name=model_file, others=", ".join(fitting[1:])))
    changes: dict[str, Any] = {"kind": weights.kind, "model_file": model_file}  # Any: each field has its type
    if draft.target is Target.MARPACK or loads:
        return replace(draft, **changes, findings=tuple(findings))
    if weights.kind is WeightsFormat.SAFETENSORS and model_file:
        path = PurePosixPath(name).with_suffix(".pt")
        converted = path.name if path.is_absolute() or ".." in path.parts else str(path)
        changes |= {"weights": converted, "kind": WeightsFormat.STATE_DICT}
        changes["converts"] = Path(os.path.normpath(folder / name))
        code = codes.CONVERTED_BEFORE if converted in found.names else codes.CONVERTED
        findings.append(code.at(hint=f"{code.hint} --weights {name}", converted=converted, file=name))
    elif row.marpack_only and draft.target is None:
        changes["target"] = Target.MARPACK
        code = codes.STATE_NOT_FOR_TORCHSERVE if row.is_state else codes.NOT_FOR_TORCHSERVE
        findings.append(code.at(file=name))
    return replace(draft, **changes, findings=tuple(findings))


def suggested_name(folder: Path, weights: str | None) -> str:
    """Return a model name from the weights' file, or from the folder where the file's name says nothing."""
    stem = Path(weights).stem if weights else ""
    text = folder.absolute().name if not stem or _PLAIN_STEMS.fullmatch(stem) else stem
    name = re.sub(r"[^A-Za-z0-9_.-]+", "-", text).strip("-._")
    return name if MODEL_NAME.fullmatch(name) else "model"


def _notes(
    draft: Proposal, found: FolderScan, answers: Answers, weights: Weights | None, own: OwnHandler | None
) -> Iterator[Finding]:
    """Yield the choices that the author may want to change."""
    asked = own.asked if own else {}
    others = ", ".join(each.name for each in found.weights if each != weights and each.name not in asked)
    if weights and others and answers.weights is None:
        why = f", because {own.file} names it" if own and weights.name in asked else ""
        yield codes.MORE_WEIGHTS.at(name=weights.name, why=why, others=others)
    if own:
        if others := ", ".join(name for name in found.handlers if name != own.entry and name not in own.imported):
            yield codes.MORE_HANDLERS.at(name=own.entry, others=others)
        packed = {weights.name if weights else None, draft.labels, *asked}
        folders = tuple(name for name in asked if name.endswith("/"))
        if left := [name for name in found.data if name not in packed and not name.startswith(folders)]:
            yield codes.LEFT_OUT.at(handler=own.file, files=join_names(left))
    if not draft.samples.listed:
        yield codes.NO_SAMPLES.at()


def assemble(proposal: Proposal, convert: Convert, *, for_new: bool = True) -> dict[str, Source]:
    """Return every file of the project, by its name below the project's folder.

    `for_new` adds samples and converted weights, which an existing marpack.yaml does not name.
    """
    template, choice, is_toy = proposal.template, proposal.fit, proposal.toy
    # Any: each variable of the templates has its type.
    values: dict[str, Any] = asdict(choice) | asdict(template) | asdict(proposal)
    values |= {
        "model": " ".join(template.model.split()),
        "built_in": proposal.handler in OFFERED,
        "metadata": {},
        "batch_size": 4 if (is_toy and template.name != "text_classifier") or proposal.pretrained else 1,
        "samples": [msgspec.to_builtins(sample) for sample in proposal.samples.listed],
        "brought_samples": bool(proposal.samples.brought),
        "topk": min(choice.classes or TOPK, TOPK),
        "onnx": template.name == "onnx",
        "pictures": choice.pictures and not is_toy,
        "gray": choice.gray and not is_toy,
    }
    files: dict[str, Source] = {}
    for name in proposal.made:
        is_handler = name.endswith(".py") and name != "test_model.py"
        files[name] = render(f"{template.name}/{template.source}.py.j2" if is_handler else f"{name}.j2", values)
    if for_new and proposal.converts and proposal.weights:
        files[proposal.weights] = partial(convert, proposal.converts)
    return files | proposal.brought | (proposal.samples.brought if for_new else {})
