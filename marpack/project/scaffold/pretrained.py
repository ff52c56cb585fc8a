"""A folder with a Hugging Face model: its task, the files that transformers loads, and the handler's constants.

Only names and small files are read; code of the folder is never run, and transformers is not imported.
"""

import re
from importlib import metadata
from pathlib import Path, PurePosixPath
from typing import Any, TypeVar, get_args

import msgspec
from msgspec import Struct

from marpack import finding_codes as codes
from marpack.errors import UsageError, convert_os_errors, join_names
from marpack.findings import Finding
from marpack.inspection.lint.weights import find_substitute
from marpack.project.load import read_text_file
from marpack.project.scaffold.folder_scan import REQUIREMENTS, FolderScan
from marpack.project.schema import FILE_NAME
from marpack.weights import hugging_face as hf
from marpack.weights.hugging_face import CONFIG_FILE, Task, missing_file
from marpack.weights.kind import SUFFIXES, WeightsFormat
from marpack.weights.tensors import is_exact_safetensors

T = TypeVar("T")

_MODULES_FILE = "modules.json"  # of sentence-transformers
_WRITTEN = frozenset({FILE_NAME, REQUIREMENTS, "README.md", "handler.py", "test_model.py"})  # by init
_MAX_TOKENS = 1 << 20  # tokenizers without a maximum name a larger number
_MAX_SHOWN = 5  # names in one sentence
_MAX_README = 1 << 16  # bytes that are read of it
_TAG = re.compile(rb"---[ \t]*\r?\n(?:(?!---).*\n)*?pipeline_tag:[ \t]*[\"']?([\w-]+)")  # in the README's front matter
_OTHER_WEIGHTS = (*SUFFIXES, ".h5", ".msgpack", ".ot", ".tflite", ".mlmodel")
_GET = "Download the model again: hf download ORGANIZATION/MODEL --local-dir FOLDER"
# Packages that tokenizers need, by their class and by their vocabulary.
_CLASS_PACKAGES = {
    "BertJapaneseTokenizer": "fugashi", "FlaubertTokenizer": "sacremoses", "FSMTTokenizer": "sacremoses",
    "XLMTokenizer": "sacremoses", "RoFormerTokenizer": "rjieba",
}  # fmt: skip
_SENTENCEPIECE = ("protobuf", "sentencepiece")
_VOCABULARY_PACKAGES = {".model": _SENTENCEPIECE, ".spm": _SENTENCEPIECE, ".tiktoken": ("tiktoken",)}
# Models that transformers does not load alone, by a file of theirs, with the remedy.
_MERGE = "AutoPeftModel.from_pretrained(FOLDER).merge_and_unload().save_pretrained(NEW_FOLDER)"
_OTHER_MODELS = {
    "adapter_config.json": ("the folder has an adapter without its base model", f"Merge both with peft: {_MERGE}"),
    "model_index.json": ("the folder has a diffusers pipeline, which init has no handler for",
                         "Write a handler around diffusers.DiffusionPipeline, and name it: --handler FILE."),
}  # fmt: skip
_POOLINGS = frozenset({"cls", "mean", "max", "lasttoken"})
_TAGS: dict[object, Task] = {task: task for task in get_args(Task)} | {"sentence-similarity": "feature-extraction"}
_SPEECH: Task = "automatic-speech-recognition"


class _Head(Struct, frozen=True):
    """A kind of architecture."""

    pattern: str  # for the end of its name in config.json
    task: Task
    auto_class: str  # the class of transformers that loads it
    input_loader: str = "AutoTokenizer"  # the class that turns inputs into tensors


_HEADS = (
    _Head("ForSequenceClassification", "text-classification", "AutoModelForSequenceClassification"),
    _Head("ForTokenClassification", "token-classification", "AutoModelForTokenClassification"),
    _Head("ForQuestionAnswering(Simple)?", "question-answering", "AutoModelForQuestionAnswering"),
    _Head("ForMaskedLM|BertForPreTraining", "fill-mask", "AutoModelForMaskedLM"),
    _Head("ForCausalLM|LMHeadModel", "text-generation", "AutoModelForCausalLM"),
    _Head("ForImageClassification.*", "image-classification", "AutoModelForImageClassification", "AutoImageProcessor"),
    _Head("ForCTC", _SPEECH, "AutoModelForCTC", "AutoFeatureExtractor"),
    _Head("(Whisper|Moonshine)For.*", _SPEECH, "AutoModelForSpeechSeq2Seq", "AutoFeatureExtractor"),
    _Head("(?<!EncoderDecoder)(?<!CLIP)Model", "feature-extraction", "AutoModel"),
)


