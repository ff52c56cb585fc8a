"""The model config: read once, and judged key by key (contract §10).

The frontend takes a value of another type for none, and says so in its log only.
"""

from collections.abc import Iterator
from typing import TYPE_CHECKING, Any, TypeGuard

from msgspec import Struct

from marpack.archive.manifest import Manifest
from marpack.errors import nearest, shortened
from marpack.findings import Finding
from marpack.inspection.lint.codes import Code, suggestion
from marpack.inspection.lint.files import Files
from marpack.torchserve.model_config import KEYS

if TYPE_CHECKING:
    from marpack.inspection.yaml_document import YamlDocument

_SLOW = 64 << 10  # bytes; Python's own parser, which the worker uses, takes a second for these
MANIFEST = "MAR-INF/MANIFEST.json: model.configFile"
_FRONTEND_CHARACTERS = 3 << 20  # more, and the frontend reads none of it
_FRONTEND_DEPTH = 50
_FRONTEND_ALIASES = 50  # of lists and mappings

MISSING = Code(
    "config-missing",
    "The manifest's model config is not in the archive; every worker dies looking for it.",
    "Pack the file at the archive's root, or leave configFile out.",
)
ENCODING = Code(
    "config-encoding",
    "The model config is not UTF-8, and the worker cannot decode it.",
    "Save the file as UTF-8.",
)
SYNTAX = Code(
    "config-syntax",
    "The model config is not valid YAML; the frontend ignores it, and the worker dies.",
    "Mend the line; indent with spaces, never with tabs.",
)
TAG = Code(
    "config-tag",
    "The model config holds a tag that makes an object; both of the server's readers refuse it, as they should.",
    "Write plain values, without '!' tags.",
)
BOMB = Code(
    "config-bomb",
    "The model config is small to write and endless to expand (aliases of aliases); it can stall a worker.",
    "Write the values out.",
)
ROOT = Code(
    "config-root",
    "The model config is empty, or no mapping of names to values; the server refuses to register the model.",
    "Write `key: value` lines, or leave configFile out.",
)
KEY = Code(
    "config-key",
    "A key of the model config is not a string; the server refuses to register the model.",
    "Put the key in quotes.",
)
TWICE = Code(
    "config-duplicate-key",
    "A key stands twice in the model config; the last one counts.",
    "Keep one of the two.",
)
TOO_MUCH = Code(
    "config-beyond-frontend",
    "The model config is larger, deeper or fuller of aliases than the frontend reads; it ignores all of it silently.",
    "Shorten the config: at most 3 MiB, 50 levels, 50 aliases.",
)
NOT_LOOKED_INTO = Code(
    "config-unchecked",
    "The model config is larger than any hand has written, and was not looked into.",
    "Move what is not the server's into a file of its own.",
)
TYPE = Code(
    "config-type",
    "A value of the model config is of another type than the server wants; the frontend ignores it.",
    'Write the value as the type that is wanted: 8, not "8"; true, not "true".',
)
RANGE = Code(
    "config-range",
    "A value of the model config is outside what the server takes; the frontend ignores it, or takes the nearest.",
    "Write a value that the server takes.",
)
NO_IDLE_TIME = Code(
    "sequence-idle-time",
    "The model config asks for sequences, but not how long one may be idle: every request fails.",
    "Set `sequenceMaxIdleMSec`, in milliseconds, or drop `sequenceBatching`.",
)
UNKNOWN_KEY = Code(
    "config-unknown-key",
    "A key of the model config is spelled almost like one that the server reads; keys of one's own are fine.",
    "Mend the key's spelling.",
)
WORKERS = Code(
    "config-workers",
    "minWorkers is larger than maxWorkers.",
    "Let minWorkers be at most maxWorkers.",
)
TORCHRUN_KEY = Code(
    "config-torchrun-key",
    "A key under torchrun is not one that the server passes on.",
    "Use one that it does, such as nnodes, nproc-per-node, rdzv-backend or OMP_NUMBER_THREADS.",
)

_MAX_INT = 2**31 - 1


