"""The worker's memory does not grow with the requests it has answered."""

import time
from itertools import cycle, islice, pairwise

from marpack.gate.subject import Subject
from marpack.gate.verdicts import Outcome, failed, passed, problem, skipped

_WINDOWS = 4
_REQUESTS = 100  # per window
_SECONDS = 1.5  # per window at most
_LEAK = 16 << 10  # bytes per request: allocators waver by less


def run(subject: Subject) -> Outcome:
    """Warm up, then measure resident memory over windows of requests: a leak grows in every one of them."""
    if not subject.answered:
        return skipped("there is no sample with an answer to repeat")
    _window(subject)
    sizes = [_resident(subject)]
    counts = []
    for _ in range(_WINDOWS):
        counts.append(_window(subject))
        sizes.append(_resident(subject))
    if None in sizes:
        return skipped("this system does not tell a process's memory")
    growth = [(after or 0) - (before or 0) for before, after in pairwise(sizes)]
    rates = [grown / count for grown, count in zip(growth, counts, strict=True)]
    if min(rates) > _LEAK:
        rate = sum(growth) / sum(counts)
        return failed(
            problem(
                "memory-grows",
                f"the worker grows by {rate / 1024:.0f} KiB per request",
                hint="keep no inputs or outputs on the handler; tensors under torch.inference_mode() hold no graph",
            )
        )
    return passed(f"{sum(counts)} requests, {sum(growth) / (1 << 20):+.1f} MiB")


def _window(subject: Subject) -> int:
    """Send requests until there were enough or it took too long; return how many."""
    deadline = time.monotonic() + _SECONDS
    sent = 0
    for sample in islice(cycle(subject.answered), _REQUESTS):
        subject.ask([sample])
        sent += 1
        if time.monotonic() > deadline:
            break
    return sent


def _resident(subject: Subject) -> int | None:
    return subject.pool.resident_memory()
