"""Other work on the machine: processes that keep cores busy while something is measured."""

import os
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager


@contextmanager
def other_processes(count: int) -> Iterator[None]:
    """Keep `count` cores busy with processes of their own."""
    processes = [subprocess.Popen([sys.executable, "-c", "while True: pass"]) for _ in range(count)]
    try:
        yield
    finally:
        for process in processes:
            process.kill()
            process.wait()


def system_load() -> str:
    """Return the system's load average of the last minute, as it is printed beside a figure."""
    return f"load {os.getloadavg()[0]:.1f}"
