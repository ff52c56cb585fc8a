"""The manifest and the model config as the server reads them: JSON and YAML, their keys and values (contract §10)."""

import json
import re
from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any, Self

from msgspec import Struct

if TYPE_CHECKING:
    from marpack.torchserve.context import Context, RequestProcessor

_BY_TORCHRUN = frozenset({"pp", "tp", "pptp"})  # values of parallelType
_SERVERS_TIMEOUT = 120.0  # seconds, for a batch and for loading alike, where the config says nothing
# Options of inductor that choose among its own implementations.
_CHOICES = frozenset(
    f"max_autotune_{kind}" for kind in ("gemm_backends", "conv_backends", "gemm_search_space", "flex_search_space")
)
_INT32 = 1 << 31
_MAX_LENGTH = 1_000_000  # seconds


class ConfigKey(Struct, frozen=True):
    """A key that the server or a handler reads, and its effect in `marpack run` and `check`, and in `serve`."""

    takes: int | tuple[str, ...] | type  # whole numbers from that one on, words in any case, or values of a type
    default: str  # of the server's
    meaning: str
    run: str = "no"
    serve: str = "no"
    reader: str = "frontend"


_TORCHRUN = "passed on to torchrun"
_ONE = "of one process; more are refused"
_TOLD = "no; GET /models shows it"
_ENGINE = "no; such handlers need their engine"
KEYS: dict[str, ConfigKey] = {
    "minWorkers": ConfigKey(
        0, "GPUs or cores", "workers to start, if `maxWorkers` is set", "no: `--workers`", "yes; 1 without"
    ),
    "maxWorkers": ConfigKey(0, "as minWorkers", "workers that scaling may start, on request only", serve="yes"),
    "batchSize": ConfigKey(1, "1", "requests per call of `handle`, at most", "in check: batches up to it", "yes"),
    "maxBatchDelay": ConfigKey(0, "100 ms", "time to wait for a full batch", serve="yes"),
    "responseTimeout": ConfigKey(1, "120 s", "time limit of a batch; then its worker is killed", "yes", "yes"),
    "startupTimeout": ConfigKey(1, "120 s", "time limit of loading", "yes", "yes"),
    "deviceType": ConfigKey(
        ("cpu", "gpu"),
        "gpu, if there is one",
        "device of the workers; other words count as not set",
        "in check: gpu requires one; otherwise `--device`",
        "cpu: no worker gets a GPU",
    ),
    "deviceIds": ConfigKey(list, "all", "GPUs that workers may use", "no: `--device`", "those that exist"),
    "parallelType": ConfigKey(
        ("pp", "tp", "pptp", "custom"), "none", "split over GPUs, by torchrun or custom", _ONE, _ONE
    ),
    "parallelLevel": ConfigKey(0, "none", "GPUs per worker"),
    "torchrun": ConfigKey(dict, "none", "options for torchrun, with parallelType", _ONE, _ONE),
    "torchrun.nnodes": ConfigKey(1, "none", _TORCHRUN, "1; more are refused", "1; more are refused"),
    "torchrun.nproc-per-node": ConfigKey(1, "none", _TORCHRUN, "1; more are refused", "1; more are refused"),
    "torchrun.node-rank": ConfigKey(0, "none", _TORCHRUN),
    "torchrun.monitor-interval": ConfigKey(1, "none", _TORCHRUN),
    "torchrun.rdzv-backend": ConfigKey(str, "none", _TORCHRUN),
    "torchrun.rdzv-endpoint": ConfigKey(str, "none", _TORCHRUN),
    "torchrun.rdzv-conf": ConfigKey(str, "none", _TORCHRUN),
    "torchrun.OMP_NUMBER_THREADS": ConfigKey(1, "none", "threads of each process"),
    "maxRetryTimeoutInSec": ConfigKey(0, "300 s", "time to restart a lost worker", serve="yes, from 1 on"),
    "clientTimeoutInMills": ConfigKey(0, "0 ms: never", "time after which no response is sent", serve="yes"),
    "jobQueueSize": ConfigKey(0, "100", "requests that may wait; further ones get 503", serve="yes"),
    "useJobTicket": ConfigKey(bool, "false", "refuse a request at once if no worker is free", serve=_TOLD),
    "useVenv": ConfigKey(bool, "false", "install the requirements for this model alone", "no: `--env isolated`", _TOLD),
    "sequenceBatching": ConfigKey(bool, "false", "a sequence goes to one worker", "its ids only", "its ids only"),
    "sequenceMaxIdleMSec": ConfigKey(0, "0 ms", "idle limit of a sequence; required", "500 without", "500 without"),
    "sequenceTimeoutMSec": ConfigKey(0, "0 ms: no end", "time limit of a sequence", serve=_TOLD),
    "maxSequenceJobQueueSize": ConfigKey(0, "1", "requests that may wait in a sequence", serve=_TOLD),
    "maxNumSequence": ConfigKey(0, "1", "sequences at once", serve=_TOLD),
    "continuousBatching": ConfigKey(
        bool, "false", "`handle` is called until all end", "own batch only", "own batch only"
    ),
    "asyncCommunication": ConfigKey(bool, "false", "`handle` is awaited, and calls overlap", "awaited", "awaited"),
    "handler": ConfigKey(object, "none", "`profile: true`; target marpack: more", "yes", "yes", "BaseHandler"),
    "pt2": ConfigKey(object, "none", "torch.compile: backend, mode and more", "yes", "yes", "BaseHandler"),
    "micro_batching": ConfigKey(
        object, "none", "`micro_batch_size` and `parallelism`", "yes", "yes", "handlers with MicroBatching"
    ),
    "deepspeed": ConfigKey(object, "none", "its settings", _ENGINE, _ENGINE, "handlers with DeepSpeed"),
    "pippy": ConfigKey(object, "none", "its settings", _ENGINE, _ENGINE, "handlers with PiPPy"),
    "dali": ConfigKey(object, "none", "its settings", _ENGINE, _ENGINE, "dali_image_classifier"),
}


