"""How sure `check --against --slower 10%` is on a busy machine: an archive against itself, and against a slower one.

    python -m benchmarks.slower [--repeat N] [--beside N] [--seconds N]

So many processes work beside it all the time. False alarms (slower, of an archive against itself) must be none; of a
handler that works a fifth longer, each that is not found is counted.
"""

import argparse
import json
import subprocess
import sys
import tempfile
import time
from collections import Counter
from pathlib import Path
from statistics import median

# Works for so many turns on each request: some milliseconds, as a small model does.
HANDLER = """
def handle(data, context):
    if data is None:
        return None
    for _ in range({turns}):
        pass
    return ["ok"] * len(data)
"""
PROJECT = 'name: {name}\nversion: "1.0"\nhandler: {name}.py\nsamples: [{{input: sample.txt}}]\n'
TURNS = 100_000
MARPACK = [sys.executable, "-m", "marpack"]


def built(folder: Path, name: str, turns: int) -> Path:
    """Build an archive that works for so many turns."""
    project = folder / name
    project.mkdir()
    (project / f"{name}.py").write_text(HANDLER.format(turns=turns))
    (project / "sample.txt").write_text("a request")
    (project / "marpack.yaml").write_text(PROJECT.format(name=name))
    archive = folder / f"{name}.mar"
    subprocess.run([*MARPACK, "build", str(project), "-o", str(archive)], check=True, capture_output=True)
    return archive


def speed(new: Path, old: Path, seconds: float) -> tuple[str, int]:
    """Return the verdict, and after how many starts of both it was given."""
    command = [*MARPACK, "check", str(new), "--against", str(old), "--slower", "10%", "--slower-time", str(seconds)]
    done = subprocess.run([*command, "--json"], check=False, capture_output=True, text=True)
    costs = json.loads(done.stdout)["costs"]
    return costs["speed"], costs["starts"]


def series(name: str, new: Path, old: Path, repeat: int, seconds: float) -> None:
    """Ask for the verdict again and again, and print what became of it."""
    verdicts, starts, begin = Counter[str](), [], time.monotonic()
    for _ in range(repeat):
        verdict, count = speed(new, old, seconds)
        verdicts[verdict] += 1
        starts.append(count)
    each = (time.monotonic() - begin) / repeat
    counted = ", ".join(f"{verdict} {count}" for verdict, count in verdicts.most_common())
    print(f"{name:28} {counted} of {repeat}; {median(starts):g} starts and {each:.0f} s each", flush=True)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--repeat", type=int, default=20, help="verdicts of each kind")
    parser.add_argument("--beside", type=int, default=2, help="processes that work beside it")
    parser.add_argument("--seconds", type=float, default=300.0, help="that each measurement may take")
    options = parser.parse_args()
    loops = [subprocess.Popen([sys.executable, "-c", "while True: pass"]) for _ in range(options.beside)]
    try:
        with tempfile.TemporaryDirectory() as folder:
            old = built(Path(folder), "old", TURNS)
            series("against itself", old, old, options.repeat, options.seconds)
            new = built(Path(folder), "new", TURNS * 6 // 5)
            series("against one that is slower", new, old, options.repeat, options.seconds)
    finally:
        for loop in loops:
            loop.kill()
            loop.wait()


if __name__ == "__main__":
    main()