class ModelConfig(Struct, frozen=True, kw_only=True):
    """What the model config says, and what was noticed in reading it."""

    member: str = ""
    values: dict[str, Any] = {}  # Any: whatever the YAML says
    lines: dict[str, int] = {}  # dotted path of keys → line
    findings: tuple[Finding, ...] = ()

    def at(self, *path: object) -> str:
        """Return where a key stands: file:line."""
        line = self.lines.get(".".join(map(str, path)))
        return f"{self.member}:{line}" if line else self.member

    @property
    def awaited(self) -> bool:
        """Whether the worker awaits what `handle` returns."""
        return self.values.get("asyncCommunication") is True

    @property
    def aot_compile(self) -> bool:
        """Whether the server loads .so weights."""
        pt2 = self.values.get("pt2")
        export = pt2.get("export") if isinstance(pt2, dict) else None
        return isinstance(export, dict) and bool(export.get("aot_compile") == True)  # noqa: E712 - as the server asks


def read_config(files: Files, manifest: Manifest) -> ModelConfig:
    """Read the model config that the manifest names."""
    name = manifest.model.config_file
    if name == "" or "configFile" in manifest.model.extra:
        message = "the manifest has a configFile without a name, and every worker looks for it all the same"
        return ModelConfig(findings=(MISSING.error(message, MANIFEST, "leave configFile out of the manifest"),))
    if name is None:
        return ModelConfig()
    if name not in files:
        return ModelConfig(findings=(MISSING.error(f"the model config '{name}' is not in the archive", MANIFEST),))
    from marpack.inspection.yaml_document import MAX_BYTES, read_yaml  # noqa: PLC0415 - most archives need no PyYAML

    data = files.read(name, MAX_BYTES)
    if data is None:
        return ModelConfig(member=name)
    if len(data) > MAX_BYTES:
        return ModelConfig(member=name, findings=(_too_large(files, name, MAX_BYTES),))
    try:
        return _judge(name, read_yaml(data.decode("utf-8"), as_server=len(data) <= _SLOW))
    except UnicodeDecodeError as error:
        line = data[: error.start].count(b"\n") + 1
        return ModelConfig(member=name, findings=(ENCODING.error("it is not UTF-8", f"{name}:{line}"),))


def _too_large(files: Files, name: str, limit: int) -> Finding:
    data = files.read(name, 4 * _FRONTEND_CHARACTERS) or b""
    if len(data.decode("utf-8", "replace")) > _FRONTEND_CHARACTERS:
        return TOO_MUCH.warning("it is larger than the frontend reads, which ignores it", name)
    return NOT_LOOKED_INTO.note(f"it is larger than {limit >> 10} KiB, and was not looked into", name)


def _judge(name: str, read: "YamlDocument") -> ModelConfig:
    problem = read.problem
    if problem is not None:
        code = BOMB if problem.fault == "excess" else TAG if "constructor for the tag" in problem.reason else SYNTAX
        where = f"{name}:{problem.line}" if problem.line and code is not BOMB else name
        found = code.error(f"{problem.context} {problem.reason}".strip(), where, problem.hint)
        return ModelConfig(member=name, findings=(found,))
    if not isinstance(read.value, dict):
        what = "empty" if read.value is None else f"a {type(read.value).__name__}, not a mapping"
        return ModelConfig(member=name, findings=(ROOT.error(f"it is {what}", name),))
    values = {key: value for key, value in read.value.items() if isinstance(key, str)}
    return ModelConfig(member=name, values=values, lines=read.lines, findings=tuple(_findings(name, read)))


def _findings(name: str, read: "YamlDocument") -> Iterator[Finding]:
    for key in read.value:
        if not isinstance(key, str):
            where = f"{name}:{read.lines.get(str(key), 1)}"
            yield KEY.error(f"the key {str(key)[:40]!r} is a {type(key).__name__}, not a string", where)
    for key in read.duplicates[:20]:
        yield TWICE.warning(f"'{key.name[:60]}' is there twice, and only the last one counts", f"{name}:{key.line}")
    if read.depth > _FRONTEND_DEPTH or read.aliases > _FRONTEND_ALIASES:
        yield TOO_MUCH.warning("it is deeper, or fuller of aliases, than the frontend reads, which ignores it", name)


WORKER_KEYS = frozenset(name for name, key in KEYS.items() if key.takes is object)
FRONTEND_KEYS = frozenset(name for name in KEYS if "." not in name) - WORKER_KEYS
_DOCUMENTED = ("neuron", "neuronx", "hpu", "xpu", "mps", "tpu")  # devices that the frontend treats as none
_NAMES = {bool: "true or false", list: "a list of whole numbers", dict: "a mapping", str: "a string"}


