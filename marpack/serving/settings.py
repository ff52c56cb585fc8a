"""Settings of a server and of its models: addresses, model settings, and TorchServe's config.properties."""

import re
from collections.abc import Callable, Iterator, Mapping
from enum import StrEnum
from functools import partial
from ipaddress import AddressValueError, IPv6Address, ip_address
from pathlib import Path
from typing import Annotated, Any, Self, TypeVar, get_type_hints

import msgspec
from msgspec import Struct
from msgspec.structs import replace

from marpack.archive.protocol import quoted
from marpack.errors import UsageError, describe_os_error, first_line, located, nearest

T = TypeVar("T")


_URL = re.compile(r"(https?)://(\[[^]/]*\]|[a-z0-9_.-]+)(?::([0-9]{1,5}))?/?", re.IGNORECASE | re.ASCII)
_UNIX = "unix:"
_FORMS = "Write http://HOST:PORT or unix:/PATH."


class Address(Struct, frozen=True):
    """Where a server listens: a host and a port, or a Unix socket."""

    host: str  # an IPv6 address without brackets; empty for a Unix socket
    port: int
    path: str | None = None  # of the Unix socket

    @classmethod
    def parse(cls, text: str, default_port: int) -> Self:
        """Read `http://host[:port]` or `unix:/path`; raise UsageError for another form, and for https."""
        text = text.strip()
        if text[: len(_UNIX)].lower() == _UNIX:
            path = text[len(_UNIX) :]
            if not path.startswith("/") or "\0" in path:
                raise UsageError(f"{quoted(text)} is not the absolute path of a socket", hint=_FORMS)
            return cls("", 0, path)
        match = _URL.fullmatch(text)
        if not match:
            raise UsageError(f"{quoted(text)} is not an address to listen on", hint=_FORMS)
        scheme, host, given = match.groups()
        if scheme.lower() == "https":
            hint = "Listen on http://, and end TLS in a proxy in front of marpack."
            raise UsageError(f"{text} needs TLS, which marpack does not serve", hint=hint, code="tls-not-supported")
        port = int(given or default_port)
        if port > 65_535:
            raise UsageError(f"{text} has the invalid port {port}", hint="Use a port up to 65535.")
        if host.startswith("["):
            try:
                host = str(IPv6Address(host[1:-1]))
            except AddressValueError:
                raise UsageError(f"{quoted(host)} is not an IPv6 address", hint=_FORMS) from None
        return cls(host, port)

    @property
    def is_loopback(self) -> bool:
        """Whether only this machine reaches it."""
        if self.path is not None or self.host == "localhost":
            return True
        try:
            return ip_address(self.host).is_loopback
        except ValueError:
            return False  # a name that may have any address

    def shares(self, other: Self | None) -> bool:
        """Return whether one listener serves both; each address with port 0 gets its own port."""
        return self == other and (self.path is not None or self.port != 0)

    @property
    def place(self) -> str:
        """The address without `http://`: `host:port` or `unix:/path`."""
        if self.path is not None:
            return f"{_UNIX}{self.path}"
        return f"[{self.host}]:{self.port}" if ":" in self.host else f"{self.host}:{self.port}"

    def __str__(self) -> str:
        return self.place if self.path is not None else f"http://{self.place}"


class GrpcSettings(Struct, frozen=True):
    """Where the gRPC services listen, and how long a connection is used."""

    address: Address
    max_connection_age: int | None = None  # ms
    max_connection_age_grace: int | None = None  # ms for the calls of a connection that has reached its age


_DEFAULT_TIMEOUT = 120  # s
_MAX_INT = 2**31 - 1  # of Java


class _Tuning(Struct, frozen=True, kw_only=True, rename="camel"):
    """Settings of a model from one source; None for missing ones."""

    min_workers: int | None = None
    max_workers: int | None = None
    batch_size: int | None = None
    max_batch_delay: int | None = None  # ms
    response_timeout: int | float | None = None  # s
    startup_timeout: int | float | None = None  # s


