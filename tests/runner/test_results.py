import random
from typing import Any

from marpack.runner.results import Reservoir, Result, RunStatistics


def result(**values: Any) -> Result:
    given: dict[str, Any] = {
        "input": "x",
        "status": 200,
        "phrase": "",
        "headers": {},
        "content_type": None,
        "body": "",
        "body_encoding": "text",
        "stages": {"handle": 2.0},
        "seconds": 0.0,
    }
    return Result(**(given | values))


def test_a_batch_is_one_call_of_the_handler():
    tally = RunStatistics()
    for _ in range(3):
        tally.add(result(batch=3, stages={"handle": 30.0}))
    for _ in range(3):
        tally.add(result(stages={"handle": 1.0}))
    summary = tally.summary(restarts=0, peak_memory=None)
    assert summary.stages["handle"].p50 == 1.0
    assert summary.stages["handle"].p99 == 30.0
    assert summary.inputs == 6


def test_answered_and_short_are_told_apart():
    tally = RunStatistics()
    for status, reset in ((200, False), (503, False), (200, True), (0, False)):
        tally.add(result(status=status, reset=reset))
    summary = tally.summary(restarts=2, peak_memory=7, before=5)
    assert (summary.inputs, summary.answered, summary.short) == (4, 1, 3)
    assert (summary.restarts, summary.before) == (2, 5)


def test_a_sample_of_many_numbers_has_their_percentiles():
    sample = Reservoir()
    numbers = random.Random(1)
    for _ in range(50_000):
        sample.add(numbers.uniform(0, 100))
    percentiles = sample.percentiles()
    assert abs(percentiles.p50 - 50) < 4
    assert abs(percentiles.p90 - 90) < 3
    assert abs(percentiles.p99 - 99) < 1
