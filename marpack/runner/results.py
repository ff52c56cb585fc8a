"""Inputs → results, batched and in order, their summary, and the benchmark of `--repeat`."""

import base64
import json
import random
import time
from collections import defaultdict, deque
from collections.abc import Callable, Generator, Iterable, Iterator, Mapping
from itertools import chain, groupby, islice, repeat
from os.path import commonpath
from typing import Any, Literal

from msgspec import Struct

from marpack.protocol.messages import DATA, METRICS, Access, Loaded, Touched, Trouble
from marpack.runner.client import BatchResult
from marpack.runner.inputs import Input
from marpack.runner.pool import Batch, ModelPool, Pool
from marpack.torchserve.http import Request

_FEW = 5  # files of a folder that are named one by one
_STAGES = ("import", "initialize", "handle")
_KEPT = 4096  # durations kept per stage: of more, an even sample
_MEASUREMENTS = 400  # of the memory over a run, at most


class Body(Struct, frozen=True, gc=False):
    """Bytes as JSON can hold them."""

    content: str
    encoding: Literal["text", "base64"] = "text"


class Result(Struct, frozen=True, kw_only=True, gc=False):
    """The response to one input."""

    input: str
    status: int
    phrase: str
    headers: dict[str, str]  # headers that the handler set, except content-type
    content_type: str | None
    body: str  # text, or base64 if the body is not UTF-8
    body_encoding: Literal["text", "base64"]
    chunks: tuple[Body, ...] = ()  # chunks of a streamed response; `body` is their concatenation
    reset: bool = False  # the connection ended before the response did
    stages: dict[str, float]  # milliseconds of preprocess, inference, postprocess and handle, for the whole batch
    seconds: float  # time of the worker for the whole batch
    batch: int = 1  # number of requests in the batch
    logs: str = ""  # output of the handler for the whole batch, in its first result
    metrics: tuple[str, ...] = ()
    data: tuple[str, ...] = ()  # rows that the handler got for the whole batch, with --show-data
    touched: tuple[Touched, ...] = ()  # new accesses of the batch, in its first result, with --trace
    troubles: tuple[Trouble, ...] = ()
    restarted: bool = False  # the worker died and was restarted
    file: str | None = None  # file with the body, with --output

    @property
    def ok(self) -> bool:
        """Whether the response succeeded."""
        return 200 <= self.status < 300 and not self.reset

    def json(self) -> Any:  # Any: whatever the handler answered
        """Return the body's JSON; raises ValueError for another body."""
        return json.loads(self.raw)

    @property
    def raw(self) -> bytes:
        """The body's bytes."""
        return base64.b64decode(self.body) if self.body_encoding == "base64" else self.body.encode()


def results_of(names: tuple[str, ...], outcome: BatchResult) -> tuple[Result, ...]:
    """Return one result per input of a batch; the first has the batch's prints."""
    logs, data = outcome.logs, tuple[str, ...]()
    metrics = tuple([line.removeprefix(METRICS) for line in outcome.metrics])
    if METRICS in logs or DATA in logs:  # the handler printed them among its own lines
        lines = logs.splitlines(keepends=True)
        logs = "".join([line for line in lines if not line.startswith((METRICS, DATA))])
        metrics = (*(line.strip().removeprefix(METRICS) for line in lines if line.startswith(METRICS)), *metrics)
        data = tuple([line.rstrip("\n").removeprefix(DATA) for line in lines if line.startswith(DATA)])
    stages = {stage: round(elapsed, 3) for stage, elapsed in outcome.stages.items()}
    seconds = round(outcome.seconds, 6)
    touched = outcome.touched
    results = []
    for name, response in zip(names, outcome.responses, strict=True):
        body = body_of(response.body)
        results.append(
            Result(
                input=name,
                status=response.status,
                phrase=response.phrase,
                headers=dict(response.headers),
                content_type=response.content_type,
                body=body.content,
                body_encoding=body.encoding,
                chunks=tuple([body_of(piece) for piece in response.pieces]),
                reset=response.reset,
                stages=stages,
                seconds=seconds,
                batch=len(outcome.responses),
                logs=logs,
                metrics=metrics,
                data=data,
                touched=touched,
                troubles=outcome.troubles,
                restarted=outcome.died,
            )
        )
        logs, metrics, data, touched = "", (), (), ()
    return tuple(results)


