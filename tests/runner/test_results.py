import random
import textwrap
import time
from typing import Any

import pytest
from msgspec.structs import replace

from marpack.protocol.messages import Access, Load, Loaded, Touched, Trouble
from marpack.runner.client import BatchResult
from marpack.runner.inputs import RequestDefaults, data_inputs
from marpack.runner.pool import LocalPool, PoolSettings
from marpack.runner.results import (
    Body,
    MemoryWatch,
    Percentiles,
    Reservoir,
    Result,
    RunStatistics,
    growth_per_input,
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


def series(growth: float, noise: float = 0.0, jump: float = 0.0) -> list[tuple[int, int]]:
    wavering = random.Random(0)
    return [
        (number, int(100 * MIB + growth * number + noise * wavering.random() + (jump if number > 300 else 0)))
        for number in range(400)
    ]


def test_a_leak_is_told_by_the_input():
    assert growth_per_input(series(20_000)) == pytest.approx(20_000, rel=0.05)
    assert growth_per_input(series(20_000, noise=MIB)) == pytest.approx(20_000, rel=0.2)


@pytest.mark.parametrize(
    "steady", [series(0), series(0, noise=30 * MIB), series(0, jump=30 * MIB), series(1000), series(20_000)[:7], []]
)
def test_wavering_and_a_single_step_are_no_leak(steady: list[tuple[int, int]]):
    assert growth_per_input(steady) is None


@pytest.mark.parametrize(
    ("lows", "growth"),
    [
        ((0, MIB // 2, 3 * MIB // 4, MIB), MIB / 6),
        ((0, MIB // 2, 3 * MIB // 4, MIB - 1), None),
        ((0, MIB, 8 * MIB, 15 * MIB), 15 * MIB / 6),  # every part has at least a fifth of the average
        ((0, MIB - 1, 8 * MIB, 15 * MIB), None),
        ((0, 8 * MIB, 7 * MIB, 15 * MIB), None),
    ],
)
def test_a_leak_is_a_megabyte_at_least_and_in_every_part_of_a_run(lows: tuple[int, ...], growth: float | None):
    looks = [(part * 2 + look, low + look * 9 * MIB) for part, low in enumerate(lows) for look in range(2)]
    assert growth_per_input(looks) == growth
    assert growth_per_input(looks[:-1]) is None  # too few to tell


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
        memory.measure(1, restarted=False)
    found = memory.found()
    assert (found.before, found.after, found.peak, found.per_input) == (101, 104, 104, None)


def test_memory_is_looked_at_four_hundred_times_at_most():
    memory = MemoryWatch(pool := Growing(), 1200)
    memory.begin()
    for _ in range(1200):
        memory.measure(1, restarted=False)
    assert pool.bytes == 100 + 1 + 400


def test_the_memory_of_a_worker_started_again_is_anothers():
    memory = MemoryWatch(Growing(MIB), 1)
    memory.begin()
    for number in range(12):
        memory.measure(1, restarted=number == 5)
    assert memory.found().per_input is None  # of the seven looks since
    memory.measure(1, restarted=False)
    assert memory.found().per_input == MIB


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


HANDLER = textwrap.dedent(
    """
    kept = []
    def handle(data, context):
        if data is None: return
        kept.extend(bytes(30_000) for _ in data)
        return ["x" for _ in data]
    """
)


def test_a_handler_that_keeps_things_is_found(make_folder):
    told = []
    with LocalPool(Load(model_dir=str(make_folder(HANDLER))), PoolSettings()) as pool:
        pool.start()
        inputs = data_inputs(["leak"] * 3, RequestDefaults())
        found = measure(pool, inputs, (1,), repeats=200, warmup=1, on_pace=told.append)
    assert tuple(told) == found.paces
    assert [finding.code for finding in found.findings] == ["memory-grows"]
    assert found.memory.per_input == pytest.approx(30_000, rel=0.3)
