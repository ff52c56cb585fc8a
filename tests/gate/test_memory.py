"""What counts as a leak: growth in every one of some windows that hold equally many requests."""

import re
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from gate.archives import HANDLER, archive, examine, launch, result

from marpack.findings import Severity
from marpack.gate import process
from marpack.gate.candidate import Candidate, CheckOptions
from marpack.gate.check import CheckSelection, check
from marpack.gate.process import Window, check_memory, judge_windows, requests_per_window
from marpack.gate.verdicts import CheckOutcome, CheckResult, Verdict
from marpack.project.source import ResolvedSource
from marpack.runner.pool import PoolSettings
from marpack.runner.results import Result

MIB = 1 << 20
STEADY = [100, 110, 120, 130, 140]
ONLY = CheckSelection.of(["memory"])


def outcome(
    sizes: list[int | None], restarts: tuple[int, ...] = (0, 0, 0, 0, 0), *, count: int = 100, wavering: int = MIB
) -> CheckOutcome | None:
    windows = [Window(size and size * MIB, again) for size, again in zip(sizes, restarts, strict=True)]
    return judge_windows(windows, count, wavering, sent=5 * count)


def verdict(*sizes: int, count: int = 100) -> Verdict | None:
    found = outcome(list(sizes), count=count)
    return found and found.verdict


def test_a_leak_grows_in_every_window():
    grown = outcome(list(STEADY))
    assert grown is not None
    assert grown.verdict is Verdict.FAILED
    assert " 102.4 KiB " in grown.reason
    assert [finding.code for finding in grown.findings] == ["memory-grows"]


@pytest.mark.parametrize("sizes", [[100, 110, 110, 110, 110], [100, 110, 120, 121, 121], [140, 130, 120, 110, 100]])
def test_what_stops_growing_is_none(sizes: list[int]):
    assert verdict(*sizes) is Verdict.PASSED


@pytest.mark.parametrize("sizes", [[100, 110, 110, 110, 120], [100, 110, 120, 130, 130], [100, 101, 102, 103, 104]])
def test_what_grows_at_times_is_looked_at_for_longer(sizes: list[int]):
    assert verdict(*sizes) is None


def test_growth_is_held_against_the_number_of_requests():
    assert verdict(*STEADY, count=2000) is Verdict.FAILED
    assert verdict(*STEADY, count=45_000) is Verdict.PASSED  # 233 bytes per request
    assert verdict(*STEADY, count=3) is Verdict.FAILED


def test_few_requests_are_no_proof_that_nothing_leaks():
    assert verdict(100, 100, 100, 100, 100, count=32) is Verdict.PASSED
    assert verdict(100, 100, 100, 100, 100, count=31) is None  # of 32 KiB each, less than what wavers


def test_it_is_undecided_where_the_worker_was_started_again_or_its_memory_is_unknown():
    for found, hint in (
        (outcome(list(STEADY), (0, 0, 1, 1, 1)), "--logs"),  # why the worker was started again
        (outcome([100, 110, None, 130, 140]), "/proc"),
    ):
        assert found is not None
        assert (found.verdict, found.reason) == (Verdict.SKIPPED, "undecided")
        (finding,) = found.findings
        assert (finding.code, finding.severity) == ("memory-undecided", Severity.WARNING)
        assert hint in str(finding.hint)
    before = outcome(list(STEADY), (1, 1, 1, 1, 1))
    assert before is not None
    assert before.verdict is Verdict.FAILED


@pytest.mark.parametrize(
    ("pace", "count"),
    [(0.0, 2000), (0.0001, 600), (0.001, 60), (0.02, 30), (0.05, 30), (0.25, 8), (0.6, 3), (1.0, 0), (3.0, 0)],
)
def test_windows_hold_enough_requests_if_there_is_time(pace: float, count: int):
    assert requests_per_window(pace, 10.0) == count