def body_of(data: bytes) -> Body:
    """Return bytes as text where they are UTF-8, else as base64."""
    try:
        return Body(data.decode("utf-8"))
    except UnicodeDecodeError:
        return Body(base64.b64encode(data).decode("ascii"), "base64")


def needs_of(touched: Iterable[Touched]) -> tuple[Touched, ...]:
    """Return each thing that was touched once, with all its stages; of a folder with many files the folder."""
    stages: dict[tuple[Access, str], list[str]] = defaultdict(list)
    groups: dict[tuple[Access, str], set[str]] = defaultdict(set)
    for each in sorted(touched, key=lambda each: _STAGES.index(each.stage)):
        stages[each.kind, each.target].append(each.stage)
        is_path = each.kind in (Access.READ, Access.WRITE)
        groups[each.kind, "/".join(each.target.split("/")[:4]) if is_path else each.target].add(each.target)
    needs = []
    for (kind, _), targets in sorted(groups.items()):
        for some in [targets] if len(targets) > _FEW else [{target} for target in sorted(targets)]:
            name = min(some) if len(some) == 1 else f"{commonpath(some)} ({len(some)} files)"
            seen = dict.fromkeys(stage for target in sorted(some) for stage in stages[kind, target])
            needs.append(Touched(kind, name, ", ".join(seen)))
    return tuple(needs)


class AnsweredInput(Struct, frozen=True, gc=False):
    """An input with its result."""

    input: Input
    result: Result


def batched(inputs: Iterable[Input], size: int) -> Iterator[tuple[Input, ...]]:
    """Yield inputs in groups: those that share a `batch` of their own together, the others `size` at a time.

    A refused input with a `batch` stays in its group, which goes to the handler without it; others are groups of one.
    """
    for (name, is_alone), group in groupby(
        inputs, key=lambda item: (item.batch, item.batch is None and item.refused is not None)
    ):
        if name is not None:
            yield tuple(group)
            continue
        while chunk := tuple(islice(group, 1 if is_alone else size)):
            yield chunk


def answered_inputs(
    pool: Pool, inputs: Iterable[Input], *, batch_size: int = 1, isolate: bool = False
) -> Generator[AnsweredInput, None, None]:
    """Yield every input with its result, in order; inputs are read as the pool needs them.

    `batch_size` is for inputs without a `batch` of their own. `isolate` repeats the inputs of a batch that failed one
    by one, so that a bad input fails alone; on the server, all of them fail.
    """
    waiting: deque[tuple[tuple[Input, ...], bool]] = deque()  # a group, and whether the handler gets some of it

    def batches() -> Iterator[Batch]:
        for group in batched(inputs, batch_size):
            requests = tuple([item.request for item in group if item.refused is None])
            waiting.append((group, bool(requests)))
            if requests:
                yield requests

    for outcomes in chain(outcomes_of(pool, batches(), isolate=isolate), ((),)):
        while waiting and not waiting[0][1]:
            yield from _answered(waiting.popleft()[0], ())
        if waiting:
            yield from _answered(waiting.popleft()[0], outcomes)


def outcomes_of(pool: Pool, batches: Iterable[Batch], *, isolate: bool = False) -> Iterator[tuple[BatchResult, ...]]:
    """Yield the result of each batch, in order; of one that failed and is isolated, the result of each request."""
    if not isolate:
        yield from ((outcome,) for outcome in pool.outcomes(batches))
        return
    sent: deque[Batch] = deque()

    def noted() -> Iterator[Batch]:
        for batch in batches:
            sent.append(batch)
            yield batch

    for outcome in pool.outcomes(noted()):
        batch = sent.popleft()
        if len(batch) > 1 and any(response.failed for response in outcome.responses):
            yield tuple(pool.outcomes((request,) for request in batch))
        else:
            yield (outcome,)


