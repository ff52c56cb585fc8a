"""The checks of the worker process: memory, and what a handler accesses."""

import re
import socket
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from gate.archives import HANDLER, archive, examine, failures, found, project, result

from marpack.findings import Severity
from marpack.gate import process
from marpack.gate.check import select_checks
from marpack.gate.process import Window, check_memory, is_allowed, judge_windows, requests_per_window
from marpack.gate.verdicts import GateReport, GateVerdict, Verdict
from marpack.project.schema import HERMETIC, PROOF, Allowance
from marpack.protocol.messages import Access, Touched
from marpack.runner.pool import PoolSettings
from marpack.runner.results import Result

MIB = 1 << 20
STEADY = [100, 110, 120, 130, 140]
ONLY = select_checks(["memory"])


@pytest.mark.parametrize(
    ("sizes", "count", "verdict"),
    [
        (STEADY, 100, Verdict.FAILED),
        (STEADY, 3, Verdict.FAILED),
        (STEADY, 2000, Verdict.FAILED),
        (STEADY, 45_000, Verdict.PASSED),  # 233 bytes per request
        ([100, 110, 110, 110, 110], 100, Verdict.PASSED),
        ([100, 110, 120, 121, 121], 100, Verdict.PASSED),
        ([140, 130, 120, 110, 100], 100, Verdict.PASSED),
        ([100, 110, 110, 110, 120], 100, None),  # grows at times
        ([100, 110, 120, 130, 130], 100, None),
        ([100, 101, 102, 103, 104], 100, None),
        ([100, 100, 100, 100, 100], 32, Verdict.PASSED),
        ([100, 100, 100, 100, 100], 31, None),  # too few requests to show a leak of 32 KiB each
    ],
)
def test_a_leak_grows_in_every_window(sizes: list[int], count: int, verdict: Verdict | None):
    outcome = judge_windows([Window(size * MIB, 1) for size in sizes], count, MIB, sent=5 * count)
    assert (outcome and outcome.verdict) is verdict
    if verdict is Verdict.FAILED and outcome:
        assert [finding.code for finding in outcome.findings] == ["memory-grows"]
        assert f" {10 * 1024 / count:.1f} KiB " in outcome.reason