class _Settings(Struct, frozen=True):
    """The keys of config.json and of tokenizer_config.json that matter here."""

    architectures: list[str] | None = None
    model_type: str | None = None
    auto_map: Any = None  # Any: only its presence matters
    transformers_version: str | None = None
    problem_type: str | None = None
    id2label: dict[str, Any] | None = None  # Any: the labels
    max_position_embeddings: Any = None  # Any: not checked further, as below
    n_positions: Any = None
    pad_token_id: Any = None
    tokenizer_class: str | None = None
    model_max_length: Any = None
    mask_token: Any = None  # a text, or an object with its `content`


class PretrainedModel(Struct, frozen=True, kw_only=True):
    """A Hugging Face model: the files of its project, and the constants of its handler."""

    architecture: str
    head: _Head
    weights: str | None  # None: in shards
    members: tuple[str, ...]  # the files to pack, without `weights`
    requirements: tuple[str, ...]
    options: str  # of `from_pretrained`, as Python
    activation: str  # of a classifier's scores: softmax, sigmoid, or "" for none
    max_tokens: int
    mask: str
    poolings: tuple[str, ...]
    normalized: bool
    findings: tuple[Finding, ...]


def is_pretrained(folder: Path, found: FolderScan) -> bool:
    """Return whether a folder has a Hugging Face model, also one that lacks files or that init has no handler for."""
    has_weights = bool(hf.find_weights(found.names))
    if not (has_weights or _OTHER_MODELS.keys().isdisjoint(found.names)):
        return True
    if CONFIG_FILE not in found.names:
        return has_weights and "tokenizer_config.json" in found.names
    if found.weights and not has_weights:
        return False  # weights of another kind, beside a file that happens to have this name
    config = _read(folder / CONFIG_FILE, _Settings)
    return bool(config.architectures or (config.model_type and any(map(hf.is_setting, found.names - {CONFIG_FILE}))))


def read_pretrained(folder: Path, found: FolderScan, *, task: Task | None, trusts_code: bool) -> PretrainedModel:
    """Read the Hugging Face model of a folder; `task` is the author's choice.

    Raises UsageError for a model without weights, shards or a tokenizer, and for a task that init has no handler for.
    """
    config, tokenizer = _read(folder / CONFIG_FILE, _Settings), _read(folder / "tokenizer_config.json", _Settings)
    architecture = next(iter(config.architectures or ()), config.model_type or "")
    weights, modules = _choose_weights(folder, found), _read_modules(folder)
    has_code = bool(config.auto_map or tokenizer.auto_map)
    head, reason = _choose_head(folder, found, task, "" if has_code and task else architecture, modules)
    if missing := missing_file(head.input_loader, found.names):
        hint = f"Save it beside the model: {head.input_loader}.from_pretrained(…).save_pretrained(FOLDER)"
        raise UsageError(f"{missing} is missing", where=str(folder), hint=hint, code="no-tokenizer")
    members, options = {*weights, *filter(hf.is_setting, found.names)}, "local_files_only=True"
    findings: list[Finding | None] = [codes.TASK_CHOSEN.at(task=head.task, reason=reason)]
    if has_code and trusts_code:
        _require_code(folder, found, [config.auto_map, tokenizer.auto_map])
        members |= {name for name in found.names - _WRITTEN if name.endswith(".py") and "/" not in name}
        options += ", trust_remote_code=True"
        findings.append(codes.TRUSTED_CODE.at())
    elif has_code:
        findings.append(codes.REMOTE_CODE.at())
    requirements = _find_requirements(found, config, tokenizer)
    # Files that are not packed, weights in other formats first.
    others = [name for name in found.names - _WRITTEN - members if not name.startswith("samples/")]
    others.sort(key=lambda name: (not name.endswith(_OTHER_WEIGHTS), name))
    unused = codes.UNUSED_FILES.at(files=join_names(others, _MAX_SHOWN)) if others else None
    single = weights[0] if len(weights) == 1 else None
    mask = tokenizer.mask_token.get("content") if isinstance(tokenizer.mask_token, dict) else tokenizer.mask_token
    is_sigmoid = len(config.id2label or ()) == 1 or config.problem_type == "multi_label_classification"
    return PretrainedModel(
        architecture=architecture,
        head=head,
        weights=single,
        members=tuple(sorted(members - {single})),
        requirements=tuple(requirements),
        options=options,
        activation="" if config.problem_type == "regression" else "sigmoid" if is_sigmoid else "softmax",
        max_tokens=_max_tokens(folder, config, tokenizer),
        mask=mask if isinstance(mask, str) else "[MASK]",
        poolings=_read_poolings(folder, found, modules) if head.task == "feature-extraction" else (),
        normalized="Normalize" in modules,
        findings=tuple(filter(None, (*findings, *requirements.values(), unused))),
    )


