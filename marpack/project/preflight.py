"""The static checks on a plan's members, before anything is written."""

import io
from collections.abc import Iterable
from typing import BinaryIO

from marpack.findings import Finding, Severity
from marpack.packing.plan import Plan


class PlanView:
    """A plan's members by name (the MemberView of `marpack.inspection.lint`)."""

    def __init__(self, plan: Plan) -> None:
        self._sources = {member.name: member.source for member in plan.members}

    def names(self) -> Iterable[str]:
        """Return every member's name."""
        return self._sources.keys()

    def open(self, name: str) -> BinaryIO:
        """Open one member for reading; raises KeyError, OSError."""
        source = self._sources[name]
        return io.BytesIO(source) if isinstance(source, bytes) else source.open("rb")


def preflight(plan: Plan, found: Iterable[Finding]) -> list[Finding]:
    """Return what the members' content gives rise to; nothing while members are missing.

    Args:
        plan: What is to be written.
        found: The findings so far.
    """
    if any(finding.severity is Severity.ERROR for finding in found):
        return []
    return []