def get_yaml_config(yaml_file_path: str) -> Any:  # Any: YAML as it stands; None for an empty file
    """Return a YAML file's content, read with the safe loader."""
    import yaml  # noqa: PLC0415 - an archive without a config need not wait for it

    with Path(yaml_file_path).open() as file:
        return yaml.safe_load(file)


def read_manifest(model_dir: str) -> dict[str, Any]:  # Any: JSON
    """Return the manifest as the plain dict that handlers see, read in the locale's encoding as on the server."""
    with Path(model_dir, "MAR-INF", "MANIFEST.json").open() as file:
        manifest: dict[str, Any] = json.load(file)  # Any: as above
        return manifest


class ConfigError(Exception):
    """A model config that the server refuses."""

    def __init__(self, message: str, *, hint: str | None = None) -> None:
        super().__init__(message)
        self.hint = hint or "Write at least one key, such as batchSize: 1, or remove the file from the archive."


def read_config(model_dir: str, config_file: Any) -> dict[str, Any]:  # Any: JSON as it stands
    """Return the model config; raises ConfigError unless it is a mapping and its name is text."""
    if not isinstance(config_file, str):
        what = f"configFile in the manifest is {config_file!r}, so the server cannot load the model"
        raise ConfigError(what, hint="Set configFile to a file name, and build the archive again.")
    config = get_yaml_config(str(Path(model_dir, config_file)))
    if not isinstance(config, dict):
        # The frontend, which reads it before any worker does, cannot register the model.
        kind = "empty" if config is None else f"a {type(config).__name__}"
        raise ConfigError(f"{config_file} is {kind}, not a mapping, so the server does not register the model")
    torchrun = config.get("torchrun")
    odd = [key for key in (*config, *(torchrun if isinstance(torchrun, dict) else ())) if not isinstance(key, str)]
    if odd:
        message = f"{config_file} has the key {odd[0]!r}, which is not text, so the server does not register the model"
        raise ConfigError(message, hint="Quote the key: YAML reads on, yes and 1 as values.")
    return config


def batch_size_of(config: dict[str, Any]) -> int:
    """Return the config's batchSize, else 1."""
    return _whole(config, "batchSize") or 1


def find_program_option(options: Mapping[Any, Any]) -> str | None:  # Any: YAML as it stands
    """Return the first option of torch.compile that may name a program, a flag or a file, otherwise None.

    Its backend inductor passes texts to the command line of a compiler.
    """
    inner = options.get("options")
    if options.get("backend") not in (None, "inductor") or not isinstance(inner, Mapping):
        return None
    for key, value in inner.items():
        is_choice = key in _CHOICES and isinstance(value, str) and re.fullmatch(r"[A-Za-z0-9_,]*", value)
        if not (value is None or isinstance(value, int | float) or is_choice):
            return str(key)
    return None


class Torchrun(Struct, frozen=True):
    """The processes that torchrun starts for one worker."""

    per_node: int
    nodes: int

    @classmethod
    def of(cls, config: Mapping[str, Any]) -> Self | None:
        """Return the processes that a config asks for; None if the server does not start the worker with torchrun."""
        asked = config.get("torchrun")
        if not isinstance(asked, Mapping) or str(config.get("parallelType")).lower() not in _BY_TORCHRUN:
            return None
        per_node = _whole(asked, "nproc-per-node")
        return None if per_node is None else cls(per_node, _whole(asked, "nnodes") or 1)

    @property
    def ranks(self) -> int:
        """The number of processes on all nodes together."""
        return self.per_node * self.nodes


def seconds_of(config: Mapping[str, Any], key: str) -> float:
    """Return the config's responseTimeout or startupTimeout, else the server's default."""
    value = _whole(config, key)
    return _SERVERS_TIMEOUT if value is None else float(min(value, _MAX_LENGTH))


def _whole(config: Mapping[str, Any], key: str) -> int | None:
    """Return a whole number above 0, as Java's Integer holds it; None for anything else, which counts as not set."""
    value = config.get(key)
    counts = isinstance(value, int) and not isinstance(value, bool) and 0 < value < _INT32
    return value if counts else None


class Sequences(Struct, frozen=True):
    """The `sequenceBatching` of a model config."""

    stuck: bool  # without an idle time, the server answers every request with an error

    @classmethod
    def of(cls, config: Mapping[str, Any]) -> Self | None:  # Any: YAML as it stands
        """Return what a config asks for, None if it asks for no sequences."""
        if config.get("sequenceBatching") is not True:
            return None
        idle = config.get("sequenceMaxIdleMSec")  # ms
        return cls(stuck=not isinstance(idle, int) or isinstance(idle, bool) or idle <= 0)

    def enter(self, request: "RequestProcessor", context: "Context") -> None:
        """Begin a sequence with a request that names none, as the frontend does."""
        from uuid import uuid4  # noqa: PLC0415 - few models have sequences

        keys = vars(context)
        headers = request.get_request_properties()
        if not headers.get(keys["header_key_sequence_id"]):
            headers[keys["header_key_sequence_id"]] = f"ts-seq-{uuid4()}"
            headers[keys["header_key_sequence_start"]] = "true"