class ModelProperties(_Tuning, frozen=True, kw_only=True, rename="camel"):
    """The settings of a model version in config.properties."""

    default_version: bool | None = None
    mar_name: str | None = None

    def __post_init__(self) -> None:
        """Ignore numbers of 0 or less, as TorchServe does."""
        for name in self.__struct_fields__:
            value = getattr(self, name)
            if type(value) in {int, float} and value <= 0:
                msgspec.structs.force_setattr(self, name, None)


class ModelTuning(_Tuning, frozen=True, kw_only=True, rename="camel"):
    """The settings of a model from any other source, by the names of the model config file."""

    queue_size: int | None = msgspec.field(default=None, name="jobQueueSize")
    retry_seconds: int | None = msgspec.field(default=None, name="maxRetryTimeoutInSec")
    client_timeout: int | None = msgspec.field(default=None, name="clientTimeoutInMills")
    leave_timeout: int | None = None  # s; not in the file


class ModelSettings(Struct, frozen=True, kw_only=True):
    """How one model version is served."""

    min_workers: int = 1
    max_workers: int = 1  # limits only scaling requests: the server does not scale by itself
    batch_size: int = 1
    max_batch_delay: int = 100  # ms
    response_timeout: int | float = _DEFAULT_TIMEOUT  # s
    startup_timeout: int | float = _DEFAULT_TIMEOUT  # s
    queue_size: int = 100
    retry_seconds: int = 300  # s in which a failed worker is restarted
    client_timeout: int = 0  # ms after which a client gets an error instead of a late response; 0: never
    leave_timeout: int = _DEFAULT_TIMEOUT  # s for the workers of an unregistered model to finish its requests

    def with_tuning(self, tuning: ModelTuning | ModelProperties) -> Self:
        """Return the settings with those of another source in place of their own."""
        given = {name: getattr(tuning, name, None) for name in self.__struct_fields__}
        return replace(self, **{name: value for name, value in given.items() if value is not None})

    def with_config(self, config: Mapping[str, Any]) -> Self:  # Any: YAML
        """Return the settings with those of a model config file; values that are not positive integers are ignored.

        As on TorchServe, a file without a valid timeout sets the default one, except for a number of 0 or less.
        """
        given: dict[str, int] = {}
        for field in msgspec.structs.fields(ModelTuning):
            value = None if field.name == "leave_timeout" else config.get(field.encode_name)
            if type(value) is int and 0 < value <= _MAX_INT:
                given[field.name] = value
            elif config and field.name in {"response_timeout", "startup_timeout"} and type(value) is not int:
                given[field.name] = _DEFAULT_TIMEOUT
        tuned = replace(self, **given)
        return replace(tuned, max_workers=max(tuned.min_workers, tuned.max_workers))


_MAX_BYTES = 1 << 20  # of the file
_WHOLE = re.compile(r"[+-]?[0-9]{1,10}", re.ASCII)
_VARIABLE = re.compile(r"\$\$([^$]{2,})\$\$")
_MODELS_HINT = 'Write {"MODEL": {"VERSION": {"minWorkers": 1, "batchSize": 8}}}, with \\ before each line end.'

Models = dict[str, dict[str, ModelProperties]]  # {model: {version: …}}


class MetricsMode(StrEnum):
    """Values of `metrics_mode`: log all metrics, show all, or show requests and latencies and log the others."""

    LOG = "log"
    PROMETHEUS = "prometheus"
    LEGACY = "legacy"

    @classmethod
    def parse(cls, text: str) -> Self | None:
        """Return a mode by its name in any case; None for other texts."""
        name = "".join(text.split()).lower()
        return cls(name) if name in list(cls) else None


class _Snapshot(Struct, frozen=True):
    """The value of `model_snapshot`, which TorchServe writes and some deployments write by hand."""

    models: Models


def parse_int(text: str | None, default: T) -> int | T:
    """Return an integer as Java reads it; the default for any other text."""
    if text is None or not _WHOLE.fullmatch(text) or not -_MAX_INT - 1 <= int(text) <= _MAX_INT:
        return default
    return int(text)


