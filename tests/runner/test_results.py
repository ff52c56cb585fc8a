import random
import time
from typing import Any

import pytest
from msgspec.structs import replace

from marpack.protocol.messages import Access, Loaded, Touched, Trouble
from marpack.runner.client import BatchResult
from marpack.runner.inputs import RequestDefaults, data_inputs
from marpack.runner.results import (
    Body,
    MemoryWatch,
    Percentiles,
    Reservoir,
    Result,
    RunStatistics,
    measure,
    needs_of,
    results_of,
    sizes_up_to,
)
from marpack.torchserve.http import Response


def result(**values: Any) -> Result:
    (result,) = results_of(("x",), BatchResult(responses=(Response(status=200, body=b""),), stages={"handle": 2.0}))
    return replace(result, **values)


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
    for status, reset in ((199, False), (200, False), (299, False), (300, False), (200, True), (0, False)):
        tally.add(result(status=status, reset=reset))
    summary = tally.summary(restarts=2, peak_memory=7, before=5)
    assert (summary.inputs, summary.answered, summary.short) == (6, 2, 4)
    assert (summary.restarts, summary.before) == (2, 5)


def test_a_sample_of_many_numbers_has_their_percentiles():
    few, many = Reservoir(), Reservoir()
    for number in range(101):
        few.add(100.00049 - number)
    assert few.percentiles() == Percentiles(50.0, 90.0, 99.0)
    numbers = random.Random(1)
    for _ in range(50_000):
        many.add(numbers.uniform(0, 100))
    found = many.percentiles()
    assert (found.p50, found.p90, found.p99) == (
        pytest.approx(50, abs=4),
        pytest.approx(90, abs=3),
        pytest.approx(99, abs=1),
    )


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


MIB = 1 << 20


@pytest.mark.parametrize(
    ("maximum", "sizes"), [(1, (1,)), (2, (1, 2)), (3, (1, 2, 3)), (8, (1, 2, 4, 8)), (12, (1, 2, 4, 8, 12))]
)
def test_sizes_are_doubled_up_to_the_largest(maximum: int, sizes: tuple[int, ...]):
    assert sizes_up_to(maximum) == sizes


class Growing:
    """A pool whose worker has a byte more at each look, or as much more as is said."""

    def __init__(self, step: int = 1) -> None:
        self.bytes = 100
        self.step = step

    def resident_memory(self) -> int:
        self.bytes += self.step
        return self.bytes


def test_memory_is_looked_at_before_and_while_each_batch_size_is_timed():
    memory = MemoryWatch(Growing(), 1)
    for _ in range(2):
        memory.begin()
        memory.measure(1)
    found = memory.found()
    assert (found.before, found.after, found.peak) == (101, 104, 104)


def test_memory_is_looked_at_four_hundred_times_at_most():
    memory = MemoryWatch(pool := Growing(), 1200)
    memory.begin()
    for _ in range(1200):
        memory.measure(1)
    assert pool.bytes == 100 + 1 + 400


class Paced(Growing):
    """A pool that answers each batch with the statuses it is told."""

    def __init__(self, *statuses: int) -> None:
        super().__init__()
        self.statuses = statuses
        self.asked: list[int] = []

    def outcomes(self, batches):
        for batch in batches:
            self.asked.append(len(batch))
            answers = tuple(Response(status=status, body=b"") for status in self.statuses[: len(batch)])
            yield BatchResult(responses=answers, stages={"handle": 2.0 * len(batch)})


def test_what_is_timed_comes_after_the_warmup_and_what_is_refused_is_no_part_of_it(monkeypatch: pytest.MonkeyPatch):
    moments = iter([10.0, *[11.0] * 5, 12.0, 20.0, *[20.25] * 2, 20.5])  # the start, and each batch of 6 and 3
    monkeypatch.setattr(time, "perf_counter", lambda: next(moments))
    pool = Paced(200, 299)
    refused = data_inputs(["a" * 9], RequestDefaults(max_request_size=8))
    inputs = [*data_inputs(["a"] * 3, RequestDefaults()), *refused]
    found = measure(pool, inputs, (1, 2), repeats=2, warmup=1)
    assert pool.asked == [1] * 3 + [1] * 6 + [2, 1] + [2] * 3
    assert (found.inputs, found.repeat, found.warmup) == (3, 2, 1)
    assert [(pace.batch_size, pace.inputs, pace.short, pace.seconds, pace.throughput) for pace in found.paces] == [
        (1, 6, 0, 2.0, 3.0), (2, 6, 0, 0.5, 12.0)
    ]  # fmt: skip
    assert [pace.stages["handle"].p50 for pace in found.paces] == [2.0, 4.0]
    monkeypatch.undo()
    for status, short in ((199, 1), (200, 0), (299, 0), (300, 1), (0, 1)):
        found = measure(Paced(status), data_inputs(["a"], RequestDefaults()), (1,), repeats=1, warmup=0)
        assert found.paces[0].short == short
