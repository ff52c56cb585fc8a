"""The static checks on a plan's members, before anything is written, told in the author's own terms."""

import io
from collections.abc import Iterable, Mapping
from typing import BinaryIO

import msgspec

from marpack.archive.protocol import MANIFEST_NAME
from marpack.findings import Finding, Severity
from marpack.inspection.lint import lint
from marpack.packing.plan import Plan
from marpack.torchserve.targets import Target

# What stands in the archive (a member, `member:line`, a key of the manifest) → where the author wrote it.
Places = Mapping[str, str]


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


def preflight(plan: Plan, places: Places, found: Iterable[Finding]) -> list[Finding]:
    """Return what the members' content gives rise to.

    Args:
        plan: What is to be written.
        places: Where the author wrote what goes into the archive.
        found: The findings so far; where one of them is an error already, nothing is added.
    """
    wrong = {finding.where for finding in found if finding.severity is Severity.ERROR}
    checked = lint(PlanView(plan), plan.manifest, target=Target(plan.target))
    told = [msgspec.structs.replace(finding, where=_told(finding.where, places)) for finding in checked]
    return [finding for finding in told if finding.where not in wrong]


def manifest_place(key: str) -> str:
    """Return how the static checks name a key of the manifest."""
    return f"{MANIFEST_NAME}: {key}"


def _told(where: str | None, places: Places) -> str | None:
    """Return a place in the archive as the author knows it: the longest part of it that is known, translated."""
    known, rest = where or "", ""
    while known and known not in places:
        known, colon, last = known.rpartition(":")
        rest = f"{colon}{last}{rest}"
    return f"{places[known]}{rest}" if known else where