def _parser(
    kind: str, hint: str, convert: Callable[[str], T | None], code: str | None = None
) -> Callable[[str], T | None]:
    """Return a parser that raises UsageError where `convert` returns None or raises an error."""

    def parse(text: str) -> T:
        try:
            value = convert(text)
        except (ValueError, re.error):
            value = None
        if value is None:
            raise UsageError(f"{quoted(text)} is not {kind}", hint=hint, code=code)
        return value

    return parse


def _integer(least: int, most: int = _MAX_INT) -> Callable[[str], int | None]:
    def convert(text: str) -> int | None:
        value = parse_int(text.strip(), None)
        return value if value is not None and least <= value <= most else None

    kind = f"a whole number from {least} to {most}"
    return _parser(kind, "Write digits without a unit.", convert, "invalid-integer")


def _flag(text: str) -> bool:
    return text.lower() == "true"  # as in Java


def _decode(kind: type[T], text: str) -> T:
    try:
        return msgspec.json.decode(text, type=kind, strict=False)
    except (msgspec.DecodeError, UnicodeEncodeError, RecursionError) as error:
        what = f"the value is not a JSON object of models and versions: {first_line(error)}"
        raise UsageError(what, hint=_MODELS_HINT) from None


_Flag = Annotated[bool | None, _flag]
_Text = Annotated[str | None, str]
_File = Annotated[
    Path | None,
    _parser(
        "a path",
        "Write the path of a file or folder, or delete the line.",
        lambda text: None if "\0" in text or not text else Path(text),
    ),
]
_Count = Annotated[int | None, _integer(0)]
_Above0 = Annotated[int | None, _integer(1)]
_Minutes = Annotated[
    float | None,
    _parser(
        f"a number of minutes above 0, up to {_MAX_INT}",
        "Write 60, or 0.5 for 30 seconds.",
        lambda text: minutes if 0 < (minutes := float(text)) <= _MAX_INT else None,
    ),
]
_Pattern = Annotated[
    re.Pattern[str] | None, _parser("a regular expression", "Escape special characters with a backslash.", re.compile)
]


def _patterns(text: str) -> tuple[re.Pattern[str], ...]:
    try:
        return tuple(re.compile(each.strip(), re.IGNORECASE) for each in text.split(",") if each.strip())
    except re.error as error:
        hint = "Separate regular expressions by commas, and escape special characters with a backslash."
        raise UsageError(f"{quoted(text)} has an invalid regular expression: {error}", hint=hint) from None


_Words = Annotated[tuple[str, ...], lambda text: tuple(filter(None, map(str.strip, text.split(","))))]


