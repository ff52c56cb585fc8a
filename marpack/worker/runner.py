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
    """Yield inputs in groups: those that share a `batch` of their own together, the others `size` at a time.

    One that is refused stays in the group of its `batch`, which goes to the handler without it; else it stands alone.
    """
    for (name, alone), group in groupby(inputs, key=lambda item: (item.batch, _is_alone(item))):
        if alone:
            yield from ((item,) for item in group)
            continue
        if name is not None:
            yield tuple(group)
            continue
        while chunk := tuple(islice(group, size)):
            yield chunk


def _is_alone(item: Input) -> bool:
    return item.batch is None and item.refused is not None


def run(pool: Pool, inputs: Iterable[Input], *, batch_size: int = 1) -> Iterator[Result]:
    """Yield one result per input, in order; inputs are read only as the pool asks for them."""
    return (exchange.result for exchange in exchanges(pool, inputs, batch_size=batch_size))


def exchanges(pool: Pool, inputs: Iterable[Input], *, batch_size: int = 1) -> Iterator[Exchange]:
    """Yield every input with its result, in order; inputs are read only as the pool asks for them."""
    waiting: deque[tuple[Input, ...]] = deque()

    def batches() -> Iterator[Batch]:
        for group in batched(inputs, batch_size):
            waiting.append(group)
            if asked := _asked(group):
                yield tuple(item.request for item in asked)

    for outcome in pool.outcomes(batches()):
        yield from _refused(waiting)
        yield from _answered(waiting.popleft(), outcome)
        yield from _refused(waiting)
    yield from _refused(waiting)


def _asked(group: tuple[Input, ...]) -> tuple[Input, ...]:
    """Return those of a group that a handler gets to see."""
    return tuple(item for item in group if item.refused is None)


def _answered(group: tuple[Input, ...], outcome: Outcome | None = None) -> Iterator[Exchange]:
    """Yield a group's results, in its order; `outcome` is of those that a handler saw."""
    seen = () if outcome is None else results_of(tuple(item.name for item in _asked(group)), outcome)
    answers = iter(seen)
    for item in group:
        if item.outcome is None:
            yield Exchange(item, next(answers))
        else:
            yield Exchange(item, *results_of((item.name,), item.outcome))


def _refused(waiting: deque[tuple[Input, ...]]) -> Iterator[Exchange]:
    """Yield the answers of the groups at the head of the queue of which no handler sees anything."""
    while waiting and not _asked(waiting[0]):
        yield from _answered(waiting.popleft())
