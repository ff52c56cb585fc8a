"""A folder with a Hugging Face model: its task, the files that transformers loads, and the handler's constants.

Only names and small files are read; code of the folder is never run, and transformers is not imported.
"""

import re
from collections.abc import Iterable
from functools import cache
from importlib import metadata
from pathlib import Path, PurePosixPath
from typing import Any, TypeVar, get_args

import msgspec
from msgspec import Struct

from marpack import finding_codes as codes
from marpack.errors import UsageError, join_names
from marpack.findings import Finding
from marpack.project.load import read_text_file
from marpack.project.scaffold.folder_scan import REQUIREMENTS, FolderScan
from marpack.project.scaffold.template import templates
from marpack.project.schema import FILE_NAME
from marpack.weights import hugging_face as hf
from marpack.weights.hugging_face import CONFIG_FILE, Task, missing_file
from marpack.weights.kind import FORMATS, SUFFIXES, WeightsFormat
from marpack.weights.tensors import is_exact_safetensors

T = TypeVar("T")

_MODULES_FILE = "modules.json"  # of sentence-transformers
_WRITTEN = frozenset({FILE_NAME, REQUIREMENTS, "README.md", "handler.py", "test_model.py"})  # by init
_TAG = re.compile(rb"---[ \t]*\r?\n(?:(?!---).*\n)*?pipeline_tag:[ \t]*[\"']?([\w-]+)")  # in the README's front matter
_OTHER_WEIGHTS = (*SUFFIXES, ".h5", ".msgpack", ".ot", ".tflite", ".mlmodel")
_GET = "Download the model again: hf download ORGANIZATION/MODEL --local-dir FOLDER"
_TAGS: dict[object, Task] = {task: task for task in get_args(Task)} | {"sentence-similarity": "feature-extraction"}
_LIKE_ROBERTA = "roberta|camembert|mpnet|longformer"  # for `model_type`


class _Head(Struct, frozen=True):
    """A kind of architecture."""

    pattern: str  # for the end of its name in config.json
    task: Task
    auto_class: str  # the class of transformers that loads it
    input_loader: str = "AutoTokenizer"  # the class that turns inputs into tensors


class _Table(Struct, frozen=True):
    """The models that init knows."""

    heads: list[_Head]
    others: dict[str, tuple[str, str]]  # files of models that transformers does not load alone → problem and remedy
    packages: dict[str, list[str]]  # that models need


@cache
def _table() -> _Table:
    return msgspec.yaml.decode((templates() / "init/hugging_face/models.yaml").read_bytes(), type=_Table)


class _Settings(Struct, frozen=True):
    """The keys that matter here of config.json, tokenizer_config.json and similar files."""

    architectures: list[str] | None = None
    model_type: str | None = None
    auto_map: Any = None  # Any: only its presence matters
    quantization_config: dict[str, Any] | None = None  # Any: JSON
    transformers_version: str | None = None
    problem_type: str | None = None
    id2label: dict[str, Any] | None = None  # Any: the labels
    max_position_embeddings: Any = None  # Any: an int is used, as below
    n_positions: Any = None
    pad_token_id: int | None = None
    tokenizer_class: str | None = None
    model_max_length: Any = None
    mask_token: str | dict[str, Any] | None = None  # an object has it as `content`
    prompts: dict[str, str] | None = None  # of sentence-transformers
    default_prompt_name: str | None = None
    do_sample: bool | None = None  # of generation_config.json


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
    prompt: str  # before every text
    normalized: bool
    varies: bool  # generated texts are sampled
    findings: tuple[Finding, ...]


def is_pretrained(folder: Path, found: FolderScan) -> bool:
    """Return whether a folder has a Hugging Face model, also one that lacks files or that init has no handler for."""
    has_weights = bool(hf.find_weights(found.names))
    if not (has_weights or _table().others.keys().isdisjoint(found.names)):
        return True
    if CONFIG_FILE not in found.names:
        return has_weights and "tokenizer_config.json" in found.names
    if not has_weights and any(each.kind is not WeightsFormat.SAFETENSORS for each in found.weights):
        return False  # weights of another kind, beside a file that happens to have this name
    config = _read(folder / CONFIG_FILE, _Settings)
    return bool(
        config.architectures or (config.model_type and any(map(hf.SETTINGS.fullmatch, found.names - {CONFIG_FILE})))
    )


