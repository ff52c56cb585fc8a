"""`--repeat`: the same inputs again and again, timed by batch size, with an eye on the worker's memory."""

import time
from collections import defaultdict
from collections.abc import Callable, Iterable, Iterator
from itertools import chain, islice, pairwise, repeat

from msgspec import Struct

from marpack.findings import Finding, Severity
from marpack.runner.client import BatchResult
from marpack.runner.inputs import Input
from marpack.runner.pool import Batch, ModelPool
from marpack.runner.results import Percentiles, Reservoir
from marpack.torchserve.http import Request

_LOOKS = 400  # at the memory, over a run at most
_PARTS = 4  # that a run's memory is compared in
_LEAST_GROWTH = 1 << 20  # bytes over a run: allocators waver by less
_STEADY = 0.2  # of the average growth, that every part must show


class Throughput(Struct, frozen=True, kw_only=True):
    """How fast one batch size was."""

    batch_size: int
    inputs: int
    short: int  # that got no 2xx
    seconds: float
    throughput: float  # inputs per second
    stages: dict[str, Percentiles]  # ms per call of the handler


class Memory(Struct, frozen=True, kw_only=True):
    """What the worker had resident."""

    before: int  # bytes, once warm
    after: int
    peak: int
    per_input: float | None  # bytes that each input left behind; None: it does not grow


class BenchmarkFigures(Struct, frozen=True, kw_only=True):
    """What a benchmark found."""

    inputs: int  # different ones
    repeat: int
    warmup: int
    paces: tuple[Throughput, ...]  # by batch size
    memory: Memory | None  # None: the system does not tell
    findings: tuple[Finding, ...]


class BenchmarkPlan(Struct, frozen=True, kw_only=True):
    """What is to be timed."""

    sizes: tuple[int, ...]
    repeat: int
    warmup: int


def sizes_up_to(maximum: int) -> tuple[int, ...]:
    """Return 1, 2, 4, … and `maximum`."""
    doubled = [1 << power for power in range(maximum.bit_length()) if 1 << power < maximum]
    return (*doubled, maximum)


def measure(
    pool: ModelPool,
    inputs: Iterable[Input],
    plan: BenchmarkPlan,
    on_pace: Callable[[Throughput], None] = lambda _: None,
) -> BenchmarkFigures:
    """Time inputs, batch size by batch size; they are all held in memory.

    Args:
        pool: What answers.
        inputs: At least one.
        plan: How often, and in which sizes.
        on_pace: Is told each size's figures as soon as they are known.

    Raises LoadError and WorkerError when a worker cannot be started again.
    """
    requests = tuple(item.request for item in inputs if item.refused is None)
    memory = MemoryWatch(pool, plan.repeat * len(requests) * len(plan.sizes))
    paces = []
    for size in plan.sizes:
        for _ in pool.outcomes(_batches(requests, size, plan.warmup)):
            pass
        memory.begin()
        pace = _timed(pool, _batches(requests, size, plan.repeat), size, memory)
        paces.append(pace)
        on_pace(pace)
    found = memory.found()
    return BenchmarkFigures(
        inputs=len(requests),
        repeat=plan.repeat,
        warmup=plan.warmup,
        paces=tuple(paces),
        memory=found,
        findings=tuple(_leak(found)),
    )


def _batches(requests: tuple[Request, ...], size: int, passes: int) -> Iterator[Batch]:
    stream = chain.from_iterable(repeat(requests, passes))
    while batch := tuple(islice(stream, size)):
        yield batch


def _timed(pool: ModelPool, batches: Iterable[Batch], size: int, memory: "MemoryWatch") -> Throughput:
    count = short = 0
    samples: dict[str, Reservoir] = defaultdict(Reservoir)
    started = time.perf_counter()
    for outcome in pool.outcomes(batches):
        count += len(outcome.responses)
        short += _short(outcome)
        for stage, elapsed in outcome.stages.items():
            samples[stage].add(elapsed)
        memory.look(len(outcome.responses), restarted=outcome.died)
    seconds = time.perf_counter() - started
    return Throughput(
        batch_size=size,
        inputs=count,
        short=short,
        seconds=round(seconds, 6),
        throughput=round(count / seconds, 2),
        stages={stage: sample.percentiles() for stage, sample in samples.items()},
    )


def _short(outcome: BatchResult) -> int:
    return sum(not 200 <= response.status < 300 or response.reset for response in outcome.responses)


class MemoryWatch:
    """Looks at the worker's memory, evenly over a run and not too often."""

    def __init__(self, pool: ModelPool, inputs: int) -> None:
        self._pool = pool
        self._every = max(1, inputs // _LOOKS)
        self._answered = 0
        self._looked = 0
        self._series: list[list[tuple[int, int]]] = []  # per batch size: inputs answered, bytes

    def begin(self) -> None:
        """Begin with another batch size, which needs other room."""
        self._series.append([])
        self._take()

    def look(self, answered: int, *, restarted: bool) -> None:
        """Count some answers, and look if it is time; a worker started again is another one's memory."""
        self._answered += answered
        if restarted:
            self._series[-1].clear()
        if self._answered - self._looked >= self._every:
            self._take()

    def _take(self) -> None:
        self._looked = self._answered
        resident = self._pool.resident_memory()
        if resident is not None:
            self._series[-1].append((self._answered, resident))

    def found(self) -> Memory | None:
        """Return what was seen."""
        every = list(chain.from_iterable(self._series))
        if not every:
            return None
        growths = [growth for growth in map(growth_per_input, self._series) if growth is not None]
        return Memory(
            before=every[0][1],
            after=every[-1][1],
            peak=max(resident for _, resident in every),
            per_input=round(max(growths), 1) if growths else None,
        )


def growth_per_input(series: list[tuple[int, int]]) -> float | None:
    """Return the bytes that each input leaves behind, or None where memory does not grow steadily.

    A series holds inputs answered so far, and the bytes resident then.
    """
    if len(series) < 2 * _PARTS:
        return None
    length = len(series) // _PARTS
    parts = [series[part * length : (part + 1) * length] for part in range(_PARTS)]
    # The least of each part: what is only borrowed for a while is given back at some time.
    lows = [min(resident for _, resident in part) for part in parts]
    steps = [after - before for before, after in pairwise(lows)]
    grown = sum(steps)
    if grown < _LEAST_GROWTH or min(steps) < _STEADY * grown / len(steps):
        return None
    return grown / (parts[-1][0][0] - parts[0][0][0])


def _leak(memory: Memory | None) -> Iterator[Finding]:
    if memory is not None and memory.per_input is not None:
        yield Finding(
            code="memory-grows",
            severity=Severity.WARNING,
            message=f"the worker grows by {memory.per_input / 1024:.1f} KiB with every input",
            hint="keep no inputs or outputs on the handler; tensors under torch.inference_mode() hold no graph",
        )
