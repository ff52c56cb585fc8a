"""The options of the commands that load a model: run, check, score, serve and `load`; see `marpack.api.declaring`."""

from collections.abc import Iterable, Mapping, Sequence
from functools import partial
from typing import Annotated, Any, Literal

from msgspec import Meta

from marpack.api.declaring import Headers, Name, Option
from marpack.api.options import (
    Above0,
    MaxMembers,
    MaxOpcodes,
    MaxRatio,
    MaxSize,
    OptionalSource,
    OutsideOption,
)
from marpack.torchserve import MAX_BODY

_Model = partial(Option, group="Model")
_Workers = partial(Option, group="Workers")
_Requests = partial(Option, group="Requests")
_Checks = partial(Option, group="Checks")
_Comparison = partial(Option, group="Comparison")
_Results = partial(Option, group="Results")
_Tables = partial(Option, group="Tables")
_Responses = partial(Option, group="Responses")
_Cluster = partial(Option, group="Cluster")
_Request = partial(Option, group="A row's request, one of")
_Addresses = partial(Option, group="Addresses")
_Limits = partial(Option, group="Limits")
_Logging = partial(Option, group="Logging and reloading")
_TorchServe = partial(Option, group="TorchServe")
_Port = Annotated[int, Meta(ge=0, le=65535)]
_FROM_CONFIG = "the config's, or "
_Seconds = Annotated[float, Meta(gt=0)]
_ContentType = Annotated[
    str | None, _Requests("Content type of the requests.", metavar="TYPE", default="by name and content")
]
_RequestHeaders = Annotated[
    Headers | None, _Requests("Header of the requests.", ("-H", "--header"), "NAME=VALUE", parse="headers")
]
_Explain = Annotated[bool, _Requests("Request explanations instead of predictions.")]
_Describe = Annotated[bool, _Requests("Request the model's description.")]
_RequestSize = Annotated[Above0, _Requests("Maximum size of a request body.", parse="size")]
BatchSize = Annotated[Above0 | None, _Workers("Number of requests per call of the handler.", default="1", daily=True)]


class ModelOptions(OutsideOption, frozen=True, kw_only=True):
    """How a model is loaded."""

    target: Annotated[
        Literal["torchserve", "marpack"] | None,
        _Model("Server whose behavior applies.", default="the project's or the archive's"),
    ] = None
    device: Annotated[
        str, _Model("Device: auto, cpu, cuda, cuda:N, xpu:N, mps or xla.", metavar="DEVICE", daily=True)
    ] = "auto"
    env: Annotated[
        Literal["current", "isolated"],
        _Model("Environment: this one, or a new one with the archive's requirements.", daily=True),
    ] = "current"
    yes: Annotated[bool, Option("Has no effect.", hidden=True)] = False
    compile: Annotated[bool, _Model("Do not use torch.compile.", ("--no-compile",))] = True
    trust_pickle: Annotated[bool, _Model("Allow weights that can run code when loaded (unsafe).")] = False
    metrics_config: Annotated[
        Name | None, _Model("YAML file with the server's metrics_config.", default="the project's")
    ] = None
    trust_url: Annotated[bool, _Model("Run a remote archive without a pinned digest.")] = False


class SessionOptions(ModelOptions, frozen=True, kw_only=True):
    """How an archive is found and its model is loaded."""

    digest: Annotated[str | None, _Model("Required digest of a remote archive's file: sha256:….", metavar="DIGEST")] = (
        None
    )
    envelope: Annotated[
        Literal["body", "json", "kserve", "kservev2"] | None,
        _Requests("Envelope of requests and responses: the server's service_envelope.", default="none"),
    ] = None
    max_response_size: Annotated[Above0, _Requests("Maximum size of a response body.", parse="size")] = MAX_BODY
    timeout: Annotated[
        _Seconds | None, _Workers("Maximum time for a batch.", parse="seconds", default="the config's, or 120")
    ] = None
    startup_timeout: Annotated[
        _Seconds | None, _Workers("Maximum time to load the model.", parse="seconds", default="the config's, or 120")
    ] = None


class WorkerOptions(SessionOptions, frozen=True, kw_only=True):
    """How many workers a model has, and what each may use."""

    batch_size: BatchSize = None
    workers: Annotated[Above0, _Workers("Number of worker processes that share the requests.", daily=True)] = 1
    max_memory: Annotated[
        Above0 | None, _Workers("Maximum memory for the data of a worker.", parse="size", default="no limit")
    ] = None


