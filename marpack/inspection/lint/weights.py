"""The weights' content held against their use, and what a checkpoint gives away (contract §6)."""

import ast
from collections.abc import Iterator
from itertools import islice
from pathlib import PurePosixPath

from marpack.archive.manifest import Manifest
from marpack.errors import MarpackError
from marpack.findings import Finding, Severity
from marpack.inspection.lint.classes import Library
from marpack.inspection.lint.codes import Code
from marpack.inspection.lint.files import UNREADABLE, Files, Module
from marpack.inspection.lint.model_config import ModelConfig
from marpack.inspection.lint.model_loading import LoadingStrategy, check_keys_of_state, is_servers_own
from marpack.inspection.lint.requirements import Requirements
from marpack.inspection.syntax import walk
from marpack.torchserve.targets import Target
from marpack.weights import legacy
from marpack.weights.detect import Recognized, recognize
from marpack.weights.kind import FORMATS, SERVED, WeightsFormat
from marpack.weights.pickle_stream import PickledCall, PickledDict
from marpack.weights.zip_entries import NotZipError

CHECKPOINT = Code(
    "Weights",
    "weights-checkpoint",
    "The weights are a training checkpoint: load_state_dict wants the state_dict that lies under one of its keys.",
    "Save the inner one: torch.save(checkpoint[KEY], path).",
)
WRAPPED = Code(
    "Weights",
    "weights-data-parallel",
    "Every key begins with 'module.', as DataParallel leaves them, and the model file's class has no 'module'.",
    "Save the inner model's: torch.save(model.module.state_dict(), path).",
)
_PREFIX = "module."
MANIFEST = "MAR-INF/MANIFEST.json: model.serializedFile"

MISSING = Code(
    "Weights",
    "weights-missing",
    "The manifest's weights file is not in the archive.",
    "Pack the file at the archive's root, or leave serializedFile out.",
)
NONE = Code(
    "Weights",
    "weights-none",
    "The handler loads its model as BaseHandler does, and there is neither a weights file nor a model file.",
    "Pack the weights (--serialized-file), or override `initialize`.",
)
UNTRAINED = Code(
    "Weights",
    "weights-untrained",
    "There is a model file and no weights file: the server serves the class as its constructor leaves it.",
    "Pack the state_dict, unless the class loads its own weights.",
)
SUFFIX = Code(
    "Weights",
    "weights-suffix",
    "Without a model file, the server picks its loader by the suffix: .pt, .onnx or .so; it has none for any other.",
    "Save the model as TorchScript in a .pt file, pack a model file, or build with target: marpack.",
)
NEED_MODEL_FILE = Code(
    "Weights",
    "weights-need-model-file",
    "The weights are tensors alone, and there is no model file to load them into.",
    "Pack the model's class (--model-file), or save TorchScript: torch.jit.script(model).save(path).",
)
CONTENT = Code(
    "Weights",
    "weights-content",
    "The weights file's content is not of the format that its use needs.",
    "Save the weights in the format that is needed, or give the file its right suffix.",
)
PICKLED = Code(
    "Weights",
    "weights-pickled",
    "The weights are a whole pickled model: torch 2.6 and later refuse it, and loading it runs whatever it holds.",
    "Save the state_dict (torch.save(model.state_dict(), path)) and pack the model file.",
)
NO_WEIGHTS = Code(
    "Weights",
    "weights-absent",
    "Something else stands in the weights file's place: nothing, a Git LFS pointer, a web page, a text.",
    "Fetch the file again.",
)
OBJECTS = Code(
    "Weights",
    "weights-objects",
    "The state_dict has other objects among its tensors, which torch 2.6 and later refuse to load.",
    "Save tensors only: torch.save({key: value for key, value in state.items() if torch.is_tensor(value)}, path).",
)
UNKNOWN = Code(
    "Weights",
    "weights-unknown",
    "The weights file is of no format that is known; it may be damaged.",
    "Check that the file is whole; save it again.",
)
AOT = Code(
    "Weights",
    "weights-aot-setting",
    "The server loads an AOTInductor library only if the model config says `pt2: {export: {aot_compile: true}}`.",
    "Add `pt2: {export: {aot_compile: true}}` to the model config.",
)
ONNX_CALL = Code(
    "Weights",
    "weights-onnx-inference",
    "BaseHandler's `inference` calls the model, and an ONNX Runtime session cannot be called: every request is a 503.",
    "Override `inference` with self.model.run(None, {name: array}), or build with target: marpack.",
)
ONNX_RUNTIME = Code(
    "Weights",
    "weights-onnx-runtime",
    "A stock server has no onnxruntime, and then refuses .onnx weights.",
    "List onnxruntime in requirements.txt, or use a server image that has it.",
)

_EAGER = "a state_dict for the model file"
_TEXT = frozenset(b"\t\n\r" + bytes(range(32, 127)))


