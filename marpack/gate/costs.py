"""What a request costs by two archives, and of how much of the difference one can be sure."""

import math
from collections.abc import Sequence
from enum import StrEnum
from statistics import median

from msgspec import Struct

# Starts after which one looks whether it is clear. Fewer than twelve that all say the same may be chance.
LOOKS = (12, 16, 24, 32, 48, 64)
_ALPHA = 0.01 / 2 / len(LOOKS)  # of one look at one of two measures: 99 % are kept by all together


class Speed(StrEnum):
    """What the measurement comes to."""

    SLOWER = "slower"  # a whole interval lies above the bound
    NOT_SLOWER = "not-slower"  # all of them lie below it
    UNDECIDED = "undecided"


class Cost(Struct, frozen=True, kw_only=True):
    """One figure of both: medians over the starts."""

    name: str  # cpu-per-request, wall-per-request, memory, load, size
    unit: str  # s or bytes
    old: float
    new: float
    ratio: float  # new by old; of a request's, the median of the starts' own
    low: float | None = None  # bounds of the ratio's interval; None: not looked for, or not to be told
    high: float | None = None
    ratios: tuple[float, ...] = ()  # of a request's: each start's

    @property
    def bounds(self) -> str:
        """Both bounds, as one reads them; empty if there are none."""
        return "" if self.low is None else f"{self.low:.3f} to {self.high:.3f}"


class Costs(Struct, frozen=True, kw_only=True):
    """What the old archive costs and the new one."""

    against: str
    slower: float  # 0.1: what takes over 10 % more is slower
    speed: Speed
    requests: int  # different ones
    starts: int  # of a fresh worker for each
    rounds: int  # that each of the two was measured in
    figures: tuple[Cost, ...]


def interval(values: Sequence[float], alpha: float = _ALPHA) -> tuple[float, float] | None:
    """Return bounds of the median that some values, of any distribution, are drawn by; None: there are too few.

    `alpha` is the probability that the median lies beyond them.

    By order statistics: whether a value lies below the median is a toss of a coin, as in the sign test.
    """
    ordered, count = sorted(values), len(values)
    rank, below = 0, 1
    while 2 * below <= alpha * 2**count:
        rank += 1
        below += math.comb(count, rank)
    return (ordered[rank - 1], ordered[-rank]) if rank else None


def cost_of(name: str, unit: str, pairs: Sequence[tuple[float, float]], ratios: Sequence[float] = ()) -> Cost:
    """Return a figure by its pairs of old and new, each with its ratio if an interval is to be told.

    The interval is that of the last look which was planned for so many starts or fewer.
    """
    old, new = (median(values) for values in zip(*pairs, strict=True))
    ratio = median(ratios) if ratios else new / old
    seen = max((look for look in LOOKS if look <= len(ratios)), default=0)
    low, high = interval(ratios[:seen]) or (None, None)
    return Cost(name=name, unit=unit, old=old, new=new, ratio=ratio, low=low, high=high, ratios=tuple(ratios))


def speed_of(costs: Sequence[Cost], slower: float) -> Speed:
    """Return what the intervals of some figures say of a bound."""
    bound = 1 + slower
    if any(cost.low is not None and cost.low > bound for cost in costs):
        return Speed.SLOWER
    below = all(cost.high is not None and cost.high < bound for cost in costs)
    return Speed.NOT_SLOWER if below else Speed.UNDECIDED
