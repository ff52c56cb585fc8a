"""The model file, the weights and the labels: their content, and whether their use fits (contract §6)."""

import ast
import re
from collections import Counter
from collections.abc import Iterable, Iterator, Sequence
from contextlib import suppress
from itertools import islice
from pathlib import PurePosixPath
from typing import Any

from msgspec.structs import replace

from marpack import finding_codes as codes
from marpack.archive.zip_format import NotZipError
from marpack.errors import MarpackError
from marpack.findings import Code, Finding, Severity
from marpack.inspection.lint.handler import (
    Class,
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
from marpack.protocol.targets import Target, TargetDifference
from marpack.torchserve.labels import LABELS_NAME, MAX_LABELS, LabelsFault, json_kind, parse_labels
from marpack.torchserve.server_modules import NEVER_FOUND, TOPK, built_in_of
from marpack.weights.contents import recognize
from marpack.weights.hugging_face import CONFIG_FILE, INDEX_SUFFIX, MAX_INDEX, WEIGHTS_FILES, list_shards, missing_file
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
_BUNDLES = (".zip", ".tar", ".gz", ".tgz")  # the files of a model may be in them
_WORD = re.compile(r"\w+")
_INDEX = re.compile(r"0|[1-9][0-9]{0,17}")
_ALIKE = re.compile(r"(ind(ex|ices)|idx|id|class(es)?|labels?)[_-]?(to|2|map)?[_-]?(names?|labels?|class(es)?)?\.json")
_SHOWN = 3  # labels of a wrong type
_FAULTS = {
    LabelsFault.ENCODING: codes.LABELS_ENCODING,
    LabelsFault.SYNTAX: codes.LABELS_SYNTAX,
    LabelsFault.SHAPE: codes.LABELS_SHAPE,
}


# The model file


def check_model_file(context: LintContext) -> Iterator[Finding]:
    """Yield why the server cannot construct the model file's class."""
    name, files, severity = context.manifest.model.model_file, context.files, context.loader.severity
    if not name:
        return
    dotted = name.split(".")[0]
    located = files.locate(dotted)
    if name not in files:
        yield codes.MODEL_FILE_MISSING.at(_MODEL_FILE, severity=severity, name=name)
    elif name.endswith(".ipynb"):
        hint = f"Keep only the model's class, and name the .py file: jupyter nbconvert --to script {name}"
        yield codes.MODEL_FILE_NOTEBOOK.at(_MODEL_FILE, severity=severity, hint=hint, name=name)
    elif "/" in name or name != f"{dotted}.py":
        yield codes.MODEL_FILE_NAME.at(name, severity=severity, module=dotted, name=name)
    elif dotted in NEVER_FOUND:
        yield codes.MODEL_FILE_NEVER_FOUND.at(name, severity=severity, module=dotted)
    elif located and isinstance(module := files.module(located), Module):
        for finding in _check_classes(context.classes, module):
            yield replace(finding, severity=severity)
    elif located and located.member == name and isinstance(module, Broken):
        yield broken_source(name, module, severity)


def _check_classes(classes: Classes, module: Module) -> Iterator[Finding]:
    """Yield why a module's one class is not a model, or that it has none or several."""
    own = own_classes(module.scope)
    if own.only is not None:
        cls = LocalClass(module, own.only)
        yield from check_constructor(classes, cls, "model")
        bases = [base for base in classes.order(cls) if not isinstance(base, LocalClass)]
        is_known = all(isinstance(base, PlainClass) for base in bases)
        if is_known and not _is_module(bases) and classes.find(cls, "load_state_dict") is None:
            yield codes.MODEL_NOT_A_MODULE.at(module.at(cls.node), cls=cls.node.name)
    elif len(own.certain) > 1:
        where = module.at(own.misplaced("forward"))
        yield codes.MODEL_MANY_CLASSES.at(where, count=len(own.certain), names=own.listing())
    elif own.exact and not own.certain:
        yield codes.MODEL_NO_CLASS.at(module.member)


def _is_module(bases: Iterable[Class]) -> bool:
    return any(isinstance(base, PlainClass) and base.dotted.startswith("torch.nn.") for base in bases)


def check_state_keys(classes: Classes, model: Module, keys: Iterable[str], where: str) -> Iterator[Finding]:
    """Yield the first key that the model file's class has no place for, and the first layer without a key."""
    node = own_classes(model.scope).only
    bases = classes.order(LocalClass(model, node)) if node else []
    if node is None or not _is_module(bases) or not all(isinstance(base, LocalClass | PlainClass) for base in bases):
        return
    nodes = [inner for base in bases if isinstance(base, LocalClass) for inner in walk(base.node)]
    mentioned = {getattr(inner, field, None) for inner in nodes for field in ("attr", "id", "name", "value")}
    if mentioned & _DYNAMIC_LAYERS:
        return
    layers = dict.fromkeys(key.partition(".")[0] for key in keys)
    if extra := next((name for name in layers if name not in mentioned), None):
        yield codes.WEIGHTS_UNEXPECTED_KEY.at(where, name=extra[:40], cls=node.name)
    # Layers that `__init__` makes unconditionally, and that nothing replaces.
    stored = Counter(
        inner.attr for inner in nodes if isinstance(inner, ast.Attribute) and not isinstance(inner.ctx, ast.Load)
    )
    init = next((item for item in node.body if isinstance(item, ast.FunctionDef) and item.name == "__init__"), None)
    for statement in init.body if init else ():
        match statement:  # self.name = nn.Linear(…)
            case ast.Assign(targets=[ast.Attribute(value=ast.Name(id="self"), attr=name)], value=ast.Call() as made):
                if last_name(made) in _LAYERS and stored[name] == 1 and name not in layers:
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
        severity = Severity.WARNING if loader.loads_itself else Severity.ERROR
        yield codes.WEIGHTS_MISSING.at(_WEIGHTS, severity=severity, name=name)
    elif name:
        yield from islice(_check_file(context, name), 1 if loader.loads_itself else None)
    elif model.model_file and not loader.loads_itself:
        yield codes.WEIGHTS_UNTRAINED.at(_WEIGHTS)
    elif not loader.loads_itself:
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
            if kind is WeightsFormat.UNKNOWN and loader.loads_itself and (is_json or not is_expected):
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
            if is_eager and kind is WeightsFormat.STATE_DICT and not loader.loads_itself:
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
    if context.loader.loads_itself and name in WEIGHTS_FILES and CONFIG_FILE in context.files:
        return  # transformers loads it
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
    if needed is kind is WeightsFormat.ONNX and not context.loader.loads_itself:
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


# Models that transformers loads


def check_pretrained(context: LintContext) -> Iterator[Finding]:
    """Yield files that `from_pretrained` needs in the model folder and that are not packed, and missing shards."""
    module, files = context.entry.module, context.files
    names = {PurePosixPath(name).name for name in files.names}
    nodes = walk(module.tree) if module else []
    calls = [node for node in nodes if isinstance(node, ast.Call) and last_name(node.func) == "from_pretrained"]
    if module is None or not calls or any(name.endswith(_BUNDLES) for name in names):
        return
    found: dict[str, Finding] = {}  # by the missing file
    for call in _list_folder_loads(nodes, calls):
        loader = last_name(call.func.value) if isinstance(call.func, ast.Attribute) else None
        if loader and (missing := missing_file(loader, names)):
            finding = codes.PRETRAINED_FILE.at(module.at(call), user=f"{loader}.from_pretrained", file=missing)
            found.setdefault(missing, finding)
    yield from found.values()
    for index in sorted(name for name in files.names if name.endswith(INDEX_SUFFIX)):
        shards = list_shards(files.read(index, MAX_INDEX) or b"")
        lacking = (shard for shard in shards if (PurePosixPath(index).parent / shard).as_posix() not in files)
        yield from (codes.PRETRAINED_FILE.at(index, user="the index of the weights", file=shard) for shard in lacking)


def _list_folder_loads(nodes: list[ast.AST], calls: list[ast.Call]) -> list[ast.Call]:
    """Return the calls that certainly load from the model folder, by their lines."""
    optional = {id(inner) for node in nodes if isinstance(node, ast.If | ast.Try) for inner in walk(node)}
    folders = {"model_dir"}  # and the names that it is assigned to
    for node in nodes:
        if isinstance(node, ast.Assign) and "model_dir" in ast.unparse(node.value):
            folders |= {name for each in node.targets for name in _WORD.findall(ast.unparse(each))} - {"self"}
    certain = (call for call in calls if call.args and id(call) not in optional)
    loads = (call for call in certain if not folders.isdisjoint(_WORD.findall(ast.unparse(call.args[0]))))
    return sorted(loads, key=lambda call: call.lineno)


# The labels


def check_labels(context: LintContext) -> Iterator[Finding]:
    """Yield what the server's loader, and then the predictions, fail on."""
    files, loader = context.files, context.loader
    if LABELS_NAME not in files:
        name = min((name for name in files.names if _ALIKE.fullmatch(name.lower().rpartition("/")[2])), default=None)
        if name and not loader.loads_itself:
            yield codes.LABELS_MISNAMED.at(name, name=name)
        return
    data = files.read(LABELS_NAME, MAX_LABELS)
    if data is None:
        yield codes.LABELS_UNCHECKED.at(LABELS_NAME, reason="the file cannot be read")
        return
    labels = parse_labels(data)
    if labels.fault is LabelsFault.SIZE:
        yield codes.LABELS_UNCHECKED.at(LABELS_NAME, reason=labels.problem)
        return
    if labels.fault is not None:
        where = LABELS_NAME if labels.line is None else f"{LABELS_NAME}:{labels.line}"
        yield _FAULTS[labels.fault].at(where, severity=loader.severity, reason=labels.problem)
        return
    for key in labels.duplicates[:10]:
        yield codes.LABELS_DUPLICATE_KEY.at(LABELS_NAME, severity=loader.warning, key=key[:40])
    for name in [name for name in labels.names.values() if labels.listed and not isinstance(name, str)][:1]:
        where = f"{LABELS_NAME}: object_type_names"
        yield codes.LABELS_LISTED_VALUE.at(where, severity=loader.warning, kind=json_kind(name))
    yield from () if labels.listed else _check_mapping(context, labels.names)
    texts = Counter(label for label in labels.names.values() if isinstance(label, str))
    if shared := [label for label, count in texts.items() if count > 1]:
        more = f", and {len(shared) - 1} more labels are shared" if len(shared) > 1 else ""
        yield codes.LABELS_DUPLICATE.at(LABELS_NAME, count=texts[shared[0]], label=shared[0][:40], more=more)
    yield from _check_count(context, len(labels.names))


def _check_mapping(context: LintContext, labels: dict[str, Any]) -> Iterator[Finding]:  # Any: JSON
    loader = context.loader
    wrong = [key for key, value in labels.items() if not isinstance(value, str)]
    for key in wrong[:_SHOWN]:
        kind = "an empty list" if labels[key] == [] else json_kind(labels[key])
        yield codes.LABELS_VALUE.at(f"{LABELS_NAME}: {key[:40]}", severity=loader.severity, key=key[:40], kind=kind)
    if wrong[_SHOWN:]:
        yield codes.LABELS_MORE_VALUES.at(LABELS_NAME, severity=loader.severity, count=len(wrong) - _SHOWN)
    if not labels:
        yield codes.LABELS_EMPTY.at(LABELS_NAME, severity=loader.warning)
    odd = [key for key in labels if not _INDEX.fullmatch(key)]
    indices = {int(key) for key in labels} if not odd else set()
    missing = max(indices, default=-1) + 1 - len(indices)
    if odd and all(isinstance(value, int) or _INDEX.fullmatch(str(value)) for value in labels.values()):
        yield codes.LABELS_INVERTED.at(f"{LABELS_NAME}: {odd[0][:40]}", severity=loader.warning)
    elif odd:
        more = f", nor are {len(odd) - 1} more keys" if odd[1:] else ""
        yield codes.LABELS_KEY.at(f"{LABELS_NAME}: {odd[0][:40]}", severity=loader.warning, key=odd[0][:40], more=more)
    elif missing:
        first = next(index for index in range(len(indices) + 1) if index not in indices)
        owner = context.owner("postprocess")
        classifier = built_in_of(owner.dotted) if isinstance(owner, ServerClass) else None
        severity = loader.warning if classifier and classifier.classifies else Severity.NOTE
        more = f" and {missing - 1} more classes have" if missing > 1 else " has"
        yield codes.LABELS_GAP.at(LABELS_NAME, severity=severity, missing=f"{first}{more}")


def _check_count(context: LintContext, count: int) -> Iterator[Finding]:
    """Yield too few labels for the image classifier's five classes."""
    cls, owner = context.loader.cls, context.owner("postprocess")
    classifier = built_in_of(owner.dotted) if isinstance(owner, ServerClass) else None
    if not 0 < count < TOPK or context.target.has(TargetDifference.TOPK_CLAMPED) or cls is None:
        return
    if classifier is None or classifier.topk is None:
        return
    local = [base for base in context.classes.order(cls) if isinstance(base, LocalClass)]
    names = {getattr(node, "attr", None) or getattr(node, "id", None) for base in local for node in walk(base.node)}
    if not names & {"topk", "set_max_result_classes"}:
        count_text = "is 1 label" if count == 1 else f"are {count} labels"
        yield codes.LABELS_FEW.at(LABELS_NAME, severity=context.loader.warning, count=count_text, topk=TOPK)
