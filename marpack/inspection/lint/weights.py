"""The weights' content held against their use, and what a checkpoint gives away (contract §6)."""

import ast
from collections.abc import Iterator, Sequence
from itertools import islice
from pathlib import PurePosixPath

from marpack.errors import MarpackError
from marpack.findings import Finding, Severity
from marpack.inspection.lint.codes import Code
from marpack.inspection.lint.files import Module
from marpack.inspection.lint.model_loading import LintContext, check_keys_of_state, lighter
from marpack.inspection.lint.source import walk
from marpack.protocol.targets import Target
from marpack.weights.contents import Recognized, recognize
from marpack.weights.kind import FORMATS, SERVED, WeightsFormat
from marpack.weights.pickle_stream import PickledCall, PickledDict
from marpack.weights.zip_entries import NotZipError

CHECKPOINT = Code(
    "weights-checkpoint",
    "The weights are a training checkpoint: load_state_dict wants the state_dict that lies under one of its keys.",
    "Save the inner one: torch.save(checkpoint[KEY], path).",
)
WRAPPED = Code(
    "weights-data-parallel",
    "Every key begins with 'module.', as DataParallel leaves them, and the model file's class has no 'module'.",
    "Save the inner model's: torch.save(model.module.state_dict(), path).",
)
_PREFIX = "module."
MANIFEST = "MAR-INF/MANIFEST.json: model.serializedFile"

MISSING = Code(
    "weights-missing",
    "The manifest's weights file is not in the archive.",
    "Pack the file at the archive's root, or leave serializedFile out.",
)
NONE = Code(
    "weights-none",
    "The handler loads its model as BaseHandler does, and there is neither a weights file nor a model file.",
    "Pack the weights (--serialized-file), or override `initialize`.",
)
UNTRAINED = Code(
    "weights-untrained",
    "There is a model file and no weights file: the server serves the class as its constructor leaves it.",
    "Pack the state_dict, unless the class loads its own weights.",
)
SUFFIX = Code(
    "weights-suffix",
    "Without a model file, the server picks its loader by the suffix: .pt, .onnx or .so; it has none for any other.",
    "Save the model as TorchScript in a .pt file, pack a model file, or build with target: marpack.",
)
NEED_MODEL_FILE = Code(
    "weights-need-model-file",
    "The weights are tensors alone, and there is no model file to load them into.",
    "Pack the model's class (--model-file), or save TorchScript: torch.jit.script(model).save(path).",
)
CONTENT = Code(
    "weights-content",
    "The weights file's content is not of the format that its use needs.",
    "Save TorchScript as .pt, ONNX as .onnx; or, for a model file, torch.save(model.state_dict(), path).",
)
PICKLED = Code(
    "weights-pickled",
    "The weights are a whole pickled model: torch 2.6 and later refuse it, and loading it runs whatever it holds.",
    "Save the state_dict (torch.save(model.state_dict(), path)) and pack the model file.",
)
NO_WEIGHTS = Code(
    "weights-absent",
    "Something else stands in the weights file's place: nothing, a Git LFS pointer, a web page, a text.",
    "Fetch the file again.",
)
OBJECTS = Code(
    "weights-objects",
    "The state_dict has other objects among its tensors, which torch 2.6 and later refuse to load.",
    "Save tensors only: torch.save({key: value for key, value in state.items() if torch.is_tensor(value)}, path).",
)
UNKNOWN = Code(
    "weights-unknown",
    "The weights file is of no format that is known; it may be damaged.",
    "Check that the file is whole; save it again.",
)
AOT = Code(
    "weights-aot-setting",
    "The server loads an AOTInductor library only if the model config says `pt2: {export: {aot_compile: true}}`.",
    "Add `pt2: {export: {aot_compile: true}}` to the model config.",
)
ONNX_CALL = Code(
    "weights-onnx-inference",
    "BaseHandler's `inference` calls the model, and an ONNX Runtime session cannot be called: every request is a 503.",
    "Override `inference` with self.model.run(None, {name: array}), or build with target: marpack.",
)
ONNX_RUNTIME = Code(
    "weights-onnx-runtime",
    "A stock server has no onnxruntime, and then refuses .onnx weights.",
    "List onnxruntime in requirements.txt, or use a server image that has it.",
)

_TEXT = frozenset(b"\t\n\r" + bytes(range(32, 127)))
# Of files whose names say that they are of a format that is known.
_FAMILIAR = {suffix for kind, row in FORMATS.items() if kind is not WeightsFormat.UNKNOWN for suffix in row.suffixes}


def _is_mapping(found: Recognized) -> bool:
    """Say whether what was saved is a mapping, of tensors or anything else, and not a model."""
    return isinstance(root := _root(found), PickledDict) or (isinstance(root, PickledCall) and bool(root.items))


