"""The options of the commands that load a model: run, check, score, serve and `load`; see `marpack.api.declaring`."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import TYPE_CHECKING, Annotated, Any, Literal

from msgspec import Meta

from marpack.api.declaring import Headers, Key, Name, Option
from marpack.api.options import (
    SOURCE,
    Above0,
    MaxMembers,
    MaxOpcodes,
    MaxRatio,
    MaxSize,
    OutsideOption,
    limits_of,
)
from marpack.torchserve.http import MAX_BODY

if TYPE_CHECKING:
    from marpack.archive.protocol import Limits

_Seconds = Annotated[float, Meta(gt=0)]
_Source = Annotated[Name | None, Option(SOURCE, complete="sources", default="the project in this folder")]
_Envelope = Annotated[
    Literal["body", "json", "kserve", "kservev2"] | None,
    Option("The server's service_envelope setting.", default="none", group="Requests"),
]
_ContentType = Annotated[
    str | None, Option("Content type of the requests.", metavar="TYPE", default="by name and content", group="Requests")
]
_RequestHeaders = Annotated[
    Headers | None,
    Option("Request header.", ("-H", "--header"), "NAME=VALUE", parse="headers", group="Requests"),
]
_Explain = Annotated[bool, Option("Request explanations instead of predictions.", group="Requests")]
_RequestSize = Annotated[
    Above0,
    Option("The server's max_request_size setting.", metavar="SIZE", parse="size", group="Requests"),
]


BatchSize = Annotated[
    Above0 | None, Option("Requests per call of the handler.", metavar="N", default="1", group="Workers")
]


class ModelOptions(OutsideOption, frozen=True, kw_only=True):
    """How a model is loaded."""

    target: Annotated[
        Literal["torchserve", "marpack"] | None,
        Option("Server whose behavior applies.", default="the project's or the archive's", group="Model"),
    ] = None
    device: Annotated[
        str, Option("Device: auto, cpu, cuda, cuda:N, xpu:N, mps or xla.", metavar="DEVICE", group="Model")
    ] = "auto"
    env: Annotated[
        Literal["current", "isolated"],
        Option("Environment: this one, or a new one with the archive's requirements.", group="Model"),
    ] = "current"
    yes: Annotated[
        bool, Option("Confirm a download for --env isolated over 500 MB or of unknown size.", group="Model")
    ] = False
    compile: Annotated[bool, Option("Do not use torch.compile.", ("--no-compile",), group="Model")] = True
    trust_pickle: Annotated[bool, Option("Allow weights that can run code when loaded (unsafe).", group="Model")] = (
        False
    )
    metrics_config: Annotated[
        Name | None,
        Option("The server's metrics_config file.", metavar="FILE", default="the project's", group="Model"),
    ] = None
    trust_url: Annotated[bool, Option("Run a remote archive without a pinned digest.", group="Model")] = False


class SessionOptions(ModelOptions, frozen=True, kw_only=True):
    """How an archive is found and its model is loaded."""

    digest: Annotated[
        str | None, Option("Required digest of a remote archive's file.", metavar="sha256:…", group="Model")
    ] = None
    envelope: _Envelope = None
    max_response_size: Annotated[
        Above0,
        Option("The server's max_response_size setting.", metavar="SIZE", parse="size", group="Requests"),
    ] = MAX_BODY
    timeout: Annotated[
        _Seconds | None,
        Option("Batch timeout.", metavar="SECONDS", parse="seconds", default="the config's, or 120", group="Workers"),
    ] = None
    startup_timeout: Annotated[
        _Seconds | None,
        Option("Load timeout.", metavar="SECONDS", parse="seconds", default="the config's, or 120", group="Workers"),
    ] = None


class WorkerOptions(SessionOptions, frozen=True, kw_only=True):
    """How many workers a model has, and what each may use."""

    batch_size: BatchSize = None
    workers: Annotated[Above0, Option("Worker processes that share the requests.", metavar="N", group="Workers")] = 1
    max_memory: Annotated[
        Above0 | None,
        Option("Memory limit of a worker's data.", metavar="SIZE", parse="size", default="none", group="Workers"),
    ] = None


class _LoadArguments(WorkerOptions, frozen=True):
    source: _Source = None


class LoadOptions(_LoadArguments, frozen=True, kw_only=True):
    """The options of `marpack.load`."""

    max_request_size: _RequestSize = MAX_BODY


class _RunArguments(WorkerOptions, frozen=True):
    source: _Source = None
    inputs: Annotated[
        Iterable[Any],  # Any: whatever JSON holds
        Option("Values of the kinds that `Model.predict` takes.", only_python=True),
    ] = ()


class RunOptions(_RunArguments, frozen=True, kw_only=True):
    """The options of `marpack run` that Python also has."""

    batch_size: BatchSize = 1
    content_type: _ContentType = None
    headers: _RequestHeaders = None
    explain: _Explain = False
    describe: Annotated[bool, Option("Request the model's description.", group="Requests")] = False
    max_request_size: _RequestSize = MAX_BODY
    fail_fast: Annotated[bool, Option("Stop at the first failed input.", group="Workers")] = False
    trace: Annotated[
        bool,
        Option("Report what the handler accesses outside its archive, except in native code.", group="Debugging"),
    ] = False


class _CheckArguments(SessionOptions, frozen=True):
    source: _Source = None


class CheckOptions(_CheckArguments, frozen=True, kw_only=True):
    """The options of `marpack check`."""

    inputs: Annotated[
        Iterable[Any],  # Any: whatever JSON holds
        Option(
            "Values to request beside the packed samples, of the kinds that `Model.predict` takes.", only_python=True
        ),
    ] = ()
    only: Annotated[
        Sequence[str], Option("Run only this check, or these if repeated.", metavar="CHECK", group="Checks")
    ] = ()
    skip: Annotated[Sequence[str], Option("Skip this check.", metavar="CHECK", group="Checks")] = ()
    seconds_per_check: Annotated[
        _Seconds,
        Option(
            "Maximum time for each check that repeats samples.",
            ("--patience",),
            "SECONDS",
            parse="seconds",
            group="Checks",
        ),
    ] = 10.0
    tolerance: Annotated[
        Annotated[float, Meta(ge=0)],
        Option("Numeric tolerance when comparing responses.", metavar="NUMBER", group="Checks"),
    ] = 1e-3
    allow_unproved: Annotated[
        Sequence[Literal["inputs", "gpu"]],
        Option("Accept an archive without a successful response, or without one on a GPU.", group="Checks"),
    ] = ()
    require_safe: Annotated[
        bool, Option("Fail for weights that need trust and for native or generated code.", group="Checks")
    ] = False
    trust_native: Annotated[bool, Option("Accept native and generated code, with --require-safe.", group="Checks")] = (
        False
    )
    hermetic: Annotated[
        bool,
        Option("Fail if the handler accesses more than its archive, its packages and what the project allows.",
               group="Checks"),
    ] = False  # fmt: skip
    stand_ins: Annotated[
        Literal["on", "off", "auto"] | None,
        Option("Generate requests if there are no samples.", default="the project's", group="Checks"),
    ] = None
    content_type: _ContentType = None
    headers: _RequestHeaders = None
    explain: _Explain = False
    describe: Annotated[bool, Option("Request the model's description.", group="Requests")] = False
    max_request_size: _RequestSize = MAX_BODY
    compile: Annotated[bool, Option("Use torch.compile if the config says so.", only_python=True)] = True
    against: Annotated[
        Name | None,
        Option(
            "Other archive to compare with. Or give two values: --device cpu,cuda or --compile on,off.",
            metavar="OTHER",
            complete="sources",
            group="Comparison",
        ),
    ] = None
    slower: Annotated[
        Annotated[float, Meta(gt=0)] | None,
        Option(
            "Fail if a request costs over N% more than with --against, or if responses differ.",
            metavar="N%",
            parse="percent",
            group="Comparison",
        ),
    ] = None
    slower_time: Annotated[
        _Seconds | None,
        Option(
            "Maximum time for that measurement.", metavar="SECONDS", parse="seconds", default="90", group="Comparison"
        ),
    ] = None
    attest: Annotated[
        Name | None, Option("File for an attestation of the result, for marpack verify.", metavar="FILE",
                            group="Results")
    ] = None  # fmt: skip
    key: Annotated[
        Key | None,
        Option("Private key in PEM form that signs the attestation: a file, or env:NAME.", metavar="PRIVATE",
               group="Results"),
    ] = None  # fmt: skip
    key_password: Annotated[str | None, Option("Password of the key.", only_python=True)] = None
    max_members: MaxMembers = None
    max_size: MaxSize = None
    max_ratio: MaxRatio = None
    max_opcodes: MaxOpcodes = None

    @property
    def limits(self) -> Limits:
        """The limits of archives, with defaults for those that were not given."""
        return limits_of(max_members=self.max_members, max_size=self.max_size, max_ratio=self.max_ratio)


_COLUMNS = "COLUMN…"
_REQUEST = "A row's request, one of"


class _ScoreArguments(WorkerOptions, frozen=True):
    source: _Source = None


class ScoreOptions(_ScoreArguments, frozen=True, kw_only=True):
    """The options of `marpack score`; those of `marpack.RowMapping` have its names."""

    batch_size: BatchSize = 1
    inputs: Annotated[
        Sequence[str],
        Option("Parquet, Arrow, CSV or JSONL files, folders, globs, s3://….", ("-i", "--input"), "FILE…",
               group="Tables"),
    ] = ()  # fmt: skip
    output: Annotated[str | None, Option("New folder for the parts of the result.", metavar="DIR", group="Tables")] = (
        None
    )
    keep: Annotated[Sequence[str], Option("Columns to copy to the output.", metavar=_COLUMNS, group="Tables")] = ()
    limit: Annotated[Above0 | None, Option("Maximum number of rows to read in total.", metavar="N", group="Tables")] = (
        None
    )
    resume: Annotated[bool, Option("Resume an interrupted run: keep its complete parts.", group="Tables")] = False
    body: Annotated[str | None, Option("Column of bytes to send.", metavar="COLUMN", group=_REQUEST)] = None
    text: Annotated[str | None, Option("Column of texts to send as text/plain.", metavar="COLUMN", group=_REQUEST)] = (
        None
    )
    json: Annotated[
        Sequence[str],
        Option("Column to send as a JSON value, or several as one object.", metavar=_COLUMNS, group=_REQUEST),
    ] = ()
    json_object: Annotated[
        Sequence[str], Option("Columns to send as one JSON object.", metavar=_COLUMNS, group=_REQUEST)
    ] = ()
    path: Annotated[str | None, Option("Column of file names below --root.", metavar="COLUMN", group=_REQUEST)] = None
    url: Annotated[
        str | None, Option("Column of http and https addresses to fetch.", metavar="COLUMN", group=_REQUEST)
    ] = None
    root: Annotated[
        str | None,
        Option("Folder of the files that --path names.", metavar="DIR", default="the current folder",
               group="Requests"),
    ] = None  # fmt: skip
    allow_private: Annotated[bool, Option("Fetch from private and local addresses also.", group="Requests")] = False
    types: Annotated[
        Mapping[str, str],
        Option("Type of a text column in JSON: int, float, bool, json or text.", ("--type",), "COLUMN=TYPE…",
               parse="pairs", group="Requests"),
    ] = {}  # fmt: skip
    content_type: _ContentType = None
    headers: _RequestHeaders = None
    explain: _Explain = False
    max_request_size: _RequestSize = MAX_BODY
    select: Annotated[
        Mapping[str, str],
        Option("Column from the response's JSON, such as top=probs[0]:float.", metavar="NAME=PATH…",
               parse="pairs", group="Responses"),
    ] = {}  # fmt: skip
    encode_binary: Annotated[bool, Option("Encode responses that are not UTF-8 as base64.", group="Responses")] = False
    format: Annotated[Literal["parquet", "jsonl"], Option("Format of the parts.", group="Responses")] = "parquet"
    part_rows: Annotated[Above0, Option("Rows per part.", metavar="N", group="Responses")] = 65_536
    max_errors: Annotated[
        str | None,
        Option("Stop if more rows have failed.", metavar="N|P%", default="no limit", group="Responses"),
    ] = None
    isolate: Annotated[bool, Option("Retry the rows of a failed batch one by one.", group="Workers")] = False
    on: Annotated[Literal["local", "ray"], Option("Where to score: this machine, or Ray Data.", group="Cluster")] = (
        "local"
    )
    address: Annotated[
        str | None,
        Option("Ray cluster: HOST:PORT or auto.", metavar="ADDRESS", default="a new one here", group="Cluster"),
    ] = None
    actors: Annotated[
        Above0 | None,
        Option("Number of actors, which each load the model.", metavar="N", default="as many as fit",
               group="Cluster"),
    ] = None  # fmt: skip
