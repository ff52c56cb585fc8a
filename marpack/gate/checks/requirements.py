"""The model's requirements are met where its samples are about to be run."""

from marpack.gate.requirements import unmet
from marpack.gate.subject import Subject
from marpack.gate.verdicts import Outcome, failed, passed, skipped


def run(subject: Subject) -> Outcome:
    """Compare the packed requirements with the installed packages."""
    lines = subject.inspection.requirements
    if not lines:
        return skipped("the archive has no requirements")
    name = subject.archive.manifest.model.requirements_file or "requirements.txt"
    problems = list(unmet(lines, file=f"{subject.archive.source}!{name}"))
    return failed(*problems) if problems else passed(f"{len(lines)} requirements")
