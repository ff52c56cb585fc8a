"""A TorchServe's config.properties → the settings of ours, and a line for each key that has no effect here."""

import re
from collections.abc import Callable, Iterator, Mapping
from functools import partial
from pathlib import Path
from typing import Any

from msgspec import Struct

from marpack.archive.names import quoted
from marpack.errors import UsageError, located, nearest
from marpack.serving.metrics import MetricsMode
from marpack.serving.properties import Models, parse_models, parse_properties, parse_snapshot, unknown_properties
from marpack.serving.settings import Address

_MAX_BYTES = 1 << 20  # of a config file
_LARGEST = 2**31 - 1  # of a number: a Java int
_VARIABLE = re.compile(r"\$\$([^$]{2,})\$\$")
_WHOLE = re.compile(r"[+-]?[0-9]{1,10}")


class ServerConfig(Struct, frozen=True, kw_only=True):
    """What a config.properties says; None, or nothing, where it doesn't."""

    inference_address: Address | None = None
    management_address: Address | None = None
    metrics_address: Address | None = None
    load_models: tuple[str, ...] = ()
    models: Models = {}  # tunes models that are loaded otherwise
    model_snapshot: Models = {}  # to be loaded in place of load_models, by their mar_name
    model_store: Path | None = None
    default_workers_per_model: int | None = None  # 0: as many as there are GPUs, else CPU cores
    job_queue_size: int | None = None
    default_response_timeout: int | None = None  # s
    default_startup_timeout: int | None = None  # s
    unregister_model_timeout: int | None = None  # s
    max_request_size: int | None = None  # bytes
    max_response_size: int | None = None  # bytes
    decode_input_request: bool | None = None
    cors_allowed_origin: str | None = None
    cors_allowed_methods: str | None = None
    cors_allowed_headers: str | None = None
    disable_token_authorization: bool | None = None
    token_expiration_min: float | None = None
    enable_model_api: bool | None = None
    metrics_mode: MetricsMode | None = None
    metrics_config: Path | None = None
    model_metrics_auto_detect: bool | None = None
    enable_metrics_api: bool | None = None
    disable_system_metrics: bool | None = None
    metric_time_interval: int | None = None  # s
    service_envelope: str | None = None
    ts_open_inference_protocol: bool | None = None
    blacklist_env_vars: re.Pattern[str] | None = None
    limit_max_image_pixels: bool | None = None
    number_of_gpu: int | None = None
    enable_envvars_config: bool | None = None
    notes: tuple[str, ...] = ()  # a sentence for what was said and has no effect


class _Setting(Struct, frozen=True):
    """What was said of one key, and where."""

    text: str
    where: str

    @property
    def flag(self) -> bool:
        """As Java reads a boolean: whatever isn't `true` is false."""
        return self.text.lower() == "true"


_Settings = Mapping[str, _Setting]


def read_config(file: Path, environ: Mapping[str, str]) -> ServerConfig:
    """Read a config.properties.

    Args:
        file: The file.
        environ: What `$$NAME$$` in a value means; with `enable_envvars_config=true`, `TS_KEY` beats the file's `key`.

    Raises UsageError if the file cannot be read, or a value is none that its key takes.
    """
    settings = _settings(file, environ)
    found: dict[str, Any] = {}  # Any: each key has a type of its own
    for key, setting in settings.items():
        if key in _KEYS:
            with located(setting.where):
                found[key] = _KEYS[key](setting)
    return ServerConfig(**found, notes=(*_unheeded(settings), *_doubtful(settings)))


def _settings(file: Path, environ: Mapping[str, str]) -> dict[str, _Setting]:
    """Return what is said of each key, by the file and then by the environment."""
    with located(str(file)):
        properties = parse_properties(_content(file))
    settings = {}
    for key, text in properties.items():
        with located(f"{file}: {key}"):
            settings[key] = _Setting(_VARIABLE.sub(partial(_value_of, environ), text), f"{file}: {key}")
    if (asked := settings.get("enable_envvars_config")) and asked.flag:
        for key, name in _variables():
            if name in environ:
                settings[key] = _Setting(environ[name], name)
    return settings


