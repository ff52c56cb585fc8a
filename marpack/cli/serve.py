"""The command `marpack serve`."""

from __future__ import annotations

from typing import TYPE_CHECKING

import click

from marpack.api.session_options import ServeOptions
from marpack.cli.options import Command, command
from marpack.errors import MissingExtraError, UsageError

if TYPE_CHECKING:
    from marpack.serving.server import Server

_HELP = """Serve archives over HTTP with TorchServe's API.

\b
Examples:
  marpack serve                                the project in this folder
  marpack serve digits.mar other=o.tar.gz      several models
  marpack serve --model-store store --models all --ts-config config.properties

Each SOURCE is a .mar, a .tar.gz, a model folder, an address (https, s3) or a project. The model has the name in
its archive, or NAME in NAME=SOURCE. To try a model, open http://127.0.0.1:8080 in a browser. Start lines of torchserve
work unchanged; options without an effect are accepted. Ctrl-C or SIGTERM ends the server after it has answered all
accepted requests.
"""


class ServeCommand(Command):
    """A command with an option `--models` that takes all words up to the next option, as in torchserve."""

    lists_archives = True


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
        models = settings.start_models(loader)

        def make() -> Server:
            servers.append(Server(settings.server_options(loader), settings.metrics()))
            return servers[0]

        try:
            watches = [model.watch for model in models] if options.reload else []
            code = serve_models(make, [model.plan for model in models], beside=watches)
        finally:
            if loader.zygote is not None:
                loader.zygote.close()
            for server in servers:
                SERVER_LOG.info(Summary.of(server.statistics))
    click.get_current_context().exit(code)
