"""The model config: read once, and judged key by key (contract §10).

The frontend takes a value of another type for none, and says so in its log only.
"""

from collections.abc import Iterator
from typing import TYPE_CHECKING, Any

from msgspec import Struct

from marpack.archive.manifest import Manifest
from marpack.errors import nearest
from marpack.findings import Finding
from marpack.inspection.lint.codes import Code, suggestion
from marpack.inspection.lint.files import Files

if TYPE_CHECKING:
    from marpack.inspection.yaml_document import YamlDocument

MAX_YAML = 64 << 10  # bytes; Python's own parser, which the worker uses, is slow: a second for these
MANIFEST = "MAR-INF/MANIFEST.json: model.configFile"
_FRONTEND_CHARACTERS = 3 << 20  # more, and the frontend reads none of it
_FRONTEND_DEPTH = 50
_FRONTEND_ALIASES = 50  # of lists and mappings

MISSING = Code(
    "Model config",
    "config-missing",
    "The manifest's model config is not in the archive; every worker dies looking for it.",
    "Pack the file at the archive's root, or leave configFile out.",
)
ENCODING = Code(
    "Model config",
    "config-encoding",
    "The model config is not UTF-8, and the worker cannot decode it.",
    "Save the file as UTF-8.",
)
SYNTAX = Code(
    "Model config",
    "config-syntax",
    "The model config is not valid YAML; the frontend ignores it, and the worker dies.",
    "Mend the line; indent with spaces, never with tabs.",
)
TAG = Code(
    "Model config",
    "config-tag",
    "The model config holds a tag that makes an object; both of the server's readers refuse it, as they should.",
    "Write plain values, without '!' tags.",
)
BOMB = Code(
    "Model config",
    "config-bomb",
    "The model config is small to write and endless to expand (aliases of aliases); it can stall a worker.",
    "Write the values out.",
)
ROOT = Code(
    "Model config",
    "config-root",
    "The model config is empty, or no mapping of names to values; the server refuses to register the model.",
    "Write `key: value` lines, or leave configFile out.",
)
KEY = Code(
    "Model config",
    "config-key",
    "A key of the model config is not a string; the server refuses to register the model.",
    "Put the key in quotes.",
)
TWICE = Code(
    "Model config",
    "config-duplicate-key",
    "A key stands twice in the model config; the last one counts.",
    "Keep one of the two.",
)
TOO_MUCH = Code(
    "Model config",
    "config-beyond-frontend",
    "The model config is larger, deeper or fuller of aliases than the frontend reads; it ignores all of it silently.",
    "Shorten the config: at most 3 MiB, 50 levels, 50 aliases.",
)
NOT_LOOKED_INTO = Code(
    "Model config",
    "config-unchecked",
    "The model config is larger than any hand has written, and was not looked into.",
    "Move what is not the server's into a file of its own.",
)
TYPE = Code(
    "Model config",
    "config-type",
    "A value of the model config is of another type than the server wants; the frontend ignores it.",
    'Write the value as the type that is wanted: 8, not "8"; true, not "true".',
)
RANGE = Code(
    "Model config",
    "config-range",
    "A value of the model config is outside what the server takes; the frontend ignores it, or takes the nearest.",
    "Write a value that the server takes.",
)
NO_IDLE_TIME = Code(
    "Model config",
    "sequence-idle-time",
    "The model config asks for sequences, but not how long one may be idle: every request fails.",
    "Set `sequenceMaxIdleMSec`, in milliseconds, or drop `sequenceBatching`.",
)
UNKNOWN_KEY = Code(
    "Model config",
    "config-unknown-key",
    "A key of the model config is spelled almost like one that the server reads; keys of one's own are fine.",
    "Mend the key's spelling.",
)
WORKERS = Code(
    "Model config",
    "config-workers",
    "minWorkers is larger than maxWorkers.",
    "Let minWorkers be at most maxWorkers.",
)
TORCHRUN_KEY = Code(
    "Model config",
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
    data = files.read(name, MAX_YAML)
    if data is None:
        return ModelConfig(member=name)
    if len(data) > MAX_YAML:
        return ModelConfig(member=name, findings=(_too_large(files, name),))
    from marpack.inspection.yaml_document import read_yaml  # noqa: PLC0415 - archives without a config need no PyYAML

    try:
        return _judge(name, read_yaml(data.decode("utf-8"), as_server=True))
    except UnicodeDecodeError as error:
        line = data[: error.start].count(b"\n") + 1
        return ModelConfig(member=name, findings=(ENCODING.error("it is not UTF-8", f"{name}:{line}"),))


def _too_large(files: Files, name: str) -> Finding:
    data = files.read(name, 4 * _FRONTEND_CHARACTERS) or b""
    if len(data.decode("utf-8", "replace")) > _FRONTEND_CHARACTERS:
        return TOO_MUCH.warning("it is larger than the frontend reads, which ignores it", name)
    return NOT_LOOKED_INTO.note(f"it is larger than {MAX_YAML >> 10} KiB, and was not looked into", name)


def _judge(name: str, read: "YamlDocument") -> ModelConfig:
    problem = read.problem
    if problem is not None:
        code = BOMB if problem.fault == "excess" else TAG if "constructor for the tag" in problem.reason else SYNTAX
        where = f"{name}:{problem.line}" if problem.line and code is not BOMB else name
        return ModelConfig(member=name, findings=(code.error(f"{problem.context} {problem.reason}".strip(), where),))
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


class IntegerRange(Struct, frozen=True):
    """A whole number, of 32 bits in the frontend."""

    minimum: int = 0


class AllowedValues(Struct, frozen=True):
    """One of a few words, upper or lower case."""

    words: tuple[str, ...]
    lenient: tuple[str, ...] = ()  # words that documents give, and the frontend treats as none


Expected = IntegerRange | AllowedValues | type

SERVER_KEYS: dict[str, Expected] = {
    "minWorkers": IntegerRange(),
    "maxWorkers": IntegerRange(),
    "batchSize": IntegerRange(1),
    "maxBatchDelay": IntegerRange(),
    "responseTimeout": IntegerRange(1),
    "startupTimeout": IntegerRange(1),
    "maxRetryTimeoutInSec": IntegerRange(),
    "clientTimeoutInMills": IntegerRange(),
    "jobQueueSize": IntegerRange(),
    "parallelLevel": IntegerRange(),
    "sequenceMaxIdleMSec": IntegerRange(),
    "sequenceTimeoutMSec": IntegerRange(),
    "maxSequenceJobQueueSize": IntegerRange(),
    "maxNumSequence": IntegerRange(),
    "useJobTicket": bool,
    "useVenv": bool,
    "continuousBatching": bool,
    "sequenceBatching": bool,
    "asyncCommunication": bool,
    "deviceType": AllowedValues(("cpu", "gpu"), ("neuron", "neuronx", "hpu", "xpu", "mps", "tpu")),
    "parallelType": AllowedValues(("pp", "tp", "pptp", "custom")),
    "deviceIds": list,
    "torchrun": dict,
}
HANDLER_KEYS = ("handler", "pt2", "micro_batching", "deepspeed", "pippy", "dali")
_TORCHRUN: dict[str, Expected] = {
    "nnodes": IntegerRange(1),
    "nproc-per-node": IntegerRange(1),
    "monitor-interval": IntegerRange(1),
    "node-rank": IntegerRange(),
    "OMP_NUMBER_THREADS": IntegerRange(1),
    "rdzv-backend": str,
    "rdzv-endpoint": str,
    "rdzv-conf": str,
}
_NAMES = {bool: "true or false", list: "a list of whole numbers", dict: "a mapping", str: "a string"}


def check_keys(config: ModelConfig) -> Iterator[Finding]:
    """Yield the values that the server will not take, and the keys that it will not see."""
    for key, value in config.values.items():
        if key in SERVER_KEYS:
            yield from _check(config, (key,), value, SERVER_KEYS[key])
        elif key not in HANDLER_KEYS:
            yield from _check_spelling(config, key)
    yield from _check_workers(config)
    yield from _check_sequences(config)
    torchrun = config.values.get("torchrun")
    if isinstance(torchrun, dict):
        yield from _check_torchrun(config, torchrun)


def _check_sequences(config: ModelConfig) -> Iterator[Finding]:
    idle = config.values.get("sequenceMaxIdleMSec")
    if config.values.get("sequenceBatching") is True and (idle is None or not _is_whole(idle) or idle <= 0):
        message = "sequenceBatching without a sequenceMaxIdleMSec: the server answers every request with 500"
        yield NO_IDLE_TIME.error(message, config.at("sequenceBatching"))


def _check(
    config: ModelConfig, path: tuple[str, ...], value: Any, wanted: Expected
) -> Iterator[Finding]:  # Any: YAML's
    name, where = ".".join(path), config.at(*path)
    if isinstance(wanted, IntegerRange):
        yield from _check_whole(name, where, value, wanted)
    elif isinstance(wanted, AllowedValues):
        yield from _check_choice(name, where, value, wanted)
    elif not isinstance(value, wanted) or (isinstance(value, list) and not all(_is_whole(item) for item in value)):
        yield TYPE.warning(f"'{name}' is {_shown(value)}, not {_NAMES[wanted]}; the frontend ignores it", where)


def _check_whole(name: str, where: str, value: Any, wanted: IntegerRange) -> Iterator[Finding]:  # Any: YAML's
    if not _is_whole(value) or value > _MAX_INT:
        yield TYPE.warning(f"'{name}' is {_shown(value)}, not a whole number; the frontend ignores it", where)
    elif value < wanted.minimum:
        yield RANGE.warning(f"'{name}' is {value}, and must be at least {wanted.minimum}", where)


def _check_choice(name: str, where: str, value: Any, wanted: AllowedValues) -> Iterator[Finding]:  # Any: YAML's
    if not isinstance(value, str):
        yield TYPE.warning(f"'{name}' is {_shown(value)}, not one of {', '.join(wanted.words)}", where)
    elif value.lower() in wanted.lenient:
        yield RANGE.note(f"'{name}: {value}' counts as not set: the frontend knows {', '.join(wanted.words)}", where)
    elif value.lower() not in wanted.words:
        hint = suggestion(value.lower(), wanted.words)
        yield RANGE.warning(f"'{name}' is {_shown(value)}; the server knows {', '.join(wanted.words)}", where, hint)


def _is_whole(value: Any) -> bool:  # Any: YAML's
    return isinstance(value, int) and not isinstance(value, bool)


def _check_spelling(config: ModelConfig, key: str) -> Iterator[Finding]:
    known = (*SERVER_KEYS, *HANDLER_KEYS)
    plain = {_plain(name): name for name in known}
    meant = plain.get(_plain(key)) or plain.get(nearest(_plain(key), plain, 0.7) or "")
    if meant:
        yield UNKNOWN_KEY.warning(f"the server does not read '{key}'", config.at(key), f"did you mean {meant}?")


def _plain(key: str) -> str:
    return key.replace("_", "").replace("-", "").lower()


def _check_workers(config: ModelConfig) -> Iterator[Finding]:
    minimum, maximum = config.values.get("minWorkers"), config.values.get("maxWorkers")
    if isinstance(minimum, int) and isinstance(maximum, int) and 0 < maximum < minimum:
        yield WORKERS.warning(f"minWorkers is {minimum} and maxWorkers {maximum}", config.at("minWorkers"))


def _check_torchrun(config: ModelConfig, torchrun: dict[Any, Any]) -> Iterator[Finding]:  # Any: YAML's
    for key, value in torchrun.items():
        where = config.at("torchrun", key)
        if not isinstance(key, str):
            yield TORCHRUN_KEY.error(f"the key {_shown(key)} is not a string, and the server refuses the model", where)
        elif key in _TORCHRUN:
            yield from _check(config, ("torchrun", key), value, _TORCHRUN[key])
        else:
            meant = next((name for name in _TORCHRUN if _plain(name) == _plain(key)), None)
            hint = f"did you mean {meant}?" if meant else None
            yield TORCHRUN_KEY.warning(f"the server does not pass on 'torchrun.{key}'", where, hint)


def _shown(value: Any) -> str:  # Any: YAML's
    text = "a list" if isinstance(value, list) else "a mapping" if isinstance(value, dict) else repr(value)
    return text if len(text) <= 40 else f"{text[:40]}…"
