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

from marpack import removed
from marpack.cli.interrupts import INTERRUPTS
from marpack.errors import (
    ExitCode,
    InterruptError,
    MarpackError,
    OutputError,
    UsageError,
    describe_os_error,
    nearest,
)
from marpack.version import __version__, docs_link

if TYPE_CHECKING:
    from collections.abc import Sequence

_FULL = {errno.ENOSPC, errno.EDQUOT, errno.EFBIG, errno.EIO}  # errors of a stream that cannot be written to
_LOOK_ALIKES = dict(zip("✓✗…→·│╌━", "+x.>.|-=", strict=True))  # of marpack's own pages, of the same width
# name → (module:command, one line of help): `--help` does not import the commands that it lists.
COMMANDS = {
    "init": ("marpack.cli.archive:init", "Start a project, or turn an archive back into one."),
    "build": ("marpack.cli.archive:build", "Pack weights, handler, labels and config into one .mar."),
    "migrate": ("marpack.cli.archive:migrate", "Move a TorchServe deployment to marpack."),
    "inspect": ("marpack.cli.archive:inspect", "Show an archive's contents without running it."),
    "diff": ("marpack.cli.archive:diff", "Compare two archives, down to single tensors."),
    "run": ("marpack.cli.run:run", "Run inputs through an archive and show the server's responses."),
    "check": ("marpack.cli.check:check", "Check whether an archive is ready to deploy."),
    "score": ("marpack.cli.score:score", "Score the rows of tables and write new tables."),
    "serve": ("marpack.cli.serve:serve", "Serve archives over HTTP with TorchServe's API."),
    "export": ("marpack.cli.archive:export", "Export for Docker, KServe, SageMaker or Ray Serve."),
    "sign": ("marpack.cli.archive:sign", "Sign an archive's file with your key."),
    "verify": ("marpack.cli.archive:verify", "Verify an archive's signature."),
    "unpack": ("marpack.cli.archive:unpack", "Extract an archive into a new folder, safely."),
    "doctor": ("marpack.cli.machine:doctor", "Check the installation."),
    "completion": ("marpack.cli.machine:completion", "Print a shell's completion script."),
}
# Heading of the help → commands, in their order.
GROUPS = {
    "Make an archive": ("init", "build", "migrate"),
    "Look into it": ("inspect", "diff", "unpack"),
    "Try it": ("run", "check"),
    "Use it": ("score", "serve"),
    "Hand it over": ("sign", "verify", "export"),
    "Your machine": ("doctor", "completion"),
}
_WIDEST = max(map(len, COMMANDS))


_NOT_ON_WINDOWS = (*GROUPS["Try it"], *GROUPS["Use it"])


