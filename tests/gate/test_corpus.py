"""`inspect`, `check` and `serve` agree on the attacker's corpus: none of them accepts a payload."""

from contextlib import suppress
from pathlib import Path

import pytest
from gate.archives import examine
from inspection.payloads import Payload, payloads
from serving.served import pack

from marpack.archive.reader import open_archive
from marpack.errors import ArchiveError
from marpack.gate.check import select_checks
from marpack.gate.verdicts import GateVerdict
from marpack.inspection.inspect import inspect
from marpack.inspection.pickles import PickleVerdict
from marpack.serving.loading import AdmissionRules

HANDLER = "def handle(data, context):\n    return data and ['']\n"


def accepting(path: Path) -> set[str]:
    """Return the commands that accept an archive, which some refuse to open for a member's name."""
    found = set()
    with suppress(ArchiveError), open_archive(path) as archive:
        if inspect(archive).pickles.verdict is PickleVerdict.SAFE:
            found.add("inspect")
    with suppress(ArchiveError), open_archive(path) as archive:
        AdmissionRules(require_safe=True).check(archive)
        found.add("serve")
    report = examine(path, choice=select_checks(["pickles"]))
    noted = {finding.code for check in report.checks for finding in check.findings}
    if report.verdict is not GateVerdict.REFUSED and "program" not in noted:  # a program is the author's code
        found.add("check")
    return found


def packed(payload: Payload, folder: Path) -> Path:
    """Write an archive as torch-model-archiver does, with the payload as a further file."""
    return pack(folder, "probe.mar", HANDLER, files={payload.member: payload.make(), **payload.files})


@pytest.mark.parametrize("step", [40, pytest.param(4, marks=pytest.mark.slow)])
def test_no_command_accepts_a_payload(tmp_path: Path, step: int) -> None:
    commands = {name: accepting(packed(payloads()[name], tmp_path)) for name in sorted(payloads())[::step]}
    assert {name: accepted for name, accepted in commands.items() if accepted} == {}


def test_each_command_accepts_an_honest_file(tmp_path: Path) -> None:
    honest = Payload(b"owl\ndog\n", "labels.txt", lambda path: None)
    assert accepting(packed(honest, tmp_path)) == {"inspect", "check", "serve"}