def _read(path: Path, kind: type[T]) -> T:
    """Read a JSON file of the model; a missing one is empty."""
    try:
        return msgspec.json.decode(read_text_file(path, limit=hf.MAX_INDEX), type=kind) if path.is_file() else kind()
    except (msgspec.DecodeError, RecursionError) as error:
        what = f"the file is not valid: {error}"
        raise UsageError(what, where=str(path), hint=_GET, code="invalid-model-file") from error


def _require_code(folder: Path, found: FolderScan, auto_maps: list[Any]) -> None:  # Any: JSON
    """Raise UsageError if a module that auto_map names, such as "modeling_own.OwnModel", is not in the folder."""
    for module in re.findall(r'"([^"]+)[.]\w+"', msgspec.json.encode(auto_maps).decode()):
        if f"{module}.py" not in found.names:
            repository, separator, name = module.rpartition("--")
            hint = f"Copy {name}.py from {repository}, and remove '{repository}--' from auto_map."
            what = f"the folder has no {name}.py, which auto_map names"
            where = str(folder / CONFIG_FILE)
            raise UsageError(what, where=where, hint=hint if separator else _GET, code="no-model-code")


def _choose_weights(folder: Path, found: FolderScan) -> tuple[str, ...]:
    """Return the file with the weights, or the index and its shards."""
    files = hf.find_weights(found.names)
    if not files:
        what = f"the folder has {CONFIG_FILE}, but neither {' nor '.join(hf.WEIGHTS_FILES)}"
        other = next(filter(found.names.__contains__, _OTHER_MODELS), None)
        what, hint = _OTHER_MODELS[other] if other else (what, _GET)
        raise UsageError(what, where=str(folder), hint=hint, code="no-weights")
    if CONFIG_FILE not in found.names:
        raise UsageError(f"{CONFIG_FILE} is missing", where=str(folder), hint=_GET, code="no-config")
    if files[0] not in hf.WEIGHTS_FILES:
        index = next((name for name in files if name.endswith(hf.INDEX_SUFFIX)), "")
        shards = hf.list_shards(read_text_file(folder / index, limit=hf.MAX_INDEX).encode()) if index else None
        missing = [shard for shard in shards or () if shard not in found.names]
        if missing or not shards:
            what = f"shards of the weights are missing: {join_names(missing, _MAX_SHOWN)}"
            what = what if missing else "the weights are in shards, without an index that lists them"
            raise UsageError(what, where=str(folder / index), hint=_GET, code="missing-shards")
        files = (index, *shards)
    known = {weights.name: weights.kind for weights in found.weights}
    for file in (each for each in files if not each.endswith(hf.INDEX_SUFFIX)):
        is_new, where = file.endswith(".safetensors"), str(folder / file)
        with convert_os_errors(UsageError, "the file cannot be read", where=where), (folder / file).open("rb") as data:
            if is_exact_safetensors(data) if is_new else known.get(file) is WeightsFormat.STATE_DICT:
                continue
            data.seek(0)
            substitute = find_substitute(data.read(256))
        what = "the file is damaged, or not a safetensors file" if is_new else "the file is not a state_dict"
        what, hint = (substitute.message.format(name=file), substitute.hint) if substitute else (what, _GET)
        raise UsageError(what, where=where, hint=hint, code="invalid-model-file")
    return files


