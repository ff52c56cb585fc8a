"""The options of `marpack serve`."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Annotated, Literal

from msgspec import Meta

from marpack.api.declaring import Option
from marpack.api.session_options import ModelOptions

_Port = Annotated[int, Meta(ge=0, le=65535)]
_Count = Annotated[int, Meta(ge=1)]


class _ServeArguments(ModelOptions, frozen=True):
    source: Annotated[
        Sequence[str],
        Option("Archives, folders, projects or addresses, as SOURCE or NAME=SOURCE.", complete="sources"),
    ] = ()


class ServeOptions(_ServeArguments, frozen=True, kw_only=True):
    """The options of `marpack serve`. With None, the config file decides, and then the server's default."""

    host: Annotated[
        str | None,
        Option("Address to listen on; 0.0.0.0 in containers.", metavar="HOST", default="127.0.0.1", group="Addresses"),
    ] = None
    port: Annotated[
        _Port | None,
        Option("Port of predictions and of the page.", metavar="N", default="8080", group="Addresses"),
    ] = None
    management_port: Annotated[
        _Port | None,
        Option("Port to describe and scale models.", metavar="N", default="off", group="Addresses"),
    ] = None
    metrics_port: Annotated[
        _Port | None, Option("Port of Prometheus metrics.", metavar="N", default="8082", group="Addresses")
    ] = None
    enable_model_api: Annotated[
        bool, Option("Allow requests that register and unregister models.", group="Addresses")
    ] = False
    token: Annotated[
        str | None,
        Option("Require the tokens of this key_file.json; created if missing.", metavar="FILE", group="Addresses"),
    ] = None
    allowed_hosts: Annotated[
        Sequence[str],
        Option("Additional host name of this server.", ("--allowed-host",), "HOST", group="Addresses"),
    ] = ()
    cors_origins: Annotated[
        Sequence[str],
        Option("Origin of web pages that may send requests.", ("--cors-origin",), "ORIGIN", group="Addresses"),
    ] = ()
    no_page: Annotated[bool, Option("Do not serve the page for trying models.", group="Addresses")] = False

    workers: Annotated[
        _Count | None,
        Option("Number of workers per model.", metavar="N", default="the config's, or 1", group="Workers"),
    ] = None
    batch_size: Annotated[
        _Count | None,
        Option("Maximum number of requests per batch.", metavar="N", default="the config's, or 1", group="Workers"),
    ] = None
    max_batch_delay: Annotated[
        Annotated[int, Meta(ge=0)] | None,
        Option(
            "Maximum time to wait for a full batch, in milliseconds.",
            metavar="MS",
            default="the config's, or 100",
            group="Workers",
        ),
    ] = None
    timeout: Annotated[
        float | None,
        Option(
            "Batch timeout in seconds.",
            metavar="SECONDS",
            parse="seconds",
            default="the config's, or 120",
            group="Workers",
        ),
    ] = None
    startup_timeout: Annotated[
        float | None,
        Option(
            "Timeout for loading the model, in seconds.",
            metavar="SECONDS",
            parse="seconds",
            default="the config's, or 120",
            group="Workers",
        ),
    ] = None
    queue: Annotated[
        _Count | None,
        Option("Maximum number of queued requests per model.", metavar="N", default="100", group="Workers"),
    ] = None
    max_memory: Annotated[
        _Count | None,
        Option(
            "Maximum memory for data of a worker, such as 2GB.",
            metavar="SIZE",
            parse="size",
            default="no limit",
            group="Workers",
        ),
    ] = None

    max_request_size: Annotated[
        _Count | None,
        Option("Maximum size of a request body.", metavar="SIZE", parse="size", default="6553500", group="Limits"),
    ] = None
    max_response_size: Annotated[
        _Count | None,
        Option("Maximum size of a response body.", metavar="SIZE", parse="size", default="6553500", group="Limits"),
    ] = None
    max_connections: Annotated[_Count, Option("Maximum number of open connections.", metavar="N", group="Limits")] = (
        10_000
    )
    drain: Annotated[
        float,
        Option(
            "Time to finish accepted requests at the end, in seconds.",
            metavar="SECONDS",
            parse="seconds",
            group="Limits",
        ),
    ] = 30.0

    envelope: Annotated[
        Literal["body", "json", "kserve", "kservev2"] | None,
        Option("The server's service_envelope setting.", default="none", group="Model"),
    ] = None
    require_safe: Annotated[
        bool, Option("Refuse weights that need trust, and native or generated code.", group="Model")
    ] = False
    trust_native: Annotated[bool, Option("Accept native and generated code, with --require-safe.", group="Model")] = (
        False
    )
    digests: Annotated[
        Sequence[str],
        Option("Load only archives with this content digest.", ("--require-digest",), "DIGEST", group="Model"),
    ] = ()

    log_requests: Annotated[bool, Option("Log one line per request.", group="Logging and reloading")] = False
    log_format: Annotated[
        Literal["text", "json"], Option("Format of all log lines.", group="Logging and reloading")
    ] = "text"
    reload: Annotated[bool, Option("Reload a model when its files change.", group="Logging and reloading")] = False
    compat: Annotated[
        Literal["torchserve"] | None,
        Option("Imitate TorchServe also where its behavior is harmful.", group="Logging and reloading"),
    ] = None

    model_store: Annotated[
        str | None, Option("Folder of the archives that --models names.", metavar="DIR", group="TorchServe")
    ] = None
    start_models: Annotated[
        Sequence[str],
        Option(
            "Models of the store to load: FILE, NAME=FILE, lists or all.", ("--models",), "NAMES…", group="TorchServe"
        ),
    ] = ()
    ts_config: Annotated[str | None, Option("A config.properties file.", metavar="FILE", group="TorchServe")] = None
    disable_token_auth: Annotated[bool, Option("Do not require tokens, even with --token.", group="TorchServe")] = False
    start: Annotated[bool, Option("Has no effect.", hidden=True)] = False
    foreground: Annotated[bool, Option("Has no effect.", hidden=True)] = False
    no_snapshots: Annotated[bool, Option("Has no effect.", ("--no-config-snapshots", "--ncs"), hidden=True)] = False
    log_config: Annotated[str | None, Option("Has no effect.", metavar="FILE", hidden=True)] = None
    stop: Annotated[bool, Option("Show how to stop the server.", group="TorchServe")] = False
