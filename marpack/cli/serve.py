"""The command `marpack serve` and its options."""

from __future__ import annotations

from collections.abc import Sequence
from functools import partial
from typing import TYPE_CHECKING, Annotated, Literal

import click
from msgspec import Meta

from marpack.api.declaring import Option
from marpack.api.options import Above0
from marpack.api.session_options import ModelOptions
from marpack.cli.options import Command, command
from marpack.errors import MissingExtraError, UsageError

if TYPE_CHECKING:
    from marpack.serving.server import Server

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
_Addresses = partial(Option, group="Addresses")
_Workers = partial(Option, group="Workers")
_Limits = partial(Option, group="Limits")
_Model = partial(Option, group="Model")
_Logging = partial(Option, group="Logging and reloading")
_TorchServe = partial(Option, group="TorchServe")
_Port = Annotated[int, Meta(ge=0, le=65535)]
_FROM_CONFIG = "the config's, or "


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
    port: Annotated[_Port | None, _Addresses("Port of predictions and of the page.", default="8080", daily=True)] = None
    management_port: Annotated[
        _Port | None, _Addresses("Port to describe and scale models.", default="off", daily=True)
    ] = None
    metrics_port: Annotated[_Port | None, _Addresses("Port of Prometheus metrics.", default="8082")] = None
    enable_model_api: Annotated[bool, _Addresses("Allow requests that register and unregister models.")] = False
    token: Annotated[
        str | None,
        _Addresses("Require the tokens of this key_file.json; created if missing.", metavar="FILE", daily=True),
    ] = None
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
        _Workers("Maximum time to wait for a full batch, in milliseconds.", metavar="MS", default=f"{_FROM_CONFIG}100"),
    ] = None
    timeout: Annotated[
        float | None, _Workers("Batch timeout in seconds.", parse="seconds", default=f"{_FROM_CONFIG}120")
    ] = None
    startup_timeout: Annotated[
        float | None,
        _Workers("Timeout for loading the model, in seconds.", parse="seconds", default=f"{_FROM_CONFIG}120"),
    ] = None
    queue: Annotated[Above0 | None, _Workers("Maximum number of queued requests per model.", default="100")] = None
    max_memory: Annotated[
        Above0 | None,
        _Workers("Maximum memory for data of a worker, such as 2GB.", parse="size", default="no limit"),
    ] = None

    max_request_size: Annotated[
        Above0 | None, _Limits("Maximum size of a request body.", parse="size", default="6553500")
    ] = None
    max_response_size: Annotated[
        Above0 | None, _Limits("Maximum size of a response body.", parse="size", default="6553500")
    ] = None
    max_connections: Annotated[Above0, _Limits("Maximum number of open connections.")] = 10_000
    drain: Annotated[float, _Limits("Time to finish accepted requests at the end, in seconds.", parse="seconds")] = 30.0

    envelope: Annotated[
        Literal["body", "json", "kserve", "kservev2"] | None,
        _Model("The server's service_envelope setting.", default="none"),
    ] = None
    require_safe: Annotated[bool, _Model("Refuse weights that need trust, and native or generated code.")] = False
    trust_native: Annotated[bool, _Model("Accept native and generated code, with --require-safe.")] = False
    digests: Annotated[
        Sequence[str], _Model("Load only archives with this content digest.", ("--require-digest",), "DIGEST")
    ] = ()

    log_requests: Annotated[bool, _Logging("Log one line per request.", daily=True)] = False
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
    ts_config: Annotated[str | None, _TorchServe("A config.properties file.", metavar="FILE", daily=True)] = None
    disable_token_auth: Annotated[bool, _TorchServe("Do not require tokens, even with --token.")] = False
    start: Annotated[bool, Option("Has no effect.", hidden=True)] = False
    foreground: Annotated[bool, Option("Has no effect.", hidden=True)] = False
    no_snapshots: Annotated[bool, Option("Has no effect.", ("--no-config-snapshots", "--ncs"), hidden=True)] = False
    log_config: Annotated[str | None, Option("Has no effect.", metavar="FILE", hidden=True)] = None
    stop: Annotated[bool, _TorchServe("Show how to stop the server.")] = False


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
    """Serve archives over HTTP with TorchServe's API, until the process gets a signal."""
    if options.stop:
        hint = "Stop the server with Ctrl-C in its terminal, or send its process SIGTERM."
        raise UsageError("--stop has no effect: marpack serve runs in the foreground", hint=hint)
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
            code = serve_models(make, plans, beside=reloader.run if reloader else None)
        finally:
            if loader.zygote is not None:
                loader.zygote.close()
            for server in servers:
                SERVER_LOG.info(Summary.of(server.statistics))
    click.get_current_context().exit(code)
