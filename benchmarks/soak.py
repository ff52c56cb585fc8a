"""A served model under 70 % of the load that it can take, for minutes: nothing fails, nothing grows.

    python -m benchmarks.soak [--minutes N]

A line a minute tells the memory and the open files of the front and of the worker. Exit code 1: a request was not
answered with 200, memory grew by more than 2 % from the first minute to the last, or files stayed open.
"""

import argparse
import sys
import tempfile
from pathlib import Path
from typing import NamedTuple

from benchmarks.serve import kilobyte, write_archives
from benchmarks.servers import Server, marpack
from benchmarks.steady_load import send_steadily

_SHARE = 0.7  # of the requests a second that the server can take
_MEASURED = 10  # seconds in which it shows what it can take
_MOST_GROWTH = 0.02


class Minute(NamedTuple):
    """How the server was after a minute; the front's figure comes first."""

    answered: int
    failures: int
    p99: float  # ms
    memory: list[int]  # bytes
    files: list[int]

    def told(self, number: int) -> str:
        """Return the minute's line."""
        memory = " + ".join(f"{size / 1e6:.1f}" for size in self.memory)
        files = " + ".join(map(str, self.files))
        requests = f"{self.answered:,} answered, {self.failures} failed, p99 {self.p99:.1f} ms"
        return f"minute {number}: {requests}, {memory} MB, {files} open files"


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("--minutes", type=int, default=10)
    minutes = parser.parse_args().minutes
    with tempfile.TemporaryDirectory(prefix="marpack-soak-") as name:
        folder = Path(name)
        write_archives(folder)
        with marpack([folder / "noop.mar"], folder) as server:
            passed = soak(server, folder, max(2, minutes))
    for problem in problems(passed):
        print(problem)
    return 1 if problems(passed) else 0


def soak(server: Server, folder: Path, minutes: int) -> list[Minute]:
    """Load a server, and tell every minute how it is."""
    body = kilobyte(folder)
    server.wait_until_answers("noop", body)
    rate = _SHARE * server.load("noop", body, _MEASURED).pace
    print(f"{rate:,.0f} requests a second", flush=True)
    passed = []
    for number in range(1, minutes + 1):
        taken = send_steadily(server.port, "noop", body, rate=rate, seconds=60)
        passed.append(
            Minute(len(taken.milliseconds), taken.failures, taken.percentile(99), server.memory(), server.descriptors())
        )
        print(passed[-1].told(number), flush=True)
    return passed


def problems(passed: list[Minute]) -> list[str]:
    """Return what was not as it should be, a sentence each."""
    found = []
    failures = sum(minute.failures for minute in passed)
    if failures:
        found.append(f"{failures} requests were not answered with 200")
    if len(passed[0].memory) != len(passed[-1].memory):
        return [*found, "a worker ended"]
    names = ("the front", *(f"worker {number}" for number in range(1, len(passed[0].memory))))
    for name, before, after in zip(names, passed[0].memory, passed[-1].memory, strict=True):
        if after > before * (1 + _MOST_GROWTH):
            found.append(f"{name} grew by {after / before - 1:.1%} of its memory, from the first minute to the last")
    for name, before, after in zip(names, passed[0].files, passed[-1].files, strict=True):
        if after > before:
            found.append(f"{name} has {after} open files, {before} after the first minute")
    return found


if __name__ == "__main__":
    sys.exit(main())