class _LoadArguments(WorkerOptions, frozen=True):
    source: OptionalSource = None


class LoadOptions(_LoadArguments, frozen=True, kw_only=True):
    """The options of `marpack.load`."""

    max_request_size: _RequestSize = MAX_BODY


class _RunArguments(WorkerOptions, frozen=True):
    source: OptionalSource = None
    inputs: Annotated[  # Any: JSON
        Iterable[Any], Option("Values of the kinds that `Model.predict` takes.", only_python=True)
    ] = ()


class RunOptions(_RunArguments, frozen=True, kw_only=True):
    """The options of `marpack run` that Python also has."""

    batch_size: BatchSize = 1
    content_type: _ContentType = None
    headers: _RequestHeaders = None
    explain: _Explain = False
    describe: _Describe = False
    max_request_size: _RequestSize = MAX_BODY
    fail_fast: Annotated[bool, _Workers("Stop at the first failed input.")] = False
    trace: Annotated[
        bool,
        Option("Report what the handler accesses outside its archive, except in native code.", group="Debugging"),
    ] = False


class _CheckArguments(SessionOptions, frozen=True):
    source: OptionalSource = None


class CheckOptions(_CheckArguments, frozen=True, kw_only=True):
    """The options of `marpack check`."""

    inputs: Annotated[  # Any: JSON
        Iterable[Any],
        Option(
            "Values to request beside the packed samples, of the kinds that `Model.predict` takes.", only_python=True
        ),
    ] = ()
    only: Annotated[
        Sequence[str], _Checks("Check to run without the others; repeatable.", metavar="CHECK", daily=True)
    ] = ()
    skip: Annotated[Sequence[str], _Checks("Check to skip; repeatable.", metavar="CHECK", daily=True)] = ()
    seconds_per_check: Annotated[
        _Seconds,
        _Checks("Maximum time for each check that repeats samples.", ("--patience",), parse="seconds", default="10"),
    ] = 10.0
    tolerance: Annotated[
        Annotated[float, Meta(ge=0)], _Checks("Numeric tolerance when comparing responses.", metavar="NUMBER")
    ] = 1e-3
    allow_unproved: Annotated[
        Sequence[Literal["inputs", "gpu"]],
        _Checks("Accept an archive without a successful response, or without one on a GPU."),
    ] = ()
    require_safe: Annotated[
        bool, _Checks("Fail for weights that need trust and for native or generated code.", daily=True)
    ] = False
    trust_native: Annotated[
        bool, _Checks("Accept native and generated code and weights of unknown format, with --require-safe.")
    ] = False
    hermetic: Annotated[
        bool,
        _Checks(
            "Fail if the handler accesses more than its archive, its packages and what the project allows.", daily=True
        ),
    ] = False
    stand_ins: Annotated[
        Literal["on", "off", "auto"] | None,
        _Checks("Generate requests if there are no samples.", default="the project's"),
    ] = None
    content_type: _ContentType = None
    headers: _RequestHeaders = None
    explain: _Explain = False
    describe: _Describe = False
    max_request_size: _RequestSize = MAX_BODY
    compile: Annotated[bool, Option("Use torch.compile if the config says so.", only_python=True)] = True
    against: Annotated[
        Name | None,
        _Comparison(
            "Other archive, which must give the same responses.",
            metavar="ARCHIVE",
            complete="sources",
            daily=True,
        ),
    ] = None
    max_members: MaxMembers = None
    max_size: MaxSize = None
    max_ratio: MaxRatio = None
    max_opcodes: MaxOpcodes = None


_COLUMNS = "COLUMN…"


class _ScoreArguments(WorkerOptions, frozen=True):
    source: OptionalSource = None