@pytest.mark.parametrize(
    ("windows", "hint"),
    [
        ([Window(size * MIB, size // 120) for size in STEADY], "--logs"),  # why the worker was started again
        ([Window(size * MIB if size != 120 else None) for size in STEADY], "/proc"),
    ],
)
def test_the_check_is_undecided_after_a_restart_or_without_figures(windows: list[Window], hint: str):
    outcome = judge_windows(windows, 100, MIB, sent=500)
    assert outcome is not None
    assert (outcome.verdict, outcome.reason) == (Verdict.SKIPPED, "undecided")
    (finding,) = outcome.findings
    assert (finding.code, finding.severity) == ("memory-undecided", Severity.WARNING)
    assert hint in str(finding.hint)
    paces = {0.0: 2000, 0.0001: 600, 0.001: 60, 0.02: 30, 0.05: 30, 0.25: 8, 0.6: 3, 1.0: 0, 3.0: 0}
    assert {pace: requests_per_window(pace, 10.0) for pace in paces} == paces


class FakeWorker:
    """A worker without a process, on its own clock: a request takes `pace` seconds and keeps `kept` bytes."""

    def __init__(self, pace: float, kept: int = 0) -> None:
        self.pool = self
        self.successful = (SimpleNamespace(name="a"),)
        self.seconds_per_check = 10.0
        self.pace = pace
        self.restarts = 0
        self.now = 0.0
        self._kept = kept
        self._asked = 0

    def result_of(self, _: object) -> Result:
        return result("x")

    def replay(self, samples: list[Any]) -> list[Result]:
        self._asked += len(samples)
        self.now += self.pace * len(samples)
        return [result("x")] * len(samples)

    def resident_memory(self) -> int | None:
        return 100 * MIB + self._kept * self._asked if self._kept >= 0 else None


@pytest.mark.parametrize(
    ("pace", "kept", "code", "seconds"),
    [
        (0.0, 0, None, 0.1),
        (0.001, 0, None, 1.0),
        (0.05, 0, None, 8.0),
        (0.1, 0, None, 9.5),
        (0.0001, 1000, "memory-grows", 1.0),
        (0.2, 1_000_000, "memory-grows", 10.0),
        (0.5, 1_000_000, "memory-grows", 10.0),
        (0.2, 0, "memory-undecided", 5.0),  # the first window does not grow, and there is no time for larger ones
        (0.5, 0, "memory-undecided", 5.0),
        (0.2, -1, "memory-undecided", 3.0),  # memory that the system does not tell
        (2.0, 0, "memory-undecided", 2.0),  # too slow: one request more shows it
        (60.0, 0, "memory-undecided", 60.0),
    ],
)
def test_the_memory_check_stays_within_its_time_and_ends_early_if_undecidable(
    pace: float, kept: int, code: str | None, seconds: float, monkeypatch: pytest.MonkeyPatch
):
    worker = FakeWorker(pace, kept)
    monkeypatch.setattr(process, "time", SimpleNamespace(monotonic=lambda: worker.now))
    outcome = check_memory(SimpleNamespace(sample_runner=worker))
    assert [finding.code for finding in outcome.findings] == ([code] if code else [])
    assert worker.now <= seconds


FAILS = """
import time


class Handler:
    asked = 0

    def initialize(self, context): ...

    def handle(self, data, context):
        type(self).asked += len(data)
        with open(PATH, "w") as file:
            file.write(str(self.asked))
        time.sleep(0.012)
        assert self.asked <= 7
        return ["x" for _ in data]
"""


def test_the_number_of_requests_before_a_worker_fails(tmp_path: Path):
    handler = FAILS.replace("PATH", repr(str(tmp_path / "asked")))
    path = archive(tmp_path / "p", handler, samples={"a.txt": "a"}, labels=None)
    (finding,) = found(examine(path, choice=ONLY), "memory").findings
    assert finding.code == "worn-out"
    assert re.findall(r"\d+", finding.message) == ["7", "503"]  # requests, of which one was sent alone; the status
    assert (tmp_path / "asked").read_text() == "8"  # a slow handler gets no further request


READS = HANDLER.replace("        folder =", "        open('/etc/passwd').close()\n        folder =")
DIES = HANDLER.replace("return [self", "len(data) > 1 and os._exit(1)\n        return [self")
HERMETIC_ONLY = select_checks(only=[HERMETIC])


def hermetic_outcome(report: GateReport) -> tuple[Verdict, str, list[str]]:
    checked = found(report, HERMETIC)
    findings = [f"{each.severity} {each.code}: {each.message}" for each in checked.findings]
    return checked.verdict, checked.reason, findings


def test_a_handler_that_accesses_other_files_is_not_hermetic(tmp_path: Path):
    report = examine(archive(tmp_path / "plain"), choice=select_checks(further=[HERMETIC]))
    verdict, reason, findings = hermetic_outcome(report)
    assert (report.verdict, verdict, findings) == (GateVerdict.DEPLOYABLE, Verdict.PASSED, [])
    assert "native code" in reason  # the tests' workers are forked, so their connections were not cut off
    reads = archive(tmp_path / "p", READS)
    report = examine(reads)  # the check is optional
    assert HERMETIC not in {checked.name for checked in report.checks}
    assert (report.verdict, report.reservations) == (GateVerdict.DEPLOYABLE, ())
    report = examine(reads, choice=HERMETIC_ONLY)
    verdict, _, findings = hermetic_outcome(report)
    assert (report.verdict, verdict) == (GateVerdict.REFUSED, Verdict.FAILED)
    assert findings == ["error not-hermetic: the handler accesses /etc/passwd (read, in initialize)"]
    allowing = archive(tmp_path / "q", READS, hermetic={"read": ["/etc/passwd"]})  # only a project may allow it
    assert failures(examine(allowing, choice=HERMETIC_ONLY)) == {HERMETIC: ["not-hermetic"]}


def test_a_project_may_allow_an_access_and_the_report_has_a_reservation(tmp_path: Path):
    source = project(tmp_path / "p", READS, hermetic={"read": ["/etc/pass*"]})
    report = examine(source, choice=select_checks(further=[HERMETIC]))
    verdict, _, findings = hermetic_outcome(report)
    assert (report.verdict, verdict) == (GateVerdict.DEPLOYABLE, Verdict.PASSED)
    assert [text.partition(":")[0] for text in findings] == ["note allowed-need"]
    (reservation,) = report.reservations
    assert {"marpack.yaml", "read", "/etc/pass*"} <= set(reservation.split())


def test_without_a_proof_an_archive_is_not_hermetic(tmp_path: Path):
    report = examine(archive(tmp_path / "p", samples={}), choice=HERMETIC_ONLY, stand_ins="off")
    assert failures(report) == {PROOF: ["no-inputs"]}
    assert report.verdict is GateVerdict.NOT_PROVED
    assert hermetic_outcome(report)[:2] == (Verdict.SKIPPED, "proved failed")
    source = project(tmp_path / "q", samples={}, checks={PROOF: "warning"})
    report = examine(source, choice=select_checks(further=[HERMETIC]), stand_ins="off")
    assert failures(report)[HERMETIC] == ["nothing-asked"]
    assert not report.deployable


def test_a_worker_that_died_unnoticed_is_not_hermetic(tmp_path: Path):
    lighter = {"proved": "note", "batch-contract": "note", "body-forms": "note", "repeatable": "note"}
    report = examine(project(tmp_path / "p", DIES, checks=lighter), choice=select_checks(further=[HERMETIC]))
    assert not report.deployable
    assert HERMETIC in failures(report)


def test_the_worker_has_no_network_unless_the_project_allows_one(tmp_path: Path):
    connects = HANDLER.replace("        folder =", f"        {CONNECT}\n        folder =")
    with socket.create_server(("127.0.0.1", 0)) as server:
        port = server.getsockname()[1]
        source = project(tmp_path / "p", connects.replace("PORT", str(port)), config={})
        refused = examine(source, choice=HERMETIC_ONLY, settings=PoolSettings(timeout=30.0))
        with (source / "marpack.yaml").open("a") as file:
            file.write(f"hermetic: {{connect: ['127.0.0.1:{port}']}}\n")
        allowed = examine(source, choice=HERMETIC_ONLY, settings=PoolSettings(timeout=30.0))
    assert failures(refused) == {HERMETIC: ["not-hermetic"]}
    assert "marpack.yaml allows some" in hermetic_outcome(allowed)[1]
    assert failures(allowed) == {}


CONNECT = "import socket; socket.socket().connect_ex(('127.0.0.1', PORT))"
ALLOWANCES: list[tuple[str, str, dict[str, list[str]], bool]] = [
    ("read", "/data/a.bin", {"read": ["/data"]}, True),
    ("read", "/data/a.bin", {"read": ["/data/"]}, True),
    ("read", "/data/a.bin", {"read": ["/data/*.bin"]}, True),
    ("read", "/data2/a.bin", {"read": ["/data"]}, False),
    ("read", "/data/a.bin", {"write": ["/data"]}, False),
    ("read", str(Path("~/x/y").expanduser()), {"read": ["~/x"]}, True),
    ("write", "/data/log", {"write": ["/data"]}, True),
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


def test_a_pattern_is_for_its_kind():
    for kind, target, allowance, expected in ALLOWANCES:
        assert is_allowed(Touched(Access(kind), target, "handle"), Allowance(**allowance)) is expected, target
