"""What a look at a project or an archive finds: one fact with a code, a place and a way out."""

from enum import StrEnum

from msgspec import Struct


class Severity(StrEnum):
    """How much a finding weighs; errors stop a build, warnings do so under `--strict`."""

    ERROR = "error"
    WARNING = "warning"
    NOTE = "note"


class Finding(Struct, frozen=True, kw_only=True, omit_defaults=True):
    """One thing found, as data; renderers print it, commands turn it into an exit code."""

    code: str  # kebab-case, stable: "handler-syntax", "labels-gap"
    severity: Severity
    message: str  # one sentence without a final full stop
    where: str | None = None  # path, path:line, path: key, archive!member
    hint: str | None = None  # the command or the edit that mends it
