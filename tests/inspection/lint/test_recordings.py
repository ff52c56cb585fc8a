"""The static checks against what a real TorchServe 0.12 was seen to answer, probe by probe."""

from pathlib import Path

from conformance.archives import pack
from conformance.probe import Probe
from conformance.probes.catalogue import PROBES
from conformance.recording import Recording, load

from marpack.archive.reader import open_archive
from marpack.errors import ArchiveError
from marpack.findings import Severity
from marpack.inspection.lint.linting import lint

# The server refuses these, or answers every request with a 503, for reasons that only running them shows.
UNSEEN = {
    "entry-initialize-raises", "entry-initialize-runtime-error", "entry-initialize-memory",
    "entry-initialize-cuda", "entry-initialize-cuda-value-error", "entry-initialize-exits", "entry-initialize-kills",
    "entry-function-raises-at-start", "classifier-few-classes",
}  # fmt: skip
# How the server was set up, how many requests came at once, what they have the handler do: not what the archive holds.
ELSEWHERE = {
    "text-batch", "envelope-kserve-batch", "envelope-kservev2-batch", "streams-foreign-id",
    "streams-ended-early-code-500", "streams-ended-early-unserialisable", "streams-ended-early-unserialisable-caught",
}  # fmt: skip


def severities(probe: Probe, folder: Path) -> set[Severity] | None:
    """Return how much the findings weigh; None for an archive that is refused before anyone looks into it."""
    try:
        with open_archive(pack(probe, folder)) as archive:
            return {finding.severity for finding in lint(archive, archive.manifest)}
    except ArchiveError:
        return None


def failing(recording: Recording) -> set[bool]:
    """Return whether the server failed, at registering or else at each request."""
    if recording.registered.status != 200:
        return {True}
    return {reply.status >= 500 for reply in recording.replies.values()}


def test_an_error_is_what_the_server_was_seen_to_fail_at(tmp_path: Path) -> None:
    wrong, compared = [], 0
    for probe in PROBES:
        recording, folder = load(probe), tmp_path / probe.name
        folder.mkdir()
        found = severities(probe, folder)
        if recording is None or found is None or not failing(recording):
            continue
        compared += 1
        if Severity.ERROR in found:
            agrees = True in failing(recording)
        else:
            agrees = failing(recording) != {True} or bool(found) is (probe.name not in UNSEEN | ELSEWHERE)
        if not agrees:
            wrong.append(probe.name)
    assert wrong == []
    assert compared > 200
