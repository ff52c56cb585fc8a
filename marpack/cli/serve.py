"""The command `marpack serve` and its options."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Annotated, Literal

import click
from msgspec import Meta

from marpack.api.declaring import Option
from marpack.api.session_options import ModelOptions
from marpack.cli.options import Command, command
from marpack.errors import MissingExtraError, UsageError

if TYPE_CHECKING:
    from marpack.serving.server import Server

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


_HELP = """Serve archives over HTTP with TorchServe's API.

\b
Examples:
  marpack serve                                the project here, on http://127.0.0.1:8080
  marpack serve digits.mar other=o.tar.gz      several models
  marpack serve --model-store store --models all --ts-config config.properties

Each SOURCE is a .mar, a .tar.gz, a model folder, an address (https, s3, oci) or a project. The model has the name in
its archive, or NAME in NAME=SOURCE. To try a model, open http://127.0.0.1:8080 in a browser. Start lines of torchserve
work unchanged; options without an effect are accepted. Ctrl-C or SIGTERM ends the server after it has answered all
accepted requests.
"""


class ServeCommand(Command):
    """A command with an option `--models` that takes all words up to the next option, as in torchserve."""

    def parse_args(self, ctx: click.Context, args: list[str]) -> list[str]:
        """Repeat `--models` before each of its words."""
        spelt: list[str] = []
        taking = False
        for word in args:
            if word == "--models":
                taking = True
                continue
            taking = taking and not word.startswith("-")
            spelt += ["--models", word] if taking else [word]
        if args and args[-1] == "--models":
            spelt.append("--models")
        return click.Command.parse_args(self, ctx, spelt)


@command(ServeOptions, cls=ServeCommand, help=_HELP)
def serve(options: ServeOptions) -> None:
    """Serve archives over HTTP with TorchServe's API."""
    if options.stop:
        hint = "stop the server with Ctrl-C in its terminal, or send its process SIGTERM"
        raise UsageError("marpack serve runs in the foreground; there is no server for --stop", hint=hint)
    click.get_current_context().exit(_serve(options))


def _serve(options: ServeOptions) -> int:
    """Serve until the process gets a signal; return the exit code."""
    try:
        import aiohttp  # noqa: F401 - reports a missing extra before anything is built
    except ImportError as error:
        raise MissingExtraError("aiohttp", "serve", "marpack serve") from error
    from marpack.cli.serve_settings import ServeSettings
    from marpack.render.serve import SERVER_LOG, Summary, logging_to_stderr
    from marpack.serving.server import Server
    from marpack.serving.server import serve as serve_models

    servers: list[Server] = []
    with logging_to_stderr(options.log_format):
        settings = ServeSettings.of(options)
        for note in settings.notes():
            SERVER_LOG.info("%s", note)
        loader = settings.loader()
        plans, reloader = settings.start_models(loader)

        def make() -> Server:
            servers.append(Server(settings.server_options(loader), settings.metrics()))
            return servers[0]

        try:
            return serve_models(make, plans, beside=reloader.run if reloader else None)
        finally:
            if loader.zygote is not None:
                loader.zygote.close()
            for server in servers:
                SERVER_LOG.info(Summary.of(server.statistics))
