"""The costs of a request with two archives, and how sure their comparison is."""

import random
import sys
from collections.abc import Callable
from pathlib import Path
from statistics import median
from typing import Any

import pytest
from gate.archives import archive, examine, found
from refusals import has_code

from marpack.errors import UsageError
from marpack.gate import speed
from marpack.gate.check import DEFAULT_CHECKS, select_checks
from marpack.gate.speed import LOOKS, cost_of, interval, speed_of
from marpack.gate.verdicts import Cost, GateReport, GateVerdict, Speed, Verdict
from marpack.project.schema import COMPARISONS
from marpack.project.source import resolve

# Works for so many turns, and sleeps for so many seconds.
WORK = """
import time


class Handler:
    calls = 0

    def initialize(self, context): ...

    def handle(self, data, context):
        self.calls += 1
        for _ in range({turns}):
            pass
        time.sleep({sleep})
        return [self.answer(len(row.get("body") or row.get("data"))) for row in data]

    def answer(self, length):
        return {{"length": length}}
"""


def work(folder: Path, turns: int = 100, sleep: float = 0.0, change: tuple[str, str] = ("", ""), **more: Any) -> Path:
    return archive(folder, WORK.format(turns=turns, sleep=sleep).replace(*change), **more)


def beside(new: Path, old: Path, *only: str, skip: tuple[str, ...] = (), **options: Any) -> GateReport:
    choice = select_checks(only or ("samples", "proved"), skip, further=COMPARISONS)
    return examine(new, choice=choice, **{"against": resolve(str(old)), "slower": 0.5} | options)


def cost(report: GateReport, name: str) -> Cost:
    assert report.costs is not None
    return next(each for each in report.costs.figures if each.name == name)


@pytest.fixture
def brief(monkeypatch: pytest.MonkeyPatch) -> None:
    """Have rounds that are too short for a small difference."""
    monkeypatch.setattr(speed, "_ROUND", 0.003)
    monkeypatch.setattr(speed, "_ROUNDS", 2)


