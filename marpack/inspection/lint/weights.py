"""The model file and the weights: what they contain, and whether their use fits (contract §6)."""

import ast
from collections import Counter
from collections.abc import Iterable, Iterator, Sequence
from contextlib import suppress
from itertools import islice
from pathlib import PurePosixPath

from msgspec.structs import replace

from marpack import finding_codes as codes
from marpack.archive.zip_format import NotZipError
from marpack.errors import MarpackError
from marpack.findings import Code, Finding, Severity
from marpack.inspection.lint.handler import (
    Classes,
    LintContext,
    LocalClass,
    PlainClass,
    ServerClass,
    check_constructor,
    milder,
    own_classes,
)
from marpack.inspection.lint.source import Broken, Module, broken_source, last_name, walk
from marpack.protocol.targets import Target
from marpack.torchserve.server_modules import never_found
from marpack.weights.contents import recognize
from marpack.weights.kind import FORMATS, SERVED, WeightsFormat
from marpack.weights.pickle import PickledCall, PickledDict

_MODEL_FILE = "MAR-INF/MANIFEST.json: model.modelFile"
_WEIGHTS = "MAR-INF/MANIFEST.json: model.serializedFile"
_PREFIX = "module."
# Layers that always have tensors.
_LAYERS = frozenset(
    {"Linear", "Bilinear", "Embedding", "EmbeddingBag", "LSTM", "GRU", "RNN", "MultiheadAttention", "Parameter"}
    | {f"{kind}{dimensions}d" for kind in ("Conv", "ConvTranspose") for dimensions in (1, 2, 3)}
)
# Methods by which a class gets layers that its source does not name.
_DYNAMIC_LAYERS = frozenset({"setattr", "add_module", "register_module", "__setattr__", "load_state_dict"})
_PLACEHOLDERS = (codes.WEIGHTS_EMPTY, codes.WEIGHTS_LFS_POINTER, codes.WEIGHTS_WEB_PAGE)
_TEXT = frozenset(b"\t\n\r" + bytes(range(32, 127)))
_KNOWN_SUFFIXES = {
    suffix for kind, row in FORMATS.items() if kind is not WeightsFormat.UNKNOWN for suffix in row.suffixes
}


# The model file


def check_model_file(context: LintContext) -> Iterator[Finding]:
    """Yield why the server cannot construct the model file's class."""
    name, files, severity = context.manifest.model.model_file, context.files, context.loader.severity
    if not name:
        return
    dotted = name.split(".")[0]
    if name not in files:
        yield codes.MODEL_FILE_MISSING.at(_MODEL_FILE, severity=severity, name=name)
    elif name.endswith(".ipynb"):
        hint = f"jupyter nbconvert --to script {name}; keep only the model's class in it, and name the .py file."
        yield codes.MODEL_FILE_NOTEBOOK.at(_MODEL_FILE, severity=severity, hint=hint, name=name)
    elif "/" in name or name != f"{dotted}.py":
        yield codes.MODEL_FILE_NAME.at(name, severity=severity, module=dotted, name=name)
    elif never_found(dotted):
        yield codes.MODEL_FILE_NEVER_FOUND.at(name, severity=severity, module=dotted)
    elif module := files.packed(dotted):
        yield from _check_classes(context.classes, module, severity)
    else:
        located = files.locate(dotted)
        tree = files.module(located) if located and located.member == name else None
        if isinstance(tree, Broken):
            yield broken_source(name, tree, severity)


def _check_classes(classes: Classes, module: Module, severity: Severity) -> Iterator[Finding]:
    own = own_classes(module.scope)
    if own.only is not None:
        cls = LocalClass(module, own.only)
        for finding in (*check_constructor(classes, cls, "model"), *_check_module(classes, cls)):
            yield replace(finding, severity=severity)
    elif len(own.certain) > 1:
        where = module.at(own.misplaced("forward"))
        yield codes.MODEL_MANY_CLASSES.at(where, severity=severity, count=len(own.certain), names=own.listing())
    elif own.exact and not own.certain:
        yield codes.MODEL_NO_CLASS.at(module.member, severity=severity)


def _check_module(classes: Classes, cls: LocalClass) -> Iterator[Finding]:
    """Yield a model that is certainly not a torch.nn.Module."""
    bases = [base for base in classes.order(cls) if not isinstance(base, LocalClass)]
    is_known = all(isinstance(base, PlainClass) for base in bases)
    if is_known and not _is_module(classes, cls) and classes.find(cls, "load_state_dict") is None:
        yield codes.MODEL_NOT_A_MODULE.at(cls.module.at(cls.node), cls=cls.node.name)


def _is_module(classes: Classes, cls: LocalClass) -> bool:
    return any(isinstance(base, PlainClass) and base.dotted.startswith("torch.nn.") for base in classes.order(cls))


