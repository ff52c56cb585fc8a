"""A finding's code, which every rule declares for itself; and the name that was probably meant."""

from collections.abc import Iterable

from msgspec import Struct

from marpack.errors import did_you_mean
from marpack.findings import Finding, Severity


class Code(Struct, frozen=True):
    """One thing that static checks can find; `docs/findings.md` is printed from all of these."""

    name: str  # kebab-case, never changed once published
    cause: str  # a sentence: what stands in the archive, and what the server makes of it
    fix: str  # a sentence in the imperative; the finding's hint where it has none of its own

    def weigh(self, severity: Severity, message: str, where: str | None = None, hint: str | None = None) -> Finding:
        """Return a finding of this code."""
        return Finding(code=self.name, severity=severity, message=message, where=where, hint=hint or self.fix)

    def error(self, message: str, where: str | None = None, hint: str | None = None) -> Finding:
        """Return a finding under which the server certainly fails."""
        return self.weigh(Severity.ERROR, message, where, hint)

    def warning(self, message: str, where: str | None = None, hint: str | None = None) -> Finding:
        """Return a finding under which something probably is not as its author means it."""
        return self.weigh(Severity.WARNING, message, where, hint)

    def note(self, message: str, where: str | None = None, hint: str | None = None) -> Finding:
        """Return a finding that is worth knowing and may well be meant."""
        return self.weigh(Severity.NOTE, message, where, hint)


def suggestion(text: str, names: Iterable[str]) -> str | None:
    """Return a hint that names what was probably meant."""
    return did_you_mean(text, names, cutoff=0.7)
