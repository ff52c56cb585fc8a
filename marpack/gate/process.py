"""The checks of the worker process: loading, memory, the model folder, and what the handler accesses."""

import math
import time
from fnmatch import fnmatchcase
from itertools import cycle, islice, pairwise
from pathlib import Path

from msgspec import Struct
from msgspec.structs import replace

from marpack import finding_codes as codes
from marpack.errors import TorchrunError, WorkerError
from marpack.findings import Finding, Severity
from marpack.gate.candidate import Candidate, SampleRunner
from marpack.gate.verdicts import CheckOutcome, append_cause, judge, problem_of, skip
from marpack.project.schema import Allowance
from marpack.protocol.messages import Access, Touched
from marpack.runner.client import LoadError
from marpack.runner.results import Result, needs_of
from marpack.runner.session import device_mismatch

# Troubles that the server passes over in silence and that the author did not choose.
_GRAVE = {"not-compiled", "compile-failed", "backend-missing"}

_WRITTEN_SHOWN = 10  # files

_KEYS = {Access.RESOLVE: Access.CONNECT}  # kind → its key in marpack.yaml, where the names differ

_WINDOWS = 4  # after one that warms up
_SECONDS = 0.06  # per window, if that is enough requests
_MAX_COUNT = 2000  # requests per window, at first
_ENOUGH = 30  # requests per window, if there is time: they show a leak of one picture each above the noise
_FEWEST = 3
_RESERVE = 0.9  # share of the budget to plan for: an unfinished window shows nothing
_CHUNK = 10  # requests sent ahead of their responses
_LEAK = 512  # bytes per request
_NOTICED = 32 << 10  # bytes per request: a leak of that size must be visible before memory counts as stable
_GROWTH = 512 << 10  # bytes per window: allocators waver by less, or by about the size of one response


def check_loading(candidate: Candidate) -> CheckOutcome:
    """Start a worker with the model; fail also for what the server would pass over in silence."""
    try:
        loaded = candidate.sample_runner.pool.loads[0]
    except TorchrunError as error:  # no fault of the archive, and no proof either
        return skip(error.what, replace(problem_of(error), severity=Severity.WARNING))
    except LoadError as error:
        trouble = error.trouble
        place = candidate.place(trouble.frames)
        stage, failure = trouble.stage, f"{trouble.kind}: {trouble.message}"
        if trouble.only_here:  # no fault of the archive, and no proof either
            return skip(
                "the model cannot be loaded here",
                codes.LACKING_HERE.at(place, hint=error.hint, stage=stage, error=failure),
            )
        return judge("", [codes.DOES_NOT_LOAD.at(place, hint=error.hint, stage=stage, error=failure)])
    except WorkerError as error:
        return judge("", [codes.WORKER_DOES_NOT_LOAD.at(hint=error.hint, reason=error.what)])
    findings = [
        Finding(
            code=trouble.kind,
            severity=Severity.ERROR if trouble.kind in _GRAVE else Severity.NOTE,
            message=trouble.message,
            hint=trouble.hint,
        )
        for trouble in loaded.troubles
    ]
    elsewhere = device_mismatch(candidate.options.device.name, loaded.device)
    device = f" on {loaded.device}" if loaded.device else ""
    milliseconds = sum(loaded.stages.values())
    duration = f"{milliseconds:.0f} ms" if milliseconds < 1000 else f"{milliseconds / 1000:.2f} s"
    return judge(f"{loaded.handler}{device}, in {duration}", [*findings, *([elsewhere] if elsewhere else [])])


def check_model_folder(candidate: Candidate) -> CheckOutcome:
    """Compare the model folder with the archive, and with its state before the handler was loaded.

    On a server the folder is shared by workers, and may be read-only.
    """
    runner = candidate.sample_runner
    _ = runner.pool, runner.successful  # loading and handling requests are what might write
    return judge("unchanged", [codes.MODEL_FOLDER_WRITTEN.at(name=name) for name in runner.written()[:_WRITTEN_SHOWN]])


