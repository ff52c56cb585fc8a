"""The one rooted tree of everything marpack raises: what, where, hint and the process's exit code."""

from __future__ import annotations

import errno
from contextlib import contextmanager
from enum import IntEnum
from itertools import islice
from typing import TYPE_CHECKING, ClassVar

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator

    from marpack.findings import Finding


class ExitCode(IntEnum):
    """What marpack's processes end with, the same for every command."""

    OK = 0
    SHORT = 1  # something fell short: an input failed, a finding, a sample missed
    USAGE = 2  # the command line or the project file
    ARCHIVE = 3  # not a readable, safe archive
    HANDLER = 4  # the handler could not be loaded or initialised
    INTERRUPTED = 130


class MarpackError(Exception):
    """An error: what is wrong, where, and what to do.

    Args:
        what: One sentence, without a full stop of its own at the end.
        where: A path, `path: key`, `archive!member` or `file:line`.
        hint: The command or edit that fixes it.
        findings: Every problem that `what` sums up, where it sums up several.
        code: The cause in kebab case, where the class's own code is too general to tell it from others.
    """

    exit_code: ClassVar[ExitCode] = ExitCode.SHORT
    code: str = "error"
    fix: ClassVar[str] = ""  # the way out where no hint names a nearer one

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
        self.hint = hint
        self.findings = findings
        if code is not None:
            self.code = code

    def __reduce__(self) -> tuple[object, ...]:
        # Not by the constructors, which take other arguments.
        return _restored, (type(self), self.args), self.__dict__

    def __str__(self) -> str:
        place = f"{self.where}: " if self.where else ""
        return f"{place}{self.what}"


def _restored(kind: type[MarpackError], args: tuple[object, ...]) -> MarpackError:
    return kind.__new__(kind, *args)


class UsageError(MarpackError):
    """The command line asks for something that cannot be done."""

    exit_code = ExitCode.USAGE
    code = "usage"
    fix = "Read what the command takes: marpack COMMAND --help."


class ClosedError(UsageError):
    """A model was used after it was closed."""

    code = "closed"
    fix = "Load the model again, and close it after its last use."


class DeviceUnavailableError(UsageError):
    """The device that --device names is not available on this machine, or not to its torch."""

    code = "device-unavailable"
    fix = "Use --device cpu."


class ResumeMismatchError(UsageError):
    """A results file belongs to another run: another archive, other options, or other inputs."""

    code = "resume-mismatch"
    fix = "Name another file with --resume."


class ProjectError(MarpackError):
    """A project (marpack.yaml, or the flags in its place) cannot become an archive.

    `findings` holds every problem found in one go; `what` sums them up.
    """

    exit_code = ExitCode.USAGE
    code = "project"
    fix = "Edit marpack.yaml, or the file that is named, as each finding's hint says; then build again."


class NoProjectError(ProjectError):
    """The folder has no marpack.yaml."""

    code = "no-project"
    fix = "Go to the project's folder, or make one of this folder: marpack init."


class OutputExistsError(ProjectError):
    """The output exists and may not be replaced."""

    code = "output-exists"
    fix = "Pass --force, or choose another output."


class BuildError(MarpackError):
    """An archive could not be written, although its plan was sound (disk full, file changed meanwhile)."""

    code = "build"
    fix = "Make room or give permission where the output goes; leave the sources alone while it is written."


class ScaffoldError(MarpackError):
    """A project's files could not be written (disk full, no permission, something in their place)."""

    code = "scaffold"
    fix = "Make room or give permission there, or choose another folder."


class MissingExtraError(UsageError):
    """An optional dependency is not installed."""

    code = "missing-extra"
    fix = "Install the extra that the hint names."

    def __init__(self, package: str, extra: str, need: str) -> None:
        super().__init__(
            f"{need} needs the package {package}, which is not installed",
            hint=f"pip install 'marpack[{extra}]'",
        )


class UnconfirmedDownloadError(UsageError):
    """A large download, or one of unknown size, was not confirmed."""

    code = "download-unconfirmed"
    fix = "Confirm the download with --yes, or on a terminal."


class ArchiveError(MarpackError):
    """Something is not a readable, safe model archive."""

    exit_code = ExitCode.ARCHIVE
    code = "archive"
    fix = "Get the archive again from whoever made it, or build it again: marpack build."


class NotAnArchiveError(ArchiveError):
    """The source is not a model archive of any form."""

    code = "not-an-archive"
    fix = "Name a .mar, a .tar.gz or a model folder; fetch it again if it should be one."


class UnsafeArchiveError(ArchiveError):
    """The archive holds a member that must not be extracted."""

    code = "unsafe-archive"
    fix = "Do not unpack it with other tools. Ask whoever made it, and build it again from the sources."


class DamagedArchiveError(ArchiveError):
    """The archive's bytes contradict themselves: truncated, wrong CRC, wrong sizes."""

    code = "damaged-archive"
    fix = "Fetch or copy it again; compare marpack inspect --verify at both ends."