class ScoreOptions(_ScoreArguments, frozen=True, kw_only=True):
    """The options of `marpack score`; those of `marpack.RowMapping` have its names."""

    batch_size: BatchSize = 1
    inputs: Annotated[
        Sequence[str],
        _Tables(
            "Tables: Parquet, Arrow, CSV or JSONL files, folders, globs, URLs.", ("-i", "--input"), "FILE…", daily=True
        ),
    ] = ()
    output: Annotated[
        str | None, _Tables("New folder for the parts of the result.", ("-o", "--output"), "DIR", daily=True)
    ] = None
    keep: Annotated[Sequence[str], _Tables("Columns to copy to the output.", metavar=_COLUMNS, daily=True)] = ()
    limit: Annotated[Above0 | None, _Tables("Maximum number of rows to read in total.", daily=True)] = None
    resume: Annotated[bool, _Tables("Resume an interrupted run: keep its complete parts.", daily=True)] = False
    body: Annotated[str | None, _Request("Column of bytes to send.", metavar="COLUMN", daily=True)] = None
    text: Annotated[str | None, _Request("Column of texts to send as text/plain.", metavar="COLUMN", daily=True)] = None
    json: Annotated[
        Sequence[str],
        _Request("Column to send as a JSON value, or several as one object.", metavar=_COLUMNS, daily=True),
    ] = ()
    json_object: Annotated[Sequence[str], _Request("Columns to send as one JSON object.", metavar=_COLUMNS)] = ()
    path: Annotated[str | None, _Request("Column of file names below --root.", metavar="COLUMN")] = None
    url: Annotated[str | None, _Request("Column of http and https addresses to fetch.", metavar="COLUMN")] = None
    root: Annotated[
        str | None,
        _Requests("Folder of the files that --path names.", metavar="DIR", default="the current folder"),
    ] = None
    allow_private: Annotated[bool, _Requests("Fetch from private and local addresses also.")] = False
    types: Annotated[
        Mapping[str, str],
        _Requests(
            "Type of a text column in JSON: int, float, bool, json or text.", ("--type",), "COLUMN=TYPE…", "pairs"
        ),
    ] = {}
    content_type: _ContentType = None
    headers: _RequestHeaders = None
    explain: _Explain = False
    max_request_size: _RequestSize = MAX_BODY
    select: Annotated[
        Mapping[str, str],
        _Responses(
            "Column to write from the response's JSON, such as top=probs[0]:float.",
            metavar="NAME=PATH…",
            parse="pairs",
            daily=True,
        ),
    ] = {}
    encode_binary: Annotated[bool, _Responses("Encode responses that are not UTF-8 as base64.")] = False
    format: Annotated[Literal["parquet", "jsonl"], _Responses("Format of the parts.")] = "parquet"
    part_rows: Annotated[Above0, _Responses("Number of rows per part.")] = 65_536
    max_errors: Annotated[
        str | None,
        _Responses("Number or share of failed rows after which to stop.", metavar="N|P%", default="no limit"),
    ] = None
    isolate: Annotated[bool, _Workers("Retry the rows of a failed batch one by one.")] = False
    on: Annotated[Literal["local", "ray"], _Cluster("Place to score: this machine, or a Ray cluster.")] = "local"
    address: Annotated[
        str | None,
        _Cluster("Address of the Ray cluster: HOST:PORT or auto.", metavar="ADDRESS", default="a new cluster here"),
    ] = None
    actors: Annotated[
        Above0 | None, _Cluster("Number of actors, each with its own model.", default="as many as fit")
    ] = None


class _ServeArguments(ModelOptions, frozen=True):
    source: Annotated[
        Sequence[str],
        Option("Archives, folders, projects or addresses, as SOURCE or NAME=SOURCE.", complete="sources"),
    ] = ()


