"""What a run adds up to: counts, percentiles per stage, throughput; in memory that does not grow with the run."""

import random
import time

from msgspec import Struct

from marpack.worker.results import Result

_KEPT = 4096  # durations kept per stage: more are sampled evenly


class Spread(Struct, frozen=True):
    """Milliseconds below which half, nine tenths and 99 hundredths of a stage's durations lie."""

    p50: float
    p90: float
    p99: float


class Summary(Struct, frozen=True, kw_only=True):
    """What a run adds up to."""

    inputs: int
    answered: int  # with a status of 2xx
    short: int  # everything else
    seconds: float  # from the first input to the last answer
    throughput: float  # inputs per second
    stages: dict[str, Spread]
    restarts: int
    peak_memory: int | None  # bytes, of the worker that had most


class Tally:
    """Takes results in and keeps the little that a summary needs."""

    def __init__(self) -> None:
        self._start = time.perf_counter()
        self._inputs = 0
        self._answered = 0
        self._reservoirs: dict[str, _Reservoir] = {}

    def add(self, result: Result) -> None:
        """Count one result."""
        self._inputs += 1
        self._answered += result.ok
        for stage, spent in result.stages.items():
            self._reservoirs.setdefault(stage, _Reservoir()).add(spent)

    def summary(self, *, restarts: int, peak_memory: int | None) -> Summary:
        """Return what was added up so far."""
        seconds = time.perf_counter() - self._start
        return Summary(
            inputs=self._inputs,
            answered=self._answered,
            short=self._inputs - self._answered,
            seconds=round(seconds, 6),
            throughput=round(self._inputs / seconds, 2) if seconds else 0.0,
            stages={stage: reservoir.spread() for stage, reservoir in self._reservoirs.items()},
            restarts=restarts,
            peak_memory=peak_memory or None,
        )


class _Reservoir:
    """An even sample of a stream of numbers (Vitter's algorithm R)."""

    def __init__(self) -> None:
        self._kept: list[float] = []
        self._seen = 0
        self._random = random.Random(0)  # noqa: S311 - a sample, not a secret; the same in every run

    def add(self, value: float) -> None:
        self._seen += 1
        if len(self._kept) < _KEPT:
            self._kept.append(value)
            return
        place = self._random.randrange(self._seen)
        if place < _KEPT:
            self._kept[place] = value

    def spread(self) -> Spread:
        ordered = sorted(self._kept)
        last = len(ordered) - 1
        return Spread(*(ordered[round(last * share)] for share in (0.5, 0.9, 0.99)))
