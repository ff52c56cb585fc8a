"""The model's requirements are met where its samples are about to be run."""

from marpack.gate.candidate import Subject
from marpack.gate.verdicts import Outcome, judged, skipped
from marpack.runner.environments import unmet, wanted


def run(subject: Subject) -> Outcome:
    """Compare the packed requirements with the installed packages."""
    count = wanted(subject.archive)
    if not count:
        return skipped("the archive has no requirements")
    return judged(tuple(unmet(subject.archive)), f"{count} requirements")
