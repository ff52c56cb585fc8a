"""The manifest can be read, and what it names is in the archive."""

from marpack.archive.protocol import require_files
from marpack.errors import ManifestError
from marpack.gate.candidate import Candidate
from marpack.gate.verdicts import CheckOutcome, error_problem, failed, passed


def run(candidate: Candidate) -> CheckOutcome:
    """Read the manifest, and look for the files that it names."""
    archive = candidate.archive
    try:
        manifest = archive.manifest
        require_files(archive)
    except ManifestError as error:
        return failed(error_problem(error))
    model = manifest.model
    return passed(f"{model.name} {model.version or '(no version)'}, handler {model.handler}")