def _choose_head(
    folder: Path, found: FolderScan, named: Task | None, architecture: str, modules: dict[str, str]
) -> tuple[_Head, str]:
    """Return the model's task, as `named`, by its pooling, the README's tag or its architecture, and the reason."""
    head = next((each for each in _HEADS if re.search(f"({each.pattern})$", architecture)), None)
    possible = {head.task, "feature-extraction"} if head else {*get_args(Task)}
    tag = _read_tag(folder / "README.md") if "README.md" in found.names else None
    if named is not None:
        task, reason = named, "--task"
    elif "Pooling" in modules:
        task, reason = "feature-extraction", _MODULES_FILE
    elif _TAGS.get(tag) in possible:
        task, reason = _TAGS[tag], "pipeline_tag in README.md"
    elif head and (head.task != "feature-extraction" or missing_file("ImageProcessor", found.names)):
        task, reason = head.task, f"{architecture} in {CONFIG_FILE}"
    else:
        what = f"init has no handler for {architecture}" + (f" and the pipeline_tag {tag}" if tag else "")
        hint = "Choose a task with --task, or write the handler and name it: --handler FILE."
        raise UsageError(what, where=str(folder / CONFIG_FILE), hint=hint, code="unknown-task")
    if head and task not in possible:
        hint = f"Use --task {head.task}, or a model that was trained for {task}."
        raise UsageError(f"{architecture} has no head for {task}", where="--task", hint=hint, code="wrong-task")
    return next(each for each in (head, *_HEADS) if each and each.task == task), reason


def _read_tag(readme: Path) -> str | None:
    """Return pipeline_tag from the front matter of a README."""
    with readme.open("rb") as file:
        found = _TAG.match(file.read(_MAX_README))
    return found[1].decode() if found else None


def _max_tokens(folder: Path, config: _Settings, tokenizer: _Settings) -> int:
    """Return the most tokens of a text that the model takes."""
    positions = config.max_position_embeddings or config.n_positions
    if isinstance(positions, int) and re.search("roberta|camembert|mpnet|longformer", config.model_type or ""):
        padding = config.pad_token_id  # these models count positions from the one behind it
        positions -= 1 + (padding if isinstance(padding, int) else 1)
    sentences = _read(folder / "sentence_bert_config.json", dict[str, Any]).get("max_seq_length")
    numbers = (each for each in (sentences, tokenizer.model_max_length, positions) if isinstance(each, int))
    return min((each for each in numbers if 0 < each < _MAX_TOKENS), default=512)


def _read_modules(folder: Path) -> dict[str, str]:
    """Return the folders of the modules that sentence-transformers would run, by the names of their classes."""
    rows = _read(folder / _MODULES_FILE, list[dict[str, Any]])  # Any: JSON
    return {str(row.get("type")).rpartition(".")[2]: str(row.get("path", "")) for row in rows}


def _read_poolings(folder: Path, found: FolderScan, modules: dict[str, str]) -> tuple[str, ...]:
    """Return the poolings of a text's tokens; raises UsageError for those and for modules without a handler."""
    poolings: tuple[str, ...] = ("mean",)
    if "Pooling" in modules:
        place = (PurePosixPath(modules["Pooling"]) / CONFIG_FILE).as_posix()
        config = _read(folder / place, dict[str, Any]) if place in found.names else {}  # Any: JSON
        named = (key for key, value in config.items() if key.startswith("pooling_mode_") and value is True)
        modes = tuple(re.sub("^pooling_mode_|_tokens?$", "", key) for key in named)
        poolings = modes or (str(config.get("pooling_mode")),)
    unknown = [*(modules.keys() - {"Transformer", "Pooling", "Normalize"}), *(set(poolings) - _POOLINGS)]
    if unknown:
        what, where = f"init has no handler for {' and '.join(sorted(unknown))}", str(folder / _MODULES_FILE)
        hint = "Write a handler around sentence_transformers.SentenceTransformer, and name it: --handler FILE."
        raise UsageError(what, where=where, hint=hint, code="unknown-module")
    return poolings


def _find_requirements(found: FolderScan, config: _Settings, tokenizer: _Settings) -> dict[str, Finding | None]:
    """Return the lines of requirements.txt, with a finding for each package that is not installed."""
    user = (tokenizer.tokenizer_class or "tokenizer").removesuffix("Fast")
    packages = ["transformers", *filter(None, [_CLASS_PACKAGES.get(user)])]
    for name in sorted(found.names) if "tokenizer.json" not in found.names else ():
        packages += _VOCABULARY_PACKAGES.get(Path(name).suffix, ()) if "/" not in name else ()
    lines: dict[str, Finding | None] = {}
    for package in packages:
        try:
            lines[f"{package}=={metadata.version(package).partition('+')[0]}"] = None
        except metadata.PackageNotFoundError:
            saved_by = (config.transformers_version or "") if package == "transformers" else ""
            line = f"{package}=={saved_by}" if re.fullmatch(r"\d+(\.\d+)+", saved_by) else package
            needs = "the handler" if package == "transformers" else user
            lines[line] = codes.PACKAGE_NOT_INSTALLED.at(user=needs, package=line)
    return lines
