"""What a slow model costs: each check keeps to its seconds, and says what it left out."""

from pathlib import Path

import pytest
from gate.archives import HANDLER, archive

from marpack.archive.reader import open_archive
from marpack.gate.candidate import Candidate, CheckOptions
from marpack.gate.check import check
from marpack.gate.responses import affordable, list_sizes
from marpack.gate.verdicts import GateReport
from marpack.inspection.members import model_config
from marpack.project.source import ResolvedSource
from marpack.runner.pool import PoolSettings

SLOW = HANDLER.replace("return [self.answer", "__import__('time').sleep(0.25 * len(data))\n        return [self.answer")


def slow_report(path: Path, seconds_per_check: float) -> GateReport:
    with Candidate(ResolvedSource(path=path), CheckOptions(seconds_per_check=seconds_per_check)) as candidate:
        return check(candidate)


@pytest.mark.nightly
def test_a_slow_model_costs_no_more_than_was_granted(tmp_path: Path):
    path = archive(tmp_path / "project", SLOW, config={"batchSize": 32})
    report = slow_report(path, seconds_per_check=1.0)
    assert report.deployable
    reasons = {checked.name: checked.reason for checked in report.checks}
    assert "batches of 2;" in reasons["batch-contract"]  # not up to 32
    assert "--patience" in reasons["batch-contract"]
    assert reasons["memory"] == "undecided"


@pytest.mark.parametrize(
    ("largest", "tried"),
    [
        (2, [2]),
        (4, [2, 3, 4]),
        (8, [2, 3, 4, 5, 6, 7, 8]),
        (9, [2, 3, 4, 5, 6, 7, 8, 9]),
        (16, [2, 3, 4, 5, 6, 7, 8, 16]),
        (100, [2, 3, 4, 5, 6, 7, 8, 16, 32, 64, 100]),
    ],
)
def test_every_small_size_is_tried_and_of_large_ones_a_few(largest: int, tried: list[int]):
    assert list_sizes(largest) == tried


@pytest.mark.parametrize(
    ("requests", "tried"),
    [(1000, [2, 3, 4, 5, 6, 7, 8, 16]), (16, [16]), (21, [2, 3, 16]), (10, [2, 3, 4]), (2, [2]), (0, [2])],
)
def test_sizes_are_left_out_when_time_is_short(requests: int, tried: list[int]):
    assert affordable(list_sizes(16), requests) == tried


# Nine levels of nine references each: small to read, and more values than anyone could write out.
BOMB = "a: &a0 [1]\n" + "".join(f"c{i}: &a{i + 1} [{', '.join([f'*a{i}'] * 9)}]\n" for i in range(9))


@pytest.mark.parametrize("config", ["responseTimeout: [\n", "# nothing\n", "- 1\n", BOMB + "responseTimeout: 5\n"])
def test_a_config_that_cannot_be_read_within_bounds_leaves_the_servers_times(make_mar, config: str):
    with open_archive(make_mar("x", files={"c.yaml": config}, configFile="c.yaml")) as opened:
        assert model_config(opened) == {}
        assert PoolSettings().as_served(model_config(opened)).timeout == 120.0