class ServerConfig(Struct, frozen=True, kw_only=True):
    """The keys of config.properties that have an effect, each with its parser; None, or empty, for missing keys."""

    inference_address: Annotated[Address | None, partial(Address.parse, default_port=80)] = None
    management_address: Annotated[Address | None, partial(Address.parse, default_port=8081)] = None
    metrics_address: Annotated[Address | None, partial(Address.parse, default_port=8082)] = None
    grpc_inference_address: _Text = None  # a host
    grpc_inference_port: Annotated[int | None, _integer(0, 65_535)] = None
    grpc_inference_max_connection_age_ms: _Above0 = None
    grpc_inference_max_connection_age_grace_ms: _Above0 = None
    enable_grpc_ssl: _Flag = None
    load_models: _Words = ()
    allowed_urls: Annotated[tuple[re.Pattern[str], ...], _patterns] = ()  # of archives that a request may register
    models: Annotated[Models, partial(_decode, Models)] = {}  # settings of models that `load_models` or a request loads
    # Models to load in place of `load_models`, by their mar_name.
    model_snapshot: Annotated[Models, lambda text: _decode(_Snapshot, text).models] = {}
    model_store: _File = None
    default_workers_per_model: _Count = None  # 0: the number of GPUs, otherwise of CPU cores
    job_queue_size: _Above0 = None
    default_response_timeout: _Above0 = None  # s
    default_startup_timeout: _Above0 = None  # s
    unregister_model_timeout: _Count = None  # s
    max_request_size: _Above0 = None  # bytes
    max_response_size: _Above0 = None  # bytes
    decode_input_request: _Flag = None
    cors_allowed_origin: _Text = None
    cors_allowed_methods: _Text = None
    cors_allowed_headers: _Text = None
    disable_token_authorization: _Flag = None
    token_expiration_min: _Minutes = None
    enable_model_api: _Flag = None
    metrics_mode: Annotated[MetricsMode | None, lambda text: MetricsMode.parse(text) or MetricsMode.LOG] = None
    metrics_config: _File = None
    model_metrics_auto_detect: _Flag = None
    enable_metrics_api: _Flag = None
    disable_system_metrics: _Flag = None
    metric_time_interval: _Above0 = None  # s
    service_envelope: _Text = None
    default_service_handler: _Text = None  # only reported
    ts_open_inference_protocol: _Flag = None
    blacklist_env_vars: _Pattern = None
    limit_max_image_pixels: _Flag = None
    number_of_gpu: _Count = None
    enable_envvars_config: _Flag = None
    notes: tuple[str, ...] = ()  # a sentence for each key or value without the expected effect

    @classmethod
    def read(cls, file: Path, environ: Mapping[str, str]) -> Self:
        """Read a config.properties.

        Args:
            file: The file.
            environ: The values of `$$NAME$$`; with `enable_envvars_config=true`, `TS_KEY` replaces the file's `key`.

        Raises UsageError for an unreadable file and for an invalid value.
        """
        parsers = cls._parsers()
        texts = _read_texts(file, environ, parsers.keys() | _IGNORED.keys())
        values: dict[str, Any] = {}  # Any: each key has its own type
        for key, (text, where) in texts.items():
            if key in parsers:
                with located(where):
                    values[key] = parsers[key](text)
        notes = _notes({key: text for key, (text, _) in texts.items()}, parsers)
        return cls(**values, notes=tuple(notes))

    @classmethod
    def parse_value(cls, key: str, text: str) -> Any:  # Any: each key has its own type
        """Return the value of a key that has an effect. Raises UsageError for an invalid one."""
        return cls._parsers()[key](text)

    @classmethod
    def _parsers(cls) -> dict[str, Callable[[str], Any]]:  # Any: as above
        hints = get_type_hints(cls, include_extras=True)
        return {key: kind.__metadata__[0] for key, kind in hints.items() if hasattr(kind, "__metadata__")}


def read_properties(file: Path) -> dict[str, str]:
    """Return the keys and values of a Java properties file. Raises UsageError."""
    with located(str(file)):
        try:
            with file.open("rb") as stream:
                data = stream.read(_MAX_BYTES + 1)
        except FileNotFoundError:
            hint = "Set --ts-config to the path of a config.properties."
            raise UsageError("the config file does not exist", hint=hint, code="config-not-found") from None
        except OSError as error:
            what = f"the config file cannot be read: {describe_os_error(error)}"
            hint = "Check the path of --ts-config and the permissions of the file."
            raise UsageError(what, hint=hint, code="unreadable-config") from None
        if len(data) > _MAX_BYTES:
            what, hint = f"the config file is larger than {_MAX_BYTES >> 10} KiB", "Check the path of --ts-config."
            raise UsageError(what, hint=hint, code="config-too-large")
        return parse_properties(data)


