"""Extracting, side by side with copying the weights and with Python's own readers; the CRC is checked by all but cp.

    python -m benchmarks.extract [--rounds N] [--size BYTES] [--folder FOLDER] [--tgz]

Every round runs each contender once, as a whole process, on the same archive and disk. The archive is in the page
cache, the disk is idle, the output is new, but for `again`: that one finds what `marpack` extracted just before. It is
also timed inside its process, where importing Python and marpack does not hide it.
"""

import argparse
import os
import shutil
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable
from pathlib import Path
from typing import NamedTuple

from benchmarks.verdicts import show_targets
from marpack.archive.manifest import Manifest, ManifestModel
from marpack.project.plan import Format, Plan, PlannedMember, Role, pack

BLOCK = 1 << 20
MARPACK = """
import sys, time
from pathlib import Path
from marpack.archive.cache import Cache
from marpack.archive.reader import open_archive
started = time.perf_counter()
with open_archive(sys.argv[1], cache=Cache(Path(sys.argv[2]))) as archive:
    archive.materialize()
print(time.perf_counter() - started)
"""
ZIPFILE = "import sys, zipfile; zipfile.ZipFile(sys.argv[1]).extractall(sys.argv[2])"
TARFILE = "import sys, tarfile; tarfile.open(sys.argv[1]).extractall(sys.argv[2], filter='data')"


class Target(NamedTuple):
    """A promise: `ours` takes at most `most` times as long as `theirs`."""

    ours: str
    theirs: str
    most: float


TARGETS = [
    Target("marpack", "cp of the weights", 2),
    Target("marpack", "zipfile.extractall", 0.7),
]
AGAIN_MOST = 0.02  # seconds, in the process: the second extraction is none


def main() -> int:
    options = parse()
    with tempfile.TemporaryDirectory(dir=options.folder, prefix="marpack-benchmark-") as name:
        folder = Path(name)
        write_weights(folder / "weights.bin", options.size)
        archives = [write_archive(folder, form) for form in forms(tgz=options.tgz)]
        times, inside = race(contenders(folder, archives), options.rounds, folder)
    return 0 if all([show_times(times), show_targets(times, TARGETS), show_again(inside)]) else 1


def parse() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("--rounds", type=int, default=5, help="runs of each contender [5]")
    parser.add_argument("--size", type=int, default=1 << 30, help="bytes of weights [1 GiB]")
    parser.add_argument("--folder", type=Path, help="a folder on the disk to measure [the system's temporary one]")
    parser.add_argument("--tgz", action="store_true", help="time a .tar.gz of the same, too")
    return parser.parse_args()


def forms(*, tgz: bool) -> list[Format]:
    return [Format.DEFAULT, Format.TGZ] if tgz else [Format.DEFAULT]


def write_weights(path: Path, size: int) -> None:
    with path.open("wb") as file:
        for _ in range(size // BLOCK):
            file.write(os.urandom(BLOCK))


def write_archive(folder: Path, form: Format) -> Path:
    output = folder / ("model.tar.gz" if form is Format.TGZ else "model.mar")
    members = (
        PlannedMember("weights.bin", folder / "weights.bin", Role.WEIGHTS),
        PlannedMember("handler.py", b"def handle(data, context):\n    return data\n"),
    )
    manifest = Manifest(model=ManifestModel(name="model", handler="handler.py", serialized_file="weights.bin"))
    return pack(Plan(manifest=manifest, members=members, output=output, format=form)).path


def contenders(folder: Path, archives: list[Path]) -> dict[str, Callable[[], str]]:
    """Return what is to be timed, by name; each writes below `folder / "out"`."""
    out = folder / "out"
    found = {
        "cp of the weights": lambda: run(["cp", folder / "weights.bin", out / "cp"]),
        "zipfile.extractall": lambda: python(ZIPFILE, archives[0], out / "zipfile"),
        "marpack": lambda: python(MARPACK, archives[0], out / "cache"),
        "marpack, again": lambda: python(MARPACK, archives[0], out / "cache"),
    }
    if len(archives) > 1:
        found["tarfile.extractall"] = lambda: python(TARFILE, archives[1], out / "tarfile")
        found["marpack, tgz"] = lambda: python(MARPACK, archives[1], out / "cache")
        found["marpack, tgz again"] = lambda: python(MARPACK, archives[1], out / "cache")
    return found


def python(script: str, archive: Path, out: Path) -> str:
    return run([sys.executable, "-c", script, archive, out])


def run(command: list[str | Path]) -> str:
    # As installed packages are, marpack is compiled to bytecode.
    environment = {name: value for name, value in os.environ.items() if name != "PYTHONDONTWRITEBYTECODE"}
    return subprocess.run(command, check=True, env=environment, stdout=subprocess.PIPE, text=True).stdout


def race(
    runners: dict[str, Callable[[], str]], rounds: int, folder: Path
) -> tuple[dict[str, list[float]], dict[str, list[float]]]:
    """Time every runner once a round, in turn; return the seconds of each process, and those told from inside."""
    times: dict[str, list[float]] = {name: [] for name in runners}
    inside: dict[str, list[float]] = {name: [] for name in runners if "again" in name}
    for number in range(rounds):
        for name, runner in runners.items():
            tell(f"round {number + 1} of {rounds}: {name}")
            if name not in inside:
                empty(folder / "out")
            warm(folder)
            os.sync()
            started = time.perf_counter()
            told = runner()
            times[name].append(time.perf_counter() - started)
            if name in inside:
                inside[name].append(float(told))
    tell("")
    return times, inside


def empty(folder: Path) -> None:
    shutil.rmtree(folder, ignore_errors=True)
    folder.mkdir()


def warm(folder: Path) -> None:
    """Bring the inputs into the page cache, where the system may have dropped them meanwhile."""
    buffer = bytearray(BLOCK)
    for path in folder.glob("*.*"):
        with path.open("rb", buffering=0) as file:
            while file.readinto(buffer):
                pass


def tell(text: str) -> None:
    if sys.stderr.isatty():
        sys.stderr.write(f"\r\033[K{text}")


def show_times(times: dict[str, list[float]]) -> bool:
    print(f"{'':<22}{'median':>9}{'fastest':>9}{'slowest':>9}")
    for name, runs in times.items():
        print(f"{name:<22}{statistics.median(runs):>7.2f} s{min(runs):>7.2f} s{max(runs):>7.2f} s")
    return True


def show_again(inside: dict[str, list[float]]) -> bool:
    met = True
    for name, runs in inside.items():
        seconds = statistics.median(runs)
        met &= seconds <= AGAIN_MOST
        verdict = "ok" if seconds <= AGAIN_MOST else "MISSED"
        print(f"{name}: {seconds * 1e3:.2f} ms in the process, at most {AGAIN_MOST * 1e3:.0f} ms  {verdict}")
    return met


if __name__ == "__main__":
    sys.exit(main())