def check_state_keys(classes: Classes, model: Module, keys: Iterable[str], where: str) -> Iterator[Finding]:
    """Yield the first key that the model file's class has no place for, and the first layer without a key."""
    node = own_classes(model.scope).only
    if node is None or not _is_module(classes, LocalClass(model, node)):
        return
    bases = classes.order(LocalClass(model, node))
    if not all(isinstance(base, LocalClass | PlainClass) for base in bases):
        return
    mentioned = set()
    for inner in (inner for base in bases if isinstance(base, LocalClass) for inner in walk(base.node)):
        match inner:
            case (
                ast.Attribute(attr=name)
                | ast.Name(id=name)
                | ast.FunctionDef(name=name)
                | ast.Constant(value=str(name))
            ):
                mentioned.add(name)
    if mentioned & _DYNAMIC_LAYERS:
        return
    layers = dict.fromkeys(key.partition(".")[0] for key in keys)
    if extra := [name for name in layers if name not in mentioned]:
        yield codes.WEIGHTS_UNEXPECTED_KEY.at(where, name=extra[0][:40], cls=node.name)
    # Layers that `__init__` makes unconditionally, and that nothing replaces.
    init = next((item for item in node.body if isinstance(item, ast.FunctionDef) and item.name == "__init__"), None)
    stored = [item for item in walk(node) if isinstance(item, ast.Attribute) and not isinstance(item.ctx, ast.Load)]
    counts = Counter(item.attr for item in stored)
    for statement in init.body if init else ():
        match statement:  # self.name = nn.Linear(…)
            case ast.Assign(targets=[ast.Attribute(value=ast.Name(id="self"), attr=name)], value=ast.Call() as made):
                if last_name(made) in _LAYERS and counts[name] == 1 and name not in layers:
                    yield codes.WEIGHTS_MISSING_KEY.at(where, name=name[:40], cls=node.name)
                    return


# The weights


def check_weights(context: LintContext) -> Iterator[Finding]:
    """Yield why the loader fails; for a handler that loads by itself, at most one note."""
    model, loader = context.manifest.model, context.loader
    name, severity = model.serialized_file or "", loader.severity
    if "serializedFile" in model.extra or model.serialized_file == "":
        yield codes.WEIGHTS_UNNAMED.at(_WEIGHTS, severity=severity)
    elif name and name not in context.files:
        severity = Severity.WARNING if loader.own_way else Severity.ERROR
        yield codes.WEIGHTS_MISSING.at(_WEIGHTS, severity=severity, name=name)
    elif name:
        yield from islice(_check_file(context, name), 1 if loader.own_way else None)
    elif model.model_file and not loader.own_way:
        yield codes.WEIGHTS_UNTRAINED.at(_WEIGHTS)
    elif not loader.own_way:
        yield codes.WEIGHTS_NONE.at(_WEIGHTS, severity=severity)


def _check_file(context: LintContext, name: str) -> Iterator[Finding]:
    is_eager, loader = bool(context.manifest.model.model_file), context.loader
    try:
        with context.files.open(name) as file:
            head = file.read(256)
            found = recognize(file)
            kind = found.kind
            substitute = _find_substitute(head) if kind is WeightsFormat.UNKNOWN else None
            is_json = substitute in (codes.WEIGHTS_JSON, codes.WEIGHTS_BOOSTER)
            is_expected = PurePosixPath(name).suffix in _KNOWN_SUFFIXES or substitute in _PLACEHOLDERS
            if kind is WeightsFormat.UNKNOWN and loader.own_way and (is_json or not is_expected):
                return  # another library's model
            root = None
            with suppress(KeyError, NotZipError):
                root = found.saved.root if found.saved else None
            if substitute:
                yield substitute.at(name, severity=loader.severity, name=name)
            elif kind is WeightsFormat.PICKLED_MODULE and (
                isinstance(root, PickledDict) or (isinstance(root, PickledCall) and root.items)
            ):
                yield _judge_mapping(context, name)
            else:
                yield from _check_use(context, name, kind)
            if is_eager and kind is WeightsFormat.STATE_DICT and not loader.own_way:
                yield from _check_state(context, name, root)
    except (OSError, MarpackError) as error:
        context.files.report_unreadable(name, error)


def _find_substitute(head: bytes) -> Code | None:
    """Return the code of a file without weights, by its first bytes: a placeholder, JSON or text."""
    if not head:
        return codes.WEIGHTS_EMPTY
    if head.startswith(b"version https://git-lfs"):
        return codes.WEIGHTS_LFS_POINTER
    if head.lstrip()[:9].lower().startswith((b"<!doctype", b"<html")):
        return codes.WEIGHTS_WEB_PAGE
    if not all(byte in _TEXT for byte in head):
        return None
    if head.lstrip()[:1] in {b"{", b"["}:
        return codes.WEIGHTS_BOOSTER if b'"learner"' in head else codes.WEIGHTS_JSON
    return codes.WEIGHTS_TEXT