def _answered(group: tuple[Input, ...], outcomes: tuple[BatchResult, ...]) -> Iterator[AnsweredInput]:
    """Yield a group's results, in its order; `outcomes` are those of the requests that a handler got."""
    names = tuple([item.name for item in group if item.refused is None])
    batches = (names,) if len(outcomes) == 1 else ((name,) for name in names)
    results = chain.from_iterable(results_of(*each) for each in zip(batches, outcomes, strict=True))
    for item in group:
        outcome = None if item.refused is None else item.outcome
        yield AnsweredInput(item, next(results) if outcome is None else results_of((item.name,), outcome)[0])


class Percentiles(Struct, frozen=True):
    """The 50th, 90th and 99th percentile of a stage's durations, in milliseconds."""

    p50: float
    p90: float
    p99: float


class Reservoir:
    """An even sample of a stream of numbers (Vitter's algorithm R)."""

    def __init__(self) -> None:
        self._kept: list[float] = []
        self._seen = 0
        self._random = random.Random(0)  # noqa: S311 - a sample, not a secret; the same in every run

    def add(self, value: float) -> None:
        """Add one number."""
        self._seen += 1
        if len(self._kept) < _KEPT:
            self._kept.append(value)
            return
        place = int(self._random.random() * self._seen)
        if place < _KEPT:
            self._kept[place] = value

    def percentiles(self) -> Percentiles:
        """Return the percentiles of the numbers so far; there must be one."""
        ordered = sorted(self._kept)
        last = len(ordered) - 1
        return Percentiles(*(round(ordered[round(last * share)], 3) for share in (0.5, 0.9, 0.99)))


class Summary(Struct, frozen=True, kw_only=True):
    """The summary of a run."""

    inputs: int
    answered: int  # with a status of 2xx
    short: int  # all others
    before: int = 0  # inputs with a result in the file of --resume; they are in none of the other figures
    seconds: float  # from the first input to the last response
    throughput: float  # inputs per second
    load: dict[str, float] = {}  # ms: manifest, import, config, initialize; of the first worker
    stages: dict[str, Percentiles]  # of calls of the handler
    restarts: int
    peak_memory: int | None  # bytes, of the worker that had most


class RunStatistics:
    """Keeps the little that a summary needs of each result."""

    def __init__(self) -> None:
        self._start = self._last = time.perf_counter()
        self._inputs = 0
        self._answered = 0
        self._stages: dict[str, Reservoir] = defaultdict(Reservoir)
        self._of_batch = 0  # results still to come of the current batch

    def add(self, result: Result) -> None:
        """Count one result; a batch's stages count once, with its first."""
        is_first, self._of_batch = self._of_batch == 0, (self._of_batch or result.batch) - 1
        self.add_batch(1, result.ok, result.stages if is_first else {})

    def add_batch(self, inputs: int, answered: int, stages: Mapping[str, float]) -> None:
        """Count some inputs, how many of them succeeded, and the milliseconds of their stages."""
        self._last = time.perf_counter()  # ending the workers is not part of the run
        self._inputs += inputs
        self._answered += answered
        for stage, elapsed in stages.items():
            self._stages[stage].add(elapsed)

    def summary(
        self, *, restarts: int, peak_memory: int | None, loaded: Loaded | None = None, before: int = 0
    ) -> Summary:
        """Return the summary so far, with the figures of the pool and of an earlier run."""
        seconds = self._last - self._start
        return Summary(
            inputs=self._inputs,
            answered=self._answered,
            short=self._inputs - self._answered,
            before=before,
            seconds=round(seconds, 6),
            throughput=round(self._inputs / seconds, 2) if seconds else 0.0,
            load={stage: round(elapsed, 3) for stage, elapsed in loaded.stages.items()} if loaded else {},
            stages={stage: sample.percentiles() for stage, sample in self._stages.items()},
            restarts=restarts,
            peak_memory=peak_memory or None,
        )