def check_state(found: Recognized, library: Library, model: Module | None, where: str) -> Iterator[Finding]:
    """Yield why load_state_dict will not know the keys.

    Args:
        found: The weights file, recognised as a state_dict.
        library: Resolves the bases of the model's class.
        model: The model file, if it could be parsed.
        where: The weights file's name.
    """
    pairs = _pairs(_root(found))
    nested = [key for key, value in pairs if _holds_tensors(value) and not str(key).endswith("_extra_state")]
    names = [key for key, _ in pairs if isinstance(key, str)]
    if nested:
        key = str(nested[0])[:40]
        message = f"it is a checkpoint: the tensors lie under its key '{key}'"
        yield CHECKPOINT.warning(message, where, f"save the inner one: torch.save(checkpoint['{key}'], path)")
    elif names and all(name.startswith(_PREFIX) for name in names) and model and not _mentions(model, "module"):
        yield WRAPPED.warning("every key begins with 'module.', as DataParallel leaves them", where)
    elif names and model:
        yield from check_keys_of_state(library, model, names, where)


def is_mapping(found: Recognized) -> bool:
    """Say whether what was saved is a mapping, of tensors or anything else, and not a model."""
    return isinstance(root := _root(found), PickledDict) or (isinstance(root, PickledCall) and bool(root.items))


def _root(found: Recognized) -> object:
    if found.zip is None:
        saved = legacy.saved_object(found.pickles)
        return saved.root if saved else None
    try:
        return found.zip.pickle("data.pkl").root
    except (KeyError, NotZipError):
        return None


def _pairs(value: object) -> list[tuple[object, object]]:
    return value.items if isinstance(value, PickledDict | PickledCall) else []


def _holds_tensors(value: object) -> bool:
    """Say whether a value is a mapping with tensors, or modules of tensors, in it."""
    return any(isinstance(inner, PickledCall) and not inner.items for _, inner in _pairs(value))


def _mentions(model: Module, name: str) -> bool:
    return any(isinstance(node, ast.Attribute) and node.attr == name for node in walk(model.tree))