class FakeWorker:
    """Answers without a process, on a clock of its own: `pace` seconds a request, of which each keeps some bytes."""

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
        (
            0.2,
            0,
            "memory-undecided",
            5.0,
        ),  # no leak in the first window, and too few requests to show that there is none
        (0.5, 0, "memory-undecided", 5.0),
        (0.2, -1, "memory-undecided", 3.0),  # memory that the system does not tell
        (2.0, 0, "memory-undecided", 2.0),  # too slow: one request more shows it
        (60.0, 0, "memory-undecided", 60.0),
    ],
)
def test_it_keeps_to_its_budget_and_ends_where_the_rest_cannot_decide(
    pace: float, kept: int, code: str | None, seconds: float, monkeypatch: pytest.MonkeyPatch
):
    worker = FakeWorker(pace, kept)
    monkeypatch.setattr(process, "time", SimpleNamespace(monotonic=lambda: worker.now))
    found = check_memory(SimpleNamespace(sample_runner=worker))
    assert [finding.code for finding in found.findings] == ([code] if code else [])
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
        time.sleep(PACE)
        assert self.asked <= 7
        return ["x" for _ in data]
"""


@pytest.mark.parametrize("pace", [0.0, 0.012])
def test_how_many_requests_a_worker_lasts(tmp_path: Path, pace: float):
    handler = FAILS.replace("PACE", str(pace)).replace("PATH", repr(str(tmp_path / "asked")))
    path = archive(tmp_path / "p", handler, samples={"a.txt": "a"}, labels=None)
    report = examine(path, choice=ONLY)
    (found,) = next(checked for checked in report.checks if checked.name == "memory").findings
    assert found.code == "worn-out"
    assert re.findall(r"\d+", found.message) == ["7", "503"]  # requests, of which one was asked alone; the status
    if pace:
        assert (tmp_path / "asked").read_text() == "8"  # a slow one is asked nothing more


LEAKS = HANDLER.replace(
    "        vowels", '        self.kept = [*getattr(self, "kept", ()), bytearray(50_000)]\n        vowels'
)
SLOW = "        __import__('time').sleep({})\n        vowels"
GROWS_AT_TIMES = """        self.asked = getattr(self, "asked", 0) + 1
        __import__("time").sleep(0.005)
        if self.asked in (130, 250, 490, 970, 1930):
            self.kept = [*getattr(self, "kept", ()), bytearray(20_000_000)]
        vowels"""


def memory(folder: Path, handler: str, *, patience: float) -> CheckResult:
    """Return what the check says of a handler that is asked for one short text."""
    path = archive(folder, handler, samples={"a.txt": "a"})
    options = CheckOptions(seconds_per_check=patience, settings=PoolSettings(timeout=60.0, launch=launch))
    with Candidate(ResolvedSource(path=path), options) as candidate:
        report = check(candidate, ONLY)
    return next(checked for checked in report.checks if checked.name == "memory")


@pytest.fixture
def busy() -> Iterator[None]:
    """Keep the machine busy."""
    code = "import time\nend = time.monotonic() + 60\nwhile time.monotonic() < end: pass"
    running = [subprocess.Popen([sys.executable, "-c", code]) for _ in range(4)]
    yield
    for loop in running:
        loop.kill()
        loop.wait()


@pytest.mark.nightly
@pytest.mark.usefixtures("busy")
@pytest.mark.parametrize("pace", [0.0, 0.02])
def test_a_leak_is_found_however_busy_the_machine_is(tmp_path: Path, pace: float):
    leaking = LEAKS.replace("        vowels", SLOW.format(pace))
    found = memory(tmp_path / "p", leaking, patience=60.0)
    assert [finding.code for finding in found.findings] == ["memory-grows"]


@pytest.mark.nightly
@pytest.mark.parametrize(
    "handler",
    [
        LEAKS.replace("        vowels", SLOW.format(0.3)),  # it leaks, and it has little time
        HANDLER.replace("        vowels", GROWS_AT_TIMES),
    ],
    ids=["too few requests", "it grows at times"],
)
def test_what_cannot_be_told_is_no_yes(tmp_path: Path, handler: str):
    found = memory(tmp_path / "p", handler, patience=3.0)
    assert (found.verdict, found.reason, found.blocks) == (Verdict.SKIPPED, "undecided", False)
    (finding,) = found.findings
    assert finding.code == "memory-undecided"
    assert "--patience " in str(finding.hint)
