"""Building and extracting 1 GiB of weights, beside copying, Python's readers and the original archiver.

    python -m benchmarks.build [--repeat N] [--size BYTES] [--folder FOLDER] [--peer VENV/bin/torch-model-archiver]

Every contender is a whole process on the same weights and disk: the source is in the page cache, the disk is idle, the
output is new. "again" extracts what marpack extracted before, timed inside its process. The weights are random, one
float32 tensor as safetensors; memory is measured with sparse ones.
"""

import hashlib
import json
import os
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Callable
from functools import partial
from pathlib import Path

from benchmarks.timing import MARPACK, NO_OP, Command, Race, parse, run, seconds, show

BLOCK = 1 << 20
MEMORY_MOST, MEMORY_SPREAD = 100 << 20, 4 << 20  # bytes; the second between small and large weights
AGAIN_MOST = 0.02  # seconds in the process
EXTRACT = """
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
# Prints its own peak memory: the system's figure includes that of the parent process.
PEAK = "import resource, runpy, sys; sys.argv[0] = 'marpack'\ntry: runpy.run_module('marpack', run_name='__main__')\n"
PEAK += "finally: print(resource.getrusage(resource.RUSAGE_SELF).ru_maxrss, file=sys.stderr)"


def main() -> int:
    options = parse(__doc__, repeat=5, size=1 << 30, folder=None, peer=None)
    with tempfile.TemporaryDirectory(dir=options.folder, prefix="marpack-benchmark-") as name:
        folder = Path(name)
        (folder / "handler.py").write_text(NO_OP)
        write_weights(folder / "weights.safetensors", options.size)
        met = [building(folder, options.repeat, options.peer), extracting(folder, options.repeat), memory(folder)]
    return 0 if all(met) else 1


def write_weights(path: Path, size: int, *, sparse: bool = False) -> None:
    """Write one float32 tensor of random values, or a sparse one of zeros."""
    header = {"weight": {"dtype": "F32", "shape": [size // 4], "data_offsets": [0, size // 4 * 4]}}
    text = json.dumps(header).encode()
    with path.open("wb") as file:
        file.write(len(text).to_bytes(8, "little") + text)
        for _ in range(0 if sparse else size // BLOCK):
            file.write(os.urandom(BLOCK))
        file.truncate(8 + len(text) + size // 4 * 4)


def timer(folder: Path, action: Callable[[], object], *, fresh: bool = True) -> Callable[[], float]:
    """Return a contender with warm inputs, an idle disk and a new output folder."""

    def measure() -> float:
        if fresh:
            shutil.rmtree(folder / "out", ignore_errors=True)
            (folder / "out").mkdir()
        for path in folder.glob("*.*"):
            with path.open("rb", buffering=0) as file:
                while file.readinto(bytearray(BLOCK)):
                    pass
        os.sync()
        return seconds(action)

    return measure


def flags(folder: Path, form: str = "default") -> Command:
    """Return the options of a build, which are the original's too."""
    return [
        *("--model-name", "benchmark", "--version", "1.0", "--export-path", folder / "out", "--archive-format", form),
        *("--handler", folder / "handler.py", "--serialized-file", folder / "weights.safetensors"),
    ]


def building(folder: Path, repeat: int, peer: Path | None) -> bool:
    def copy_and_hash() -> None:
        run(["cp", folder / "weights.safetensors", folder / "out/copy"])
        with (folder / "out/copy").open("rb") as file:
            hashlib.file_digest(file, "sha256")

    actions: dict[str, Callable[[], object]] = {
        "cp, then sha256": copy_and_hash,
        "marpack": partial(run, [*MARPACK, "build", *flags(folder)]),
        "marpack, tgz": partial(run, [*MARPACK, "build", *flags(folder, "tgz")]),
    }
    for form in ("default", "zip-store", "tgz") if peer else ():
        actions[form] = partial(run, [str(peer), *flags(folder, form)], {"TMPDIR": str(folder)})
    race = Race(repeat, {name: timer(folder, action) for name, action in actions.items()})
    bounds = (("marpack", "cp, then sha256", 0.9), ("marpack", "default", 1 / 25), ("marpack", "zip-store", 1 / 2))
    found = [
        race.show(f"build, {one} / {other}", one, other, "s", most=most)
        for one, other, most in (*bounds, ("marpack, tgz", "tgz", 1 / 4))
        if other in actions
    ]
    return all(found)


def extracting(folder: Path, repeat: int) -> bool:
    (folder / "built").mkdir()
    run([*MARPACK, "build", *flags(folder), "--export-path", folder / "built"])
    archive, inside = folder / "built" / "benchmark.mar", [sys.executable, "-c"]
    extract: Command = [*inside, EXTRACT, archive, folder / "out" / "cache"]
    race = Race(repeat, {
        "cp of the weights": timer(folder, partial(run, ["cp", folder / "weights.safetensors", folder / "out/cp"])),
        "zipfile.extractall": timer(folder, partial(run, [*inside, ZIPFILE, archive, folder / "out" / "zipfile"])),
        "marpack": timer(folder, partial(run, extract)),
        "again": lambda: float(run(extract)),
    })  # fmt: skip
    again = race.median("again")
    return all([
        race.show("extract, marpack / cp of the weights", "marpack", "cp of the weights", "s", most=2),
        race.show("extract, marpack / zipfile.extractall", "marpack", "zipfile.extractall", "s", most=0.7),
        show("extract again, ms in the process / 20", f"{again * 1e3:.2f}", "20", again / AGAIN_MOST, most=1),
    ])  # fmt: skip


def memory(folder: Path) -> bool:
    """Compare the peak memory of building from small and from large weights."""
    peaks = []
    for size in (64 << 20, 6 << 30):
        write_weights(folder / "weights.safetensors", size, sparse=True)
        command = [sys.executable, "-c", PEAK, "build", *flags(folder), "--force"]
        done = subprocess.run(command, check=True, capture_output=True, text=True)
        peaks.append(int(done.stderr.split()[-1]) * (1 if sys.platform == "darwin" else 1024))
    within = max(peaks) - min(peaks) < MEMORY_SPREAD
    texts = [f"{peak / 1e6:.0f} MB" for peak in peaks]
    found = show("memory at 6 GiB, 64 MiB; largest / 100 MiB", texts[1], texts[0], max(peaks) / MEMORY_MOST, most=1)
    return found and within


if __name__ == "__main__":
    sys.exit(main())
