"""The worker's memory does not grow with the requests it has answered, and it goes on answering them."""

import math
import time
from itertools import cycle, islice, pairwise

from msgspec import Struct

from marpack.findings import Finding, Severity
from marpack.gate.candidate import Candidate
from marpack.gate.sample_runner import SampleRunner
from marpack.gate.verdicts import CheckOutcome, failed, passed, problem, skipped
from marpack.runner.results import Result

_WINDOWS = 4  # after one that warms up
_SECONDS = 0.06  # per window, if that is enough requests
_MAX_COUNT = 2000  # requests per window, at first
_ENOUGH = 30  # fewer only where there is no time for them: so many hide no leak of a picture each in what wavers
_FEWEST = 3
_RESERVE = 0.9  # of the budget is planned for: a window that is not finished shows nothing
_CHUNK = 10  # requests sent ahead of their answers
_LEAK = 512  # bytes per request
_NOTICED = 32 << 10  # bytes per request: what kept that much would have stood out, or it is not said to be sound
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
    answer = max(len(sample_runner.alone(sample).body) for sample in sample_runner.answered)
    requests = _Requests(sample_runner)
    outcome = _measured(requests, max(_GROWTH, answer))
    if requests.worn is None:
        return outcome
    why = f": {requests.worn.troubles[0].message}" if requests.worn.troubles else ""
    message = f"after {requests.sent} requests more, a sample is answered with {requests.worn.status}{why}"
    return failed(problem("worn-out", message, hint=_HINT))


class _Requests:
    """The samples, again and again, until one fails or the budget is spent."""

    def __init__(self, sample_runner: SampleRunner) -> None:
        self.seconds = sample_runner.seconds_per_check
        self.sent = 0
        self.worn: Result | None = None  # the answer that was none
        self._runner = sample_runner
        self._samples = cycle(sample_runner.answered)
        self._start = time.monotonic()

    @property
    def pace(self) -> float:
        """Seconds that a request takes, beside whatever else the machine does now."""
        return (time.monotonic() - self._start) / self.sent if self.sent else self._runner.pace

    @property
    def seconds_left(self) -> float:
        """Seconds of the budget that are not spent."""
        return self.seconds - (time.monotonic() - self._start)

    def warm_up(self) -> int:
        """Send a few requests; return how many each window holds, 0 if the budget is too small for them."""
        # The first answer can be slow in either place: both must say so.
        if not self.send(1) or not requests_per_window(min(self.pace, self._runner.pace), self.seconds_left):
            return 0
        return requests_per_window(self.pace, _RESERVE * self.seconds_left) if self.send(_FEWEST - 1) else 0

    def has_time(self, count: int) -> bool:
        """Return whether so many more can be answered within the budget."""
        return count * self.pace <= self.seconds_left

    def send(self, count: int) -> bool:
        """Send so many more; return whether all were answered in time."""
        end = self.sent + count
        size = _CHUNK if self.pace < _SECONDS / _CHUNK else 1
        while self.sent < end and self.seconds_left > 0:
            for result in self._runner.ask(list(islice(self._samples, min(size, end - self.sent)))):
                self.sent += 1
                if not result.ok:
                    self.worn = result
                    return False
        return self.sent == end

    def window(self) -> Window:
        """Return how the worker is now."""
        return Window(self._runner.pool.resident_memory(), self._runner.pool.restarts)


def _measured(requests: _Requests, wavering: int) -> CheckOutcome:
    """Look at windows of equally many requests, and while they are not clear, at half as many of twice the requests.

    Ends as soon as the rest of the budget is too short for a verdict.
    """
    windows: list[Window] = []
    looked = 0  # requests per window, when they were last looked at
    count = requests.warm_up()
    while count and requests.has_time(requests_to_verdict(windows, count, wavering)) and requests.send(count):
        windows.append(requests.window())  # the first one warmed up
        outcome = verdict_of(windows, count, wavering, requests.sent)
        if outcome is not None:
            return outcome
        if len(windows) > _WINDOWS:
            windows, looked, count = windows[::2], count, count * 2
    if looked >= _telling(wavering):
        why = f"after {requests.sent} requests it grows at times, and at times it does not"
        return undecided(why, hint=_more_time(2 * requests.seconds))
    enough = _telling(wavering) * (_WINDOWS + 1)
    why = f"{requests.seconds:g} s are too short for the {enough} requests that show it"
    return undecided(why, hint=_more_time(max(1.5 * requests.pace * enough, requests.seconds + 1)))


def requests_to_verdict(windows: list[Window], count: int, wavering: int) -> int:
    """Return how many more requests windows of `count` need to decide whether memory grows.

    Larger windows are needed if one did not grow, which excludes a leak, and they are too small to prove that.
    """
    missing = (_WINDOWS + 1 - len(windows)) * count
    can_grow = all(grown > _least(count, wavering) for grown in _growth(windows))
    return missing if can_grow or count >= _telling(wavering) else missing + _WINDOWS * count


def requests_per_window(pace: float, seconds: float) -> int:
    """Return how many requests each window holds, by the seconds that one takes and those that all may take."""
    affordable = int(seconds / (_WINDOWS + 1) / max(pace, 1e-6))
    count = min(_MAX_COUNT, affordable, max(_ENOUGH, int(_SECONDS / max(pace, 1e-6))))
    return count if count >= _FEWEST else 0


def verdict_of(windows: list[Window], count: int, wavering: int, sent: int) -> CheckOutcome | None:
    """Judge windows of `count` requests each, the first of which warmed up; `wavering` bytes are no growth.

    Returns None while it is not clear: what leaks grows in every window, what does not stops growing.
    """
    if len({window.restarts for window in windows}) > 1:
        return undecided("the worker was started again meanwhile", hint="marpack run --logs shows why it ended")
    if any(window.resident is None for window in windows):
        return undecided("this system does not tell a process's memory", hint="check it where there is a /proc")
    if len(windows) <= _WINDOWS:
        return None
    growth, least = _growth(windows), _least(count, wavering)
    if all(grown > least for grown in growth):
        rate = sum(growth) / len(growth) / count / 1024
        return failed(problem("memory-grows", f"the worker grows by {rate:.1f} KiB per request", hint=_HINT))
    if count < _telling(wavering) or sum(growth[-2:]) > least:
        return None
    return passed(f"{sent} requests, {sum(growth) / (1 << 20):+.1f} MiB")


def _growth(windows: list[Window]) -> list[int]:
    sizes = [window.resident for window in windows if window.resident is not None]
    return [after - before for before, after in pairwise(sizes)]


def _least(count: int, wavering: int) -> int:
    """Return the bytes that a window of `count` requests must grow by to be one of a leak."""
    return max(wavering, _LEAK * count)


def _telling(wavering: int) -> int:
    """Return of how many requests a leak stands out of what wavers."""
    return math.ceil(wavering / _NOTICED)


def _more_time(seconds: float) -> str:
    return f"give it more time: --patience {math.ceil(seconds)}"


def undecided(why: str, *, hint: str) -> CheckOutcome:
    """Return that neither yes nor no can be said: no failure, and nothing that goes without saying."""
    message = f"whether memory grows cannot be told: {why}"
    finding = Finding(code="memory-undecided", severity=Severity.WARNING, message=message, hint=hint)
    return CheckOutcome(reason="undecided", findings=(finding,), skipped=True)
