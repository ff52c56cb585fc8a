"""The command `marpack serve`: archives answer over HTTP, where a TorchServe stood."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import click

from marpack.cli.completion import sources
from marpack.cli.options import seconds, size
from marpack.cli.run_options import ENVELOPES, MODEL, RunCommand, grouped, option
from marpack.errors import MissingExtraError, UsageError

if TYPE_CHECKING:
    from marpack.cli.options import Options

_HELP = """Answer over HTTP as TorchServe did.

\b
Examples:
  marpack serve                                the project here, on http://127.0.0.1:8080
  marpack serve digits.mar other=o.tar.gz      several models
  marpack serve --model-store store --models all --ts-config config.properties

Each SOURCE is a .mar, a .tar.gz, a model folder, an address (https, s3, oci), which is fetched, or a project, under the
name that its archive says or NAME=SOURCE.
Open http://127.0.0.1:8080 in a browser to try a model. A start line of torchserve works as it was; what it asks for
that has no effect here is told in a line each. Ctrl-C or SIGTERM ends it, after what it has accepted was answered.
"""
_GROUPS = {
    "Addresses": (
        option("--host", metavar="HOST", help="Where to listen; 0.0.0.0 in containers [127.0.0.1]."),
        option("--port", type=click.IntRange(0, 65535), metavar="N", help="Of predictions, and of the page [8080]."),
        option("--management-port", type=click.IntRange(0, 65535), metavar="N", help=(
            "Describe, scale and default models there [off]."
        )),
        option("--metrics-port", type=click.IntRange(0, 65535), metavar="N", help="Of Prometheus metrics [8082]."),
        option("--enable-model-api", is_flag=True, help="Also register and unregister models there."),
        option("--token", metavar="FILE", help="Ask for the tokens of this key_file.json, made if missing."),
        option("--allowed-host", "allowed_hosts", multiple=True, metavar="HOST", help="A further name of this server."),
        option("--cors-origin", "cors_origins", multiple=True, metavar="ORIGIN", help="Pages that may call it."),
        option("--no-page", is_flag=True, help="Show no page to try models on."),
    ),
    "Workers": (
        option("--workers", type=click.IntRange(1), metavar="N", help="Processes a model [the config's, or 1]."),
        option("--batch-size", type=click.IntRange(1), metavar="N", help="Requests a call [the config's, or 1]."),
        option("--max-batch-delay", type=click.IntRange(0), metavar="MS", help=(
            "That a batch waits to be full [the config's, or 100]."
        )),
        option("--timeout", type=seconds, metavar="SECONDS", help="For a batch [the config's, or 120]."),
        option("--startup-timeout", type=seconds, metavar="SECONDS", help="For loading [the config's, or 120]."),
        option("--queue", type=click.IntRange(1), metavar="N", help="Requests that may wait a model [100]."),
        option("--max-memory", type=size, metavar="SIZE", help="Data a worker may have, e.g. 2GB [no bound]."),
    ),
    "Bounds": (
        option("--max-request-size", type=size, metavar="SIZE", help="Of a body [6553500]."),
        option("--max-response-size", type=size, metavar="SIZE", help="Of an answer [6553500]."),
        option("--max-connections", type=click.IntRange(1), default=10_000, metavar="N", help=(
            "Open at once [10000]."
        )),
        option("--drain", type=seconds, default=30.0, metavar="SECONDS", help="To finish requests at the end [30]."),
    ),
    "Models": (
        *MODEL,
        option("--envelope", type=ENVELOPES, help="The server's service_envelope setting [none]."),
        option("--require-safe", is_flag=True, help=(
            "Refuse archives with weights that need trust, or with native or generated code."
        )),
        option("--trust-native", is_flag=True, help="With --require-safe: accept native and generated code."),
        option("--require-digest", "digests", multiple=True, metavar="DIGEST", help="Load only this content digest."),
    ),
    "Talk": (
        option("--log-requests", is_flag=True, help="A line a request."),
        option("--log-format", type=click.Choice(["text", "json"]), default="text", help="Of all lines [text]."),
        option("--reload", is_flag=True, help="Load a model again when its files change."),
        option("--compat", type=click.Choice(["torchserve"]), help="Answer as TorchServe even where that harms."),
    ),
    "As torchserve has them": (
        option("--model-store", metavar="DIR", help="Where archives lie that are named by --models."),
        option("--models", "start_models", multiple=True, metavar="NAMES…", help="Files, NAME=FILE, commas, or all."),
        option("--ts-config", metavar="FILE", help="A config.properties."),
        option("--disable-token-auth", is_flag=True, help="Ask for no tokens, whatever --token says."),
        option("--start", is_flag=True, help="Has no effect."),
        option("--foreground", is_flag=True, help="Has no effect: it always stays there."),
        option("--no-config-snapshots", "--ncs", "no_snapshots", is_flag=True, help="Has no effect: it writes none."),
        option("--log-config", metavar="FILE", help="Has no effect."),
        option("--stop", is_flag=True, help="Tells how to stop it."),
    ),
}  # fmt: skip


class ServeCommand(RunCommand):
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


@click.command(cls=ServeCommand, help=_HELP)
@click.argument("source", nargs=-1, shell_complete=sources)
@grouped(_GROUPS)
def serve(source: tuple[str, ...], **options: Any) -> None:  # Any: click gives each option its own type
    """Answer over HTTP as TorchServe did."""
    if options["stop"]:
        hint = "it stays in the foreground: press Ctrl-C there, or send its process SIGTERM"
        raise UsageError("marpack serve leaves no server behind that --stop could end", hint=hint)
    click.get_current_context().exit(_serve(source, options))


def _serve(source: tuple[str, ...], options: Options) -> int:
    """Serve until told to end; return the exit code."""
    try:
        import aiohttp  # noqa: F401 - so that its absence is told before anything is built
    except ImportError as error:
        raise MissingExtraError("aiohttp", "serve", "marpack serve") from error
    from marpack.cli.serve_models import loader_of, start_models
    from marpack.cli.serve_options import ServeSettings
    from marpack.render.serve import JsonLog, TextLog
    from marpack.serving.server import Server
    from marpack.serving.server import serve as serve_until_told

    settings = ServeSettings.of(options)
    log = JsonLog() if options["log_format"] == "json" else TextLog()
    for note in settings.notes:
        log.noted(note)
    loader = loader_of(options, settings)
    start = start_models(source, options, settings, loader, log)
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
