"""A folder with a Hugging Face model: its task, the files that transformers loads, and the handler's constants.

Only names and small files are read; code of the folder is never run, and transformers is not imported.
"""

import re
from collections.abc import Iterator
from importlib import metadata
from pathlib import Path, PurePosixPath
from typing import Any, TypeVar, get_args

import msgspec
from msgspec import Struct

from marpack import finding_codes as codes
from marpack.errors import UsageError
from marpack.findings import Finding
from marpack.inspection.lint.weights import find_substitute
from marpack.project.load import parse_document, read_text_file
from marpack.project.scaffold.folder_scan import REQUIREMENTS, FolderScan
from marpack.project.schema import FILE_NAME
from marpack.weights.hugging_face import (
    CONFIG_FILE,
    INDEX_SUFFIX,
    MAX_INDEX,
    WEIGHTS_FILES,
    Task,
    find_weights,
    is_setting,
    list_shards,
    missing_file,
)
from marpack.weights.kind import SUFFIXES, WeightsFormat

T = TypeVar("T")

_MODULES_FILE = "modules.json"  # of sentence-transformers
_WRITTEN = frozenset({FILE_NAME, REQUIREMENTS, "README.md", "handler.py", "test_model.py"})  # by init
_MAX_TOKENS = 1 << 20  # tokenizers without a maximum name a larger number
_MAX_SHOWN = 5  # names in one sentence
_FRONT_MATTER = re.compile(r"---\r?\n(.*?)\r?\n---\s", re.DOTALL)
_OTHER_WEIGHTS = (*SUFFIXES, ".h5", ".msgpack", ".ot", ".tflite", ".mlmodel")
_GET = "Download the model again: hf download ORGANIZATION/MODEL --local-dir FOLDER"
# Tokenizers that need a further package, by their class and by their vocabulary.
_CLASS_PACKAGES = {
    "BertJapaneseTokenizer": "fugashi", "FlaubertTokenizer": "sacremoses", "FSMTTokenizer": "sacremoses",
    "XLMTokenizer": "sacremoses", "RoFormerTokenizer": "rjieba",
}  # fmt: skip
_VOCABULARY_PACKAGES = {".model": "sentencepiece", ".spm": "sentencepiece", ".tiktoken": "tiktoken"}
_POOLINGS = frozenset({"cls", "mean", "max", "lasttoken"})
_TAGS: dict[object, Task] = {task: task for task in get_args(Task)} | {"sentence-similarity": "feature-extraction"}


class _Head(Struct, frozen=True):
    """A kind of architecture."""

    pattern: str  # for the end of its name in config.json
    task: Task
    auto_class: str  # the class of transformers that loads it

    @property
    def input_loader(self) -> str:
        """The class of transformers that turns inputs into tensors."""
        loaders = {"image-classification": "AutoImageProcessor", "automatic-speech-recognition": "AutoFeatureExtractor"}
        return loaders.get(self.task, "AutoTokenizer")