def _content(file: Path) -> bytes:
    try:
        with file.open("rb") as stream:
            data = stream.read(_MAX_BYTES + 1)
    except FileNotFoundError:
        hint = "--ts-config names a config.properties"
        raise UsageError("there is no such config file", hint=hint, code="config-not-found") from None
    except OSError as error:
        raise UsageError(f"the config file cannot be read: {error.strerror}", code="unreadable-config") from None
    if len(data) > _MAX_BYTES:
        raise UsageError(f"the config file is larger than {_MAX_BYTES >> 10} KiB", code="config-too-large")
    return data


def _value_of(environ: Mapping[str, str], variable: re.Match[str]) -> str:
    if variable[1] not in environ:
        hint = f"export {variable[1]}=…, or write the value into the file"
        raise UsageError(f"its value takes the environment variable {quoted(variable[1])}, which is not set", hint=hint)
    return environ[variable[1]]


def _variables() -> Iterator[tuple[str, str]]:
    """Yield keys and the environment variables that may beat them."""
    for key in sorted((_KEYS | _IGNORED).keys() - _FILE_ONLY):
        yield key, _VARIABLE_NAMES.get(key, f"TS_{key.upper().removeprefix('TS_')}")


def _models(setting: _Setting) -> Models:
    return parse_models(setting.text)


def _snapshot(setting: _Setting) -> Models:
    return parse_snapshot(setting.text)


def _text(setting: _Setting) -> str:
    return setting.text


def _flag(setting: _Setting) -> bool:
    return setting.flag


def _path(setting: _Setting) -> Path:
    if not setting.text or "\0" in setting.text:
        raise UsageError(f"{quoted(setting.text)} is no path", hint="name a file or folder, or take the line out")
    return Path(setting.text)


def _words(setting: _Setting) -> tuple[str, ...]:
    return tuple(word.strip() for word in setting.text.split(",") if word.strip())


def _count(least: int, setting: _Setting) -> int:
    text = setting.text.strip()
    if not _WHOLE.fullmatch(text) or not least <= int(text) <= _LARGEST:
        what = f"{quoted(text)} is no whole number from {least} to {_LARGEST}"
        raise UsageError(what, hint="write the digits alone, without a unit", code="invalid-integer")
    return int(text)


def _minutes(setting: _Setting) -> float:
    try:
        minutes = float(setting.text)
    except ValueError:
        minutes = 0.0
    if not 0 < minutes <= _LARGEST:
        what = f"{quoted(setting.text)} is no number of minutes above 0, and up to {_LARGEST}"
        raise UsageError(what, hint="write 60, or 0.5 for 30 s")
    return minutes


def _address(default_port: int, setting: _Setting) -> Address:
    return Address.parse(setting.text.strip(), default_port)


def _mode_name(text: str) -> str:
    return "".join(text.split()).lower()


def _mode(setting: _Setting) -> MetricsMode:
    name = _mode_name(setting.text)
    return MetricsMode(name) if name in _MODES else MetricsMode.LOG


def _pattern(setting: _Setting) -> re.Pattern[str]:
    try:
        return re.compile(setting.text)
    except re.error as error:
        raise UsageError(f"{quoted(setting.text)} is no regular expression: {error}", hint="escape its signs") from None


def _unheeded(settings: _Settings) -> Iterator[str]:
    """Yield a sentence for all keys that have no effect for one reason, and for each key that is unknown."""
    ignored: dict[str, list[str]] = {}
    for key, setting in settings.items():
        if key in _IGNORED and setting.text.strip().lower() != "false":  # what is off is missed by nobody
            ignored.setdefault(_IGNORED[key], []).append(key)
        elif key not in _KEYS | _IGNORED:
            meant = nearest(key, _KEYS | _IGNORED, 0.75)
            yield f"{quoted(key)} is no key that is known here" + (f"; did you mean {meant}?" if meant else "")
    for reason, keys in ignored.items():
        yield f"{', '.join(keys)} {'have' if len(keys) > 1 else 'has'} no effect: {reason}"


def _doubtful(settings: _Settings) -> Iterator[str]:
    """Yield a sentence for each value that counts as another than was probably meant."""
    for key, setting in settings.items():
        if _KEYS.get(key) is _flag and setting.text.lower() not in {"true", "false"}:
            yield f"{key} is {quoted(setting.text)}, which counts as false; write true or false, nothing after it"
    mode = settings.get("metrics_mode")
    if mode and _mode_name(mode.text) not in _MODES:
        yield f"metrics_mode is {quoted(mode.text)}, which counts as log; the modes are {', '.join(_MODES)}"
    if models := settings.get("models"):
        yield from unknown_properties(models.text)


