import random
import textwrap

import pytest

from marpack.runner.benchmark import BenchmarkPlan, MemoryWatch, growth_per_input, measure, sizes_up_to
from marpack.runner.inputs import RequestDefaults, data_inputs
from marpack.runner.pool import LocalPool, PoolSettings
from marpack.torchserve.messages import Load

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


class Growing:
    """A pool whose worker has a byte more at each look."""

    def __init__(self) -> None:
        self.bytes = 100

    def resident_memory(self) -> int:
        self.bytes += 1
        return self.bytes


def test_memory_is_looked_at_before_and_while_each_batch_size_is_timed():
    memory = MemoryWatch(Growing(), 1)
    for _ in range(2):
        memory.begin()
        memory.look(1, restarted=False)
    found = memory.found()
    assert (found.before, found.after, found.peak) == (101, 104, 104)


HANDLER = textwrap.dedent(
    """
    kept = []
    def handle(data, context):
        if data is None: return
        if data[0]["body"] == "leak": kept.extend(bytes(30_000) for _ in data)
        if data[0]["body"] == "bad": raise ValueError
        return ["x" for _ in data]
    """
)


def figures(make_folder, word: str, **plan):
    with LocalPool(Load(model_dir=str(make_folder(HANDLER))), PoolSettings()) as pool:
        pool.start()
        told = []
        found = measure(pool, data_inputs([word] * 3, RequestDefaults()), BenchmarkPlan(**plan), told.append)
        assert tuple(told) == found.paces
        return found


def test_every_batch_size_is_timed_with_full_batches(make_folder):
    found = figures(make_folder, "a", sizes=(1, 2, 4), repeat=8, warmup=1)
    assert [pace.batch_size for pace in found.paces] == [1, 2, 4]
    assert all(pace.inputs == 24 and pace.throughput > 0 and pace.short == 0 for pace in found.paces)
    assert found.paces[0].stages["handle"].p99 > 0
    assert found.memory is not None
    assert found.memory.peak >= found.memory.before > MIB
    assert found.findings == ()


def test_a_handler_that_keeps_things_is_found(make_folder):
    found = figures(make_folder, "leak", sizes=(1,), repeat=200, warmup=1)
    (finding,) = found.findings
    assert finding.code == "memory-grows"
    assert found.memory is not None
    assert found.memory.per_input == pytest.approx(30_000, rel=0.3)


def test_answers_that_fall_short_are_counted(make_folder):
    assert figures(make_folder, "bad", sizes=(2,), repeat=2, warmup=0).paces[0].short == 6