_HEADS = (
    _Head("ForSequenceClassification", "text-classification", "AutoModelForSequenceClassification"),
    _Head("ForTokenClassification", "token-classification", "AutoModelForTokenClassification"),
    _Head("ForQuestionAnswering(Simple)?", "question-answering", "AutoModelForQuestionAnswering"),
    _Head("ForMaskedLM|BertForPreTraining", "fill-mask", "AutoModelForMaskedLM"),
    _Head("ForCausalLM|LMHeadModel", "text-generation", "AutoModelForCausalLM"),
    _Head("ForImageClassification(WithTeacher)?", "image-classification", "AutoModelForImageClassification"),
    _Head("ForCTC", "automatic-speech-recognition", "AutoModelForCTC"),
    _Head("(Whisper|Moonshine)For.*", "automatic-speech-recognition", "AutoModelForSpeechSeq2Seq"),
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
    task: Task
    auto_class: str
    input_loader: str
    weights: str | None  # None: in shards
    members: tuple[str, ...]  # the files to pack, without `weights`
    requirements: tuple[str, ...]
    runs_code: bool  # the handler runs Python code of the folder
    activation: str  # of a classifier's scores: softmax, sigmoid, or "" for none
    max_tokens: int
    mask: str
    poolings: tuple[str, ...]
    normalized: bool
    findings: tuple[Finding, ...]

    @property
    def options(self) -> str:
        """The options of `from_pretrained`, as Python."""
        return "local_files_only=True" + (", trust_remote_code=True" if self.runs_code else "")


def is_pretrained(folder: Path, found: FolderScan) -> bool:
    """Return whether a folder has a Hugging Face model, or one whose weights are missing."""
    if CONFIG_FILE not in found.names or not any(is_setting(name) for name in found.names - {CONFIG_FILE}):
        return False
    if found.weights and not find_weights(found.names):
        return False  # weights of another kind, beside a file that happens to have this name
    config = _read(folder / CONFIG_FILE, _Settings)
    return bool(config.architectures or config.model_type)


def read_pretrained(folder: Path, found: FolderScan, *, task: Task | None, trusts_code: bool) -> PretrainedModel:
    """Read the Hugging Face model of a folder; `task` is the author's choice.

    Raises UsageError for a model without weights, shards or a tokenizer, and for a task that init has no handler for.
    """
    config, tokenizer = _read(folder / CONFIG_FILE, _Settings), _read(folder / "tokenizer_config.json", _Settings)
    architecture = next(iter(config.architectures or ()), config.model_type or "")
    weights = _choose_weights(folder, found)
    has_code = bool(config.auto_map or tokenizer.auto_map)
    head, reason = _choose_head(folder, found, task, "" if has_code and task else architecture)
    missing = missing_file(head.input_loader, found.names)
    if missing is not None:
        hint = f"Save it beside the model: {head.input_loader}.from_pretrained(…).save_pretrained(FOLDER)"
        raise UsageError(f"{missing} is missing", where=str(folder), hint=hint, code="no-tokenizer")
    members = {*weights, *filter(is_setting, found.names)}
    findings = [codes.TASK_CHOSEN.at(task=head.task, reason=reason)]
    if has_code and trusts_code:
        members |= {name for name in found.names - _WRITTEN if name.endswith(".py") and "/" not in name}
        findings.append(codes.TRUSTED_CODE.at())
    elif has_code:
        findings.append(codes.REMOTE_CODE.at())
    requirements, not_installed = _needed_packages(found, config, tokenizer)
    poolings, normalized = _read_pooling(folder, found) if head.task == "feature-extraction" else ((), False)
    single = weights[0] if len(weights) == 1 else None
    mask = tokenizer.mask_token.get("content") if isinstance(tokenizer.mask_token, dict) else tokenizer.mask_token
    is_sigmoid = len(config.id2label or ()) == 1 or config.problem_type == "multi_label_classification"
    return PretrainedModel(
        architecture=architecture,
        task=head.task,
        auto_class=head.auto_class,
        input_loader=head.input_loader,
        weights=single,
        members=tuple(sorted(members - {single})),
        requirements=requirements,
        runs_code=has_code and trusts_code,
        activation="" if config.problem_type == "regression" else "sigmoid" if is_sigmoid else "softmax",
        max_tokens=_max_tokens(folder, config, tokenizer),
        mask=mask if isinstance(mask, str) else "[MASK]",
        poolings=poolings,
        normalized=normalized,
        findings=(*findings, *not_installed, *_left_out(found, members)),
    )


def _read(path: Path, kind: type[T]) -> T:
    """Read a JSON file of the model; a missing one is empty."""
    try:
        return msgspec.json.decode(read_text_file(path, limit=MAX_INDEX), type=kind) if path.is_file() else kind()
    except msgspec.DecodeError as error:
        raise UsageError(
            f"the file is not valid: {error}", where=str(path), hint=_GET, code="invalid-model-file"
        ) from error


# Weights -------------------------------------------------------------------------------------------------------------


def _choose_weights(folder: Path, found: FolderScan) -> tuple[str, ...]:
    """Return the file with the weights, or the index and its shards."""
    files = find_weights(found.names)
    if not files:
        what = f"the folder has {CONFIG_FILE}, but neither {' nor '.join(WEIGHTS_FILES)}"
        raise UsageError(what, where=str(folder), hint=_GET, code="no-weights")
    if files[0] not in WEIGHTS_FILES:
        index = next((name for name in files if name.endswith(INDEX_SUFFIX)), None)
        shards = list_shards(read_text_file(folder / index, limit=MAX_INDEX).encode()) if index else None
        missing = [shard for shard in shards or () if shard not in found.names]
        if missing or not index or not shards:
            more = f" and {len(missing) - _MAX_SHOWN} more" if missing[_MAX_SHOWN:] else ""
            what = f"shards of the weights are missing: {', '.join(missing[:_MAX_SHOWN])}{more}"
            what = what if missing else "the weights are in shards, without an index that lists them"
            raise UsageError(what, where=str(folder / (index or "")), hint=_GET, code="missing-shards")
        files = (index, *shards)
    known = {weights.name: weights.kind for weights in found.weights}
    for file in (each for each in files if not each.endswith(INDEX_SUFFIX)):
        wanted = WeightsFormat.SAFETENSORS if file.endswith(".safetensors") else WeightsFormat.STATE_DICT
        if known.get(file) is not wanted:
            with (folder / file).open("rb") as data:
                substitute = find_substitute(data.read(256))
            what = substitute.message.format(name=file) if substitute else f"the file is not a {wanted} file"
            hint = substitute.hint if substitute else _GET
            raise UsageError(what, where=str(folder / file), hint=hint, code="invalid-model-file")
    return files


def _left_out(found: FolderScan, members: set[str]) -> Iterator[Finding]:
    """Yield the files of the folder that are not packed, weights in other formats first."""
    others = [name for name in found.names - _WRITTEN - members if not name.startswith("samples/")]
    names = sorted(others, key=lambda name: (not name.endswith(_OTHER_WEIGHTS), name))
    if names:
        more = f" and {len(names) - _MAX_SHOWN} more" if names[_MAX_SHOWN:] else ""
        yield codes.UNUSED_FILES.at(files=f"{', '.join(names[:_MAX_SHOWN])}{more}")


# Task ----------------------------------------------------------------------------------------------------------------


def _choose_head(folder: Path, found: FolderScan, named: Task | None, architecture: str) -> tuple[_Head, str]:
    """Return the model's task, as `named`, by its pooling, the README's tag or its architecture, and the reason."""
    head = next((each for each in _HEADS if re.search(f"({each.pattern})$", architecture)), None)
    tag = _read_tag(folder, found)
    if named is not None:
        task, reason = named, "--task"
    elif "Pooling" in _read_modules(folder):
        task, reason = "feature-extraction", _MODULES_FILE
    elif tag in _TAGS and (head is None or _TAGS[tag] in {head.task, "feature-extraction"}):
        task, reason = _TAGS[tag], "pipeline_tag in README.md"
    elif head is None or (head.task == "feature-extraction" and not missing_file("ImageProcessor", found.names)):
        what = f"init has no handler for {architecture}" + (f" and the pipeline_tag {tag}" if tag else "")
        hint = "Choose a task with --task, or write the handler and name it: --handler FILE."
        raise UsageError(what, where=str(folder / CONFIG_FILE), hint=hint, code="unknown-task")
    else:
        return head, f"{architecture} in {CONFIG_FILE}"
    if head is not None and task not in {head.task, "feature-extraction"}:
        hint = f"Use --task {head.task}, or a model that was trained for {task}."
        raise UsageError(f"{architecture} has no head for {task}", where="--task", hint=hint, code="wrong-task")
    fitting = head if head is not None and head.task == task else None
    return fitting or next(each for each in _HEADS if each.task == task), reason


def _read_tag(folder: Path, found: FolderScan) -> str | None:
    """Return pipeline_tag from the front matter of the README."""
    path = folder / "README.md"
    front = _FRONT_MATTER.match(read_text_file(path, limit=MAX_INDEX)) if path.name in found.names else None
    value = parse_document(front[1], file=str(path)).value if front else None
    tag = value.get("pipeline_tag") if isinstance(value, dict) else None
    return tag if isinstance(tag, str) else None


# Constants and packages ----------------------------------------------------------------------------------------------


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


def _read_pooling(folder: Path, found: FolderScan) -> tuple[tuple[str, ...], bool]:
    """Return the poolings of a text's tokens, and whether the result is normalized, as sentence-transformers does."""
    modules = _read_modules(folder)
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
    return poolings, "Normalize" in modules


def _needed_packages(
    found: FolderScan, config: _Settings, tokenizer: _Settings
) -> tuple[tuple[str, ...], list[Finding]]:
    """Return the lines of requirements.txt, and a finding for each package that is not installed."""
    name = (tokenizer.tokenizer_class or "tokenizer").removesuffix("Fast")
    needed = {"transformers": "the handler"}
    if name in _CLASS_PACKAGES:
        needed[_CLASS_PACKAGES[name]] = name
    for file in sorted(found.names) if "tokenizer.json" not in found.names else ():
        package = _VOCABULARY_PACKAGES.get(PurePosixPath(file).suffix)
        if package and "/" not in file:
            needed |= {package: name} | ({"protobuf": name} if package == "sentencepiece" else {})
    lines, findings = [], []
    for package, user in needed.items():
        try:
            lines.append(f"{package}=={metadata.version(package).partition('+')[0]}")
        except metadata.PackageNotFoundError:
            saved_by = (config.transformers_version or "") if package == "transformers" else ""
            lines.append(f"{package}=={saved_by}" if re.fullmatch(r"\d+(\.\d+)+", saved_by) else package)
            findings.append(codes.PACKAGE_NOT_INSTALLED.at(user=user, package=lines[-1]))
    return tuple(lines), findings