class ServeOptions(_ServeArguments, frozen=True, kw_only=True):
    """The options of `marpack serve`. With None, the config file decides, and then the server's default."""

    host: Annotated[
        str | None,
        _Addresses("Address to listen on; 0.0.0.0 in containers.", metavar="HOST", default="127.0.0.1", daily=True),
    ] = None
    port: Annotated[
        _Port | None, _Addresses("Port of predictions and of the page.", metavar="PORT", default="8080", daily=True)
    ] = None
    management_port: Annotated[
        _Port | None, _Addresses("Port to describe and scale models.", metavar="PORT", default="off", daily=True)
    ] = None
    metrics_port: Annotated[_Port | None, _Addresses("Port of Prometheus metrics.", metavar="PORT", default="8082")] = (
        None
    )
    grpc_port: Annotated[_Port | None, _Addresses("Port of predictions over gRPC.", metavar="PORT", default="off")] = (
        None
    )
    open_management: Annotated[bool, _Addresses("Serve management without tokens on public addresses (unsafe).")] = (
        False
    )
    enable_model_api: Annotated[bool, _Addresses("Allow requests that register and unregister models.")] = False
    store_roots: Annotated[
        Sequence[str],
        _Addresses(
            "Further folder for links of the store, and for models that are registered by path.",
            ("--store-root",),
            "DIR",
        ),
    ] = ()
    allow_remote_register: Annotated[
        bool, _Addresses("Allow requests to register archives from the allowed_urls of the config.")
    ] = False
    token: Annotated[
        str | None,
        _Addresses("File of tokens for requests; kept over restarts, created if missing.", metavar="FILE", daily=True),
    ] = None
    rotate_token: Annotated[bool, _Addresses("Replace all tokens of the --token file at the start.")] = False
    allowed_hosts: Annotated[
        Sequence[str], _Addresses("Additional host name of this server.", ("--allowed-host",), "HOST")
    ] = ()
    cors_origins: Annotated[
        Sequence[str], _Addresses("Origin of web pages that may send requests.", ("--cors-origin",), "ORIGIN")
    ] = ()
    no_page: Annotated[bool, _Addresses("Do not serve the page for trying models.")] = False

    workers: Annotated[
        Above0 | None, _Workers("Number of workers per model.", default=f"{_FROM_CONFIG}1", daily=True)
    ] = None
    batch_size: Annotated[
        Above0 | None, _Workers("Maximum number of requests per batch.", default=f"{_FROM_CONFIG}1", daily=True)
    ] = None
    max_batch_delay: Annotated[
        Annotated[int, Meta(ge=0)] | None,
        _Workers("Maximum time to wait for a full batch.", metavar="MILLISECONDS", default=f"{_FROM_CONFIG}100"),
    ] = None
    timeout: Annotated[
        float | None, _Workers("Maximum time for a batch.", parse="seconds", default=f"{_FROM_CONFIG}120")
    ] = None
    startup_timeout: Annotated[
        float | None,
        _Workers("Maximum time to load the model.", parse="seconds", default=f"{_FROM_CONFIG}120"),
    ] = None
    queue: Annotated[Above0 | None, _Workers("Maximum number of queued requests per model.", default="100")] = None
    max_memory: Annotated[
        Above0 | None,
        _Workers("Maximum memory for the data of a worker.", parse="size", default="no limit"),
    ] = None

    max_request_size: Annotated[
        Above0 | None, _Limits("Maximum size of a request body.", parse="size", default="6553500")
    ] = None
    max_response_size: Annotated[
        Above0 | None, _Limits("Maximum size of a response body.", parse="size", default="6553500")
    ] = None
    max_connections: Annotated[Above0, _Limits("Maximum number of open connections.")] = 10_000
    drain: Annotated[
        float, _Limits("Maximum time to finish accepted requests at the end.", parse="seconds", default="30")
    ] = 30.0

    envelope: Annotated[
        Literal["body", "json", "kserve", "kservev2"] | None,
        _Model("Envelope of requests and responses: the server's service_envelope.", default="none"),
    ] = None
    require_safe: Annotated[bool, _Model("Refuse weights that need trust, and native or generated code.")] = False
    trust_native: Annotated[
        bool, _Model("Accept native and generated code and weights of unknown format, with --require-safe.")
    ] = False
    digests: Annotated[
        Sequence[str],
        _Model("Content digest of an archive that may be loaded; repeatable.", ("--require-digest",), "DIGEST"),
    ] = ()

    log_requests: Annotated[bool, _Logging("Log one line per request.", daily=True)] = False
    log_slow: Annotated[
        float | None, _Logging("Log each request that takes longer, as a warning.", parse="seconds")
    ] = None
    log_format: Annotated[Literal["text", "json"], _Logging("Format of all log lines.")] = "text"
    reload: Annotated[bool, _Logging("Reload a model when its files change.", daily=True)] = False
    compat: Annotated[
        Literal["torchserve"] | None, _Logging("Imitate TorchServe also where its behavior is harmful.")
    ] = None

    model_store: Annotated[
        str | None, _TorchServe("Folder of the archives that --models names.", metavar="DIR", daily=True)
    ] = None
    start_models: Annotated[
        Sequence[str],
        _TorchServe("Models of the store to load: FILE, NAME=FILE, lists or all.", ("--models",), "NAMES…", daily=True),
    ] = ()
    ts_config: Annotated[
        str | None, _TorchServe("File config.properties of a TorchServe deployment.", metavar="FILE", daily=True)
    ] = None
    disable_token_auth: Annotated[bool, _TorchServe("Do not require tokens, whatever the config says.")] = False
    start: Annotated[bool, Option("Has no effect.", hidden=True)] = False
    foreground: Annotated[bool, Option("Has no effect.", hidden=True)] = False
    no_snapshots: Annotated[bool, Option("Has no effect.", ("--no-config-snapshots", "--ncs"), hidden=True)] = False
    log_config: Annotated[str | None, Option("Has no effect.", metavar="FILE", hidden=True)] = None
    stop: Annotated[bool, _TorchServe("Show how to stop the server.")] = False