class LimitExceededError(ArchiveError):
    """The archive is larger, in some respect, than the limits in force."""

    code = "limit-exceeded"
    fix = "If you trust where it comes from, raise the limit: --max-members, --max-size or --max-ratio."


class SignatureError(ArchiveError):
    """The signature does not match the archive, or the signer is not trusted.

    `findings` holds every difference found; `what` sums them up.
    """

    code = "signature"
    fix = "Do not deploy it. Get the archive and its signature again from whoever signed it."


class ManifestError(ArchiveError):
    """MAR-INF/MANIFEST.json is missing or not what the format asks for."""

    code = "manifest"
    fix = "Build the archive again: marpack build writes a manifest that the server takes."


class ExtractionError(MarpackError):
    """A sound archive could not be extracted (disk full, no permission, file exists)."""

    code = "extraction"
    fix = "Make room or give permission where it is extracted to; MARPACK_CACHE_DIR moves the cache."


class OutputError(MarpackError):
    """Results could not be written (disk full, no permission)."""

    code = "output"
    fix = "Make room or give permission there, or name another place."


class RegistryError(MarpackError):
    """A registry could not be reached, broke off, or does not let one in."""

    code = "registry"
    fix = "Check the address and the login (docker login HOST), and try it again."


class TableError(MarpackError):
    """A table could not be read to its end (truncated, changed meanwhile, gone)."""

    code = "table"
    fix = "Mend or fetch the table again; marpack score --resume goes on behind the parts that are whole."


class ClusterError(MarpackError):
    """A cluster, or a process of ours on it, was lost."""

    code = "cluster"
    fix = "Look at the nodes' memory and logs; marpack score --resume goes on behind the parts that are whole."


class InterruptError(MarpackError):
    """The command was interrupted: Ctrl-C, SIGTERM or SIGHUP."""

    exit_code = ExitCode.INTERRUPTED
    code = "interrupted"
    fix = "Run it again; marpack run --resume FILE goes on where a run broke off."


class HandlerError(MarpackError):
    """The archive's handler could not be loaded or initialised."""

    exit_code = ExitCode.HANDLER
    code = "handler"
    fix = "Mend the line of your file that the message names; try it with marpack run --input FILE."


class WeightsError(HandlerError):
    """The weights are not what their use needs."""

    code = "weights"
    fix = "Save the weights in the format that the hint names, and build again."


class TorchrunError(HandlerError):
    """The server starts several processes for the model with torchrun, and marpack starts one."""

    code = "torchrun-ranks"
    fix = "Run the model on a TorchServe server that has the GPUs that it needs."


class WorkerError(MarpackError):
    """The worker process could not be started or talked to."""

    exit_code = ExitCode.HANDLER
    code = "worker"
    fix = "Look into the worker's last lines with --logs; free memory, or raise --startup-timeout."


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
    """Return whether a file could not be written for want of space."""
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
    """Raise an OSError as an error of the given kind: "the report cannot be written: Permission denied".

    Args:
        kind: The error's class.
        failure: What failed, as the first half of a sentence.
        where: The file or folder; by default the one that the system names.
        hint: What to do about it; by default what helps with a full disk or too many open files.
        code: The error's code, if it is not the class's.
    """
    try:
        yield
    except OSError as error:
        if hint is None and is_disk_full(error):
            hint = "free some space, or choose a folder on another disk"
        elif hint is None and error.errno in {errno.EMFILE, errno.ENFILE}:
            hint = "raise the limit of open files: ulimit -n 65536"
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
        raise ProjectError(
            f"a path cannot be used: {describe_os_error(error)}", where=where, code="unusable-path"
        ) from error


def nearest(text: str, names: Iterable[str], cutoff: float = 0.6) -> str | None:
    """Return the name that a misspelt one probably means; neither a long text nor many names cost much."""
    import difflib  # noqa: PLC0415 - only who has misspelt a name waits for it

    few = islice(names, 500)  # comparing takes 10 µs each
    return next(iter(difflib.get_close_matches(text, few, n=1, cutoff=cutoff)), None) if len(text) <= 80 else None


def did_you_mean(text: str, names: Iterable[str], cutoff: float = 0.6) -> str | None:
    """Return a hint with the name that was probably meant."""
    found = nearest(text, names, cutoff)
    return f"did you mean {found}?" if found else None


def printable(text: str, *, keep: str = "", stand_in: str | None = None) -> str:
    """Return a text of unknown origin without characters that a terminal obeys.

    Each becomes its escape, or `stand_in`; the characters in `keep` stay.
    """
    if text.isprintable():
        return text
    return "".join(
        letter
        if letter.isprintable() or letter in keep
        else (letter.encode("unicode_escape").decode() if stand_in is None else stand_in)
        for letter in text
    )


def shortened(text: str, most: int = 80) -> str:
    """Return a text on one line, and of so many characters at most."""
    line = " ".join(text.split())
    return line if len(line) <= most else f"{line[: most - 1]}…"


def first_line(error: BaseException, most: int = 200) -> str:
    """Return the first line of what an error says, shortened; its type's name where it says nothing."""
    return shortened(str(error).strip().partition("\n")[0], most) or type(error).__name__
