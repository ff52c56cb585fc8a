"""The check `hermetic`: only where it is asked for, and a yes only of what was asked and seen."""

import socket
from pathlib import Path
from typing import Any

import pytest
from gate.archives import HANDLER, archive, examine, failures, project

from marpack.errors import UsageError
from marpack.gate.check import CheckSelection
from marpack.gate.process import is_allowed
from marpack.gate.verdicts import GateReport, GateVerdict, Verdict
from marpack.project.schema import HERMETIC, PROOF, Allowance
from marpack.protocol.messages import Access, Touched
from marpack.runner.pool import PoolSettings

READS = HANDLER.replace("        folder =", "        open('/etc/passwd').close()\n        folder =")
DIES = HANDLER.replace("return [self", "len(data) > 1 and os._exit(1)\n        return [self")
HERMETIC_ONLY = CheckSelection.of(only=[HERMETIC])


def outcome(report: GateReport) -> tuple[Verdict, str, list[str]]:
    (checked,) = (each for each in report.checks if each.name == HERMETIC)
    findings = [f"{each.severity} {each.code}: {each.message}" for each in checked.findings]
    return checked.verdict, checked.reason, findings


def test_nobody_misses_it_who_did_not_ask_for_it(tmp_path: Path):
    report = examine(archive(tmp_path / "p", READS))
    assert HERMETIC not in {checked.name for checked in report.checks}
    assert (report.verdict, report.reservations) == (GateVerdict.DEPLOYABLE, ())


def test_what_needs_nothing_passes(tmp_path: Path):
    report = examine(archive(tmp_path / "p"), choice=CheckSelection.of(further=[HERMETIC]))
    verdict, reason, findings = outcome(report)
    assert (report.verdict, verdict, findings) == (GateVerdict.DEPLOYABLE, Verdict.PASSED, [])
    assert "native code" in reason  # the tests' workers are forked, so its connections were not cut off


def test_what_is_not_packed_fails(tmp_path: Path):
    report = examine(archive(tmp_path / "p", READS), choice=HERMETIC_ONLY)
    verdict, _, findings = outcome(report)
    assert (report.verdict, verdict) == (GateVerdict.REFUSED, Verdict.FAILED)
    assert findings == ["error not-hermetic: the handler accesses /etc/passwd (read, in initialize)"]


def test_a_project_may_allow_it_and_the_report_says_so(tmp_path: Path):
    source = project(tmp_path / "p", READS, hermetic={"read": ["/etc/pass*"]})
    report = examine(source, choice=CheckSelection.of(further=[HERMETIC]))
    verdict, _, findings = outcome(report)
    assert (report.verdict, verdict) == (GateVerdict.DEPLOYABLE, Verdict.PASSED)
    assert findings == [
        "note allowed-need: the handler accesses /etc/passwd (read, in initialize), as marpack.yaml allows"
    ]
    (reservation,) = report.reservations
    assert {"marpack.yaml", "read", "/etc/pass*"} <= set(reservation.split())


def test_an_archive_does_not_vouch_for_itself(tmp_path: Path):
    report = examine(archive(tmp_path / "p", READS, hermetic={"read": ["/etc/passwd"]}), choice=HERMETIC_ONLY)
    assert failures(report) == {HERMETIC: ["not-hermetic"]}


def test_without_a_proof_there_is_no_yes(tmp_path: Path):
    source = project(tmp_path / "p", samples={}, checks={PROOF: "warning"})
    report = examine(source, choice=CheckSelection.of(further=[HERMETIC]), stand_ins="off")
    assert failures(report)[HERMETIC] == ["nothing-asked"]
    assert not report.deployable


def test_where_the_proof_is_missing_that_is_what_is_said(tmp_path: Path):
    report = examine(archive(tmp_path / "p", samples={}), choice=HERMETIC_ONLY, stand_ins="off")
    assert failures(report) == {PROOF: ["no-inputs"]}
    assert (report.verdict, outcome(report)[:2]) == (GateVerdict.NOT_PROVED, (Verdict.SKIPPED, "proved failed"))