class LazyGroup(click.Group):
    """A group whose commands are modules not yet imported."""

    def list_commands(self, ctx: click.Context) -> list[str]:  # noqa: ARG002 - click's signature
        """Return the commands in the order of the help."""
        return [name for names in GROUPS.values() for name in names]

    def get_command(self, ctx: click.Context, cmd_name: str) -> click.Command | None:  # noqa: ARG002 - as above
        """Import one command."""
        if cmd_name not in COMMANDS:
            return None
        module, _, name = COMMANDS[cmd_name][0].partition(":")
        command: click.Command = getattr(import_module(module), name)
        return command

    def resolve_command(
        self, ctx: click.Context, args: list[str]
    ) -> tuple[str | None, click.Command | None, list[str]]:
        """Find the command, or suggest a similar one."""
        if args[0] not in COMMANDS and not ctx.resilient_parsing:  # completion shows no messages
            removed.refuse_command(args[0])
            near = nearest(args[0], COMMANDS)
            hint = f"Did you mean marpack {near}?" if near else "Run marpack --help"
            raise UsageError(f"no such command: {args[0]}", hint=hint)
        if (
            sys.platform == "win32"
            and args[0] in _NOT_ON_WINDOWS
            and not {"--help", "--help-all"} & {*args}
            and not ctx.resilient_parsing
        ):
            hint = "Use it in WSL or in a container. On Windows, build, inspect, diff and unpack work."
            what = f"marpack {args[0]} needs Linux or macOS, as handlers run in separate processes"
            raise UsageError(what, hint=hint, code="unsupported-platform")
        return super().resolve_command(ctx, args)

    def format_commands(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:  # noqa: ARG002 - as above
        """List the commands under their headings, without importing them."""
        for title, names in GROUPS.items():
            with formatter.section(title):
                formatter.write_dl([(name.ljust(_WIDEST), COMMANDS[name][1]) for name in names])

    def format_epilog(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:  # noqa: ARG002 - as above
        """End with the address of the docs."""
        if link := docs_link("reference/commands/"):
            formatter.write_paragraph()
            formatter.write_text(f"Docs: {link}")


_VERSION_HELP = "Show the versions of marpack, Python, torch and onnxruntime."


def _show_versions(context: click.Context, _: click.Parameter, requested: bool) -> None:
    """Print the versions of the packages that responses depend on, without importing these."""
    if not requested or context.resilient_parsing:
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
@click.option(
    *("-V", "--version"), is_flag=True, is_eager=True, expose_value=False, callback=_show_versions, help=_VERSION_HELP
)
def marpack() -> None:
    """From trained weights to a model archive you can trust, before it is deployed."""


def main(argv: Sequence[str] | None = None) -> NoReturn:
    """Run marpack and exit with one of the codes of `marpack.errors.ExitCode`."""
    words = sys.argv[1:] if argv is None else argv
    INTERRUPTS.install()
    _prepare_streams()
    try:
        code = marpack.main(args=argv, prog_name="marpack", standalone_mode=False)
        sys.stdout.flush()
    except click.exceptions.Exit as end:
        code = end.exit_code
    except getattr(click.exceptions, "NoArgsIsHelpError", ()) as error:  # which click before 8.2 does not have
        error.show()
        code = _finish(UsageError("missing command", hint="Run marpack --help"), words)
    except click.ClickException as error:
        code = _fail(_usage_error(error), words)
    except (click.Abort, KeyboardInterrupt):
        click.echo("interrupted", err=True)
        code = _finish(InterruptError("interrupted"), words)
    except Exception as error:  # noqa: BLE001 - the boundary
        code = _fail(error, words)
    with suppress(OSError, ValueError):  # the failed write was reported
        sys.stdout.flush()
    INTERRUPTS.finish()
    sys.exit(code if isinstance(code, int) else 0)


def _usage_error(error: click.ClickException) -> UsageError:
    """Return click's error as one of marpack's."""
    what, where, tip, context = " ".join(error.format_message().split()), None, None, getattr(error, "ctx", None)
    if isinstance(error, click.NoSuchOption) and context is not None:
        if gone := removed.removed_option(context.info_name, error.option_name):
            return gone
        visible = [each for each in context.command.get_params(context) if not getattr(each, "hidden", False)]
        names = [name.removeprefix("--") for each in visible for name in each.opts if name.startswith("--")]
        near = nearest(error.option_name.lstrip("-"), names, cutoff=0.7)
        what, tip = error.message, f"Did you mean --{near}?" if near else None
    elif isinstance(error, click.BadParameter) and not isinstance(error, click.MissingParameter) and error.param:
        what, where = error.message, error.param.opts[0]
    hint = tip or (f"Run {context.command_path} --help" if context is not None else None)
    return UsageError(what[:1].lower() + what[1:].removesuffix("."), where=where, hint=hint)


def _prepare_streams() -> None:
    """Prepare stdout and stderr for characters that they cannot encode, and replace closed ones."""
    codecs.register_error("look-alikes", _look_alikes)
    for name in ("stdout", "stderr"):
        stream = getattr(sys, name)
        if stream is None:
            setattr(sys, name, open(os.devnull, "w"))  # noqa: PTH123, SIM115 - it stays open
        elif isinstance(stream, io.TextIOWrapper):
            is_utf8 = stream.encoding.lower().replace("-", "") == "utf8"
            stream.reconfigure(errors="backslashreplace" if is_utf8 else "look-alikes")


def _look_alikes(error: UnicodeError) -> tuple[str, int]:
    """Replace characters that a stream cannot encode; see `codecs.register_error`."""
    if not isinstance(error, UnicodeEncodeError):
        raise error
    return "".join(_LOOK_ALIKES.get(letter, "?") for letter in error.object[error.start : error.end]), error.end


def _fail(error: Exception, words: Sequence[str]) -> int:
    """Show an error, and return the exit code. The traceback of an error that is not marpack's own goes to a file."""
    from marpack.render.console import STDERR, close_stdout, show_error

    STDERR.quiet |= not STDERR.verbose and not {"-q", "--quiet"}.isdisjoint(words)  # words that were not parsed
    if isinstance(error, BrokenPipeError) or getattr(error, "errno", None) in _FULL:
        close_stdout()
    if isinstance(error, BrokenPipeError):
        return ExitCode.SHORT  # the reader of stdout has ended, as in `marpack run … | head`
    if isinstance(error, OSError) and error.errno in _FULL and error.filename is None:
        error = OutputError(f"the results cannot be written: {describe_os_error(error)}")
    if not isinstance(error, MarpackError):
        import tempfile
        import traceback

        with tempfile.NamedTemporaryFile("w", prefix="marpack-bug-", suffix=".txt", delete=False) as file:
            file.write("".join(traceback.format_exception(error)))
        if STDERR.verbose:
            traceback.print_exception(error)
        what = f"marpack itself failed, which is a bug: {type(error).__name__}: {error}"
        error = MarpackError(what, hint=f"Report it with the traceback in {file.name}.")
    show_error(error)
    return _finish(error, words)


def _finish(error: MarpackError, words: Sequence[str]) -> int:
    """Write an error to stdout also if the command writes JSON there; return the exit code."""
    as_json = "--json" in words
    if list(words[:1]) == ["score"]:  # whose --json may name columns
        from marpack.cli.score import SUMMARY, replace_json

        as_json = SUMMARY in replace_json(words)
    if as_json or "--jsonl" in words:
        from marpack.render.console import close_stdout, show, show_line
        from marpack.render.failure import Failure

        try:
            (show if as_json else show_line)(Failure.of(error))
        except OSError:  # the error is on stderr
            close_stdout()
    return error.exit_code
