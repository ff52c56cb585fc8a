"""How sure the median of repeated measurements is."""

import random
from collections.abc import Callable
from statistics import median

import pytest

from marpack.gate.speed import LOOKS, interval, interval_at_look

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


def test_values_after_a_look_are_ignored():
    # A test at each start would find a difference by chance.
    values = [1.0 + number / 100 for number in range(12)] + [9.0, 9.0, 9.0]
    assert interval_at_look(values) == (1.0, 1.11)
    assert interval_at_look(values[:11]) is None