def test_of_a_worker_that_died_unseen_nothing_is_said(tmp_path: Path):
    lighter = {"proved": "note", "batch-contract": "note", "body-forms": "note", "repeatable": "note"}
    report = examine(project(tmp_path / "p", DIES, checks=lighter), choice=CheckSelection.of(further=[HERMETIC]))
    assert not report.deployable
    assert HERMETIC in failures(report)


def test_its_worker_has_no_network_unless_the_project_allows_one(tmp_path: Path):
    connects = HANDLER.replace("        folder =", f"        {CONNECT}\n        folder =")
    with socket.create_server(("127.0.0.1", 0)) as server:
        port = server.getsockname()[1]
        source = project(tmp_path / "p", connects.replace("PORT", str(port)), config={})
        refused = examine(source, choice=HERMETIC_ONLY, settings=PoolSettings(timeout=30.0))
        with (source / "marpack.yaml").open("a") as file:
            file.write(f"hermetic: {{connect: ['127.0.0.1:{port}']}}\n")
        allowed = examine(source, choice=HERMETIC_ONLY, settings=PoolSettings(timeout=30.0))
    assert failures(refused) == {HERMETIC: ["not-hermetic"]}
    assert "marpack.yaml allows some" in outcome(allowed)[1]
    assert failures(allowed) == {}


CONNECT = "import socket; socket.socket().connect_ex(('127.0.0.1', PORT))"
ALLOWANCES: list[tuple[str, str, dict[str, list[str]], bool]] = [
    ("read", "/data/a.bin", {"read": ["/data/a.bin"]}, True),
    ("read", "/data/a.bin", {"read": ["/data"]}, True),
    ("read", "/data/a.bin", {"read": ["/data/"]}, True),
    ("read", "/data/a.bin", {"read": ["/data/*.bin"]}, True),
    ("read", "/data2/a.bin", {"read": ["/data"]}, False),
    ("read", "/data/a.bin", {"write": ["/data"]}, False),
    ("read", str(Path("~/x/y").expanduser()), {"read": ["~/x"]}, True),
    ("write", "/data/log", {"write": ["/data"]}, True),
    ("connect", "api.example.com:443", {"connect": ["api.example.com"]}, True),
    ("connect", "api.example.com:443", {"connect": ["*.example.com:443"]}, True),
    ("connect", "api.example.com:80", {"connect": ["api.example.com:443"]}, False),
    ("resolve", "api.example.com", {"connect": ["api.example.com:443"]}, True),
    ("resolve", "other.example.com", {"connect": ["api.example.com"]}, False),
    ("listen", "127.0.0.1:8080", {"listen": ["127.0.0.1"]}, True),
    ("listen", "127.0.0.1:8080", {"listen": ["127.0.0.1:8081"], "connect": ["*"]}, False),
    ("listen", "/run/a.sock", {"listen": ["/run/*.sock"]}, True),
    ("run", "/usr/bin/g++", {"run": ["g++"]}, True),
    ("run", "sh -c true; rm -r x", {"run": ["sh", "x", "rm"]}, False),
    ("run", "sh -c uname -a", {"run": ["sh -c uname *"]}, True),
    ("load", "/usr/lib/libx.so.1", {"load": ["libx.so*"]}, True),
    ("unknown", "more than is kept", {"read": ["*"], "run": ["*"], "connect": ["*"]}, False),
]


@pytest.mark.parametrize(("kind", "target", "allowance", "expected"), ALLOWANCES)
def test_a_pattern_is_for_its_kind(kind: str, target: str, allowance: dict[str, Any], expected: bool):
    assert is_allowed(Touched(Access(kind), target, "handle"), Allowance(**allowance)) is expected


def test_it_brings_the_proof_along():
    assert CheckSelection.of(only=[HERMETIC]).names == {HERMETIC, PROOF}
    assert CheckSelection.of(further=[HERMETIC]).names == {HERMETIC} | CheckSelection.of().names
    assert HERMETIC not in CheckSelection.of().names


@pytest.mark.parametrize("skip", [PROOF, HERMETIC])
def test_it_is_not_asked_for_and_left_out(skip: str):
    with pytest.raises(UsageError) as caught:
        CheckSelection.of(skip=[skip], further=[HERMETIC])
    assert caught.value.code == "hermetic-without-proof"