def _check_use(context: LintContext, name: str, kind: WeightsFormat) -> Iterator[Finding]:
    """Yield how the file's format differs from the one that its use needs.

    Target `marpack` decides by content, the server by suffix.
    """
    row, suffix, severity = FORMATS[kind], PurePosixPath(name).suffix, context.loader.severity
    is_eager, is_marpack = bool(context.manifest.model.model_file), context.target is Target.MARPACK
    if is_marpack and kind is WeightsFormat.PICKLED_MODULE:
        yield codes.WEIGHTS_PICKLED_TRUST.at(name)
    elif is_eager:
        if not row.is_state if is_marpack else kind is not WeightsFormat.STATE_DICT:
            yield _judge_format(context, name, kind, "a state_dict for the model file", _state_severity(context, kind))
    elif is_marpack:
        if not row.is_model:
            yield _judge_format(context, name, kind, "a whole model", severity)
    elif suffix in SERVED:
        yield from _check_suffix(context, name, kind, SERVED[suffix])
    elif row.needs_class:
        yield _judge_format(context, name, kind, "TorchScript in a .pt file", severity)
    else:
        yield codes.WEIGHTS_SUFFIX.at(name, severity=severity, hint=row.as_model, suffix=suffix)


def _check_suffix(context: LintContext, name: str, kind: WeightsFormat, needed: WeightsFormat) -> Iterator[Finding]:
    """Yield why the loader that the server chooses by the suffix fails."""
    severity = context.loader.severity
    if kind is not needed:
        method = FORMATS[needed].served_by or "initialize"
        yield _judge_format(context, name, kind, str(needed), _method_severity(context, method))
    if needed is WeightsFormat.ELF and not context.config.aot_compile:
        yield codes.WEIGHTS_AOT_SETTING.at(name, severity=severity)
    if needed is kind is WeightsFormat.ONNX and not context.loader.own_way:
        if all(isinstance(context.owner(method), ServerClass) for method in ("inference", "handle")):
            yield codes.WEIGHTS_ONNX_INFERENCE.at(name, severity=severity)
        if not context.requirements.names & {"onnxruntime", "onnxruntime-gpu"}:
            yield codes.WEIGHTS_ONNX_RUNTIME.at(name)


def _method_severity(context: LintContext, method: str) -> Severity:
    """Return the severity of a file that the server's own `method` cannot load."""
    is_servers = method == "initialize" or isinstance(context.owner(method), ServerClass)
    return context.loader.severity if is_servers else Severity.NOTE


def _state_severity(context: LintContext, kind: WeightsFormat) -> Severity:
    """Return the severity of a file that BaseHandler does not accept as a state_dict."""
    is_eager = bool(context.manifest.model.model_file)
    severity = _method_severity(context, "_load_pickled_model") if is_eager else context.loader.severity
    # A recent torch.load reads safetensors.
    is_listed = kind is WeightsFormat.SAFETENSORS and "safetensors" in context.requirements.names
    return milder(severity, Severity.WARNING) if is_listed else severity


def _judge_mapping(context: LintContext, name: str) -> Finding:
    """Return the finding for a mapping with more than tensors in it, which older versions of torch load."""
    is_eager = bool(context.manifest.model.model_file)
    if not is_eager and context.target is not Target.MARPACK:
        return _judge_format(context, name, WeightsFormat.STATE_DICT, "a model", context.loader.severity)
    severity = milder(_state_severity(context, WeightsFormat.STATE_DICT), Severity.WARNING)
    return codes.WEIGHTS_OBJECTS.at(name, severity=severity)


def _judge_format(context: LintContext, name: str, kind: WeightsFormat, needed: str, severity: Severity) -> Finding:
    is_eager, row = bool(context.manifest.model.model_file), FORMATS[kind]
    if kind is WeightsFormat.UNKNOWN:
        return codes.WEIGHTS_UNKNOWN.at(name, severity=milder(severity, Severity.WARNING))
    if kind is WeightsFormat.PICKLED_MODULE:
        return codes.WEIGHTS_PICKLED.at(name, severity=severity, needed=needed)
    if row.needs_class and not is_eager:
        return codes.WEIGHTS_NEED_MODEL_FILE.at(name, severity=severity, format=row.title)
    return codes.WEIGHTS_CONTENT.at(
        name, severity=severity, hint=row.as_state if is_eager else row.as_model, format=row.title, needed=needed
    )


def _check_state(context: LintContext, name: str, root: object) -> Iterator[Finding]:
    """Yield why load_state_dict does not accept the keys."""
    pairs: Sequence[tuple[object, object]] = root.items if isinstance(root, PickledDict | PickledCall) else ()
    model, keys = context.model_file, [key for key, _ in pairs if isinstance(key, str)]
    nested = [
        key
        for key, value in pairs
        if isinstance(value, PickledDict | PickledCall) and not str(key).endswith("_extra_state")
        if any(isinstance(inner, PickledCall) and not inner.items for _, inner in value.items)
    ]
    if nested:
        key = str(nested[0])[:40]
        hint = f"Save the inner mapping: torch.save(checkpoint['{key}'], path)."
        yield codes.WEIGHTS_CHECKPOINT.at(name, hint=hint, key=key)
    elif keys and model:
        attributes = {node.attr for node in walk(model.tree) if isinstance(node, ast.Attribute)}
        if all(key.startswith(_PREFIX) for key in keys) and "module" not in attributes:
            yield codes.WEIGHTS_DATA_PARALLEL.at(name)
        else:
            yield from check_state_keys(context.classes, model, keys, name)
