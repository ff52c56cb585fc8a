"""`inspect`, `check` and `serve` agree on the attacker's corpus: none of them accepts a payload."""

import json
import zipfile
from contextlib import suppress
from pathlib import Path

import pytest
from inspection.payloads import Payload, payloads

from marpack.archive.reader import open_archive
from marpack.errors import ArchiveError
from marpack.gate.candidate import Candidate, CheckOptions
from marpack.gate.check import check, select_checks
from marpack.gate.verdicts import GateVerdict
from marpack.inspection.inspect import inspect
from marpack.inspection.pickles import PickleVerdict
from marpack.project.source import ResolvedSource
from marpack.serving.loading import AdmissionRules

MANIFEST = {"runtime": "python", "model": {"modelName": "probe", "modelVersion": "1.0", "handler": "handler.py"}}
HANDLER = "def handle(data, context):\n    return data and ['']\n"


def pack(payload: Payload, path: Path) -> Path:
    """Write an archive as torch-model-archiver does, with the payload as a further file."""
    members = {"handler.py": HANDLER.encode(), payload.member: payload.make(), **payload.files}
    with zipfile.ZipFile(path, "w") as archive:
        for name, content in members.items():
            archive.writestr(name, content)
        archive.writestr("MAR-INF/MANIFEST.json", json.dumps(MANIFEST))
    return path


def accepting(path: Path) -> set[str]:
    """Return the commands that accept an archive, which some refuse to open for a member's name."""
    found = set()
    with suppress(ArchiveError), open_archive(path) as archive:
        if inspect(archive).pickles.verdict is PickleVerdict.SAFE:
            found.add("inspect")
    with suppress(ArchiveError), open_archive(path) as archive:
        AdmissionRules(require_safe=True).check(archive)
        found.add("serve")
    with Candidate(ResolvedSource(path=path), CheckOptions()) as candidate:
        if check(candidate, select_checks(["pickles"])).verdict is not GateVerdict.REFUSED:
            found.add("check")
    return found


@pytest.mark.parametrize("step", [40, pytest.param(4, marks=pytest.mark.nightly)])
def test_no_command_accepts_a_payload(tmp_path: Path, step: int) -> None:
    commands = {name: accepting(pack(payloads()[name], tmp_path / "probe.mar")) for name in sorted(payloads())[::step]}
    assert {name: accepted for name, accepted in commands.items() if accepted} == {}


def test_each_command_accepts_what_is_honest(tmp_path: Path) -> None:
    honest = Payload(b"owl\ndog\n", "labels.txt", lambda path: None)
    assert accepting(pack(honest, tmp_path / "probe.mar")) == {"inspect", "check", "serve"}