class WeightsCheck:
    """The weights of one archive, and all that their use depends on."""

    def __init__(
        self, files: Files, manifest: Manifest, target: Target, library: Library, loader: LoadingStrategy
    ) -> None:
        self._files = files
        self._name = manifest.model.serialized_file
        self._null = "serializedFile" in manifest.model.extra
        self._model_file = manifest.model.model_file or ""
        self._eager = bool(self._model_file)
        self._lenient = target is Target.MARPACK
        self._library = library
        self._loader = loader

    def check(self, config: ModelConfig, requirements: Requirements) -> Iterator[Finding]:
        """Yield what the loader will stumble over; of a handler that loads by itself, at most one note."""
        if self._null or self._name == "":
            message = "the manifest has a serializedFile without a name, and the server looks for it all the same"
            yield MISSING.weigh(self._loader.severity, message, MANIFEST, "leave serializedFile out of the manifest")
        elif not self._name:
            yield from self._without()
        elif self._name not in self._files:
            severity = Severity.WARNING if self._loader.own_way else Severity.ERROR
            yield MISSING.weigh(severity, f"the weights file '{self._name}' is not in the archive", MANIFEST)
        else:
            yield from islice(self._look(config, requirements), 1 if self._loader.own_way else None)

    def _without(self) -> Iterator[Finding]:
        if self._loader.own_way:
            return
        if self._eager:
            yield UNTRAINED.note("there is a model file, and no weights to load into it", MANIFEST)
        else:
            message = "the handler loads a model as BaseHandler does, and the archive has none"
            yield NONE.weigh(self._loader.severity, message, MANIFEST)

    def _look(self, config: ModelConfig, requirements: Requirements) -> Iterator[Finding]:
        """Look into the file, which stays open as long as anyone may read on."""
        name = self._name or ""
        file = self._files.open(name)
        if file is None:
            return
        try:
            with file:
                head = file.read(256)
                found = recognize(file)
                nothing = (
                    list(_no_weights(head, name, self._loader.severity)) if found.kind is WeightsFormat.UNKNOWN else []
                )
                if found.kind is WeightsFormat.PICKLED_MODULE and is_mapping(found):
                    yield self._odd_mapping()
                else:
                    yield from nothing or self._misuse(found.kind, config, requirements)
                if self._eager and found.kind is WeightsFormat.STATE_DICT and not self._loader.own_way:
                    yield from check_state(found, self._library, self._model, name)
        except (OSError, MarpackError) as error:
            self._files.findings.append(UNREADABLE.error(f"it cannot be read: {error}", name))

    def _misuse(self, kind: WeightsFormat, config: ModelConfig, requirements: Requirements) -> Iterator[Finding]:
        if self._lenient:
            yield from self._by_marpack(kind)
        elif self._eager:
            yield from self._as_state(kind, requirements)
        elif self._suffix in SERVED:
            yield from self._by_suffix(kind, config, requirements)
        elif FORMATS[kind].needs_class:
            yield self._misfit(kind, "TorchScript in a .pt file", self._loader.severity)
        else:
            message = f"the server has no loader for '{self._suffix}' files: 'No model weights could be loaded'"
            yield SUFFIX.weigh(self._loader.severity, message, self._name)

    def _odd_mapping(self) -> Finding:
        """Judge a state_dict with other objects in it, which older versions of torch load."""
        severity = self._weigh("_load_pickled_model") if self._eager else self._loader.severity
        if not self._eager and not self._lenient:
            return self._misfit(WeightsFormat.STATE_DICT, "a model", severity)
        lighter = Severity.NOTE if severity is Severity.NOTE else Severity.WARNING
        return OBJECTS.weigh(lighter, "it pickles more than tensors, which torch 2.6 and later refuse", self._name)

    @property
    def _suffix(self) -> str:
        return PurePosixPath(self._name or "").suffix

    def _by_marpack(self, kind: WeightsFormat) -> Iterator[Finding]:
        """Judge by content alone, as marpack's own runtime loads."""
        if kind is WeightsFormat.PICKLED_MODULE:
            yield PICKLED.warning("it is a whole pickled model, which is loaded only on trust", self._name)
        elif self._eager and FORMATS[kind].state is None:
            yield self._misfit(kind, _EAGER, self._weigh("_load_pickled_model"))
        elif not self._eager and FORMATS[kind].model is None:
            yield self._misfit(kind, "a whole model", self._loader.severity)

    def _as_state(self, kind: WeightsFormat, requirements: Requirements) -> Iterator[Finding]:
        severity = self._weigh("_load_pickled_model")
        if kind is WeightsFormat.SAFETENSORS and "safetensors" in requirements.names:  # a recent torch.load takes it
            severity = Severity.NOTE if severity is Severity.NOTE else Severity.WARNING
        if kind is not WeightsFormat.STATE_DICT:
            yield self._misfit(kind, _EAGER, severity)

    def _by_suffix(self, kind: WeightsFormat, config: ModelConfig, requirements: Requirements) -> Iterator[Finding]:
        needed = SERVED[self._suffix]
        if kind is not needed:
            yield self._misfit(kind, str(needed), self._weigh(FORMATS[needed].served_by or "initialize"))
        if needed is WeightsFormat.ELF and not config.aot_compile:
            message = "the model config does not set pt2.export.aot_compile"
            yield AOT.weigh(self._loader.severity, message, self._name)
        if needed is kind is WeightsFormat.ONNX and not self._loader.own_way:
            yield from self._onnx(requirements)

    def _onnx(self, requirements: Requirements) -> Iterator[Finding]:
        if all(is_servers_own(self._library, self._loader, method) for method in ("inference", "handle")):
            message = "BaseHandler's inference cannot call an ONNX Runtime session: every request is a 503"
            yield ONNX_CALL.weigh(self._loader.severity, message, self._name)
        if not requirements.names & {"onnxruntime", "onnxruntime-gpu"}:
            yield ONNX_RUNTIME.warning("onnxruntime is not in the requirements, nor on a stock server", self._name)

    def _weigh(self, method: str) -> Severity:
        """Return how much it weighs that the server's own `method` cannot load the file."""
        overridden = method != "initialize" and not is_servers_own(self._library, self._loader, method)
        return Severity.NOTE if overridden else self._loader.severity

    @property
    def _model(self) -> Module | None:
        return self._library.packed(self._model_file.partition(".")[0]) if self._model_file in self._files else None

    def _misfit(self, kind: WeightsFormat, needed: str, severity: Severity) -> Finding:
        if kind is WeightsFormat.UNKNOWN:
            lighter = Severity.NOTE if severity is Severity.NOTE else Severity.WARNING
            return UNKNOWN.weigh(lighter, "it is of no format that is known", self._name)
        if kind is WeightsFormat.PICKLED_MODULE:
            return PICKLED.weigh(severity, f"it is a whole pickled model; {needed} is needed", self._name)
        row = FORMATS[kind]
        if row.needs_class and not self._eager:
            return NEED_MODEL_FILE.weigh(severity, f"it is {row.title}, and there is no model file", self._name)
        return CONTENT.weigh(severity, f"it is {row.title}; {needed} is needed", self._name)


def _no_weights(head: bytes, name: str, severity: Severity) -> Iterator[Finding]:
    """Yield what stands in a weights file's place."""
    if not head:
        yield NO_WEIGHTS.weigh(severity, "it is empty", name)
    elif head.startswith(b"version https://git-lfs"):
        yield NO_WEIGHTS.weigh(severity, "it is a Git LFS pointer, not the weights", name, "run git lfs pull")
    elif head.lstrip()[:9].lower().startswith((b"<!doctype", b"<html")):
        yield NO_WEIGHTS.weigh(severity, "it is a web page, not the weights", name, "download it again")
    elif all(byte in _TEXT for byte in head):
        yield NO_WEIGHTS.weigh(severity, "it is a text, not the weights", name)
