"""The one rooted tree of everything marpack raises: what, where, hint and the process's exit code."""

from __future__ import annotations

import copyreg
import errno
from contextlib import contextmanager
from enum import IntEnum
from itertools import islice
from typing import TYPE_CHECKING, ClassVar

from marpack.version import install_hint

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Sequence

    from marpack.findings import Finding


class ExitCode(IntEnum):
    """The exit codes of marpack's processes, the same for every command."""

    OK = 0
    SHORT = 1  # an input, a finding or a sample failed
    USAGE = 2  # the command line or the project file
    ARCHIVE = 3  # not a readable, safe archive
    HANDLER = 4  # the handler could not be loaded or initialized
    INTERRUPTED = 130


class MarpackError(Exception):
    """An error: its message, its place and its remedy.

    `what` is one sentence without a full stop, `where` a path, `path: key`, `archive!member` or `file:line`. Without a
    `hint` and findings, the `fix` of the class is the hint. `findings` has all problems that `what` sums up. `code` is
    in kebab case, and replaces the class's own code if that is too general.
    """

    exit_code: ClassVar[ExitCode] = ExitCode.SHORT
    code: str = "error"
    fix: ClassVar[str | None] = None

    def __init__(
        self,
        what: str,
        *,
        where: str | None = None,
        hint: str | None = None,
        findings: tuple[Finding, ...] = (),
        code: str | None = None,
    ) -> None:
        super().__init__(what, where, hint)
        self.what = what
        self.where = where
        self.hint = hint or (None if findings else self.fix)
        self.findings = findings
        self.code = code or self.code

    def __reduce__(self) -> tuple[object, ...]:
        # Not by the constructors, which take other arguments.
        return copyreg.__newobj__, (type(self), *self.args), self.__dict__  # type: ignore[attr-defined]

    def __str__(self) -> str:
        return f"{self.where}: {self.what}" if self.where else self.what


class UsageError(MarpackError):
    """An option, an argument or a setting cannot be used."""

    exit_code = ExitCode.USAGE
    code = "usage"


class ClosedError(UsageError):
    """A model was used after it was closed."""

    code = "closed"
    fix = "Load the model again, and close it after its last use."


class DeviceUnavailableError(UsageError):
    """The device of --device is not available on this machine, or not supported by its torch."""

    code = "device-unavailable"
    fix = "Use --device cpu."


class ResumeMismatchError(UsageError):
    """A results file belongs to another run: another archive, other options, or other inputs."""

    code = "resume-mismatch"
    fix = "Name another file with --resume."


class ProjectError(MarpackError):
    """A project (marpack.yaml, or the options in its place) cannot become an archive; `findings` has all problems."""

    exit_code = ExitCode.USAGE
    code = "project"
    fix = "Edit the file that the message names, and build again."


class NoProjectError(ProjectError):
    """The folder has no marpack.yaml."""

    code = "no-project"
    fix = "Go to the project's folder, or start a project in this one: marpack init."


class OutputExistsError(ProjectError):
    """The output exists and may not be replaced."""

    code = "output-exists"
    fix = "Pass --force, or choose another output."


class BuildError(MarpackError):
    """An archive could not be written, although its plan was sound (disk full, file changed meanwhile)."""

    code = "build"
    fix = "Check the disk space and the permissions of the output folder, and do not change the sources during a build."


class ScaffoldError(MarpackError):
    """A project's files could not be written (disk full, no permission, a folder instead of a file)."""

    code = "scaffold"
    fix = "Check the disk space and the permissions, or choose another folder."


class MissingExtraError(UsageError):
    """An optional dependency is not installed."""

    code = "missing-extra"
    fix = "Install the extra that the message names."

    def __init__(self, package: str, extra: str, need: str) -> None:
        what = f"{need} needs the package {package}, which is not installed"
        super().__init__(what, hint=install_hint(extra))


class ArchiveError(MarpackError):
    """A file is not a readable, safe model archive."""

    exit_code = ExitCode.ARCHIVE
    code = "archive"
    fix = "Get the archive again from its source, or build it again: marpack build."


class NotAnArchiveError(ArchiveError):
    """The source is not a model archive of any form."""

    code = "not-an-archive"
    fix = "Name a .mar, a .tar.gz or a model folder. If the file should be an archive, fetch it again."


class UnsafeArchiveError(ArchiveError):
    """The archive holds a member that must not be extracted."""

    code = "unsafe-archive"
    fix = "Do not unpack it with other tools. Build it again from the sources."


class DamagedArchiveError(ArchiveError):
    """The archive is damaged: truncated, wrong CRC, wrong sizes."""

    code = "damaged-archive"
    fix = "Fetch or copy it again, and check both copies with marpack inspect --verify."


class LimitExceededError(ArchiveError):
    """The archive exceeds a limit: members, size or compression ratio."""

    code = "limit-exceeded"
    fix = "If you trust its source, raise the limit: --max-members, --max-size or --max-ratio."


class SignatureError(ArchiveError):
    """The signature does not match the archive, or the signer is not trusted; `findings` has all differences."""

    code = "signature"
    fix = "Do not deploy it. Get the archive and its signature again from the signer."


class ManifestError(ArchiveError):
    """MAR-INF/MANIFEST.json is missing or not valid."""

    code = "manifest"
    fix = "Build the archive again with marpack build, which writes a valid manifest."


class ExtractionError(MarpackError):
    """A sound archive could not be extracted (disk full, no permission, file exists)."""

    code = "extraction"
    fix = "Check the disk space and the permissions of the folder. To move the cache, set MARPACK_CACHE_DIR."


