"""Inputs → results: batched, answered by a pool, told in the inputs' order."""

from collections import deque
from collections.abc import Iterable, Iterator
from itertools import groupby, islice

from marpack.worker.inputs import Input
from marpack.worker.pool import Batch, Pool
from marpack.worker.results import Result, results_of


def batched(inputs: Iterable[Input], size: int) -> Iterator[tuple[Input, ...]]:
    """Yield inputs in groups: those that share a `batch` of their own together, the others `size` at a time."""
    for name, group in groupby(inputs, key=lambda item: item.batch):
        if name is not None:
            yield tuple(group)
            continue
        while chunk := tuple(islice(group, size)):
            yield chunk


def run(pool: Pool, inputs: Iterable[Input], *, batch_size: int = 1) -> Iterator[Result]:
    """Yield one result per input, in order; inputs are read only as the pool asks for them."""
    names: deque[tuple[str, ...]] = deque()

    def batches() -> Iterator[Batch]:
        for group in batched(inputs, batch_size):
            names.append(tuple(item.name for item in group))
            yield tuple(item.request for item in group)

    for outcome in pool.outcomes(batches()):
        yield from results_of(names.popleft(), outcome)