def check_keys(config: ModelConfig) -> Iterator[Finding]:
    """Yield the values that the server will not take, and the keys that it will not see."""
    for key, value in config.values.items():
        yield from _check(config, key, value) if key in KEYS else _check_spelling(config, key)
    yield from _check_workers(config)
    yield from _check_sequences(config)
    torchrun = config.values.get("torchrun")
    for key, value in torchrun.items() if isinstance(torchrun, dict) else ():
        yield from _check_torchrun(config, key, value)


def _check_sequences(config: ModelConfig) -> Iterator[Finding]:
    idle = config.values.get("sequenceMaxIdleMSec")
    if config.values.get("sequenceBatching") is True and (idle is None or not _is_whole(idle) or idle <= 0):
        message = "sequenceBatching without a sequenceMaxIdleMSec: the server answers every request with 500"
        yield NO_IDLE_TIME.error(message, config.at("sequenceBatching"))


def _check(config: ModelConfig, name: str, value: object) -> Iterator[Finding]:
    wanted, where = KEYS[name].takes, config.at(name)
    if isinstance(wanted, int):
        yield from _check_whole(name, where, value, wanted)
    elif isinstance(wanted, tuple):
        yield from _check_choice(name, where, value, wanted)
    elif not isinstance(value, wanted) or (
        wanted is list and isinstance(value, list) and not all(_is_whole(item) for item in value)
    ):
        yield TYPE.warning(f"'{name}' is {_shown(value)}, not {_NAMES[wanted]}; the frontend ignores it", where)


def _check_whole(name: str, where: str, value: object, minimum: int) -> Iterator[Finding]:
    if not _is_whole(value) or value > _MAX_INT:
        yield TYPE.warning(f"'{name}' is {_shown(value)}, not a whole number; the frontend ignores it", where)
    elif value < minimum:
        yield RANGE.warning(f"'{name}' is {value}, and must be at least {minimum}", where)


def _check_choice(name: str, where: str, value: object, words: tuple[str, ...]) -> Iterator[Finding]:
    if not isinstance(value, str):
        yield TYPE.warning(f"'{name}' is {_shown(value)}, not one of {', '.join(words)}", where)
    elif name == "deviceType" and value.lower() in _DOCUMENTED:
        yield RANGE.note(f"'{name}: {value}' counts as not set: the frontend knows {', '.join(words)}", where)
    elif value.lower() not in words:
        hint = suggestion(value.lower(), words)
        yield RANGE.warning(f"'{name}' is {_shown(value)}; the server knows {', '.join(words)}", where, hint)


def _is_whole(value: object) -> TypeGuard[int]:
    return isinstance(value, int) and not isinstance(value, bool)


def _check_spelling(config: ModelConfig, key: str) -> Iterator[Finding]:
    plain = {_plain(name): name for name in KEYS if "." not in name}
    meant = plain.get(_plain(key)) or plain.get(nearest(_plain(key), plain, 0.7) or "")
    if meant:
        yield UNKNOWN_KEY.warning(f"the server does not read '{key}'", config.at(key), f"did you mean {meant}?")


def _plain(key: str) -> str:
    return key.replace("_", "").replace("-", "").lower()


def _check_workers(config: ModelConfig) -> Iterator[Finding]:
    minimum, maximum = config.values.get("minWorkers"), config.values.get("maxWorkers")
    if isinstance(minimum, int) and isinstance(maximum, int) and 0 < maximum < minimum:
        yield WORKERS.warning(f"minWorkers is {minimum} and maxWorkers {maximum}", config.at("minWorkers"))


def _check_torchrun(config: ModelConfig, key: object, value: object) -> Iterator[Finding]:
    name, where = f"torchrun.{key}", config.at("torchrun", key)
    if not isinstance(key, str):
        yield TORCHRUN_KEY.error(f"the key {_shown(key)} is not a string, and the server refuses the model", where)
    elif name in KEYS:
        yield from _check(config, name, value)
    else:
        meant = next((known for known in KEYS if _plain(known) == _plain(name)), None)
        hint = f"did you mean {meant.removeprefix('torchrun.')}?" if meant else None
        yield TORCHRUN_KEY.warning(f"the server does not pass on '{name}'", where, hint)


def _shown(value: object) -> str:
    text = "a list" if isinstance(value, list) else "a mapping" if isinstance(value, dict) else repr(value)
    return shortened(text, 41)
