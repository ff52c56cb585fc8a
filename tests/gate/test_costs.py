"""The interval of a ratio: it holds what it promises, whatever the noise; and what is said of it."""

import random
from collections.abc import Callable
from statistics import median

import pytest

from marpack.gate.speed import LOOKS, cost_of, interval, speed_of
from marpack.gate.verdicts import Cost, Speed

Luck = Callable[[random.Random], float]
LUCK: dict[str, Luck] = {
    "none": lambda chance: 0.0,
    "skewed": lambda chance: chance.expovariate(20),
    "rare": lambda chance: 0.3 * (chance.random() < 0.2) + chance.gauss(0, 0.01),
}


def ratios(chance: random.Random, luck: Luck, memory: float) -> list[float]:
    """Return the logs of one archive's ratios beside itself in every start, in a world that goes up and down.

    Each process has a luck of its own, each round a delay that is sometimes long, and all of them what else the machine
    does, which is much as it was a moment ago.
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
@pytest.mark.nightly
def test_of_all_looks_at_both_measures_99_in_100_are_right_together(luck: Luck, memory: float):
    chance, wrong, runs = random.Random(16), 0, 300
    for _ in range(runs):
        measures = [ratios(chance, luck, memory) for _ in range(2)]
        bounds = [interval(values[:look]) for values in measures for look in LOOKS]
        wrong += any(not low <= 0 <= high for low, high in filter(None, bounds))
    assert wrong <= runs / 100


@pytest.mark.parametrize(
    ("count", "bounds"),
    [(0, None), (11, None), (12, (1, 12)), (16, (2, 15)), (24, (4, 21)), (32, (7, 26)), (48, (13, 36)), (64, (19, 46))],
)
def test_the_bounds_are_values_by_their_rank(count: int, bounds: tuple[int, int] | None):
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
        ([(None, None)], Speed.UNDECIDED),
        ([(0.9, 1.09), (None, None)], Speed.UNDECIDED),
        ([(0.9, 1.09), (0.9, 1.2)], Speed.UNDECIDED),
        ([(0.9, 1.09), (1.11, 1.2)], Speed.SLOWER),
        ([(0.8, 1.3), (1.11, 1.2)], Speed.SLOWER),
    ],
)
def test_slower_and_not_slower_are_whole_intervals(bounds: list[tuple[float | None, float | None]], speed: Speed):
    assert speed_of([timed(low, high) for low, high in bounds], 0.1) is speed


def test_a_figure_is_medians_and_its_interval_that_of_the_last_look():
    # What came after the twelfth start is no look: whoever looks at every start finds what they look for.
    values = [1.0 + number / 100 for number in range(12)] + [9.0, 9.0, 9.0]
    cost = cost_of("wall-per-request", "s", [(1.0, 2.0), (2.0, 3.0), (3.0, 7.0)], values)
    assert (cost.old, cost.new, cost.ratio) == (2.0, 3.0, 1.07)
    assert (cost.low, cost.high, cost.bounds) == (1.0, 1.11, "1.000 to 1.110")
    plain = cost_of("memory", "bytes", [(100, 150)])
    assert (plain.ratio, plain.low, plain.bounds, plain.ratios) == (1.5, None, "", ())