def _root(found: Recognized) -> object:
    try:
        return found.saved.root if found.saved else None
    except (KeyError, NotZipError):
        return None


def _pairs(value: object) -> Sequence[tuple[object, object]]:
    return value.items if isinstance(value, PickledDict | PickledCall) else ()


def _holds_tensors(value: object) -> bool:
    """Say whether a value is a mapping with tensors, or modules of tensors, in it."""
    return any(isinstance(inner, PickledCall) and not inner.items for _, inner in _pairs(value))


def _mentions(model: Module, name: str) -> bool:
    return any(isinstance(node, ast.Attribute) and node.attr == name for node in walk(model.tree))


class WeightsCheck:
    """The weights of one archive, and all that their use depends on."""

    def __init__(self, context: LintContext) -> None:
        model = context.manifest.model
        self._context = context
        self._loader = context.loader
        self._name = model.serialized_file or ""
        self._unnamed = "serializedFile" in model.extra or model.serialized_file == ""
        self._eager = bool(model.model_file)
        self._lenient = context.target is Target.MARPACK

    def check(self) -> Iterator[Finding]:
        """Yield what the loader will stumble over; of a handler that loads by itself, at most one note."""
        severity, own_way = self._loader.severity, self._loader.own_way
        if self._unnamed:
            message = "the manifest has a serializedFile without a name, and the server looks for it all the same"
            yield MISSING.weigh(severity, message, MANIFEST, "leave serializedFile out of the manifest")
        elif self._name and self._name not in self._context.files:
            severity = Severity.WARNING if own_way else Severity.ERROR
            yield MISSING.weigh(severity, f"the weights file '{self._name}' is not in the archive", MANIFEST)
        elif self._name:
            yield from islice(self._look(), 1 if own_way else None)
        elif self._eager and not own_way:
            yield UNTRAINED.note("there is a model file, and no weights to load into it", MANIFEST)
        elif not own_way:
            message = "the handler loads a model as BaseHandler does, and the archive has none"
            yield NONE.weigh(severity, message, MANIFEST)

    def _look(self) -> Iterator[Finding]:
        """Look into the file, which stays open as long as anyone may read on."""
        try:
            with self._context.files.open(self._name) as file:
                head = file.read(256)
                found = recognize(file)
                if found.kind is WeightsFormat.UNKNOWN and self._loader.own_way and self._is_foreign(head):
                    return  # its own business, as a booster's
                substitute = _substitute(head) if found.kind is WeightsFormat.UNKNOWN else None
                if substitute:
                    yield NO_WEIGHTS.weigh(self._loader.severity, substitute[0], self._name, substitute[1])
                elif found.kind is WeightsFormat.PICKLED_MODULE and _is_mapping(found):
                    yield self._odd_mapping()
                else:
                    yield from self._misuse(found.kind)
                if self._eager and found.kind is WeightsFormat.STATE_DICT and not self._loader.own_way:
                    yield from self._check_state(found)
        except (OSError, MarpackError) as error:
            self._context.files.unreadable(self._name, error)

    def _is_foreign(self, head: bytes) -> bool:
        """Say whether a file of no known format is not called as one either, and is there."""
        return _is_json(head) or not (PurePosixPath(self._name).suffix in _FAMILIAR or _placeholder(head))

    def _misuse(self, kind: WeightsFormat) -> Iterator[Finding]:
        """Tell what the content is and what is needed: marpack asks by content alone, the server by suffix."""
        row, suffix = FORMATS[kind], PurePosixPath(self._name).suffix
        if self._lenient and kind is WeightsFormat.PICKLED_MODULE:
            yield PICKLED.warning("it is a whole pickled model, which is loaded only on trust", self._name)
        elif self._eager:
            if not row.is_state if self._lenient else kind is not WeightsFormat.STATE_DICT:
                yield self._misfit(kind, "a state_dict for the model file", self._as_state(kind))
        elif self._lenient:
            if not row.is_model:
                yield self._misfit(kind, "a whole model", self._loader.severity)
        elif suffix in SERVED:
            yield from self._by_suffix(kind, SERVED[suffix])
        elif row.needs_class:
            yield self._misfit(kind, "TorchScript in a .pt file", self._loader.severity)
        else:
            message = f"the server has no loader for '{suffix}' files: 'No model weights could be loaded'"
            yield SUFFIX.weigh(self._loader.severity, message, self._name, row.as_model)

    def _odd_mapping(self) -> Finding:
        """Judge a state_dict with other objects in it, which older versions of torch load."""
        if not self._eager and not self._lenient:
            return self._misfit(WeightsFormat.STATE_DICT, "a model", self._loader.severity)
        severity = lighter(self._as_state(WeightsFormat.STATE_DICT), Severity.WARNING)
        return OBJECTS.weigh(severity, "it pickles more than tensors, which torch 2.6 and later refuse", self._name)

    def _as_state(self, kind: WeightsFormat) -> Severity:
        """Return how much it weighs that BaseHandler takes no such file for a state_dict."""
        severity = self._weigh("_load_pickled_model") if self._eager else self._loader.severity
        listed = kind is WeightsFormat.SAFETENSORS and "safetensors" in self._context.requirements.names
        return lighter(severity, Severity.WARNING) if listed else severity  # a recent torch.load takes it

    def _by_suffix(self, kind: WeightsFormat, needed: WeightsFormat) -> Iterator[Finding]:
        if kind is not needed:
            yield self._misfit(kind, str(needed), self._weigh(FORMATS[needed].served_by or "initialize"))
        if needed is WeightsFormat.ELF and not self._context.config.aot_compile:
            message = "the model config does not set pt2.export.aot_compile"
            yield AOT.weigh(self._loader.severity, message, self._name)
        if needed is kind is WeightsFormat.ONNX and not self._loader.own_way:
            yield from self._onnx()

    def _onnx(self) -> Iterator[Finding]:
        if all(self._context.is_servers_own(method) for method in ("inference", "handle")):
            message = "BaseHandler's inference cannot call an ONNX Runtime session: every request is a 503"
            yield ONNX_CALL.weigh(self._loader.severity, message, self._name)
        if not self._context.requirements.names & {"onnxruntime", "onnxruntime-gpu"}:
            yield ONNX_RUNTIME.warning("onnxruntime is not in the requirements, nor on a stock server", self._name)

    def _weigh(self, method: str) -> Severity:
        """Return how much it weighs that the server's own `method` cannot load the file."""
        overridden = method != "initialize" and not self._context.is_servers_own(method)
        return Severity.NOTE if overridden else self._loader.severity

    def _misfit(self, kind: WeightsFormat, needed: str, severity: Severity) -> Finding:
        if kind is WeightsFormat.UNKNOWN:
            return UNKNOWN.weigh(lighter(severity, Severity.WARNING), "it is of no format that is known", self._name)
        if kind is WeightsFormat.PICKLED_MODULE:
            return PICKLED.weigh(severity, f"it is a whole pickled model; {needed} is needed", self._name)
        row = FORMATS[kind]
        if row.needs_class and not self._eager:
            return NEED_MODEL_FILE.weigh(severity, f"it is {row.title}, and there is no model file", self._name)
        hint = row.as_state if self._eager else row.as_model
        return CONTENT.weigh(severity, f"it is {row.title}; {needed} is needed", self._name, hint)

    def _check_state(self, found: Recognized) -> Iterator[Finding]:
        """Yield why load_state_dict will not know the keys."""
        pairs, model = _pairs(_root(found)), self._context.model_file
        nested = [key for key, value in pairs if _holds_tensors(value) and not str(key).endswith("_extra_state")]
        names = [key for key, _ in pairs if isinstance(key, str)]
        if nested:
            key = str(nested[0])[:40]
            message = f"it is a checkpoint: the tensors lie under its key '{key}'"
            yield CHECKPOINT.warning(message, self._name, f"save the inner one: torch.save(checkpoint['{key}'], path)")
        elif names and model and all(name.startswith(_PREFIX) for name in names) and not _mentions(model, "module"):
            yield WRAPPED.warning("every key begins with 'module.', as DataParallel leaves them", self._name)
        elif names and model:
            yield from check_keys_of_state(self._context.library, model, names, self._name)


def _is_json(head: bytes) -> bool:
    return head.lstrip()[:1] in {b"{", b"["} and all(byte in _TEXT for byte in head)


def _substitute(head: bytes) -> tuple[str, str | None] | None:
    """Return what stands in a weights file's place, and how to get the file."""
    if found := _placeholder(head):
        return found
    if not all(byte in _TEXT for byte in head):
        return None
    if _is_json(head):
        kind = "an XGBoost model in JSON" if b'"learner"' in head else "JSON"
        return f"it is {kind}, which BaseHandler does not load", "load it in the handler's own initialize"
    return "it is a text, not the weights", None


def _placeholder(head: bytes) -> tuple[str, str | None] | None:
    """Return what stands there while the file itself was not fetched."""
    if not head:
        return "it is empty", None
    if head.startswith(b"version https://git-lfs"):
        return "it is a Git LFS pointer, not the weights", "run git lfs pull"
    if head.lstrip()[:9].lower().startswith((b"<!doctype", b"<html")):
        return "it is a web page, not the weights", "download it again"
    return None
