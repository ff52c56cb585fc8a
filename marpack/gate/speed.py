"""The check `no-slower`: a request costs no more than with another archive, as far as one can be sure.

One observation is a start: a fresh worker of each archive, measured in turn. Hashes, addresses and cores are dealt out
to a process once, so the rounds of one start agree with each other far more than two starts of one archive do: however
many rounds there are, they prove nothing by themselves.
"""

import math
import time
from collections.abc import Sequence
from contextlib import ExitStack
from operator import truediv
from statistics import median

from marpack import finding_codes as codes
from marpack.errors import HandlerError, pluralize
from marpack.gate.candidate import Candidate
from marpack.gate.verdicts import CheckOutcome, Cost, Costs, Speed, append_cause, judge, skip
from marpack.runner.pool import LocalPool

# Numbers of starts after which the result is judged. Fewer than twelve that all agree may be chance.
LOOKS = (12, 16, 24, 32, 48, 64)
_ALPHA = 0.01 / 2 / len(LOOKS)  # error of one look at one of two measures: together they keep 99 %

_ROUND = 0.04  # seconds at least, so that clocks and a scheduler's turns matter little
_ROUNDS = 8  # of each archive in a start, and even: the archives take turns in beginning
_TURN = 0.5  # seconds that these may take, if fewer are enough
_TIMED = ("cpu-per-request", "wall-per-request")
_Pair = tuple[float, float]  # the old archive's figure, the new one's


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


def cost_of(name: str, unit: str, pairs: Sequence[_Pair], ratios: Sequence[float] = ()) -> Cost:
    """Return a figure by its pairs of old and new, each with its ratio if an interval is to be computed.

    The interval is that of the last look which was planned for so many starts or fewer.
    """
    old, new = (median(values) for values in zip(*pairs, strict=True))
    ratio = median(ratios) if ratios else new / old
    seen = max((look for look in LOOKS if look <= len(ratios)), default=0)
    low, high = interval(ratios[:seen]) or (None, None)
    return Cost(name=name, unit=unit, old=old, new=new, ratio=ratio, low=low, high=high, ratios=tuple(ratios))


def speed_of(costs: Sequence[Cost], slower: float) -> Speed:
    """Compare the intervals of some figures with a bound."""
    bound = 1 + slower
    if any(cost.low is not None and cost.low > bound for cost in costs):
        return Speed.SLOWER
    below = all(cost.high is not None and cost.high < bound for cost in costs)
    return Speed.NOT_SLOWER if below else Speed.UNDECIDED


def check_speed(candidate: Candidate) -> CheckOutcome:
    """Start both archives again and again until it is clear whether the new one is slower, or the time is up."""
    if not candidate.successful_in_both:
        return judge("", [codes.NOT_COMPARED.at()])
    candidate.stop()  # the worker used so far must not run beside those that are measured
    meter, begin, spent = _Meter(candidate), time.monotonic(), 0.0
    while meter.starts < LOOKS[-1] and spent * (meter.starts + 1) <= candidate.options.slower_time * meter.starts:
        meter.start()
        spent = time.monotonic() - begin
        if meter.starts in LOOKS and meter.costs().speed is not Speed.UNDECIDED:
            break
    candidate.costs = costs = meter.costs()
    timed = [cost for cost in costs.figures if cost.ratios]
    figures = ", ".join(f"{cost.name} {cost.ratio:.3f} times ({cost.bounds or 'unsure'})" for cost in timed)
    if costs.speed is Speed.NOT_SLOWER:
        return judge(figures)
    if costs.speed is Speed.SLOWER:
        return judge("", [codes.SLOWER.at(share=100 * costs.slower, figures=figures)])
    needed = next((look / meter.starts for look in LOOKS if look > meter.starts), 0) * spent
    hint = f"Give it more time: --slower-time {math.ceil(1.2 * needed)}." if needed else None
    return skip("undecided", codes.SLOWER_UNDECIDED.at(hint=hint, starts=pluralize(costs.starts, "start")))


