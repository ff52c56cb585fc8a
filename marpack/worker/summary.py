"""What a run adds up to: counts, percentiles per stage, throughput; in memory that does not grow with the run."""

import random
import time
from collections.abc import Mapping

from msgspec import Struct

from marpack.torchserve.messages import Loaded
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
    before: int = 0  # inputs that --resume found answered; they are in none of the other figures
    seconds: float  # from the first input to the last answer
    throughput: float  # inputs per second
    load: dict[str, float] = {}  # ms: manifest, import, config, initialize; of the first worker
    stages: dict[str, Spread]  # of calls of the handler
    restarts: int
    peak_memory: int | None  # bytes, of the worker that had most


class Tally:
    """Takes results in and keeps the little that a summary needs."""

    def __init__(self) -> None:
        self._start = self._last = time.perf_counter()
        self._inputs = 0
        self._answered = 0
        self._stages: dict[str, Sample] = {}
        self._of_batch = 0  # results still to come of the batch in hand

    @property
    def inputs(self) -> int:
        """How many results were counted."""
        return self._inputs

    @property
    def short(self) -> int:
        """How many of them fell short."""
        return self._inputs - self._answered

    def add(self, result: Result) -> None:
        """Count one result; a batch's stages count once, with its first."""
        self._last = time.perf_counter()  # what ends the workers afterwards is no part of the run's pace
        self._inputs += 1
        self._answered += result.ok
        if self._of_batch == 0:
            self._of_batch = result.batch
            self._time(result.stages)
        self._of_batch -= 1

    def _time(self, stages: Mapping[str, float]) -> None:
        for stage, spent in stages.items():
            sample = self._stages.get(stage)
            if sample is None:
                sample = self._stages[stage] = Sample()
            sample.add(spent)

    def summary(
        self, *, restarts: int, peak_memory: int | None, loaded: Loaded | None = None, before: int = 0
    ) -> Summary:
        """Return what was added up so far.

        Args:
            restarts: Workers that had to be started again.
            peak_memory: Bytes, of the worker that had most.
            loaded: What the first worker said of the model.
            before: Inputs that were answered by an earlier run.
        """
        seconds = self._last - self._start
        return Summary(
            inputs=self._inputs,
            answered=self._answered,
            short=self._inputs - self._answered,
            before=before,
            seconds=round(seconds, 6),
            throughput=round(self._inputs / seconds, 2) if seconds else 0.0,
            load={stage: round(spent, 3) for stage, spent in loaded.stages.items()} if loaded else {},
            stages={stage: sample.spread() for stage, sample in self._stages.items()},
            restarts=restarts,
            peak_memory=peak_memory or None,
        )


class Sample:
    """An even sample of a stream of numbers (Vitter's algorithm R)."""

    def __init__(self) -> None:
        self._kept: list[float] = []
        self._seen = 0
        self._random = random.Random(0)  # noqa: S311 - a sample, not a secret; the same in every run

    def add(self, value: float) -> None:
        """Take one number in."""
        self._seen += 1
        if len(self._kept) < _KEPT:
            self._kept.append(value)
            return
        place = int(self._random.random() * self._seen)
        if place < _KEPT:
            self._kept[place] = value

    def spread(self) -> Spread:
        """Return the percentiles of the numbers so far; there must be one."""
        ordered = sorted(self._kept)
        last = len(ordered) - 1
        return Spread(*(round(ordered[round(last * share)], 3) for share in (0.5, 0.9, 0.99)))
