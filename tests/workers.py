"""Single workers, as the tests talk to them; the pool sends batches ahead instead."""

from collections.abc import Mapping

from marpack.runner.client import BatchResult, Worker, wait
from marpack.torchserve.messages import Load, Request


def started(load: Load, *, environment: Mapping[str, str] | None = None, timeout: float | None = None) -> Worker:
    """Return a new worker with a model loaded; raises LoadError and WorkerError."""
    worker = Worker.spawn(environment=environment)
    worker.load(load, timeout=timeout)
    return worker


def predict(worker: Worker, requests: tuple[Request, ...], *, timeout: float | None = None) -> BatchResult:
    """Have one batch handled; a worker that dies or exceeds `timeout` seconds costs this batch only."""
    worker.submit(requests)
    while not worker.over:
        outcome = worker.outcome()
        if outcome is not None:
            return outcome
        if not wait((worker,), timeout):
            return worker.give_up(timed_out=True)
    return worker.outcome() or worker.give_up()
