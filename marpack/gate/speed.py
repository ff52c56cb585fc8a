"""Confidence intervals of repeated measurements that are judged while they come.

One observation is a start of a fresh worker. Hashes, addresses and cores are dealt out to a process once, so the rounds
of one start agree with each other far more than two starts of one archive do: however many rounds there are, they prove
nothing by themselves.
"""

import math
from collections.abc import Sequence

# Numbers of starts after which the result is judged. Fewer than twelve that all agree may be chance.
LOOKS = (12, 16, 24, 32, 48, 64)
_ALPHA = 0.01 / 2 / len(LOOKS)  # error of one look at one of two measures: together they keep 99 %


def interval(values: Sequence[float], alpha: float = _ALPHA) -> tuple[float, float] | None:
    """Return bounds of the median that some values, of any distribution, are drawn by; None: there are too few.

    `alpha` is the probability that the median is beyond them. By order statistics: whether a value is below the median
    is a toss of a coin, as in the sign test.
    """
    ordered, count = sorted(values), len(values)
    rank, below = 0, 1
    while 2 * below <= alpha * 2**count:
        rank += 1
        below += math.comb(count, rank)
    return (ordered[rank - 1], ordered[-rank]) if rank else None


def interval_at_look(values: Sequence[float]) -> tuple[float, float] | None:
    """Return the interval of the last look that was planned for so many values or fewer; None: there are too few."""
    seen = max((look for look in LOOKS if look <= len(values)), default=0)
    return interval(values[:seen])
