"""The manifest can be read, and what it names is in the archive."""

from marpack.archive.server_rules import require_files
from marpack.errors import ManifestError
from marpack.gate.candidate import Subject
from marpack.gate.verdicts import Outcome, error_problem, failed, passed


def run(subject: Subject) -> Outcome:
    """Read the manifest, and look for the files that it names."""
    archive = subject.archive
    try:
        manifest = archive.manifest
        require_files(archive, manifest)
    except ManifestError as error:
        return failed(error_problem(error))
    model = manifest.model
    return passed(f"{model.name} {model.version or '(no version)'}, handler {model.handler}")
