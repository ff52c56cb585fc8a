"""Problems found in a project or an archive: a code, a severity, a place and a hint."""

from enum import StrEnum

from msgspec import Struct
from msgspec.structs import replace


class Severity(StrEnum):
    """How serious a finding is; errors stop a build, warnings do so under `--strict`."""

    ERROR = "error"
    WARNING = "warning"
    NOTE = "note"


class Finding(Struct, frozen=True, kw_only=True, omit_defaults=True):
    """One problem, as data; renderers print it, commands turn it into an exit code."""

    code: str  # kebab-case, stable: "handler-syntax", "labels-gap"
    severity: Severity
    message: str  # one sentence without a final full stop
    where: str | None = None  # path, path:line, path: key, archive!member
    hint: str | None = None  # the command or the edit that solves it


class Code(Struct, frozen=True):
    """One kind of finding: a row of `marpack.finding_codes`."""

    name: str  # never changed once published
    severity: Severity  # the usual one
    message: str  # one sentence without a final full stop; {names} are placeholders
    hint: str  # a sentence in the imperative

    def at(
        self,
        where: str | None = None,
        /,
        *,
        severity: Severity | None = None,
        hint: str | None = None,
        **values: object,
    ) -> Finding:
        """Return a finding of this kind, with `values` in the message's placeholders."""
        return Finding(
            code=self.name,
            severity=severity or self.severity,
            message=self.message.format(**values),
            where=where,
            hint=hint or self.hint or None,
        )

    def saying(self, message: str, hint: str | None = None) -> "Code":
        """Return the same kind of finding with another message."""
        return replace(self, message=message, hint=hint or self.hint)
