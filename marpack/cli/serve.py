"""The command `marpack serve`: archives answer over HTTP, where a TorchServe stood."""

from __future__ import annotations

from typing import TYPE_CHECKING

import click

from marpack.cli.options import Command, command
from marpack.cli.serve_options import ServeOptions
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


class ServeCommand(Command):
    """A command whose `--models` takes every word up to the next option, as torchserve's does."""

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
        hint = "it stays in the foreground: press Ctrl-C there, or send its process SIGTERM"
        raise UsageError("marpack serve leaves no server behind that --stop could end", hint=hint)
    click.get_current_context().exit(_serve(options))


def _serve(options: ServeOptions) -> int:
    """Serve until told to end; return the exit code."""
    try:
        import aiohttp  # noqa: F401 - so that its absence is told before anything is built
    except ImportError as error:
        raise MissingExtraError("aiohttp", "serve", "marpack serve") from error
    from marpack.cli.serve_settings import ServeSettings, loader_of, start_models
    from marpack.render.serve import JsonLog, TextLog
    from marpack.serving.server import Server
    from marpack.serving.server import serve as serve_until_told

    settings = ServeSettings.of(options)
    log = JsonLog() if options.log_format == "json" else TextLog()
    for note in settings.notes:
        log.noted(note)
    loader = loader_of(options, settings)
    start = start_models(options, settings, loader, log)
    servers: list[Server] = []

    def made() -> Server:
        servers.append(Server(settings.server(loader), log, settings.metrics(log.measured)))
        return servers[0]

    try:
        return serve_until_told(made, start.plans, beside=start.beside)
    finally:
        if loader.zygote is not None:
            loader.zygote.close()
        for server in servers:
            log.summed_up(server.statistics)
