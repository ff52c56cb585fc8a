"""Building, side by side with copying and with the original archiver: time, and memory at any size.

    python benchmarks/build.py                                     # marpack and cp
    python benchmarks/build.py --peer VENV/bin/torch-model-archiver   # and the original

Every round runs each contender once, as a whole process, on the same weights and disk; the source is in the page
cache, the disk is idle, the output is new. The weights are random: 1 GiB of float32 as one safetensors file.
"""

import argparse
import hashlib
import json
import os
import shutil
import statistics
import subprocess
import sys
import sysconfig
import tempfile
import time
from collections.abc import Callable
from pathlib import Path
from typing import NamedTuple

from benchmarks.verdicts import show_targets

HANDLER = "def handle(data, context):\n    return data\n"
BLOCK = 1 << 20


class Target(NamedTuple):
    """A promise: `ours` takes at most `most` times as long as `theirs`."""

    ours: str
    theirs: str
    most: float


TARGETS = [
    Target("marpack build", "cp, then sha256", 0.9),
    Target("marpack build", "original, default", 1 / 25),
    Target("marpack build", "original, zip-store", 1 / 2),
    Target("marpack build, tgz", "original, tgz", 1 / 4),
]
MEMORY_MOST = 100 << 20  # bytes
MEMORY_SPREAD = 4 << 20  # bytes between small and large that still count as "the same"


def main() -> int:
    options = parse()
    with tempfile.TemporaryDirectory(dir=options.folder, prefix="marpack-benchmark-") as name:
        folder = Path(name)
        (folder / "handler.py").write_text(HANDLER)
        write_weights(folder / "weights.safetensors", options.size)
        times = race(contenders(folder, options.peer), options.rounds, folder)
        (folder / "weights.safetensors").unlink()
        peaks = {label: peak(folder, size) for label, size in (("64 MiB", 64 << 20), ("6 GiB", 6 << 30))}
    return 0 if all([show_times(times), show_targets(times, TARGETS), show_peaks(peaks)]) else 1


def parse() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("--peer", type=Path, help="the original's command torch-model-archiver, in a venv of its own")
    parser.add_argument("--rounds", type=int, default=5, help="runs of each contender [5]")
    parser.add_argument("--size", type=int, default=1 << 30, help="bytes of weights [1 GiB]")
    parser.add_argument("--folder", type=Path, help="a folder on the disk to measure [the system's temporary one]")
    return parser.parse_args()


def write_weights(path: Path, size: int, *, sparse: bool = False) -> None:
    """Write one float32 tensor of random (or, sparse, of zero) values as a safetensors file."""
    tensor = {"weight": {"dtype": "F32", "shape": [size // 4], "data_offsets": [0, size // 4 * 4]}}
    header = json.dumps(tensor).encode()
    with path.open("wb") as file:
        file.write(len(header).to_bytes(8, "little") + header)
        for _ in range(0 if sparse else size // BLOCK):
            file.write(os.urandom(BLOCK))
        file.truncate(8 + len(header) + size // 4 * 4)


def contenders(folder: Path, peer: Path | None) -> dict[str, Callable[[], None]]:
    """Return what is to be timed, by name; each writes into `folder / "out"`."""
    marpack = [Path(sysconfig.get_path("scripts"), "marpack"), "build"]
    found = {
        "cp, then sha256": lambda: copy_and_hash(folder),
        "marpack build": lambda: archive(marpack, folder, "default"),
        "marpack build, tgz": lambda: archive(marpack, folder, "tgz"),
    }
    for form in ("zip-store", "default", "tgz") if peer else ():
        found[f"original, {form}"] = lambda form=form: archive([peer], folder, form)
    return found


def copy_and_hash(folder: Path) -> None:
    copy = folder / "out/copy"
    subprocess.run(["cp", folder / "weights.safetensors", copy], check=True)
    with copy.open("rb") as file:
        hashlib.file_digest(file, "sha256")


def archive(command: list[Path | str], folder: Path, form: str) -> None:
    """Run an archiver; both take the same flags."""
    run([*command, *flags(folder), "--archive-format", form], folder)


def flags(folder: Path) -> list[str]:
    return [
        *("--model-name", "benchmark", "--version", "1.0", "--export-path", str(folder / "out")),
        *("--handler", str(folder / "handler.py"), "--serialized-file", str(folder / "weights.safetensors")),
    ]


def run(command: list[Path | str], folder: Path) -> int:
    """Run a command to its end and return its peak memory in bytes."""
    # As installed packages are, both are compiled to bytecode; the original copies everything through TMPDIR.
    environment = {name: value for name, value in os.environ.items() if name != "PYTHONDONTWRITEBYTECODE"}
    environment["TMPDIR"] = str(folder)
    with (folder / "log").open("w+") as log:
        process = subprocess.Popen(command, stdout=log, stderr=log, env=environment)
        _, status, usage = os.wait4(process.pid, 0)
        process.returncode = os.waitstatus_to_exitcode(status)
        if process.returncode:
            log.seek(0)
            sys.exit(f"{Path(command[0]).name} failed:\n{log.read()}")
    return usage.ru_maxrss * (1 if sys.platform == "darwin" else 1024)


def race(runners: dict[str, Callable[[], None]], rounds: int, folder: Path) -> dict[str, list[float]]:
    """Time every runner once a round, in turn, so that a slow minute of the machine hits all of them."""
    times: dict[str, list[float]] = {name: [] for name in runners}
    for number in range(rounds):
        for name, runner in runners.items():
            tell(f"round {number + 1} of {rounds}: {name}")
            (folder / "out").mkdir()
            warm(folder / "weights.safetensors")
            os.sync()
            started = time.perf_counter()
            runner()
            times[name].append(time.perf_counter() - started)
            shutil.rmtree(folder / "out")
    tell("")
    return times


def warm(path: Path) -> None:
    """Bring a file into the page cache, where the system may have dropped it since the last round."""
    buffer = bytearray(BLOCK)
    with path.open("rb", buffering=0) as file:
        while file.readinto(buffer):
            pass


def peak(folder: Path, size: int) -> int:
    """Return the peak memory, in bytes, of building from sparse weights (the same reads and sums, little disk)."""
    tell(f"memory at {size >> 20} MiB")
    write_weights(folder / "weights.safetensors", size, sparse=True)
    command = [Path(sysconfig.get_path("scripts"), "marpack"), "build", *flags(folder), "--force"]
    return run(command, folder)


def tell(text: str) -> None:
    if sys.stderr.isatty():
        sys.stderr.write(f"\r\033[K{text}")


def show_times(times: dict[str, list[float]]) -> bool:
    print(f"{'':<22}{'median':>9}{'fastest':>9}{'slowest':>9}")
    for name, runs in times.items():
        print(f"{name:<22}{statistics.median(runs):>7.2f} s{min(runs):>7.2f} s{max(runs):>7.2f} s")
    return True


def show_peaks(peaks: dict[str, int]) -> bool:
    sizes = list(peaks.values())
    met = max(sizes) < MEMORY_MOST and max(sizes) - min(sizes) < MEMORY_SPREAD
    told = ", ".join(f"{size / 1e6:.0f} MB at {label}" for label, size in peaks.items())
    print(f"\npeak memory: {told}; under 100 MB and the same: {'ok' if met else 'MISSED'}")
    return met


if __name__ == "__main__":
    sys.exit(main())