def check_hermetic(candidate: Candidate) -> CheckOutcome:
    """Fail for everything outside the archive and its packages that was accessed, unless marpack.yaml allows it."""
    runner, allowance = candidate.sample_runner, candidate.allowance
    runner.replay(runner.successful[:1])  # its response brings what threads have accessed since the last one
    accessed = runner.pool.touched
    allowed = {each for each in accessed if is_allowed(each, allowance)}
    findings = []
    for need in needs_of(accessed - allowed):
        hint = None
        if need.kind is not Access.UNKNOWN:
            pack = "pack it, or " if need.kind is Access.READ else ""
            file = "marpack.yaml" if candidate.resolved.project else "its project's marpack.yaml, and check the project"
            hint = f"{pack}allow it in {file}: hermetic: {_KEYS.get(need.kind, need.kind)}: […]"
        findings.append(codes.NOT_HERMETIC.at(hint=hint, target=need.target, kind=need.kind, stage=need.stage))
    needs = needs_of(allowed)
    findings += [codes.ALLOWED_NEED.at(target=need.target, kind=need.kind, stage=need.stage) for need in needs]
    network = "in a network namespace of its own"
    if not runner.pool.is_offline:
        why = "marpack.yaml allows some" if allowance.connect else "this user or system may not"
        network = f"native code's connections were not cut off: {why}"
    return judge(f"as Python reports; {network}", findings)


def is_allowed(accessed: Touched, allowance: Allowance) -> bool:
    """Return whether a pattern of its kind matches the target, its folder, its host, or its bare name."""
    kind, target = accessed.kind, accessed.target
    patterns: list[str] = getattr(allowance, _KEYS.get(kind, kind), [])
    spellings = {target}
    if kind in (Access.READ, Access.WRITE):
        folders = [str(Path(each).expanduser()) for each in patterns]
        patterns = [*folders, *(f"{folder}/*" for folder in folders)]
    elif kind is Access.RESOLVE:
        patterns = [each.partition(":")[0] for each in patterns]
    elif " -c " not in target:  # of a shell the whole command counts
        has_port = kind in (Access.CONNECT, Access.LISTEN)
        spellings.add(target.rpartition(":")[0] if has_port else target.rpartition("/")[2])
    return any(fnmatchcase(spelling, pattern) for spelling in spellings for pattern in patterns)


class Window(Struct, frozen=True):
    """The worker after one window of requests."""

    resident: int | None  # bytes; None: the system does not report them
    restarts: int = 0  # so far


class _Load:
    """Sends the samples again and again until one fails or the budget is spent."""

    def __init__(self, runner: SampleRunner) -> None:
        self.seconds = runner.seconds_per_check
        self.sent = 0
        self.failure: Result | None = None
        self._runner = runner
        self._samples = cycle(runner.successful)
        self._start = time.monotonic()

    @property
    def pace(self) -> float:
        """Seconds per request, under the machine's present load."""
        return (time.monotonic() - self._start) / self.sent if self.sent else self._runner.pace

    @property
    def seconds_left(self) -> float:
        """Seconds of the budget that are left."""
        return self.seconds - (time.monotonic() - self._start)

    def warm_up(self) -> int:
        """Send a few requests; return how many each window holds, 0 if the budget is too small for them."""
        # The first response can be slow in either place: both must say so.
        if not self.send(1) or not requests_per_window(min(self.pace, self._runner.pace), self.seconds_left):
            return 0
        return requests_per_window(self.pace, _RESERVE * self.seconds_left) if self.send(_FEWEST - 1) else 0

    def send(self, count: int) -> bool:
        """Send so many more; return whether all succeeded in time."""
        end = self.sent + count
        size = _CHUNK if self.pace < _SECONDS / _CHUNK else 1
        while self.sent < end and self.seconds_left > 0:
            for result in self._runner.replay(list(islice(self._samples, min(size, end - self.sent)))):
                self.sent += 1
                if not result.ok:
                    self.failure = result
                    return False
        return self.sent == end


