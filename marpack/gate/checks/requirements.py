"""The model's requirements are met where its samples are about to be run."""

from marpack.gate.candidate import Candidate
from marpack.gate.verdicts import CheckOutcome, judged, passed, skipped
from marpack.runner.environments import count_requirements, unmet


def run(candidate: Candidate) -> CheckOutcome:
    """Compare the packed requirements with the installed packages, or install them."""
    count = count_requirements(candidate.archive)
    if not count:
        return skipped("the archive has no requirements")
    if candidate.options.python is not None and candidate.archive.manifest.model.requirements_file:
        _ = candidate.python
        return passed(f"{count} requirements, installed in an environment of their own")
    return judged(tuple(unmet(candidate.archive)), f"{count} requirements")