class Throughput(Struct, frozen=True, kw_only=True):
    """The speed of one batch size."""

    batch_size: int
    inputs: int
    short: int  # without a 2xx
    seconds: float
    throughput: float  # inputs per second
    stages: dict[str, Percentiles]  # ms per call of the handler


class Memory(Struct, frozen=True, kw_only=True):
    """The worker's resident memory."""

    before: int  # bytes, after the warm-up
    after: int
    peak: int


class BenchmarkFigures(Struct, frozen=True, kw_only=True):
    """The results of a benchmark."""

    inputs: int  # different ones
    repeat: int
    warmup: int
    paces: tuple[Throughput, ...]  # by batch size
    memory: Memory | None  # None: the system does not tell


def sizes_up_to(maximum: int) -> tuple[int, ...]:
    """Return 1, 2, 4, … and `maximum`."""
    doubled = [1 << power for power in range(maximum.bit_length()) if 1 << power < maximum]
    return (*doubled, maximum)


def measure(
    pool: ModelPool,
    inputs: Iterable[Input],
    sizes: Iterable[int],
    *,
    repeats: int,  # of all inputs, for each size
    warmup: int,  # repeats before that
    on_pace: Callable[[Throughput], None] = lambda _: None,  # receives each size's figures when they are known
) -> BenchmarkFigures:
    """Time inputs, at least one, in batches of several sizes; all of them are in memory.

    Raises LoadError and WorkerError when a worker cannot be restarted.
    """
    requests, sizes = tuple(item.request for item in inputs if item.refused is None), tuple(sizes)
    memory = MemoryWatch(pool, repeats * len(requests) * len(sizes))
    paces: list[Throughput] = []
    for size in sizes:
        for _ in pool.outcomes(_batches(requests, size, warmup)):
            pass
        memory.begin()
        tally = RunStatistics()
        for outcome in pool.outcomes(_batches(requests, size, repeats)):
            answered = sum(200 <= response.status < 300 and not response.reset for response in outcome.responses)
            tally.add_batch(len(outcome.responses), answered, outcome.stages)
            memory.measure(len(outcome.responses))
        total = tally.summary(restarts=0, peak_memory=None)
        paces.append(
            Throughput(
                batch_size=size,
                inputs=total.inputs,
                short=total.short,
                seconds=total.seconds,
                throughput=total.throughput,
                stages=total.stages,
            )
        )
        on_pace(paces[-1])
    return BenchmarkFigures(
        inputs=len(requests),
        repeat=repeats,
        warmup=warmup,
        paces=tuple(paces),
        memory=memory.found(),
    )


def _batches(requests: tuple[Request, ...], size: int, passes: int) -> Iterator[Batch]:
    stream = chain.from_iterable(repeat(requests, passes))
    while batch := tuple(islice(stream, size)):
        yield batch


class MemoryWatch:
    """Measures the worker's memory, evenly over a run and not too often."""

    def __init__(self, pool: ModelPool, inputs: int) -> None:
        self._pool = pool
        self._every = max(1, inputs // _MEASUREMENTS)
        self._answered = self._measured = 0
        self._sizes: list[int] = []  # bytes

    def begin(self) -> None:
        """Begin another batch size, which needs a different amount of memory."""
        self._measured = self._answered - self._every
        self.measure(0)

    def measure(self, answered: int) -> None:
        """Count some inputs, and measure if it is time."""
        self._answered += answered
        if self._answered - self._measured >= self._every:
            self._measured = self._answered
            if (resident := self._pool.resident_memory()) is not None:
                self._sizes.append(resident)

    def found(self) -> Memory | None:
        """Return the worker's memory over the run."""
        sizes = self._sizes
        return Memory(before=sizes[0], after=sizes[-1], peak=max(sizes)) if sizes else None