def read_pretrained(folder: Path, found: FolderScan, *, task: Task | None, trusts_code: bool) -> PretrainedModel:
    """Read the Hugging Face model of a folder; `task` is the author's choice.

    Raises UsageError for a model without weights, shards or a tokenizer, and for a task that init has no handler for.
    """
    config, tokenizer = _read(folder / CONFIG_FILE, _Settings), _read(folder / "tokenizer_config.json", _Settings)
    architecture = next(iter(config.architectures or ()), config.model_type or "")
    weights, rows = _choose_weights(folder, found), _read(folder / _MODULES_FILE, list[dict[str, Any]])  # Any: JSON
    # The modules that sentence-transformers would run: their folders, by the names of their classes.
    modules = {str(row.get("type")).rpartition(".")[2]: str(row.get("path", "")) for row in rows}
    sentences = _read(folder / "config_sentence_transformers.json", _Settings)
    has_code = bool(config.auto_map or tokenizer.auto_map)
    head, reason = _choose_head(folder, found, task, "" if has_code and task else architecture, modules)
    if missing := missing_file(head.input_loader, found.names):
        hint = f"Save it beside the model: {head.input_loader}.from_pretrained(…).save_pretrained(FOLDER)"
        _require(folder, found, [missing], "no-tokenizer", hint)
    members, options = {*weights, *filter(hf.SETTINGS.fullmatch, found.names)}, "local_files_only=True"
    findings = [codes.TASK_CHOSEN.at(task=head.task, reason=reason)]
    if has_code and trusts_code:
        # Such as "modeling_own.OwnModel", or "organization/model--modeling_own.OwnModel".
        named = re.findall(r'"([^"]+)[.]\w+"', msgspec.json.encode([config.auto_map, tokenizer.auto_map]).decode())
        hint = "Copy the code that auto_map names into the folder, and remove repositories (NAME--) from auto_map."
        _require(folder, found, [f"{module}.py" for module in named], "no-model-code", hint)
        members |= {name for name in found.names - _WRITTEN if name.endswith(".py") and "/" not in name}
        options += ", trust_remote_code=True"
        findings.append(codes.TRUSTED_CODE.at())
    elif has_code:
        findings.append(codes.REMOTE_CODE.at())
    requirements, missing_packages = _find_requirements(found, config, tokenizer)
    findings += missing_packages
    # Files that are not packed, weights in other formats first.
    others = [name for name in found.names - _WRITTEN - members if not name.startswith("samples/")]
    others.sort(key=lambda name: (not name.endswith(_OTHER_WEIGHTS), name))
    findings += [codes.UNUSED_FILES.at(files=join_names(others))] if others else []
    single = weights[0] if len(weights) == 1 else None
    mask, usual_mask = tokenizer.mask_token, "<mask>" if re.search(_LIKE_ROBERTA, config.model_type or "") else "[MASK]"
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
        mask=str((mask.get("content") if isinstance(mask, dict) else mask) or usual_mask),
        poolings=_read_poolings(folder, found, modules) if head.task == "feature-extraction" else (),
        prompt=(sentences.prompts or {}).get(sentences.default_prompt_name or "", ""),
        normalized="Normalize" in modules,
        varies=head.task == "text-generation" and _read(folder / "generation_config.json", _Settings).do_sample is True,
        findings=tuple(findings),
    )


def _read(path: Path, kind: type[T]) -> T:
    """Read a JSON file of the model; a missing one is empty."""
    try:
        return msgspec.json.decode(read_text_file(path, limit=hf.MAX_INDEX), type=kind) if path.is_file() else kind()
    except (msgspec.DecodeError, RecursionError) as error:
        what = f"the file is not valid: {error}"
        raise UsageError(what, where=str(path), hint=_GET, code="invalid-model-file") from error


def _require(folder: Path, found: FolderScan, names: Iterable[str], code: str, hint: str = _GET) -> None:
    """Raise UsageError for files that the folder lacks."""
    if missing := [name for name in names if name not in found.names]:
        raise UsageError(f"the folder has no {join_names(missing)}", where=str(folder), hint=hint, code=code)


def _choose_weights(folder: Path, found: FolderScan) -> tuple[str, ...]:
    """Return the file with the weights, or the index and its shards."""
    files = hf.find_weights(found.names)
    if not files:
        hint = f"Rename {found.weights[0].name} to {hf.WEIGHTS_FILES[0]}." if found.weights else _GET
        plain = (f"the folder has {CONFIG_FILE}, but neither {' nor '.join(hf.WEIGHTS_FILES)}", hint)
        what, hint = next((texts for name, texts in _table().others.items() if name in found.names), plain)
        raise UsageError(what, where=str(folder), hint=hint, code="no-weights")
    _require(folder, found, [CONFIG_FILE], "no-config")
    index = files[0] if files[0].endswith(hf.INDEX_SUFFIX) else None
    if index:
        _require(folder, found, [index], "missing-shards")
        files = hf.list_shards(read_text_file(folder / index, limit=hf.MAX_INDEX).encode())
        _require(folder, found, files or ["shards, which the index should name"], "missing-shards")
    kinds = {weights.name: weights.kind for weights in found.weights}
    for file in files:
        needed = WeightsFormat.SAFETENSORS if file.endswith(".safetensors") else WeightsFormat.STATE_DICT
        is_whole = kinds.get(file) is needed
        if is_whole and needed is WeightsFormat.SAFETENSORS:
            with (folder / file).open("rb") as data:
                is_whole = is_exact_safetensors(data)
        if not is_whole:
            what = f"the file is damaged, a Git LFS pointer, or not {FORMATS[needed].title}"
            raise UsageError(what, where=str(folder / file), hint=_GET, code="invalid-model-file")
    return (index, *files) if index else files