def _read_texts(file: Path, environ: Mapping[str, str], keys: set[str]) -> dict[str, tuple[str, str]]:
    """Return the text of each key and its origin: a line of the file, or an environment variable."""
    texts: dict[str, tuple[str, str]] = {}
    for key, text in read_properties(file).items():
        where = f"{file}: {key}"
        for name in _VARIABLE.findall(text):
            if name not in environ:
                what = f"the value uses the environment variable {quoted(name)}, which is not set"
                raise UsageError(
                    what, where=where, hint=f"Set the variable (export {name}=…), or write the value into the file."
                )
        texts[key] = _VARIABLE.sub(lambda match: environ[match[1]], text), where
    if "enable_envvars_config" in texts and _flag(texts["enable_envvars_config"][0]):
        for key in sorted(keys - _FILE_ONLY):
            name = _VARIABLE_NAMES.get(key, f"TS_{key.upper().removeprefix('TS_')}")
            if name in environ:
                texts[key] = environ[name], name
    return texts


def _notes(texts: Mapping[str, str], parsers: Mapping[str, object]) -> Iterator[str]:
    """Yield a sentence for keys without an effect, one for each reason, and for values that are probably mistakes."""
    ignored: dict[str, list[str]] = {}
    for key, text in texts.items():
        if key in parsers and key not in _IGNORED:
            if parsers[key] is _flag and text.lower() not in {"true", "false"}:
                yield f"{key} is {quoted(text)}, which counts as false; write true or false with nothing after it"
        elif key not in _IGNORED:
            yield f"{quoted(key)} is {reason_without_effect(key)}"
        elif text.strip().lower() != "false":  # a feature that is off is not missed
            ignored.setdefault(_IGNORED[key], []).append(key)
    for reason, keys in ignored.items():
        yield f"{', '.join(keys)} {'have' if len(keys) > 1 else 'has'} no effect: {reason}"
    if "metrics_mode" in texts and not MetricsMode.parse(texts["metrics_mode"]):
        modes = ", ".join(MetricsMode)
        yield f"metrics_mode is {quoted(texts['metrics_mode'])}, which counts as log; the modes are {modes}"
    yield from _unknown_properties(texts.get("models", "{}"))


def _unknown_properties(text: str) -> Iterator[str]:
    names = [field.encode_name for field in msgspec.structs.fields(ModelProperties)]
    for model, versions in _decode(dict[str, dict[str, dict[str, object]]], text).items():
        for version, properties in versions.items():
            for name in sorted(properties.keys() - names):
                end = f"; did you mean {meant}?" if (meant := nearest(name, names)) else ""
                yield f"models: {quoted(name)} of {quoted(model)} {quoted(version)} has no effect{end}"


_REASONS = {
    "models are managed over HTTP only, not gRPC": (
        *("grpc_management_address", "grpc_management_port", "grpc_management_max_connection_age_ms"),
        "grpc_management_max_connection_age_grace_ms",
    ),
    "marpack does not serve TLS; put a proxy in front that ends it": (
        *("keystore", "keystore_pass", "keystore_type", "private_key_file", "certificate_file"),
    ),
    "allowed_urls is read from the file only": ("use_env_allowed_urls",),
    "there is no Java process to tune": (
        *("vmargs", "number_of_netty_threads", "netty_client_threads", "prefer_direct_buffer", "async_logging"),
        *("use_native_io", "io_ratio"),
    ),
    "workers communicate through pipes, which need no port": ("initial_worker_port", "initial_distribution_port"),
    "workflows are not supported; call their models one by one": ("workflow_store",),
    "snapshots are neither written nor restored": ("snapshot_store",),
    "plugins are not supported": ("plugins_path",),
    "an archive names its own handler": ("default_service_handler",),
    "requirements are not installed per model; use --env isolated": ("install_py_dep_per_model",),
    "workers start without a launcher; export variables such as OMP_NUM_THREADS": (
        *("ipex_enable", "ipex_gpu_enable", "cpu_launcher_enable", "cpu_launcher_args"),
    ),
    "marpack collects system metrics itself": ("system_metrics_cmd",),
    "C++ workers are not supported": ("cpp_log_config",),
    "sequence batching is not supported": (
        *("ts_header_key_sequence_id", "ts_header_key_sequence_start", "ts_header_key_sequence_end"),
    ),
    "marpack has no debug mode; try --workers 1 --log-requests": ("debug",),
    "marpack uses its own installation": ("model_server_home", "python", "version", "tsConfigFile"),
}
_IGNORED = {key: reason for reason, keys in _REASONS.items() for key in keys}


