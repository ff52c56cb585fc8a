"""The keys of the model config that the server itself reads: their types and ranges (contract §10).

The frontend takes a value of another type for none, and says so in its log only.
"""

from collections.abc import Iterator
from typing import Any

from msgspec import Struct

from marpack.findings import Finding
from marpack.inspection.lint.codes import Code
from marpack.inspection.lint.model_config import ModelConfig
from marpack.inspection.lint.spelling import near

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

_MOST = 2**31 - 1


class Whole(Struct, frozen=True):
    """A whole number, of 32 bits in the frontend."""

    least: int = 0


class Choice(Struct, frozen=True):
    """One of a few words, upper or lower case."""

    words: tuple[str, ...]
    lenient: tuple[str, ...] = ()  # words that documents give, and the frontend treats as none


Wanted = Whole | Choice | type

SERVER_KEYS: dict[str, Wanted] = {
    "minWorkers": Whole(),
    "maxWorkers": Whole(),
    "batchSize": Whole(1),
    "maxBatchDelay": Whole(),
    "responseTimeout": Whole(1),
    "startupTimeout": Whole(1),
    "maxRetryTimeoutInSec": Whole(),
    "clientTimeoutInMills": Whole(),
    "jobQueueSize": Whole(),
    "parallelLevel": Whole(),
    "sequenceMaxIdleMSec": Whole(),
    "sequenceTimeoutMSec": Whole(),
    "maxSequenceJobQueueSize": Whole(),
    "maxNumSequence": Whole(),
    "useJobTicket": bool,
    "useVenv": bool,
    "continuousBatching": bool,
    "sequenceBatching": bool,
    "asyncCommunication": bool,
    "deviceType": Choice(("cpu", "gpu"), ("neuron", "neuronx", "hpu", "xpu", "mps", "tpu")),
    "parallelType": Choice(("pp", "tp", "pptp", "custom")),
    "deviceIds": list,
    "torchrun": dict,
}
HANDLER_KEYS = ("handler", "pt2", "micro_batching", "deepspeed", "pippy", "dali")
_TORCHRUN: dict[str, Wanted] = {
    "nnodes": Whole(1),
    "nproc-per-node": Whole(1),
    "monitor-interval": Whole(1),
    "node-rank": Whole(),
    "OMP_NUMBER_THREADS": Whole(1),
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


def _check(config: ModelConfig, path: tuple[str, ...], value: Any, wanted: Wanted) -> Iterator[Finding]:  # Any: YAML's
    name, where = ".".join(path), config.at(*path)
    if isinstance(wanted, Whole):
        yield from _check_whole(name, where, value, wanted)
    elif isinstance(wanted, Choice):
        yield from _check_choice(name, where, value, wanted)
    elif not isinstance(value, wanted) or (isinstance(value, list) and not all(_is_whole(item) for item in value)):
        yield TYPE.warning(f"'{name}' is {_shown(value)}, not {_NAMES[wanted]}; the frontend ignores it", where)


def _check_whole(name: str, where: str, value: Any, wanted: Whole) -> Iterator[Finding]:  # Any: YAML's
    if not _is_whole(value) or value > _MOST:
        yield TYPE.warning(f"'{name}' is {_shown(value)}, not a whole number; the frontend ignores it", where)
    elif value < wanted.least:
        yield RANGE.warning(f"'{name}' is {value}, and must be at least {wanted.least}", where)


def _check_choice(name: str, where: str, value: Any, wanted: Choice) -> Iterator[Finding]:  # Any: YAML's
    if not isinstance(value, str):
        yield TYPE.warning(f"'{name}' is {_shown(value)}, not one of {', '.join(wanted.words)}", where)
    elif value.lower() in wanted.lenient:
        yield RANGE.note(f"'{name}: {value}' counts as not set: the frontend knows {', '.join(wanted.words)}", where)
    elif value.lower() not in wanted.words:
        meant = near(value.lower(), wanted.words)
        hint = f"did you mean {meant}?" if meant else None
        yield RANGE.warning(f"'{name}' is {_shown(value)}; the server knows {', '.join(wanted.words)}", where, hint)


def _is_whole(value: Any) -> bool:  # Any: YAML's
    return isinstance(value, int) and not isinstance(value, bool)


def _check_spelling(config: ModelConfig, key: str) -> Iterator[Finding]:
    known = (*SERVER_KEYS, *HANDLER_KEYS)
    plain = {_plain(name): name for name in known}
    meant = plain.get(_plain(key)) or plain.get(near(_plain(key), plain) or "")
    if meant:
        yield UNKNOWN_KEY.warning(f"the server does not read '{key}'", config.at(key), f"did you mean {meant}?")


def _plain(key: str) -> str:
    return key.replace("_", "").replace("-", "").lower()


def _check_workers(config: ModelConfig) -> Iterator[Finding]:
    least, most = config.values.get("minWorkers"), config.values.get("maxWorkers")
    if isinstance(least, int) and isinstance(most, int) and 0 < most < least:
        yield WORKERS.warning(f"minWorkers is {least} and maxWorkers {most}", config.at("minWorkers"))


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