def _choose_head(
    folder: Path, found: FolderScan, named: Task | None, architecture: str, modules: dict[str, str]
) -> tuple[_Head, str]:
    """Return the model's task, as `named`, by its pooling, the README's tag or its architecture, and the reason."""
    head = next((each for each in _table().heads if re.search(f"({each.pattern})$", architecture)), None)
    possible = {head.task, "feature-extraction"} if head else {*get_args(Task)}
    tag = None
    if "README.md" in found.names:
        with (folder / "README.md").open("rb") as readme:
            front = _TAG.match(readme.read(1 << 16))
        tag = front[1].decode() if front else None
    if named is not None:
        task, reason = named, "--task"
    elif "Pooling" in modules:
        task, reason = "feature-extraction", _MODULES_FILE
    elif _TAGS.get(tag) in possible:
        task, reason = _TAGS[tag], "pipeline_tag in README.md"
    elif head and (head.input_loader != "AutoTokenizer" or missing_file("ImageProcessor", found.names)):
        task, reason = head.task, f"{architecture} in {CONFIG_FILE}"
    else:
        what = f"init has no handler for {architecture}" + (f" and the pipeline_tag {tag}" if tag else "")
        hint = "Choose a task with --task, or write the handler and name it: --handler FILE."
        raise UsageError(what, where=str(folder / CONFIG_FILE), hint=hint, code="unknown-task")
    if head and task not in possible:
        hint = f"Use --task {head.task}, or a model that was trained for {task}."
        raise UsageError(f"{architecture} has no head for {task}", where="--task", hint=hint, code="wrong-task")
    return next(each for each in (head, *_table().heads) if each and each.task == task), reason


def _max_tokens(folder: Path, config: _Settings, tokenizer: _Settings) -> int:
    """Return the most tokens of a text that the model takes."""
    positions = config.max_position_embeddings or config.n_positions
    if isinstance(positions, int) and re.search(_LIKE_ROBERTA, config.model_type or ""):
        # These models count positions from the one behind the padding's.
        positions -= 2 if config.pad_token_id is None else 1 + config.pad_token_id
    sentences = _read(folder / "sentence_bert_config.json", dict[str, Any]).get("max_seq_length")
    limits = (sentences, tokenizer.model_max_length, positions)  # tokenizers without a limit have a very large number
    return min((each for each in limits if isinstance(each, int) and 0 < each < 1 << 20), default=512)


def _read_poolings(folder: Path, found: FolderScan, modules: dict[str, str]) -> tuple[str, ...]:
    """Return the poolings of a text's tokens; raises UsageError for those and for modules without a handler."""
    poolings: tuple[str, ...] = ("mean",)
    if "Pooling" in modules:
        place = (PurePosixPath(modules["Pooling"]) / CONFIG_FILE).as_posix()
        config = _read(folder / place, dict[str, Any]) if place in found.names else {}  # Any: JSON
        modes = (re.fullmatch("pooling_mode_(.*?)(_tokens?)?", key) for key, value in config.items() if value is True)
        poolings = tuple(mode[1] for mode in modes if mode) or (str(config.get("pooling_mode")),)
    unknown = modules.keys() - {"Transformer", "Pooling", "Normalize"}
    if unknown := unknown | (set(poolings) - {"cls", "mean", "max", "lasttoken"}):
        what, where = f"init has no handler for {' and '.join(sorted(unknown))}", str(folder / _MODULES_FILE)
        hint = "Write a handler around sentence_transformers.SentenceTransformer, and name it: --handler FILE."
        raise UsageError(what, where=where, hint=hint, code="unknown-module")
    return poolings


def _find_requirements(found: FolderScan, config: _Settings, tokenizer: _Settings) -> tuple[list[str], list[Finding]]:
    """Return the lines of requirements.txt, and a finding for each package that is not installed."""
    user = (tokenizer.tokenizer_class or "").removesuffix("Fast")
    method = str((config.quantization_config or {}).get("quant_method"))
    suffixes = () if "tokenizer.json" in found.names else (Path(name).suffix for name in found.names if "/" not in name)
    packages = {package for key in (user, method, *suffixes) for package in _table().packages.get(key, ())}
    lines, findings = [], []
    for package in ("transformers", *sorted(packages)):
        try:
            lines.append(f"{package}=={metadata.version(package).partition('+')[0]}")
        except metadata.PackageNotFoundError:
            saved_by = config.transformers_version if package == "transformers" else None
            lines.append(f"{package}=={saved_by}" if re.fullmatch(r"\d+(\.\d+)+", saved_by or "") else package)
            findings.append(codes.PACKAGE_NOT_INSTALLED.at(user="the model", package=lines[-1]))
    return lines, findings
