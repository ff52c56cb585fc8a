"""The manifest can be read, and what it names is in the archive."""

from marpack.errors import ManifestError
from marpack.gate.subject import Subject
from marpack.gate.verdicts import Outcome, failed, passed, problem


def run(subject: Subject) -> Outcome:
    """Read the manifest and look for the files it names."""
    try:
        model = subject.archive.manifest.model
    except ManifestError as error:
        return failed(problem(error.code, error.what, where=error.where, hint=error.hint))
    named = {
        "serializedFile": model.serialized_file,
        "modelFile": model.model_file,
        "requirementsFile": model.requirements_file,
        "configFile": model.config_file,
    }
    missing = [
        problem(
            "manifest-names-missing-file",
            f"the manifest's {key} is {name}, which is not in the archive",
            where=f"{subject.archive.source}!MAR-INF/MANIFEST.json: model.{key}",
            hint="pack the file, or take the key out",
        )
        for key, name in named.items()
        if name and name not in subject.archive.entries
    ]
    return failed(*missing) if missing else passed(f"{model.name} {model.version or ''}, handler {model.handler}")