class _Meter:
    """Measures what the workers of both archives use in each start."""

    def __init__(self, candidate: Candidate) -> None:
        self._both = candidate.old, candidate
        self._slower = candidate.options.slower
        self._samples = candidate.successful_in_both
        self._passes, self._rounds = 0, _ROUNDS  # the first start determines them
        self._figures: dict[str, list[_Pair]] = {}
        self._ratios: dict[str, list[float]] = {}
        self.starts = 0

    def start(self) -> None:
        """Load both archives anew and measure them. Raises HandlerError and WorkerError."""
        order = (0, 1) if self.starts % 2 == 0 else (1, 0)
        with ExitStack() as stack:
            started = {side: stack.enter_context(self._both[side].sample_runner.other()) for side in order}
            pools = started[0], started[1]
            for side in order:
                self._round(pools, side, max(self._passes, -(-3 // len(self._samples))))  # to warm up
            if not self._passes:
                self._calibrate(pools)
            taken: tuple[list[_Pair], list[_Pair]] = [], []
            for turn in range(self._rounds):
                for side in order[:: 1 if turn % 2 == 0 else -1]:
                    taken[side].append(self._round(pools, side, self._passes))
            self._note("load", *(sum(pool.loads[0].stages.values()) / 1000 for pool in pools))
            self._note("memory", *(pool.resident_memory() for pool in pools))
        for name, old, new in zip(_TIMED, *(zip(*rounds, strict=True) for rounds in taken), strict=True):
            if self._note(name, median(old), median(new)):
                logs = map(math.log, map(truediv, new, old))  # as likely to be -x as x, if both are one archive
                self._ratios.setdefault(name, []).append(math.exp(median(logs)))
        self.starts += 1

    def _note(self, name: str, old: float | None, new: float | None) -> bool:
        """Keep a figure, unless the system does not report it."""
        if old and new:
            self._figures.setdefault(name, []).append((old, new))
        return bool(old and new)

    def _calibrate(self, pools: tuple[LocalPool, LocalPool]) -> None:
        """Find how many passes over the requests make a round, and how many rounds there is time for."""
        walls = [0.0]
        while min(walls) < _ROUND:
            self._passes = 2 * self._passes or 1
            walls = [self._round(pools, side, self._passes)[1] * self._passes * len(self._samples) for side in (0, 1)]
        share = min(1.0, _ROUND / min(walls))
        self._passes = math.ceil(self._passes * share)
        self._rounds = min(_ROUNDS, 2 * max(1, round(_TURN / (max(walls) * share) / 2)))

    def _round(self, pools: tuple[LocalPool, LocalPool], side: int, passes: int) -> _Pair:
        """Return seconds per request: of the CPU (0: not reported) and by the clock, as one client sees it."""
        pool = pools[side]
        cpu, start = pool.cpu_seconds(), time.perf_counter()
        for _ in range(passes):
            for sample in self._samples:
                for outcome in pool.outcomes(((sample.request,),)):
                    response = outcome.responses[0]
                    if not 200 <= response.status < 300 or response.reset:
                        why = append_cause(outcome.troubles)
                        what = f"{sample.short_name} gets {response.status} while it is measured{why}"
                        hint = "Correct the handler, or compare with inputs that get a 2xx each time."
                        raise HandlerError(what, where=self._both[side].source, hint=hint)
        asked = passes * len(self._samples)
        return (pool.cpu_seconds() - cpu) / asked, (time.perf_counter() - start) / asked

    def costs(self) -> Costs:
        """Return the figures so far."""
        timed = [cost_of(name, "s", self._figures[name], ratios) for name, ratios in self._ratios.items()]
        self._note("size", *(sum(entry.size for entry in each.archive.entries.values()) for each in self._both))
        units = {"memory": "bytes", "load": "s", "size": "bytes"}
        plain = [cost_of(name, unit, self._figures[name]) for name, unit in units.items() if name in self._figures]
        return Costs(
            against=self._both[0].source,
            slower=self._slower,
            speed=speed_of(timed, self._slower),
            requests=len(self._samples),
            starts=self.starts,
            rounds=self.starts * self._rounds,
            figures=(*timed, *plain),
        )
