"""Inputs → results: batched, answered by a pool, told in the inputs' order."""

from collections import deque
from collections.abc import Iterable, Iterator
from itertools import groupby, islice

from msgspec import Struct

from marpack.worker.client import Outcome
from marpack.worker.inputs import Input
from marpack.worker.pool import Batch, Pool
from marpack.worker.results import Result, results_of


class Exchange(Struct, frozen=True):
    """What was asked and what was answered."""

    input: Input
    result: Result


def batched(inputs: Iterable[Input], size: int) -> Iterator[tuple[Input, ...]]:
    """Yield inputs in groups: those that share a `batch` of their own together, the others `size` at a time."""
    for (name, refused), group in groupby(inputs, key=lambda item: (item.batch, item.refused is not None)):
        if refused:
            yield from ((item,) for item in group)
            continue
        if name is not None:
            yield tuple(group)
            continue
        while chunk := tuple(islice(group, size)):
            yield chunk


def run(pool: Pool, inputs: Iterable[Input], *, batch_size: int = 1) -> Iterator[Result]:
    """Yield one result per input, in order; inputs are read only as the pool asks for them."""
    return (exchange.result for exchange in exchanges(pool, inputs, batch_size=batch_size))


def exchanges(pool: Pool, inputs: Iterable[Input], *, batch_size: int = 1) -> Iterator[Exchange]:
    """Yield every input with its result, in order; inputs are read only as the pool asks for them."""
    waiting: deque[tuple[Input, ...]] = deque()

    def batches() -> Iterator[Batch]:
        for group in batched(inputs, batch_size):
            waiting.append(group)
            if group[0].refused is None:
                yield tuple(item.request for item in group)

    for outcome in pool.outcomes(batches()):
        yield from _refused(waiting)
        yield from _answered(waiting.popleft(), outcome)
        yield from _refused(waiting)
    yield from _refused(waiting)


def _answered(group: tuple[Input, ...], outcome: Outcome) -> Iterator[Exchange]:
    results = results_of(tuple(item.name for item in group), outcome)
    return map(Exchange, group, results)


def _refused(waiting: deque[tuple[Input, ...]]) -> Iterator[Exchange]:
    """Yield the answers of those at the head of the queue that are answered without any handler."""
    while waiting and (outcome := waiting[0][0].outcome) is not None:
        yield from _answered(waiting.popleft(), outcome)