class OutputError(MarpackError):
    """Results could not be written (disk full, no permission)."""

    code = "output"
    fix = "Check the disk space and the permissions, or name another file or folder."


class TableError(MarpackError):
    """A table could not be read to its end (truncated, changed, missing)."""

    code = "table"
    fix = "Fix or fetch the table again, then resume: marpack score --resume."


class ClusterError(MarpackError):
    """A cluster, or a process of marpack on it, was lost."""

    code = "cluster"
    fix = "Check the memory and the logs of the nodes, then resume: marpack score --resume."


class InterruptError(MarpackError):
    """The command was interrupted: Ctrl-C, SIGTERM or SIGHUP."""

    exit_code = ExitCode.INTERRUPTED
    code = "interrupted"
    fix = "Run it again. To resume an interrupted run, use marpack run --resume FILE."


class HandlerError(MarpackError):
    """The archive's handler could not be loaded or initialized."""

    exit_code = ExitCode.HANDLER
    code = "handler"
    fix = "Fix the line of your file that the message names, and try it with marpack run --input FILE."


class WeightsError(HandlerError):
    """The weights have another format than the loader needs."""

    code = "weights"
    fix = "Save the weights in a format that the loader supports, and build again."


class TorchrunError(HandlerError):
    """The server starts several processes for the model with torchrun, and marpack starts one."""

    code = "torchrun-ranks"
    fix = "Run the model on a TorchServe server with enough GPUs."


class WorkerError(MarpackError):
    """The worker process could not be started, or the connection to it was lost."""

    exit_code = ExitCode.HANDLER
    code = "worker"
    fix = "Read the worker's last lines with --logs. Free memory, or raise --startup-timeout."


@contextmanager
def located(where: str) -> Iterator[None]:
    """Add the place to a MarpackError that has none."""
    try:
        yield
    except MarpackError as error:
        error.where = error.where or where
        raise


def describe_os_error(error: BaseException) -> str:
    """Return the reason of a failed file operation in the system's words, such as "Permission denied"."""
    return getattr(error, "strerror", None) or first_line(error)


def is_disk_full(error: BaseException) -> bool:
    """Return whether a file could not be written because the disk is full."""
    return isinstance(error, OSError) and error.errno in {errno.ENOSPC, errno.EDQUOT, errno.EFBIG}


@contextmanager
def convert_os_errors(
    kind: type[MarpackError],
    failure: str,
    *,
    where: str | None = None,
    hint: str | None = None,
    code: str | None = None,
) -> Iterator[None]:
    """Raise an OSError as an error of a kind: "the report cannot be written: Permission denied".

    `failure` is the first half of that sentence. Without `where`, it is the file that the system names; without `hint`,
    the remedy follows from the reason and the kind.
    """
    try:
        yield
    except OSError as error:
        if hint is None and is_disk_full(error):
            hint = "Free some space, or choose a folder on another disk."
        elif hint is None and error.errno in {errno.EMFILE, errno.ENFILE}:
            hint = "Raise the limit of open files: ulimit -n 65536"
        elif hint is None and issubclass(kind, UsageError | ProjectError):
            hint = "Check the path and its permissions."
        where = where or (None if error.filename is None else str(error.filename))
        raise kind(f"{failure}: {describe_os_error(error)}", where=where, hint=hint, code=code) from error


@contextmanager
def refuse_unusable_paths() -> Iterator[None]:
    """Turn an OSError about a path (too long, not permitted, removed) into a ProjectError; also a decorator."""
    try:
        yield
    except OSError as error:
        path = str(error.filename)
        where = path if len(path) <= 120 else f"{path[:60]}…{path[-40:]}"
        what, hint = f"a path cannot be used: {describe_os_error(error)}", "Use another path."
        raise ProjectError(what, where=where, hint=hint, code="unusable-path") from error


def nearest(text: str, names: Iterable[str], cutoff: float = 0.6) -> str | None:
    """Return the most similar name; neither a long text nor many names cost much."""
    import difflib  # noqa: PLC0415 - a misspelt name is rare

    few = islice(names, 500)  # comparing takes 10 µs each
    return next(iter(difflib.get_close_matches(text, few, n=1, cutoff=cutoff)), None) if len(text) <= 80 else None


def did_you_mean(text: str, names: Iterable[str], cutoff: float = 0.6) -> str | None:
    """Return a hint with the most similar name."""
    return f"Did you mean {found}?" if (found := nearest(text, names, cutoff)) else None


def printable(text: str, *, keep: str = "", stand_in: str | None = None) -> str:
    """Return a text with each control character, except those in `keep`, as its escape or as `stand_in`."""
    if text.isprintable():
        return text
    unsafe = {letter for letter in text if not letter.isprintable() and letter not in keep}
    escapes = {letter: letter.encode("unicode_escape").decode() if stand_in is None else stand_in for letter in unsafe}
    return "".join(escapes.get(letter, letter) for letter in text)


def shortened(text: str, most: int = 80) -> str:
    """Return a text on one line, with at most `most` characters."""
    line = " ".join(text.split())
    return line if len(line) <= most else f"{line[: most - 1]}…"


def join_names(names: Sequence[str], most: int = 8) -> str:
    """Return names in one line, the first of them and the number of the others."""
    more = f" and {len(names) - most:,} more" if len(names) > most else ""
    return ", ".join(names[:most]) + more


def pluralize(count: int, noun: str) -> str:
    """Return "1 sample", "2 samples"."""
    return f"{count:,} {noun}{'' if count == 1 else 's'}"


def first_line(error: BaseException, most: int = 200) -> str:
    """Return the first line of an error's message, shortened; its type's name if the message is empty."""
    return shortened(str(error).strip().partition("\n")[0], most) or type(error).__name__
