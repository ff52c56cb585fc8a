"""The model's requirements are met where its samples are about to be run."""

from marpack.gate.candidate import Candidate
from marpack.gate.verdicts import CheckOutcome, judged, skipped
from marpack.runner.environments import count_requirements, unmet


def run(candidate: Candidate) -> CheckOutcome:
    """Compare the packed requirements with the installed packages."""
    count = count_requirements(candidate.archive)
    if not count:
        return skipped("the archive has no requirements")
    return judged(tuple(unmet(candidate.archive)), f"{count} requirements")
