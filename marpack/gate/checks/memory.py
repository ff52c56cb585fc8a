"""The worker's memory does not grow with the requests it has answered, and it goes on answering them."""

from itertools import cycle, islice, pairwise

from msgspec import Struct

from marpack.gate.candidate import Candidate
from marpack.gate.sample_runner import PackedSample, SampleRunner
from marpack.gate.verdicts import CheckOutcome, failed, passed, problem, skipped
from marpack.runner.results import Result

_WINDOWS = 4  # after one that warms up
_SECONDS = 0.1  # per window, if that is enough requests
_MAX_COUNT = 2000  # requests per window
_ENOUGH = 30  # fewer only where there is no time for them: so many hide no leak of a picture each in what wavers
_FEWEST = 3
_CHUNK = 10  # requests sent ahead of their answers
_LEAK = 512  # bytes per request
_GROWTH = 512 << 10  # bytes per window: allocators waver by less, or by about what one answer takes
_HINT = "keep no inputs or outputs on the handler; tensors under torch.inference_mode() hold no graph"


class Window(Struct, frozen=True):
    """The worker, after so many requests more."""

    resident: int | None  # bytes; None: the system does not tell
    restarts: int = 0  # so far


def run(candidate: Candidate) -> CheckOutcome:
    """Warm up, then measure resident memory over windows of equally many requests: a leak grows in every one."""
    sample_runner = candidate.sample_runner
    if not sample_runner.answered:
        return skipped("there is no sample with an answer to repeat")
    count = requests_per_window(sample_runner.pace, sample_runner.seconds_per_check)
    if count < _FEWEST:
        return skipped(f"{sample_runner.pace:.1f} s per request is too slow to repeat often enough (--patience)")
    requests = cycle(sample_runner.answered)
    windows: list[Window] = []
    for number in range(_WINDOWS + 1):
        sent, worn = _send(sample_runner, requests, count)
        if worn is not None:
            why = f": {worn.troubles[0].message}" if worn.troubles else ""
            message = f"after {number * count + sent} requests more, a sample is answered with {worn.status}{why}"
            return failed(problem("worn-out", message, hint=_HINT))
        windows.append(Window(sample_runner.pool.resident_memory(), sample_runner.pool.restarts))
    answer = max(len(sample_runner.alone(sample).body) for sample in sample_runner.answered)
    return verdict_of(windows, count, max(_GROWTH, answer))


def requests_per_window(pace: float, seconds: float) -> int:
    """Return how many requests each window holds, by the seconds that one takes and those that all may take."""
    affordable = int(seconds / (_WINDOWS + 1) / max(pace, 1e-6))
    return min(_MAX_COUNT, affordable, max(_ENOUGH, int(_SECONDS / max(pace, 1e-6))))


def verdict_of(windows: list[Window], count: int, wavering: int) -> CheckOutcome:
    """Judge windows of `count` requests each, the first of which warmed up; `wavering` bytes are no growth."""
    if len({window.restarts for window in windows}) > 1:
        return skipped("not judged: the worker was started again while its memory was measured")
    sizes = [window.resident for window in windows if window.resident is not None]
    if len(sizes) < len(windows):
        return skipped("this system does not tell a process's memory")
    growth = [after - before for before, after in pairwise(sizes)]
    if all(grown > max(wavering, _LEAK * count) for grown in growth):
        rate = sum(growth) / len(growth) / count / 1024
        return failed(problem("memory-grows", f"the worker grows by {rate:.1f} KiB per request", hint=_HINT))
    return passed(f"{count * len(windows)} requests, {sum(growth) / (1 << 20):+.1f} MiB")


def _send(sample_runner: SampleRunner, samples: "cycle[PackedSample]", count: int) -> tuple[int, Result | None]:
    """Send so many requests, or until one fails: return how many were answered, and the failure."""
    size = _CHUNK if sample_runner.pace < _SECONDS / _CHUNK else 1
    for start in range(0, count, size):
        chunk = list(islice(samples, min(size, count - start)))
        for sent, result in enumerate(sample_runner.ask(chunk), start + 1):
            if not result.ok:
                return sent, result
    return count, None
