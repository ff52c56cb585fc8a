"""Single workers, as the tests talk to them; the pool sends batches ahead instead."""

import time
from collections.abc import Mapping
from pathlib import Path

from conformance.forking import shared

from marpack.protocol.messages import Load
from marpack.runner.client import BatchResult, Worker, wait
from marpack.torchserve.http import Part, Request


def one(word: str) -> tuple[Request, ...]:
    """Return a batch of one request with this body."""
    return (Request(id="id", parts=(Part("body", word.encode()),)),)


def launch(*, environment: Mapping[str, str] | None = None, max_memory: int | None = None) -> Worker:
    """Return a worker that waits for a model, forked from a process that has our code imported, but not torch."""
    return Worker(shared(with_torch=False).launch(environment=environment, max_memory=max_memory))


def started(
    load: Load, *, environment: Mapping[str, str] | None = None, timeout: float | None = None, forks: bool = True
) -> Worker:
    """Return a new worker with a model loaded; one that is not forked has its own interpreter and supervisor."""
    worker = (launch if forks else Worker.spawn)(environment=environment)
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
            return worker.abort_batch(timed_out=True)
    return worker.outcome() or worker.abort_batch()


def runs(pid: int) -> bool:
    """Return whether a process exists and is not a zombie."""
    try:
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] != "Z"
    except FileNotFoundError:
        return False


def wait_for_end(*pids: int) -> None:
    """Wait until none of the processes runs."""
    until = time.monotonic() + 60
    while any(map(runs, pids)):
        assert time.monotonic() < until
        time.sleep(0.02)
