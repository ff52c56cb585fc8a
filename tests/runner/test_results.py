import random
import time
from typing import Any

import pytest

from marpack.protocol.messages import Access, Loaded, Touched, Trouble
from marpack.runner.client import BatchResult
from marpack.runner.results import Body, Percentiles, Reservoir, Result, RunStatistics, needs_of, results_of
from marpack.torchserve.http import Response


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


def test_the_percentiles_of_few_numbers_are_numbers_of_them():
    sample = Reservoir()
    sample.add(7.12345)
    assert sample.percentiles() == Percentiles(7.123, 7.123, 7.123)
    sample = Reservoir()
    for number in range(101):
        sample.add(float(100 - number))
    assert sample.percentiles() == Percentiles(50.0, 90.0, 99.0)


@pytest.mark.parametrize(
    ("status", "reset", "ok"),
    [
        (0, False, False),
        (199, False, False),
        (200, False, True),
        (299, False, True),
        (300, False, False),
        (200, True, False),
    ],
)
def test_an_answer_is_what_a_client_would_call_one(status: int, reset: bool, ok: bool):
    assert result(status=status, reset=reset).ok is ok


def test_a_run_ends_with_its_last_answer(monkeypatch: pytest.MonkeyPatch):
    moments = iter([10.0, 10.5, 12.0000004])
    monkeypatch.setattr(time, "perf_counter", lambda: next(moments))
    tally = RunStatistics()
    assert tally.summary(restarts=0, peak_memory=None).throughput == 0.0
    for _ in range(2):
        tally.add(result())
    summary = tally.summary(restarts=0, peak_memory=0, loaded=Loaded(handler="h", stages={"import": 1.23456}))
    assert (summary.seconds, summary.throughput, summary.load) == (2.0, 1.0, {"import": 1.235})
    assert summary.peak_memory is None


def test_what_a_batch_printed_is_told_with_its_first_input_and_what_is_no_print_beside_it():
    logs = "one\n[METRICS]a.Count:1|#\n[DATA]0 body: str ' x '\ntwo [METRICS]\n[METRICS]b\n"
    trouble = Trouble(kind="k", message="m")
    outcome = BatchResult(
        responses=(
            Response(status=200, phrase="fine", body=b"\xc3\xa9", headers=(("X", "y"),), content_type="a/b"),
            Response(status=404, body=b"\xff", pieces=(b"\xff", b"a"), reset=True),
        ),
        stages={"handle": 1.23456},
        troubles=(trouble,),
        logs=logs,
        seconds=0.12345678,
        died=True,
    )
    first, second = results_of(("a", "b"), outcome)
    assert (first.logs, first.metrics, first.data) == (
        "one\ntwo [METRICS]\n",
        ("a.Count:1|#", "b"),
        ("0 body: str ' x '",),
    )
    assert (second.logs, second.metrics, second.data) == ("", (), ())
    assert (first.input, first.status, first.phrase, first.headers, first.content_type, first.body, first.raw) == (
        "a", 200, "fine", {"X": "y"}, "a/b", "\xe9", b"\xc3\xa9",
    )  # fmt: skip
    assert (second.input, second.body, second.body_encoding, second.raw) == ("b", "/w==", "base64", b"\xff")
    assert (first.chunks, second.chunks) == ((), (Body("/w==", "base64"), Body("a")))
    assert (first.reset, second.reset) == (False, True)
    for each in (first, second):
        assert (each.stages, each.seconds, each.batch) == ({"handle": 1.235}, 0.123457, 2)
        assert (each.troubles, each.restarted) == ((trouble,), True)


def test_what_was_printed_without_metrics_is_told_as_it_was():
    (told,) = results_of(("a",), BatchResult(responses=(Response(status=200, body=b'{"a": 1}'),), logs="x\r\ny"))
    assert (told.logs, told.metrics, told.json()) == ("x\r\ny", (), {"a": 1})


def test_of_a_folder_with_many_files_the_folder_is_needed_and_each_stage_is_named():
    files = [Touched(Access.READ, f"/home/me/src/package/{number}.py", "import") for number in range(6)]
    few = [Touched(Access.READ, f"/data/{number}", "handle") for number in range(2)]
    hosts = [Touched(Access.CONNECT, "example.com:443", stage) for stage in ("handle", "import")]
    assert needs_of([*files, *few, *hosts]) == (
        Touched(Access.CONNECT, "example.com:443", "import, handle"),
        Touched(Access.READ, "/data/0", "handle"),
        Touched(Access.READ, "/data/1", "handle"),
        Touched(Access.READ, "/home/me/src/package (6 files)", "import"),
    )