def _alike(kind: Callable[[_Setting], object], *keys: str) -> dict[str, Callable[[_Setting], object]]:
    return dict.fromkeys(keys, kind)


# What each key that counts is read as.
_KEYS: dict[str, Callable[[_Setting], object]] = {
    "inference_address": partial(_address, 80),  # the original's, where an address names no port
    "management_address": partial(_address, 8081),
    "metrics_address": partial(_address, 8082),
    "load_models": _words,
    "models": _models,
    "model_snapshot": _snapshot,
    "token_expiration_min": _minutes,
    "metrics_mode": _mode,
    "blacklist_env_vars": _pattern,
    **_alike(partial(_count, 0), "default_workers_per_model", "number_of_gpu", "unregister_model_timeout"),
    **_alike(partial(_count, 1), "job_queue_size", "default_response_timeout", "default_startup_timeout"),
    **_alike(partial(_count, 1), "max_request_size", "max_response_size", "metric_time_interval"),
    **_alike(_path, "model_store", "metrics_config"),
    **_alike(_text, "cors_allowed_origin", "cors_allowed_methods", "cors_allowed_headers"),
    "service_envelope": _text,
    **_alike(_flag, "decode_input_request", "limit_max_image_pixels", "ts_open_inference_protocol"),
    **_alike(_flag, "disable_token_authorization", "enable_model_api", "enable_envvars_config"),
    **_alike(_flag, "model_metrics_auto_detect", "enable_metrics_api", "disable_system_metrics"),
}
_MODES = [mode.value for mode in MetricsMode]

_REASONS = {
    "there is no gRPC here; clients call the HTTP routes": (
        *("grpc_inference_address", "grpc_inference_port", "grpc_inference_max_connection_age_ms"),
        *("grpc_inference_max_connection_age_grace_ms", "grpc_management_address", "grpc_management_port"),
        *("grpc_management_max_connection_age_ms", "grpc_management_max_connection_age_grace_ms", "enable_grpc_ssl"),
    ),
    "nothing is served over TLS; put a proxy in front that ends it": (
        *("keystore", "keystore_pass", "keystore_type", "private_key_file", "certificate_file"),
    ),
    "models are registered from the model store only; copy their archives there": (
        *("allowed_urls", "use_env_allowed_urls"),
    ),
    "there is no Java process to tune": (
        *("vmargs", "number_of_netty_threads", "netty_client_threads", "prefer_direct_buffer", "async_logging"),
        *("use_native_io", "io_ratio"),
    ),
    "workers are reached by pipes, which need no port": ("initial_worker_port", "initial_distribution_port"),
    "workflows are not served; call their models one by one": ("workflow_store",),
    "no snapshots are written, and none is restored": ("snapshot_store",),
    "there are no plugins": ("plugins_path",),
    "an archive names its handler itself": ("default_service_handler",),
    "what an archive requires is not installed per model; --env isolated does that": ("install_py_dep_per_model",),
    "workers start without a launcher; export what they need, as OMP_NUM_THREADS": (
        *("ipex_enable", "ipex_gpu_enable", "cpu_launcher_enable", "cpu_launcher_args"),
    ),
    "the system's metrics are taken without a command of their own": ("system_metrics_cmd",),
    "there are no C++ workers": ("cpp_log_config",),
    "requests of a sequence are not kept together": (
        *("ts_header_key_sequence_id", "ts_header_key_sequence_start", "ts_header_key_sequence_end"),
    ),
    "there is no mode for debugging; --workers 1 --log-requests comes near": ("debug",),
    "marpack's own installation is used": ("model_server_home", "python", "version", "tsConfigFile"),
}
_IGNORED = {key: reason for reason, keys in _REASONS.items() for key in keys}
# What the original reads from the file alone, and the one variable that isn't named after its key.
_FILE_ONLY = {
    *("use_native_io", "io_ratio", "metric_time_interval", "enable_envvars_config", "model_snapshot", "models"),
    *("version", "system_metrics_cmd", "use_env_allowed_urls", "vmargs", "plugins_path", "python", "tsConfigFile"),
}
_VARIABLE_NAMES = {"token_expiration_min": "TS_TOKEN_EXPIRATION_TIME_MIN"}
