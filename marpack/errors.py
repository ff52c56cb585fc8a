"""The one rooted tree of everything marpack raises: what, where, hint and the process's exit code."""

from __future__ import annotations

from contextlib import contextmanager
from enum import IntEnum
from typing import TYPE_CHECKING, ClassVar

if TYPE_CHECKING:
    from collections.abc import Iterator

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
    """Say what went wrong, where, and what to do about it.

    Args:
        what: One sentence, without a full stop of its own at the end.
        where: A path, `path: key`, `archive!member` or `file:line`.
        hint: The command or edit that mends it.
    """

    exit_code: ClassVar[ExitCode] = ExitCode.SHORT
    code: ClassVar[str] = "error"

    def __init__(self, what: str, *, where: str | None = None, hint: str | None = None) -> None:
        super().__init__(what, where, hint)
        self.what = what
        self.where = where
        self.hint = hint

    def __str__(self) -> str:
        place = f"{self.where}: " if self.where else ""
        return f"{place}{self.what}"


class UsageError(MarpackError):
    """The command line asks for something that cannot be done."""

    exit_code = ExitCode.USAGE
    code = "usage"


class ProjectError(MarpackError):
    """A project (marpack.yaml, or the flags in its place) cannot become an archive.

    `findings` holds every problem found in one go; `what` sums them up.
    """

    exit_code = ExitCode.USAGE
    code = "project"

    def __init__(
        self,
        what: str,
        *,
        where: str | None = None,
        hint: str | None = None,
        findings: tuple[Finding, ...] = (),
    ) -> None:
        super().__init__(what, where=where, hint=hint)
        self.findings = findings


class NoProjectError(ProjectError):
    """There is no marpack.yaml where one was expected."""

    code = "no-project"


class OutputExistsError(ProjectError):
    """The output is there already and may not be replaced."""

    code = "output-exists"


class BuildError(MarpackError):
    """An archive could not be written, although its plan was sound (disk full, file changed meanwhile)."""

    code = "build"


class ScaffoldError(MarpackError):
    """A project's files could not be written (disk full, no permission, something in their place)."""

    code = "scaffold"


class MissingExtraError(UsageError):
    """An optional dependency is not installed."""

    code = "missing-extra"

    def __init__(self, package: str, extra: str, need: str) -> None:
        super().__init__(
            f"{need} needs the package {package}, which is not installed",
            hint=f"pip install 'marpack[{extra}]'",
        )


class ArchiveError(MarpackError):
    """Something is not a readable, safe model archive."""

    exit_code = ExitCode.ARCHIVE
    code = "archive"


class NotAnArchiveError(ArchiveError):
    """The source is none of the forms of a model archive."""

    code = "not-an-archive"


class UnsafeArchiveError(ArchiveError):
    """The archive holds a member that must not be extracted."""

    code = "unsafe-archive"


class DamagedArchiveError(ArchiveError):
    """The archive's bytes contradict themselves: truncated, wrong CRC, lying sizes."""

    code = "damaged-archive"


class LimitExceededError(ArchiveError):
    """The archive is larger, in some respect, than the limits in force."""

    code = "limit-exceeded"


class ManifestError(ArchiveError):
    """MAR-INF/MANIFEST.json is missing or not what the format asks for."""

    code = "manifest"


class ExtractionError(MarpackError):
    """A sound archive could not be extracted (disk full, no permission, something is there already)."""

    code = "extraction"


class OutputError(MarpackError):
    """Results could not be written where they were asked for (disk full, no permission)."""

    code = "output"


class HandlerError(MarpackError):
    """The archive's handler could not be loaded or initialised."""

    exit_code = ExitCode.HANDLER
    code = "handler"


class WeightsError(HandlerError):
    """The weights are not what their use needs."""

    code = "weights"


class WorkerError(MarpackError):
    """The worker process could not be started or talked to."""

    exit_code = ExitCode.HANDLER
    code = "worker"


@contextmanager
def located(where: str) -> Iterator[None]:
    """Tell where an error of ours happened, unless it knows better."""
    try:
        yield
    except MarpackError as error:
        error.where = error.where or where
        raise
