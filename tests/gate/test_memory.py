"""What counts as a leak: growth in every one of some windows that hold equally many requests."""

from pathlib import Path

import pytest
from gate.archives import archive, examine

from marpack.gate.check import CheckSelection
from marpack.gate.checks.memory import Window, requests_per_window, verdict_of
from marpack.gate.verdicts import Verdict

MIB = 1 << 20
STEADY = [100, 110, 120, 130, 140]


def outcome(
    sizes: list[int | None], restarts: tuple[int, ...] = (0, 0, 0, 0, 0), *, count: int = 100, wavering: int = MIB
):
    windows = [Window(size and size * MIB, again) for size, again in zip(sizes, restarts, strict=True)]
    return verdict_of(windows, count, wavering)


def test_a_leak_grows_in_every_window():
    grown = outcome(list(STEADY))
    assert grown.verdict is Verdict.FAILED
    assert grown.reason == "the worker grows by 102.4 KiB per request"


@pytest.mark.parametrize("sizes", [[100, 110, 110, 110, 110], [100, 110, 120, 130, 130], [100, 101, 102, 103, 104]])
def test_what_grows_in_some_windows_or_within_what_wavers_is_none(sizes: list[int | None]):
    assert outcome(sizes).verdict is Verdict.PASSED


def test_growth_is_held_against_the_number_of_requests():
    assert outcome(list(STEADY), count=2000).verdict is Verdict.FAILED
    assert outcome(list(STEADY), count=30_000).verdict is Verdict.PASSED  # 350 bytes per request


def test_it_is_not_judged_where_the_worker_was_started_again_or_its_memory_is_unknown():
    assert "not judged" in outcome(list(STEADY), (0, 0, 1, 1, 1)).reason
    assert outcome(list(STEADY), (0, 0, 1, 1, 1)).verdict is Verdict.SKIPPED
    assert outcome(list(STEADY), (1, 1, 1, 1, 1)).verdict is Verdict.FAILED  # it was started again before
    assert "does not tell" in outcome([100, 110, None, 130, 140]).reason


@pytest.mark.parametrize(
    ("pace", "count"),
    [(0.0, 2000), (0.0001, 1000), (0.001, 100), (0.02, 30), (0.05, 30), (0.25, 8), (1.0, 2), (3.0, 0)],
)
def test_windows_hold_enough_requests_if_there_is_time(pace: float, count: int):
    assert requests_per_window(pace, 10.0) == count


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
    report = examine(path, choice=CheckSelection.of(["memory"]))
    (found,) = next(checked for checked in report.checks if checked.name == "memory").findings
    assert found.message == "after 7 requests more, a sample is answered with 503: "  # one was asked alone
    if pace:
        assert (tmp_path / "asked").read_text() == "8"  # a slow one is asked nothing more