def check_memory(candidate: Candidate) -> CheckOutcome:
    """Warm up, then measure resident memory over windows of equally many requests: a leak grows in every one.

    Ends as soon as the rest of the budget is too short for a verdict.
    """
    runner = candidate.sample_runner
    if not runner.successful:
        return skip("no sample gets a response that could be repeated")
    wavering = max(_GROWTH, *(len(runner.result_of(sample).body) for sample in runner.successful))
    load = _Load(runner)
    windows: list[Window] = []
    judged = 0  # requests per window, when they were last judged
    count = load.warm_up()
    while count and requests_to_verdict(windows, count, wavering) * load.pace <= load.seconds_left and load.send(count):
        windows.append(Window(runner.pool.resident_memory(), runner.pool.restarts))  # the first one warmed up
        outcome = judge_windows(windows, count, wavering, load.sent)
        if outcome is not None:
            return outcome
        if len(windows) > _WINDOWS:  # not clear: judge half as many windows of twice the requests
            windows, judged, count = windows[::2], count, count * 2
    if load.failure is not None:
        why = append_cause(load.failure.troubles)
        return judge("", [codes.WORN_OUT.at(requests=load.sent, status=load.failure.status, reason=why)])
    if judged >= requests_to_notice(wavering):
        why, patience = f"after {load.sent} requests it grows in some windows only", 2 * load.seconds
    else:
        enough = requests_to_notice(wavering) * (_WINDOWS + 1)
        why = f"{load.seconds:g} s are too short for the {enough} requests that show it"
        patience = max(1.5 * load.pace * enough, load.seconds + 1)
    return _undecided(why, hint=f"Give it more time: --patience {math.ceil(patience)}")


def requests_to_verdict(windows: list[Window], count: int, wavering: int) -> int:
    """Return how many more requests windows of `count` need to decide whether memory grows.

    Larger windows are needed if one did not grow, which excludes a leak, and they are too small to prove that.
    """
    missing = (_WINDOWS + 1 - len(windows)) * count
    can_grow = all(grown > max(wavering, _LEAK * count) for grown in _growth(windows))
    return missing if can_grow or count >= requests_to_notice(wavering) else missing + _WINDOWS * count


def requests_per_window(pace: float, seconds: float) -> int:
    """Return how many requests each window holds, given seconds per request and seconds for all windows."""
    affordable = int(seconds / (_WINDOWS + 1) / max(pace, 1e-6))
    count = min(_MAX_COUNT, affordable, max(_ENOUGH, int(_SECONDS / max(pace, 1e-6))))
    return count if count >= _FEWEST else 0


def requests_to_notice(wavering: int) -> int:
    """Return how many requests make a leak stand out from memory that wavers by so many bytes."""
    return math.ceil(wavering / _NOTICED)


def judge_windows(windows: list[Window], count: int, wavering: int, sent: int) -> CheckOutcome | None:
    """Judge windows of `count` requests each, the first of which warmed up; `wavering` bytes do not count.

    Returns None while it is not clear: a leak grows in every window, everything else stops growing.
    """
    if len({window.restarts for window in windows}) > 1:
        return _undecided("the worker was started again meanwhile", hint="Find out why it ended: marpack run --logs")
    if any(window.resident is None for window in windows):
        return _undecided(
            "this system does not report a process's memory", hint="Check it on a system with /proc, such as Linux."
        )
    if len(windows) <= _WINDOWS:
        return None
    growth, least = _growth(windows), max(wavering, _LEAK * count)
    if all(grown > least for grown in growth):
        rate = sum(growth) / len(growth) / count / 1024
        return judge("", [codes.MEMORY_GROWS.at(size=rate)])
    if count < requests_to_notice(wavering) or sum(growth[-2:]) > least:
        return None
    return judge(f"{sent} requests, {sum(growth) / (1 << 20):+.1f} MiB")


def _growth(windows: list[Window]) -> list[int]:
    sizes = [window.resident for window in windows if window.resident is not None]
    return [after - before for before, after in pairwise(sizes)]


def _undecided(why: str, *, hint: str) -> CheckOutcome:
    return skip("undecided", codes.MEMORY_UNDECIDED.at(hint=hint, reason=why))
