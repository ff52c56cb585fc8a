"""`marpack`: its subcommands and the one error boundary."""

from __future__ import annotations

import codecs
import errno
import io
import os
import sys
from contextlib import suppress
from importlib import import_module
from typing import TYPE_CHECKING, NoReturn

import click

from marpack.cli.interrupts import INTERRUPTS
from marpack.errors import ExitCode, InterruptError, MarpackError, OutputError, UsageError, describe_os_error
from marpack.version import __version__

if TYPE_CHECKING:
    from collections.abc import Sequence

_FULL = {errno.ENOSPC, errno.EDQUOT, errno.EFBIG, errno.EIO}  # what a stream says that takes no more
_LOOK_ALIKES = dict(zip("✓✗…→·│╌━", "+x.>.|-=", strict=True))  # of our own pages, each as wide
# name → (module:command, one line of help): `--help` must not pay for what it only lists.
COMMANDS = {
    "init": ("marpack.cli.archive:init", "Start a project, or turn an archive back into one."),
    "build": ("marpack.cli.archive:build", "Pack weights, handler, labels and config into one .mar."),
    "inspect": ("marpack.cli.archive:inspect", "Show an archive's contents without running it."),
    "diff": ("marpack.cli.archive:diff", "Compare two archives, down to single tensors."),
    "run": ("marpack.cli.run:run", "Run inputs through an archive and show the server's responses."),
    "check": ("marpack.cli.check:check", "Check whether an archive is ready to deploy."),
    "score": ("marpack.cli.score:score", "Score the rows of tables and write new tables."),
    "serve": ("marpack.cli.serve:serve", "Serve archives over HTTP with TorchServe's API."),
    "export": ("marpack.cli.archive:export", "Export for Docker, KServe, SageMaker or Ray Serve."),
    "sign": ("marpack.cli.trust:sign", "Sign an archive's file with your key."),
    "verify": ("marpack.cli.trust:verify", "Verify an archive's signature and check result."),
    "unpack": ("marpack.cli.archive:unpack", "Extract an archive into a new folder, safely."),
    "push": ("marpack.cli.registry:push", "Send an archive to an OCI registry."),
    "pull": ("marpack.cli.registry:pull", "Fetch an archive from an OCI registry."),
    "doctor": ("marpack.cli.doctor:doctor", "Check the installation."),
    "completion": ("marpack.cli.completion:completion", "Print a shell's completion script."),
}
# What one does with them → commands, in the order one meets them.
GROUPS = {
    "Make an archive": ("init", "build"),
    "Look into it": ("inspect", "diff", "unpack"),
    "Try it": ("run", "check"),
    "Use it": ("score", "serve"),
    "Hand it over": ("sign", "verify", "push", "pull", "export"),
    "Your machine": ("doctor", "completion"),
}
_WIDEST = max(map(len, COMMANDS))


def _is_kept_out(args: list[str]) -> bool:
    """Say whether a command is asked to do what Windows cannot."""
    return sys.platform == "win32" and args[0] in (*GROUPS["Try it"], *GROUPS["Use it"]) and "--help" not in args