@pytest.fixture(scope="module")
def same(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return work(tmp_path_factory.mktemp("same"))


@pytest.mark.usefixtures("brief")
def test_a_handler_that_sleeps_longer_is_slower(tmp_path: Path):
    old, new = work(tmp_path / "old", sleep=0.002), work(tmp_path / "new", sleep=0.04)  # far apart on a busy machine
    report = beside(new, old, slower_time=300.0)  # ends as soon as it is clear, which a busy machine delays
    assert report.costs is not None
    assert report.costs.speed is Speed.SLOWER
    assert report.costs.starts in LOOKS
    assert (report.verdict, report.exit_code) == (GateVerdict.REFUSED, 1)
    assert found(report, "alike").verdict is Verdict.PASSED
    assert [finding.code for finding in found(report, "no-slower").findings] == ["slower"]
    assert " 50 % " in found(report, "no-slower").reason
    wall = cost(report, "wall-per-request")
    assert wall.low is not None
    assert 1.5 < wall.low <= wall.ratio
    assert 0.002 < wall.old < wall.new > 0.04
    assert {each.name for each in report.costs.figures} >= {"wall-per-request", "load", "size"}


@pytest.mark.slow  # twelve starts of both, as below
@pytest.mark.skipif(sys.platform != "linux", reason="another process's CPU clock")
@pytest.mark.usefixtures("brief")
def test_cpu_that_nobody_waits_for_is_slower(tmp_path: Path):
    # Another thread works while the handler sleeps, so the wall time does not change.
    threads = "__import__('threading').Thread(target=lambda: sum(range(200_000))).start()\n        self.calls += 1"
    new = work(tmp_path / "new", sleep=0.02, change=("self.calls += 1", threads), samples={"a.txt": "a", "b.txt": "b"})
    report = beside(new, work(tmp_path / "old", sleep=0.02), slower=3.0)
    cpu, wall = cost(report, "cpu-per-request"), cost(report, "wall-per-request")
    assert cpu.ratio > 4 > wall.ratio  # of 4, the limit, only the CPU is above
    assert found(report, "no-slower").verdict is Verdict.FAILED


@pytest.mark.slow
@pytest.mark.usefixtures("brief")
def test_one_that_is_not_slower(same: Path, tmp_path: Path):
    report = beside(same, work(tmp_path, turns=200_000), slower=0.1)
    assert report.costs is not None
    assert report.costs.speed is Speed.NOT_SLOWER
    assert (found(report, "no-slower").verdict, report.exit_code) == (Verdict.PASSED, 0)


def test_too_little_time_is_undecided_and_a_caveat(same: Path):
    report = beside(same, same, slower_time=0.001)
    assert report.costs is not None
    assert (report.costs.speed, report.costs.starts, report.exit_code) == (Speed.UNDECIDED, 1, 0)
    checked = found(report, "no-slower")
    (finding,) = checked.findings
    assert (checked.verdict, finding.code) == (Verdict.SKIPPED, "slower-undecided")
    assert "--slower-time " in str(finding.hint)
    assert report.caveats == [finding.message]
    assert " 1 start " in finding.message


def test_each_start_has_a_worker_of_its_own_and_others_begin(same: Path, monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr(speed, "_ROUND", 0.001)
    rounds: list[tuple[int, int]] = []
    measure = speed._Meter._round

    def noted(self: Any, pools: Any, side: int, passes: int) -> tuple[float, float]:
        rounds.append((side, pools[side]._workers[0].worker.process.pid))
        return measure(self, pools, side, passes)

    monkeypatch.setattr(speed._Meter, "_round", noted)
    monkeypatch.setattr(speed, "LOOKS", (2,))
    report = beside(same, same)
    assert report.costs is not None
    assert report.costs.starts == 2
    sides = "".join(str(side) for side, _ in rounds)
    assert sides.startswith("01")  # warmed up, then tried
    assert sides.endswith("10" + "1001" * 4)  # the second start, whose first worker is the new one's
    assert len({process for _, process in rounds}) == 4


DIES = "self.calls += 1\n        self.calls < 6 or __import__('os')._exit(3)"


@pytest.mark.parametrize(
    ("change", "name", "code", "words"),
    [
        (('"length": length', '"length": length + 1'), "alike", "differs", ": length is "),
        (("self.calls += 1", "raise ValueError"), "alike", "differs", "bee.txt "),
        (("def initialize(self, context): ...", "x = {}['x']"), "alike", "handler", "cannot be compared"),
        (("def initialize(self, context): ...", "x = {}['x']"), "no-slower", "handler", "KeyError"),
        (("self.calls += 1", "raise ValueError"), "no-slower", "not-compared", "no request got a 2xx from both"),
        (("self.calls += 1", DIES), "no-slower", "handler", " gets 500 while it is measured: the worker ended"),
    ],
)
def test_an_old_archive_that_cannot_be_compared_fails_the_check(
    same: Path, tmp_path: Path, change: tuple[str, str], name: str, code: str, words: str
):
    report = beside(same, work(tmp_path, change=change), slower_time=0.001)
    checked = found(report, name)
    assert (checked.verdict, checked.findings[0].code, report.exit_code) == (Verdict.FAILED, code, 1)
    assert words in checked.findings[0].message


def test_without_requests_or_proof_nothing_is_compared(same: Path, tmp_path: Path):
    unproved = beside(work(tmp_path / "bare", samples={}), same)
    assert unproved.verdict is GateVerdict.NOT_PROVED
    assert found(unproved, "no-slower").reason == found(unproved, "alike").reason == "proved failed"
    allowed = beside(work(tmp_path / "none", samples={}), same, allow_unproved=frozenset({"inputs"}), stand_ins="off")
    assert [found(allowed, name).findings[0].code for name in ("alike", "no-slower")] == ["not-compared"] * 2
    assert allowed.exit_code == 1


def test_comparisons_can_be_skipped_but_not_selected():
    choice = select_checks((), ("alike",), further=COMPARISONS)
    assert ("alike" in choice, "no-slower" in choice) == (False, True)
    with pytest.raises(UsageError, check=has_code("unknown-check", "'alike'")):
        select_checks(["alike"])
    assert not {"alike", "no-slower"} & DEFAULT_CHECKS


Luck = Callable[[random.Random], float]
LUCK: dict[str, Luck] = {
    "none": lambda chance: 0.0,
    "skewed": lambda chance: chance.expovariate(20),
    "rare": lambda chance: 0.3 * (chance.random() < 0.2) + chance.gauss(0, 0.01),
}


def ratios(chance: random.Random, luck: Luck, memory: float) -> list[float]:
    """Return the logs of one archive's ratios to itself in every start.

    Each process has an offset, each round a delay, and the machine a load that changes slowly.
    """
    machine, found = 0.0, []
    for start in range(LOOKS[-1]):
        own, logs = (luck(chance), luck(chance)), []
        for turn in range(4):
            taken = {}
            for side in (0, 1) if (turn + start) % 2 == 0 else (1, 0):
                machine = memory * machine + chance.gauss(0, 0.1)
                taken[side] = own[side] + machine + 3 * chance.expovariate(10) ** 2
            logs.append(taken[1] - taken[0])
        found.append(median(logs))
    return found


@pytest.mark.parametrize("memory", [0.0, 0.9])
@pytest.mark.parametrize("luck", LUCK.values(), ids=LUCK)
@pytest.mark.slow
def test_of_all_looks_at_both_measures_99_in_100_are_right_together(luck: Luck, memory: float):
    chance, wrong, runs = random.Random(16), 0, 300
    for _ in range(runs):
        measures = [ratios(chance, luck, memory) for _ in range(2)]
        bounds = [interval(values[:look]) for values in measures for look in LOOKS]
        wrong += any(not low <= 0 <= high for low, high in filter(None, bounds))
    assert wrong <= runs / 100


def test_the_bounds_are_values_by_their_rank():
    ranks = {12: (1, 12), 16: (2, 15), 24: (4, 21), 32: (7, 26), 48: (13, 36), 64: (19, 46)}
    for count, bounds in ({0: None, 11: None} | ranks).items():
        assert interval(random.Random(1).sample(range(1, count + 1), count)) == bounds


def timed(low: float | None, high: float | None) -> Cost:
    return Cost(name="wall-per-request", unit="s", old=1.0, new=1.0, ratio=1.0, low=low, high=high, ratios=(1.0,))


@pytest.mark.parametrize(
    ("bounds", "speed"),
    [
        ([(1.11, 1.3)], Speed.SLOWER),
        ([(0.9, 1.09)], Speed.NOT_SLOWER),
        ([(0.9, 1.1)], Speed.UNDECIDED),
        ([(1.1, 1.3)], Speed.UNDECIDED),
        ([(0.9, 1.09), (None, None)], Speed.UNDECIDED),
        ([(0.9, 1.09), (1.11, 1.2)], Speed.SLOWER),
    ],
)
def test_slower_and_not_slower_are_whole_intervals(bounds: list[tuple[float | None, float | None]], speed: Speed):
    assert speed_of([timed(low, high) for low, high in bounds], 0.1) is speed


def test_a_figure_is_medians_and_its_interval_that_of_the_last_look():
    # The values after the twelfth start are ignored: a test at each start would find a difference by chance.
    values = [1.0 + number / 100 for number in range(12)] + [9.0, 9.0, 9.0]
    cost = cost_of("wall-per-request", "s", [(1.0, 2.0), (2.0, 3.0), (3.0, 7.0)], values)
    assert (cost.old, cost.new, cost.ratio) == (2.0, 3.0, 1.07)
    assert (cost.low, cost.high, cost.bounds) == (1.0, 1.11, "1.000 to 1.110")
    plain = cost_of("memory", "bytes", [(100, 150)])
    assert (plain.ratio, plain.low, plain.bounds, plain.ratios) == (1.5, None, "", ())
