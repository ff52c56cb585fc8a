"""The JSON of a command that failed. `main` writes it on every system, also where no worker can run."""

from typing import Self

from msgspec import Struct

from marpack.errors import MarpackError
from marpack.findings import Finding
from marpack.protocol.messages import Trouble


class Failure(Struct, frozen=True, kw_only=True, omit_defaults=True):
    """The result of any command's --json if the command failed."""

    error: str  # a sentence, with its place
    code: str
    exit_code: int
    where: str | None = None
    hint: str | None = None
    findings: tuple[Finding, ...] = ()  # that the error sums up
    archive: str | None = None  # of a run
    status: int | None = None  # that a server's clients get from a handler that could not be loaded
    trouble: Trouble | None = None  # of the handler
    logs: str = ""  # what the handler printed

    @classmethod
    def of(cls, error: BaseException, archive: str | None = None) -> Self:
        """Return the result for an error; one outside of marpack's own tree is a bug."""
        if not isinstance(error, MarpackError):
            what = f"marpack itself failed, which is a bug: {type(error).__name__}: {error}"
            error = MarpackError(what, hint="Report it with its traceback.")
        return cls(
            error=str(error),
            code=error.code,
            exit_code=error.exit_code,
            where=error.where,
            hint=error.hint,
            findings=error.findings,
            archive=archive,
            status=getattr(error, "status", None),
            trouble=getattr(error, "trouble", None),
            logs=getattr(error, "logs", ""),
        )