class LazyGroup(click.Group):
    """A group whose commands are modules not yet imported."""

    def list_commands(self, ctx: click.Context) -> list[str]:  # noqa: ARG002 - click's signature
        """Return the commands in the order one meets them."""
        return [name for names in GROUPS.values() for name in names]

    def get_command(self, ctx: click.Context, cmd_name: str) -> click.Command | None:  # noqa: ARG002
        """Import one command."""
        if cmd_name not in COMMANDS:
            return None
        module, _, name = COMMANDS[cmd_name][0].partition(":")
        command: click.Command = getattr(import_module(module), name)
        return command

    def resolve_command(
        self, ctx: click.Context, args: list[str]
    ) -> tuple[str | None, click.Command | None, list[str]]:
        """Find the command, or say which one was probably meant."""
        if args[0] not in COMMANDS and not ctx.resilient_parsing:  # TAB wants no words
            from marpack.errors import nearest

            near = nearest(args[0], COMMANDS)
            tip = f" Did you mean '{near}'?" if near else ""
            ctx.fail(f"No such command '{args[0]}'.{tip}")
        if _is_kept_out(args) and not ctx.resilient_parsing:
            raise UsageError(
                f"marpack {args[0]} needs Linux or macOS: handlers run in processes as the server's do",
                hint="use it within WSL, or in a container; build, inspect, diff and unpack work on Windows, too",
                code="unsupported-platform",
            )
        return super().resolve_command(ctx, args)

    def format_commands(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:  # noqa: ARG002
        """List the commands by what one does with them, without importing them."""
        for title, names in GROUPS.items():
            with formatter.section(title):
                formatter.write_dl([(name.ljust(_WIDEST), COMMANDS[name][1]) for name in names])


_VERSION_HELP = "Show the versions of marpack, Python, torch and onnxruntime."


def _show_versions(context: click.Context, _: click.Parameter, asked: bool) -> None:
    """Print the versions that matter for an answer, none of them by importing what it is of."""
    if not asked or context.resilient_parsing:
        return
    import platform
    from importlib.metadata import PackageNotFoundError, version

    click.echo(f"marpack {__version__}")
    click.echo(f"Python {platform.python_version()}")
    for package in ("torch", "onnxruntime"):
        try:
            click.echo(f"{package} {version(package)}")
        except PackageNotFoundError:
            click.echo(f"{package} is not installed")
    context.exit()


@click.group(cls=LazyGroup, context_settings={"help_option_names": ["-h", "--help"], "max_content_width": 100})
@click.option("--version", is_flag=True, is_eager=True, expose_value=False, callback=_show_versions, help=_VERSION_HELP)
def marpack() -> None:
    """From trained weights to a model archive you can trust, before it is deployed."""


def main(argv: Sequence[str] | None = None) -> NoReturn:
    """Run marpack; every way out ends here, with one of the exit codes of `marpack.errors.ExitCode`."""
    words = sys.argv[1:] if argv is None else argv
    INTERRUPTS.install()
    _prepare_streams()
    try:
        code = marpack.main(args=argv, prog_name="marpack", standalone_mode=False)
        sys.stdout.flush()
    except click.exceptions.Exit as end:
        code = end.exit_code
    except click.ClickException as error:
        error.show()
        code = _tell_json(UsageError(error.format_message()), words)
    except (click.Abort, KeyboardInterrupt):
        click.echo("interrupted", err=True)
        code = _tell_json(InterruptError("interrupted"), words)
    except Exception as error:  # noqa: BLE001 - the boundary
        code = _tell_json(_shown(error, words), words)
    with suppress(OSError, ValueError):  # the failed write was reported
        sys.stdout.flush()
    INTERRUPTS.finish()
    sys.exit(code if isinstance(code, int) else 0)


def _prepare_streams() -> None:
    """Let no letter that a stream cannot hold end a command, nor a stream that was closed before it began."""
    codecs.register_error("look-alikes", _look_alikes)
    for name in ("stdout", "stderr"):
        stream = getattr(sys, name)
        if stream is None:
            setattr(sys, name, open(os.devnull, "w"))  # noqa: PTH123, SIM115 - it stays open
        elif isinstance(stream, io.TextIOWrapper):
            is_utf8 = stream.encoding.lower().replace("-", "") == "utf8"
            stream.reconfigure(errors="backslashreplace" if is_utf8 else "look-alikes")


def _look_alikes(error: UnicodeError) -> tuple[str, int]:
    """Return what stands for letters that a stream cannot hold; see `codecs.register_error`."""
    if not isinstance(error, UnicodeEncodeError):
        raise error
    return "".join(_LOOK_ALIKES.get(letter, "?") for letter in error.object[error.start : error.end]), error.end


def _shown(error: Exception, words: Sequence[str]) -> MarpackError | None:
    """Show an error on stderr, and return it as one of marpack's own; None where nobody wants to know."""
    from marpack.render.console import close_stdout, show_error

    if isinstance(error, BrokenPipeError) or getattr(error, "errno", None) in _FULL:
        close_stdout()
    if isinstance(error, BrokenPipeError):
        return None  # whoever read stdout has had enough: `marpack run … | head` is no failure worth words
    if isinstance(error, OSError) and error.errno in _FULL and error.filename is None:
        error = OutputError(f"the results cannot be written: {describe_os_error(error)}")
    if not isinstance(error, MarpackError):
        error = _bug(error)
    command = next(iter(words), "")
    if command in COMMANDS and not error.findings:
        error.hint = error.hint or error.fix.replace("COMMAND", command)
    show_error(error)
    return error


def _tell_json(error: MarpackError | None, words: Sequence[str]) -> int:
    """Tell an error on stdout, too, where JSON is expected there; return the exit code."""
    if error is None:
        return ExitCode.SHORT
    as_json = _asks_json(words)
    if as_json or "--jsonl" in words:
        from marpack.render.console import close_stdout, show, show_line
        from marpack.render.failure import Failure

        try:
            (show if as_json else show_line)(Failure.of(error))
        except OSError:  # what went wrong was told on stderr
            close_stdout()
    return error.exit_code


def _asks_json(words: Sequence[str]) -> bool:
    """Say whether stdout is to hold one JSON object; of score, only a --json that names no columns asks for it."""
    if list(words[:1]) != ["score"]:
        return "--json" in words
    from marpack.cli.score import SUMMARY, replace_json

    return SUMMARY in replace_json(words)


def _bug(error: Exception) -> MarpackError:
    """Return what a user is told of an error that is marpack's own; its traceback is kept in a file."""
    import tempfile
    import traceback

    with tempfile.NamedTemporaryFile("w", prefix="marpack-bug-", suffix=".txt", delete=False) as file:
        file.write("".join(traceback.format_exception(error)))
    return MarpackError(
        f"marpack itself failed, which is a bug: {type(error).__name__}: {error}",
        hint=f"please report it with the traceback in {file.name}",
    )
