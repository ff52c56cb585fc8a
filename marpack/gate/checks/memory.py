"""The worker's memory does not grow with the requests it has answered, and it goes on answering them."""

import time
from itertools import cycle, islice, pairwise

from msgspec import Struct

from marpack.gate.candidate import Candidate
from marpack.gate.sample_runner import PackedSample, SampleRunner
from marpack.gate.verdicts import CheckOutcome, failed, passed, problem, skipped
from marpack.runner.results import Result

_WINDOWS = 4  # after one that warms up
_SECONDS = 0.1  # per window, if it holds enough requests by then
_MAX_COUNT = 2000  # requests per window
_ENOUGH = 10
_FEWEST = 3
_CHUNK = 10  # requests sent ahead of their answers
_LEAK = 512  # bytes per request
_GROWTH = 512 << 10  # bytes per window: allocators waver by less, or by about what one answer takes
_HINT = "keep no inputs or outputs on the handler; tensors under torch.inference_mode() hold no graph"


class _Window(Struct, frozen=True):
    """Some requests in a row."""

    requests: int
    resident: int | None  # bytes, after them
    failed: Result | None = None


def run(candidate: Candidate) -> CheckOutcome:
    """Warm up, then measure resident memory over windows of requests: a leak grows in every one of them."""
    sample_runner = candidate.sample_runner
    if not sample_runner.answered:
        return skipped("there is no sample with an answer to repeat")
    if sample_runner.pace * _FEWEST * (_WINDOWS + 1) > sample_runner.seconds_per_check:
        return skipped(f"{sample_runner.pace:.1f} s per request is too slow to repeat often enough (--patience)")
    requests = cycle(sample_runner.answered)
    sent = 0
    windows: list[_Window] = []
    for _ in range(_WINDOWS + 1):
        windows.append(_window(sample_runner, requests))
        sent += windows[-1].requests
        worn = windows[-1].failed
        if worn is not None:
            why = f": {worn.troubles[0].message}" if worn.troubles else ""
            message = f"after {sent} requests more, a sample is answered with {worn.status}{why}"
            return failed(problem("worn-out", message, hint=_HINT))
    answer = max(len(sample_runner.alone(sample).body) for sample in sample_runner.answered)
    return _judged(windows, sent, max(_GROWTH, answer))


def _judged(windows: list[_Window], sent: int, wavering: int) -> CheckOutcome:
    sizes = [window.resident for window in windows]
    if None in sizes:
        return skipped("this system does not tell a process's memory")
    growth = [(after or 0) - (before or 0) for before, after in pairwise(sizes)]
    counts = [window.requests for window in windows[1:]]
    if all(grown > max(wavering, _LEAK * count) for grown, count in zip(growth, counts, strict=True)):
        rate = sum(growth) / sum(counts) / 1024
        return failed(problem("memory-grows", f"the worker grows by {rate:.1f} KiB per request", hint=_HINT))
    return passed(f"{sent} requests, {sum(growth) / (1 << 20):+.1f} MiB")


def _window(sample_runner: SampleRunner, samples: "cycle[PackedSample]") -> _Window:
    """Send requests until there were enough, it took long enough, or one fails."""
    start = time.monotonic()
    longest = sample_runner.seconds_per_check / (_WINDOWS + 1)
    sent = 0
    while sent < _MAX_COUNT:
        chunk = list(islice(samples, _CHUNK if sample_runner.pace < _SECONDS / _CHUNK else 1))
        results = sample_runner.ask(chunk)
        sent += len(chunk)
        short = next((result for result in results if not result.ok), None)
        elapsed = time.monotonic() - start
        if short is not None or elapsed > (_SECONDS if sent >= _ENOUGH else longest):
            return _Window(sent, sample_runner.pool.resident_memory(), short)
    return _Window(sent, sample_runner.pool.resident_memory())