def reason_without_effect(key: str) -> str | None:
    """Return why a key of config.properties has no effect; None for a key that has one."""
    if key in _IGNORED or key in ServerConfig.__struct_fields__[:-1]:
        return _IGNORED.get(key)
    meant = nearest(key, {*ServerConfig.__struct_fields__[:-1], *_IGNORED}, 0.75)
    return "not a known key" + (f"; did you mean {meant}?" if meant else "")


# Keys that no environment variable replaces, and the variable that is not named after its key, as on TorchServe.
_FILE_ONLY = {
    *("use_native_io", "io_ratio", "metric_time_interval", "enable_envvars_config", "model_snapshot", "models"),
    *("version", "system_metrics_cmd", "allowed_urls", "use_env_allowed_urls", "vmargs", "plugins_path", "python"),
    "tsConfigFile",
}
_VARIABLE_NAMES = {"token_expiration_min": "TS_TOKEN_EXPIRATION_TIME_MIN"}

# A comment, or a line that continues after each line end with a backslash before it.
_LINE = re.compile(r"(?:[ \t\f]|\\(?:\r\n|\r|\n))*(?:[#!][^\r\n]*|((?:[^\\\r\n]|\\(?:\r\n|.|\Z))*))", re.DOTALL)
_CONTINUED = re.compile(r"\\(?:(?:\r\n|\r|\n)[ \t\f]*|\Z)|(\\.)", re.DOTALL)
_ENTRY = re.compile(r"((?:\\.|[^\\=: \t\f])*)[ \t\f]*[=:]?[ \t\f]*(.*)", re.DOTALL)
_ESCAPE = re.compile(r"\\(u[0-9a-fA-F]{4}|.)", re.DOTALL)
_LETTERS = {"t": "\t", "n": "\n", "r": "\r", "f": "\f"}


# Environment variables of AWS's images, and the settings of each; the last variable takes precedence.
_SAGEMAKER = {
    "SAGEMAKER_MODEL_SERVER_WORKERS": ("min_workers", "max_workers"),
    "SAGEMAKER_MODEL_SERVER_TIMEOUT": ("response_timeout",),
} | {f"SAGEMAKER_TS_{name.upper()}": (name,) for name in ModelTuning.__struct_fields__ if name != "startup_timeout"}


def sagemaker_tuning(environ: Mapping[str, str]) -> ModelTuning:
    """Return the settings in the variables of AWS's images; raises UsageError for an invalid value."""
    parse, found = _integer(1), dict[str, int | None]()
    for name, fields in _SAGEMAKER.items():
        with located(name):
            found |= dict.fromkeys(fields, parse(environ[name])) if name in environ else {}
    return ModelTuning(**found)


def parse_properties(data: bytes) -> dict[str, str]:
    r"""Return the keys and values of a Java properties file (Latin-1); the last of two equal keys counts.

    Raises UsageError for a \u without four hexadecimal digits.
    """
    lines = [_CONTINUED.sub(r"\1", line) for line in _LINE.findall(data.decode("latin-1")) if line]
    entries = [_ENTRY.fullmatch(line) for line in lines if line]
    return {_unescape(entry[1]): _unescape(entry[2]) for entry in entries if entry}


def _unescape(text: str) -> str:
    def letter(escape: re.Match[str]) -> str:
        code = escape[1]
        if code == "u":
            around = quoted(text[escape.start() :][:8])
            what = f"{around} is not an escape: \\u needs four hexadecimal digits"
            raise UsageError(what, hint="Write \\\\u for a literal \\u.", code="invalid-escape")
        return chr(int(code[1:], 16)) if len(code) > 1 else _LETTERS.get(code, code)

    # Java writes a character beyond U+FFFF as two escapes: its UTF-16 surrogates.
    return _ESCAPE.sub(letter, text).encode("utf-16-le", "surrogatepass").decode("utf-16-le", "replace")
